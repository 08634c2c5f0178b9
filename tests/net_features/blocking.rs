//! What a network's block list keeps its pods from, and nobody else.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::cni::Call;
use crate::support::namespace::Namespace;
use crate::support::observe::{Here, Place};
use crate::support::server::{HOSTCNI, Server};
use crate::support::wait::until;

/// What the world answers at, beside its own addresses: where clouds have their metadata.
const METADATA: [&str; 2] = ["169.254.169.254", "fd00:ec2::254"];
const WORLD: [&str; 2] = ["198.51.100.2", "2001:db8::2"];
const GATEWAYS: [&str; 2] = ["10.128.0.1", "fd01::1"];

const BLOCK: &str = r#"
subnets = ["10.128.0.0/23", "fd01::/64"]
block = [
  { to = "169.254.169.254", except = ["53/udp", "53/tcp"] },
  { to = "fd00:ec2::/64", except = ["53/udp", "53/tcp"] },
  { to = "node", ports = ["22623-22624/tcp", "7/udp"] },
]
[[network]]
name = "others"
bridge = "others0"
conf.path = "/etc/cni/net.d/others.conf"
subnets = ["10.130.0.0/24", "fd03::/64"]
"#;

/// Echo servers of one protocol on ports of every address there; they end with this.
struct Echo(Child);

impl Echo {
    fn new(place: &Namespace, protocol: &str, ports: &[u16]) -> Self {
        let script = "\
import json, socket, subprocess, sys, threading
def tcp(s):
    s.listen()
    while True:
        c, _ = s.accept(); c.sendall(b'echo'); c.close()
def udp(s):
    while True:
        data, peer = s.recvfrom(65535); s.sendto(b'echo', peer)
kind, run = {'tcp': (socket.SOCK_STREAM, tcp), 'udp': (socket.SOCK_DGRAM, udp)}[sys.argv[1]]
# A socket for each address: the answer comes from the one that was asked.
links = json.loads(subprocess.check_output(['ip', '-j', 'address']))
for info in [info for link in links for info in link['addr_info'] if info['scope'] == 'global']:
    for port in sys.argv[2:]:
        s = socket.socket(socket.AF_INET6 if info['family'] == 'inet6' else socket.AF_INET, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((info['local'], int(port)))
        threading.Thread(target=run, args=(s,)).start()
";
        let texts: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let mut command = place.command("python3");
        command.args(["-c", script, protocol]).args(&texts).stdin(Stdio::null());
        let echo = Self(command.spawn().expect("python3 is installed"));
        let flag = if protocol == "tcp" { "-Hltn" } else { "-Hlun" };
        until("the echo servers", || {
            texts.iter().all(|port| place.succeeds(&format!("ss {flag} sport = {port} | grep -q {port}")))
        });
        echo
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether an echo comes back; `size` bytes are sent by UDP.
fn reaches_with(from: &Namespace, to: &str, protocol: &str, port: u16, size: usize) -> bool {
    let script = "\
import socket, sys
to, protocol, port, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
family = socket.AF_INET6 if ':' in to else socket.AF_INET
kind = socket.SOCK_STREAM if protocol == 'tcp' else socket.SOCK_DGRAM
s = socket.socket(family, kind)
s.settimeout(3)
s.connect((to, port))
if protocol == 'udp':
    s.send(b'x' * size)
sys.exit(0 if s.recv(100) == b'echo' else 1)
";
    let arguments = [to, protocol, &port.to_string(), &size.to_string()].map(str::to_owned);
    let output = from.command("python3").args(["-c", script]).args(arguments).output();
    output.expect("python3 is installed").status.success()
}

fn reaches(from: &Namespace, to: &str, protocol: &str, port: u16) -> bool {
    reaches_with(from, to, protocol, port, 4)
}

fn ping(from: &Namespace, to: &str) -> bool {
    from.succeeds(&format!("ping -q -c1 -W3 {to}"))
}

/// A world with metadata servers, and the way there.
fn world(server: &Server) -> Namespace {
    let world = server.world();
    for (metadata, via) in METADATA.into_iter().zip(WORLD) {
        world.ok(&format!("ip address add {metadata} dev lo"));
        server.node.ok(&format!("ip route add {metadata} via {via}"));
    }
    world
}

/// A pod of the network `others`.
fn other(server: &Server) -> Namespace {
    let pod = Namespace::new();
    let mut config = server.config.clone();
    config["name"] = "others".into();
    let add = Call::new("ADD", "other", &config.to_string()).through(HOSTCNI);
    add.with("CNI_NETNS", &pod.path().display().to_string()).send(&Here).result();
    pod
}

#[test]
fn pods_reach_a_blocked_address_by_its_exceptions_only_and_other_networks_reach_all_of_it() {
    let server = Server::with(BLOCK);
    let world = world(&server);
    let _tcp = Echo::new(&world, "tcp", &[53, 80]);
    let _udp = Echo::new(&world, "udp", &[53, 80]);
    let (pod, free) = (Namespace::new(), other(&server));
    server.add("pod", &pod).result();
    for (metadata, open) in METADATA.into_iter().zip(WORLD) {
        for protocol in ["tcp", "udp"] {
            assert!(reaches(&pod, metadata, protocol, 53), "53/{protocol} of {metadata} is excepted");
            assert!(!reaches(&pod, metadata, protocol, 80), "80/{protocol} of {metadata}");
            assert!(!reaches_with(&pod, metadata, protocol, 80, 4000), "in fragments: {protocol} {metadata}");
            assert!(reaches(&pod, open, protocol, 80), "80/{protocol} of {open} is nobody's business");
            assert!(reaches(&free, metadata, protocol, 80), "{metadata} from another network");
            assert!(reaches(&server.node, metadata, protocol, 80), "{metadata} from the node");
        }
        assert!(!ping(&pod, metadata), "what has no ports is blocked, too: {metadata}");
        assert!(ping(&free, metadata) && ping(&pod, open));
    }
    // The pod hears at once that it is refused, and does not wait.
    let said = pod.run("python3 -c 'import socket; socket.create_connection((\"169.254.169.254\", 80), 30)'");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("No route to host"), "{said}");
}

#[test]
fn pods_cannot_reach_blocked_ports_of_any_of_the_nodes_addresses_and_the_node_reaches_theirs() {
    let server = Server::with(BLOCK);
    let _world = world(&server);
    let _tcp = Echo::new(&server.node, "tcp", &[22623, 22624, 22625]);
    let _udp = Echo::new(&server.node, "udp", &[7, 22623]);
    let (pod, free) = (Namespace::new(), other(&server));
    let own = server.add("pod", &pod).addresses();
    let _pods = Echo::new(&pod, "tcp", &[22623]);
    for (index, node) in GATEWAYS.into_iter().chain(["198.51.100.1", "2001:db8::1"]).enumerate() {
        for port in [22623, 22624] {
            assert!(!reaches(&pod, node, "tcp", port), "{port}/tcp of {node}");
            assert!(reaches(&free, node, "tcp", port), "{port}/tcp of {node} from another network");
        }
        assert!(!reaches(&pod, node, "udp", 7), "7/udp of {node}");
        assert!(reaches(&pod, node, "tcp", 22625) && reaches(&pod, node, "udp", 22623), "others of {node}");
        // Probes from the node are answered, from whatever port.
        assert!(reaches(&server.node, &own[index % 2], "tcp", 22623), "the pod from the node");
    }
    assert!(ping(&pod, GATEWAYS[0]) && ping(&pod, GATEWAYS[1]));
}

#[test]
fn no_nat_leads_a_pod_to_what_is_blocked_and_none_hides_it() {
    let server = Server::with(BLOCK);
    let world = world(&server);
    let _world = Echo::new(&world, "tcp", &[53, 80]);
    let _node = Echo::new(&server.node, "tcp", &[22623]);
    let (pod, free) = (Namespace::new(), other(&server));
    server.add("pod", &pod).result();
    // Services, as kube-proxy makes them.
    server.node.ok("nft 'table inet services { chain pre { type nat hook prerouting priority dstnat; \
           ip daddr 172.30.0.1 tcp dport 80 dnat ip to 169.254.169.254:80; \
           ip daddr 172.30.0.1 tcp dport 53 dnat ip to 169.254.169.254:53; \
           ip daddr 172.30.0.2 tcp dport 80 dnat ip to 198.51.100.1:22623; \
           ip daddr 172.30.0.3 tcp dport 80 dnat ip to 198.51.100.2:80; \
           tcp dport 22624 dnat ip to 198.51.100.2:80; \
           ip6 daddr fd30::1 tcp dport 80 dnat ip6 to [fd00:ec2::254]:80; }; }'");
    for (service, port) in [("172.30.0.1", 80), ("172.30.0.2", 80), ("fd30::1", 80), ("198.51.100.1", 22624)]
    {
        assert!(!reaches(&pod, service, "tcp", port), "{service}:{port}");
        assert!(reaches(&free, service, "tcp", port), "{service}:{port} from another network");
    }
    assert!(reaches(&pod, "172.30.0.1", "tcp", 53), "an exception by a service");
    assert!(reaches(&pod, "172.30.0.3", "tcp", 80), "a service of its own");
}

#[test]
fn the_rules_are_few_come_back_and_are_missed_by_check_and_go_with_the_list() {
    let mut server = Server::with(BLOCK);
    let world = world(&server);
    let _echo = Echo::new(&world, "tcp", &[80]);
    let pod = Namespace::new();
    let result: Value = server.add("pod", &pod).result();
    server.check("pod", &pod, &result).result();
    let rules = || server.node.ok("nft list chain inet hostcni block_0").matches("reject").count();
    assert_eq!(rules(), 3, "one for each entry, whoever many pods there are");
    let (one, two) = (Namespace::new(), Namespace::new());
    server.add("one", &one).result();
    server.add("two", &two).result();
    assert_eq!(rules(), 3);

    // A flushed chain is noticed, and back at once.
    server.node.ok("nft flush chain inet hostcni block_0");
    until("the rules", || rules() == 3);
    server.check("pod", &pod, &result).result();
    assert!(!reaches(&pod, METADATA[0], "tcp", 80));
    // A stopped server leaves them; what was done meanwhile is undone by the next start.
    server.kill();
    assert!(!reaches(&pod, METADATA[0], "tcp", 80), "without a server");
    server.node.ok("nft flush chain inet hostcni block_0");
    assert!(reaches(&pod, METADATA[0], "tcp", 80));
    server.start_again();
    assert!(!reaches(&pod, METADATA[0], "tcp", 80));
    server.check("pod", &pod, &result).result();

    server.configure(r#"subnets = ["10.128.0.0/23", "fd01::/64"]"#);
    server.kill();
    server.start_again();
    assert!(reaches(&pod, METADATA[0], "tcp", 80));
    assert!(!server.node.ok("nft list table inet hostcni").contains("block"));
}
