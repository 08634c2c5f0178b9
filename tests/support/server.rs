//! A server without systemd: in a namespace that stands for the node, with its own files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::cni::{Answer, Call};
use super::namespace::Namespace;
use super::observe::{self, Here, Place};

/// The binary under test.
pub const HOSTCNI: &str = match option_env!("HOSTCNI_BUILT") {
    Some(built) => built,
    None => env!("CARGO_BIN_EXE_hostcni"),
};

/// A server in a namespace that stands for the node, with its own files.
pub struct Server {
    pub node: Namespace,
    pub directory: tempfile::TempDir,
    pub child: Child,
    pub config: Value,
    pub environment: Vec<(&'static str, String)>,
}

impl Server {
    /// Dual stack, a roomy range.
    pub fn new() -> Self {
        Self::with(r#"subnets = ["10.128.0.0/23", "fd01::/64"]"#)
    }

    /// A network with the given keys.
    pub fn with(network: &str) -> Self {
        Self::with_environment(network, &[])
    }

    /// The same, with variables set for every process of the server.
    pub fn with_environment(network: &str, environment: &[(&'static str, String)]) -> Self {
        // In memory, as `/run` is, where there is such a directory; what the delegate driver keeps is on a disk.
        let memory = if network.contains("delegate") { None } else { tempfile::tempdir_in("/dev/shm").ok() };
        let directory = memory.map_or_else(tempfile::tempdir, Ok);
        let directory = directory.expect("a directory can be made");
        let node = Namespace::new();
        let at = |name: &str| directory.path().join(name).display().to_string();
        configure(&directory, network);
        let config = json!({
            "cniVersion": "1.1.0", "name": "test", "type": "hostcni",
            "socket": at("cni.sock"), "spool": at("spool"),
            "bounds": {"add": 20, "del": 20, "check": 10, "status": 2, "gc": 20},
            "capabilities": {"ips": true, "mac": true},
        });
        let child = Self::start(&node, &directory, environment);
        let server = Self { node, directory, child, config, environment: environment.to_vec() };
        server.wait_ready();
        server
    }

    fn start(
        node: &Namespace,
        directory: &tempfile::TempDir,
        environment: &[(&'static str, String)],
    ) -> Child {
        let log = fs::File::options().create(true).append(true).open(directory.path().join("log"));
        node.command(HOSTCNI)
            .args(["serve", "--listen"])
            .arg(directory.path().join("cni.sock"))
            .arg("--root")
            .arg(directory.path())
            .env("MALLOC_ARENA_MAX", "1") // as in the unit
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stderr(log.expect("below a directory of our own"))
            .spawn()
            .expect("the server starts")
    }

    /// Waits for READY, through the tool that is made for it.
    pub fn wait_ready(&self) {
        let output = Command::new(HOSTCNI)
            .args(["wait-ready", "--timeout", "60s", "--socket"])
            .arg(self.socket())
            .output();
        let output = output.expect("hostcni runs");
        assert!(output.status.success(), "{}\n{}", observe::both(&output), self.log());
    }

    /// The world outside the node: a namespace behind a link of its own, whose only route is that link itself. It is
    /// 198.51.100.2 and 2001:db8::2, and sees the node as .1 and ::1.
    pub fn world(&self) -> Namespace {
        let world = Namespace::new();
        for line in [
            &format!("ip link add uplink type veth peer name eth0 netns {}", world.name()),
            "ip address add 198.51.100.1/24 dev uplink",
            "ip address add 2001:db8::1/64 dev uplink nodad",
            "ip link set uplink up",
        ] {
            self.node.ok(line);
        }
        world.ok("ip address add 198.51.100.2/24 dev eth0");
        world.ok("ip address add 2001:db8::2/64 dev eth0 nodad");
        world.ok("ip link set eth0 up");
        world
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("cni.sock")
    }

    /// What it has said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// A call of the plugin, to be changed.
    pub fn call(&self, command: &str, container: &str, netns: &str) -> Call {
        Call::new(command, container, &self.config.to_string()).through(HOSTCNI).with("CNI_NETNS", netns)
    }

    /// A call for a pod with a capability's argument in its runtimeConfig, as a runtime passes it.
    pub fn call_with(
        &self,
        command: &str,
        container: &str,
        pod: &Namespace,
        (capability, value): (&str, &Value),
    ) -> Call {
        let mut config = self.config.clone();
        config["runtimeConfig"][capability] = value.clone();
        Call::new(command, container, &config.to_string())
            .through(HOSTCNI)
            .with("CNI_NETNS", &pod.path().display().to_string())
    }

    /// ADD for `eth0`.
    pub fn add(&self, container: &str, pod: &Namespace) -> Answer {
        self.call("ADD", container, &pod.path().display().to_string()).send(&Here)
    }

    /// DEL for `eth0`.
    pub fn del(&self, container: &str, netns: &str) -> Answer {
        self.call("DEL", container, netns).send(&Here)
    }

    /// CHECK with the result of ADD as `prevResult`, as libcni sends it.
    pub fn check(&self, container: &str, pod: &Namespace, previous: &Value) -> Answer {
        let mut config = self.config.clone();
        config["prevResult"] = previous.clone();
        Call::new("CHECK", container, &config.to_string())
            .through(HOSTCNI)
            .with("CNI_NETNS", &pod.path().display().to_string())
            .send(&Here)
    }

    /// The record files.
    pub fn attachments(&self) -> Vec<PathBuf> {
        self.files("attachments")
    }

    /// The record files of what other plugins made, without those that wait for their next use.
    pub fn delegated(&self) -> Vec<PathBuf> {
        self.files("delegated").into_iter().filter(|file| is_in_use(file)).collect()
    }

    /// As if the machine had been booted since. A record may be plain JSON, too.
    pub fn age(&self) {
        for file in self.delegated() {
            let mut record = newest(&file);
            record["delegated"]["boot"] = "of-another-boot".into();
            fs::write(&file, record.to_string()).expect("a file of our own");
        }
    }

    /// The files of one of its directories; none where it has not been made.
    pub fn files(&self, directory: &str) -> Vec<PathBuf> {
        let directory = fs::read_dir(self.directory.path().join(directory)).into_iter().flatten();
        directory.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect()
    }

    /// The node's ends of pods' links.
    pub fn veths(&self) -> Vec<String> {
        observe::links(&self.node)
            .into_iter()
            .filter(|link| link.starts_with("hc") && link != "hostcni0")
            .collect()
    }

    /// No link, no ifb, no record, no lease.
    #[track_caller]
    pub fn holds_nothing(&self) {
        assert_eq!(self.veths(), Vec::<String>::new(), "{}", self.log());
        let ifb = |link: &String| link.starts_with("hi");
        assert!(!observe::links(&self.node).iter().any(ifb), "an ifb is left: {}", self.log());
        assert_eq!(self.attachments(), Vec::<PathBuf>::new(), "{}", self.log());
        assert_eq!(self.used(), [0, 0], "{}", self.log());
    }

    /// Leases by range; what hostcni itself says, beside what the kernel says.
    pub fn used(&self) -> Vec<u64> {
        let output = Command::new(HOSTCNI).args(["status", "--json", "--socket"]).arg(self.socket()).output();
        let output = output.expect("hostcni runs");
        let status: Value = serde_json::from_slice(&output.stdout).expect("status prints JSON");
        let ranges = status["networks"][0]["ranges"].as_array().cloned().unwrap_or_default();
        ranges.iter().map(|range| range["used"].as_u64().expect("a number")).collect()
    }

    /// Gives the network other keys, from the next start on.
    pub fn configure(&self, network: &str) {
        configure(&self.directory, network);
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// A new process on the same files.
    pub fn start_again(&mut self) {
        self.child = Self::start(&self.node, &self.directory, &self.environment);
        self.wait_ready();
    }
}

/// Whether the file holds a record of what other plugins made; else it waits for its next use.
pub fn is_in_use(file: &Path) -> bool {
    fs::read(file).is_ok_and(|bytes| bytes.first() != Some(&0))
}

/// The last of a record's lines, which is what has become of it; what follows is of an earlier use of the file.
pub fn newest(file: &Path) -> Value {
    let text = fs::read(file).expect("a file of our own");
    let text = String::from_utf8_lossy(&text);
    let serial = text.split(' ').next().expect("a serial");
    let lines = text.lines().take_while(|line| line.starts_with(serial));
    let json = lines.last().and_then(|line| line.splitn(3, ' ').nth(2)).expect("serial, hash, record");
    serde_json::from_str(json).expect("a record is JSON")
}

fn configure(directory: &tempfile::TempDir, network: &str) {
    let at = |name: &str| directory.path().join(name).display().to_string();
    let settings = format!(
        "[paths]\nsocket = \"{}\"\nstate_dir = \"{}\"\nspool_dir = \"{}\"\n\
         delegated_dir = \"{}\"\nnetns_dir = \"{}\"\n\n[[network]]\nname = \"test\"\n{network}\n",
        at("cni.sock"),
        at("attachments"),
        at("spool"),
        at("delegated"),
        at("netns")
    );
    fs::create_dir_all(directory.path().join("etc/hostcni")).expect("below a directory of our own");
    fs::write(directory.path().join("etc/hostcni/config.toml"), settings)
        .expect("below a directory of our own");
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
