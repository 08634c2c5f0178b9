//! Nodes and pods made of namespaces, and looking at them from outside.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use hostcni::datapath::{BridgeSpec, Kernel, PodLinkSpec, PodRoute};
use nix::sched::{CloneFlags, setns, unshare};
use serde_json::Value;

/// The name of every test's bridge.
pub const BRIDGE: &str = "hostcni0";
/// Its MAC address.
pub const BRIDGE_MAC: [u8; 6] = [0x0a, 0x58, 10, 128, 0, 1];

/// Runs the test on a node of its own. The namespace ends with the thread, however the test ends.
pub fn on_a_node(test: impl FnOnce(&Node) + Send + 'static) {
    let ended = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("needs root: cannot make a network namespace");
        let node = Node {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            kernel: Kernel::start(2).unwrap(),
        };
        ip("link set lo up");
        test(&node);
    })
    .join();
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

/// A node: the calling thread's namespace, and hostcni's kernel threads in it.
pub struct Node {
    runtime: tokio::runtime::Runtime,
    pub kernel: Kernel,
}

impl Node {
    /// Waits for the future, at most half a minute.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(30), future).await })
            .expect("no answer for half a minute")
    }

    /// Makes the bridge with addresses of both families.
    pub fn bridge(&self) {
        self.run(self.kernel.ensure_bridge(&bridge_spec())).unwrap();
    }

    /// Makes the link of a pod; panics when that fails.
    pub fn attach(&self, pod: &Pod, number: u8) -> hostcni::datapath::PodLink {
        self.run(self.kernel.attach(pod_spec(number), pod.descriptor())).unwrap()
    }
}

/// The bridge of every test.
pub fn bridge_spec() -> BridgeSpec {
    BridgeSpec {
        name: BRIDGE.into(),
        mac: BRIDGE_MAC,
        mtu: 1450,
        addresses: vec!["10.128.0.1/23".parse().unwrap(), "fd01::1/64".parse().unwrap()],
    }
}

/// The link of pod number `number`.
pub fn pod_spec(number: u8) -> PodLinkSpec {
    let route = |dst: &str, gateway: Option<&str>| PodRoute {
        dst: dst.parse().unwrap(),
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        priority: None,
        mtu: None,
        advmss: None,
    };
    PodLinkSpec {
        host_link: format!("hcpod{number}"),
        alias: format!("hostcni:net/container{number}/eth0"),
        bridge: BRIDGE.into(),
        ifname: "eth0".into(),
        mac: [0x0a, 0x58, 10, 128, 0, number],
        mtu: 1450,
        addresses: vec![
            format!("10.128.0.{number}/23").parse().unwrap(),
            format!("fd01::{number:x}/64").parse().unwrap(),
        ],
        routes: vec![route("0.0.0.0/0", Some("10.128.0.1")), route("::/0", Some("fd01::1"))],
        hairpin: true,
        isolated: false,
        shaping: None,
    }
}

/// A pod's namespace. It lives as long as this, and whatever is in it.
pub struct Pod(OwnedFd);

impl Pod {
    /// A new namespace, with nothing but a loopback that is down.
    pub fn new() -> Self {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            OwnedFd::from(File::open("/proc/thread-self/ns/net").unwrap())
        });
        Self(made.join().unwrap())
    }

    /// A descriptor to hand over.
    pub fn descriptor(&self) -> OwnedFd {
        self.0.try_clone().unwrap()
    }

    /// Runs code on a thread inside the pod.
    pub fn inside<T: Send + 'static>(&self, code: impl FnOnce() -> T + Send + 'static) -> T {
        let namespace = self.descriptor();
        std::thread::spawn(move || {
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
            code()
        })
        .join()
        .unwrap()
    }

    /// `ip -j -d …` inside the pod.
    pub fn ip(&self, arguments: &str) -> Value {
        let namespace = format!("--net=/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd());
        let mut command = Command::new("nsenter");
        command.arg(namespace).args(["ip", "-j", "-d"]).args(arguments.split_whitespace());
        json(&mut command)
    }

    /// The addresses that `ip` shows for an interface, IPv6 link-local ones left out, sorted.
    pub fn addresses(&self, ifname: &str) -> Vec<String> {
        let shown = self.ip(&format!("address show dev {ifname}"));
        let mut found: Vec<String> = shown[0]["addr_info"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|address| address["scope"] != "link")
            .map(|address| format!("{}/{}", address["local"].as_str().unwrap(), address["prefixlen"]))
            .collect();
        found.sort();
        found
    }

    /// The names of its interfaces, sorted.
    pub fn links(&self) -> Vec<String> {
        names(&self.ip("link show"))
    }
}

/// `ip -j -d …` on the node.
pub fn ip(arguments: &str) -> Value {
    json(Command::new("ip").args(["-j", "-d"]).args(arguments.split_whitespace()))
}

/// The names of the node's links, sorted.
pub fn links() -> Vec<String> {
    names(&ip("link show"))
}

fn names(shown: &Value) -> Vec<String> {
    let links = shown.as_array().into_iter().flatten();
    let mut names: Vec<_> = links.map(|link| link["ifname"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn json(command: &mut Command) -> Value {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    if stdout.is_empty() { Value::Null } else { serde_json::from_slice(&stdout).unwrap() }
}

/// A sysctl under `/proc/sys/net` of the calling thread's namespace.
pub fn sysctl(path: &str) -> String {
    std::fs::read_to_string(format!("/proc/sys/net/{path}")).unwrap().trim().to_owned()
}

/// Waits until it is so; the kernel takes a namespace apart in its own time.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !so() {
        assert!(Instant::now() < deadline, "not within ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
