//! The CNI plugin called as a runtime calls it: environment, configuration on stdin, answer on stdout.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::observe::{Place, both};

/// Where `make install` puts the plugin.
pub const PLUGIN: &str = "/usr/libexec/cni/hostcni";

/// One call of the plugin, to be changed before it is sent.
#[derive(Clone)]
pub struct Call {
    plugin: String,
    environment: Vec<(&'static str, String)>,
    config: String,
}

impl Call {
    /// A call for the interface `eth0` of a container, with the network namespace of its name.
    pub fn new(command: &str, container: &str, config: &str) -> Self {
        let environment = vec![
            ("CNI_COMMAND", command.to_owned()),
            ("CNI_CONTAINERID", container.to_owned()),
            ("CNI_NETNS", format!("/run/netns/{container}")),
            ("CNI_IFNAME", "eth0".to_owned()),
            ("CNI_PATH", "/usr/libexec/cni".to_owned()),
        ];
        Self { plugin: PLUGIN.to_owned(), environment, config: config.to_owned() }
    }

    /// With a variable set, or set differently.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.retain(|(other, _)| *other != name);
        self.environment.push((name, value.to_owned()));
        self
    }

    /// Through another binary than the installed one.
    pub fn through(mut self, plugin: &str) -> Self {
        plugin.clone_into(&mut self.plugin);
        self
    }

    /// Starts the plugin and goes on.
    pub fn start(&self, place: &impl Place) -> Asked {
        let mut command: Command = place.command("/usr/bin/env");
        command.args(self.environment.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg(&self.plugin).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the plugin's process starts");
        // A plugin that does not read it all closes the pipe: its right.
        let _ = child.stdin.take().expect("it was asked for").write_all(self.config.as_bytes());
        Asked { child, began: Instant::now() }
    }

    /// Sends it and waits for the answer.
    pub fn send(&self, place: &impl Place) -> Answer {
        self.start(place).answer()
    }
}

/// A plugin that has been asked.
pub struct Asked {
    child: Child,
    began: Instant,
}

impl Asked {
    /// Whether it has not answered yet.
    pub fn waits(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it, as a runtime does whose context ended.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end.
    pub fn answer(self) -> Answer {
        let output = self.child.wait_with_output().expect("its output can be read");
        Answer { output, took: self.began.elapsed() }
    }
}

/// What a plugin said.
pub struct Answer {
    output: Output,
    /// From its start to its end.
    pub took: Duration,
}

impl Answer {
    /// Whether it was a success.
    pub fn succeeded(&self) -> bool {
        self.output.status.success()
    }

    /// The result of a call that has to have succeeded; null where the verb has none.
    #[track_caller]
    pub fn result(&self) -> Value {
        assert!(self.output.status.success(), "{}: {}", self.output.status, both(&self.output));
        if self.output.stdout.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.output.stdout).expect("a result is JSON")
    }

    /// The code of a call that has to have failed with a CNI error.
    #[track_caller]
    pub fn code(&self) -> u64 {
        assert!(!self.output.status.success(), "an error was expected: {}", both(&self.output));
        let error: Value = serde_json::from_slice(&self.output.stdout)
            .unwrap_or_else(|_| panic!("an error is JSON on stdout: {}", both(&self.output)));
        error["code"].as_u64().expect("an error has a code")
    }

    /// The addresses of an ADD's result, without their prefix lengths.
    #[track_caller]
    pub fn addresses(&self) -> Vec<String> {
        let result = self.result();
        let ips = result["ips"].as_array().expect("a result since 0.3.0 has ips");
        let bare = |ip: &Value| Some(ip["address"].as_str()?.split('/').next()?.to_owned());
        ips.iter().filter_map(bare).collect()
    }

    /// All it printed.
    pub fn text(&self) -> String {
        both(&self.output)
    }
}
