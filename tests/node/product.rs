//! All that the node's cases know of hostcni's surface: paths, configuration, failpoints, what its tools print.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::support::cni::{Answer, Call};
use crate::support::cri::Cri;
use crate::support::node::Node;
use crate::support::observe::{Place, links, property};
use crate::support::wait::{until, until_some};

/// The conf, by default.
pub const CONF: &str = "/etc/cni/net.d/80-openshift-network.conf";
/// The first file of the admin.
pub const CONFIG: &str = "/etc/hostcni/config.toml";
/// DELs that could not be delivered.
pub const SPOOL: &str = "/var/lib/hostcni/spool";
/// Records of attachments.
pub const ATTACHMENTS: &str = "/run/hostcni/attachments";
/// The last step before the server says it is ready, where a test can make it slow.
pub const BEFORE_READY: &str = "start.ready";
/// How long the conf of a planned restart outlives the old server.
pub const GRACE: Duration = Duration::from_secs(5);
/// The gateways of the network of [`dual_stack`], and what the world answers at.
pub const GATEWAYS: [&str; 2] = ["10.128.0.1", "fd01:0:0:1::1"];
pub const NODE: [&str; 2] = ["192.0.2.2", "2001:db8::2"];
pub const WORLD: [&str; 2] = ["198.51.100.1", "2001:db8:ffff::1"];

/// The default network with both families, and more keys for its conf.
pub fn dual_stack(conf: &str) -> String {
    format!(
        "[[network]]\nname = \"openshift-sdn\"\nsubnets = [\"10.128.0.0/23\", \"fd01:0:0:1::/64\"]\n\
         [network.conf]\n{conf}\n"
    )
}

/// A booted node with both families.
pub fn boot(node: &mut Node) {
    node.write(CONFIG, &dual_stack(""));
    node.boot();
    assert_eq!(active(node), "active", "hostcni comes up with the node");
}

/// Makes steps of the server fail, wait or die, from its next start on; an empty text ends that.
pub fn failpoints(node: &Node, text: &str) {
    drop_in(node, "failpoints", &format!("Environment=FAILPOINTS={text}"));
}

/// Sets a key of the service's unit from its next start on.
pub fn drop_in(node: &Node, name: &str, line: &str) {
    let path = format!("/etc/systemd/system/hostcni.service.d/{name}.conf");
    node.write(&path, &format!("[Service]\n{line}\n"));
    if node.is_on() {
        node.ok("systemctl daemon-reload");
    }
}

/// What systemd says of the service.
pub fn active(node: &Node) -> String {
    property(node, "hostcni.service", "ActiveState")
}

/// Waits until systemd says that the service is active.
#[track_caller]
pub fn until_active(node: &Node) {
    until("hostcni.service to be active", || active(node) == "active");
}

/// The server's process, in the node's numbers.
pub fn server(node: &Node) -> String {
    property(node, "hostcni.service", "MainPID")
}

/// The conf as it lies on the disk.
#[track_caller]
pub fn conf(node: &Node) -> String {
    node.read(CONF).expect("the conf is there")
}

/// `hostcni status --json`.
#[track_caller]
pub fn status(node: &Node) -> Value {
    serde_json::from_str(&node.ok("hostcni status --json")).expect("status prints JSON")
}

/// `hostcni attachments --json`.
#[track_caller]
pub fn attachments(node: &Node) -> Vec<Value> {
    let all: Value =
        serde_json::from_str(&node.ok("hostcni attachments --json")).expect("attachments prints JSON");
    all.as_array().cloned().expect("a list")
}

/// How many addresses are leased, over all ranges of all networks.
#[track_caller]
pub fn leased(node: &Node) -> u64 {
    let status = status(node);
    let networks = status["networks"].as_array().expect("status lists networks").iter();
    networks
        .flat_map(|network| network["ranges"].as_array().cloned().expect("a network lists ranges"))
        .map(|range| range["used"].as_u64().expect("a range says what is used"))
        .sum()
}

/// The host ends of pods' links.
pub fn host_links(node: &Node) -> Vec<String> {
    links(node).into_iter().filter(|name| name.starts_with("hc")).collect()
}

/// The ifbs of pods on the node.
pub fn shapers(node: &Node) -> Vec<String> {
    links(node).into_iter().filter(|name| name.starts_with("hi")).collect()
}

/// Records of attachments on the node.
pub fn records(node: &Node) -> Vec<String> {
    files(&node.live(ATTACHMENTS))
}

/// DELs in the spool, on or off.
pub fn spooled(node: &Node) -> Vec<String> {
    files(&node.path(SPOOL))
}

/// Nothing of any pod is left: no link, no record, no lease, no spooled DEL.
#[track_caller]
pub fn nothing_left(node: &Node) {
    assert_eq!(host_links(node), Vec::<String>::new(), "links of pods");
    assert_eq!(shapers(node), Vec::<String>::new(), "ifbs of pods");
    assert_eq!(records(node), Vec::<String>::new(), "records of attachments");
    assert_eq!(spooled(node), Vec::<String>::new(), "spooled DELs");
    assert_eq!(leased(node), 0, "leased addresses");
}

/// containerd, started now, with the image that pods are made of.
pub fn runtime(node: &Node) -> Cri {
    node.ok("systemctl start containerd.service && ctr -n k8s.io images import /srv/pause.tar");
    let socket = node.live("/run/containerd/containerd.sock");
    let mut cri = until_some("the runtime's service", Duration::from_secs(30), || Cri::connect(&socket).ok());
    until("an answer of the runtime's service", || cri.version().is_ok());
    cri
}

/// A network namespace for a pod, and its ADD.
#[track_caller]
pub fn add(node: &Node, container: &str) -> Answer {
    node.ok(&format!("ip netns add {container}"));
    Call::new("ADD", container, &conf(node)).send(node)
}

/// A ping ten times a second from a pod to its gateway, until the returned command is told to stop: then it
/// says how many were lost.
pub struct Pinging<'a> {
    node: &'a Node,
    pod: String,
}

impl<'a> Pinging<'a> {
    /// Starts it.
    pub fn from(node: &'a Node, pod: &str) -> Self {
        node.ok(&format!(
            "systemd-run -q --unit=ping-{pod} -p StandardOutput=file:/tmp/ping-{pod} \
             ip netns exec {pod} ping -q -i 0.1 {}",
            GATEWAYS[0]
        ));
        Self { node, pod: pod.to_owned() }
    }

    /// Ends it: not one answer may have been missed.
    #[track_caller]
    pub fn lost_none(self) {
        let pod = &self.pod;
        self.node.ok(&format!("systemctl kill -s INT ping-{pod}.service"));
        let report = || self.node.ok(&format!("cat /tmp/ping-{pod}"));
        until("the ping's report", || report().contains("packet loss"));
        let report = report();
        assert!(report.contains(" 0% packet loss"), "{report}");
    }
}

fn files(directory: &std::path::Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    names.filter(|name| !name.starts_with('.')).collect()
}
