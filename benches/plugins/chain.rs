//! A chain of CNI plugins, called as libcni calls it: in order with `prevResult`, for DEL in reverse.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::namespace::Namespace;

/// One plugin of the chain: its binary and its part of the configuration.
pub struct Plugin {
    pub binary: PathBuf,
    pub config: Value,
}

/// What is called, for whom.
pub struct Call<'a> {
    pub verb: &'static str,
    pub container: &'a str,
    pub pod: &'a Namespace,
    pub ifname: &'a str,
    /// What this container's host port is, where the chain maps one.
    pub port: u16,
    /// The result of its ADD.
    pub previous: Option<&'a Value>,
}

/// Calls the chain; ADD's last result, null for other verbs.
pub fn call(plugins: &[Plugin], call: &Call) -> Result<Value, String> {
    let mut previous = call.previous.cloned();
    let mut order: Vec<&Plugin> = plugins.iter().collect();
    if call.verb == "DEL" {
        order.reverse();
    }
    for plugin in order {
        let mut config = plugin.config.clone();
        if let Some(previous) = &previous {
            config["prevResult"] = previous.clone();
        }
        if config["capabilities"]["portMappings"] == true {
            let mapping =
                serde_json::json!([{"hostPort": call.port, "containerPort": 80, "protocol": "tcp"}]);
            config["runtimeConfig"]["portMappings"] = mapping;
        }
        let output = execute(plugin, call, &config)?;
        if call.verb == "ADD" {
            previous = Some(serde_json::from_slice(&output).map_err(|error| error.to_string())?);
        }
    }
    Ok(if call.verb == "ADD" { previous.unwrap_or_default() } else { Value::Null })
}

fn execute(plugin: &Plugin, call: &Call, config: &Value) -> Result<Vec<u8>, String> {
    let mut child = Command::new(&plugin.binary)
        .env_clear()
        .env("CNI_COMMAND", call.verb)
        .env("CNI_CONTAINERID", call.container)
        .env("CNI_NETNS", call.pod.path())
        .env("CNI_IFNAME", call.ifname)
        .env("CNI_PATH", plugin.binary.parent().unwrap_or(&plugin.binary))
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", plugin.binary.display()))?;
    // A plugin that does not read it all closes the pipe: its right.
    let _ = child.stdin.take().expect("it was asked for").write_all(config.to_string().as_bytes());
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(output.stdout) } else { Err(crate::observe::both(&output)) }
}
