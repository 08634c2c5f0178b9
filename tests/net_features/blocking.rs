//! What a network's block list keeps its pods from, and nobody else.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::libc;
use serde_json::Value;

use crate::support::cni::Call;
use crate::support::namespace::Namespace;
use crate::support::observe::{Here, Place, ip};
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

/// Sockets that answer "echo" on these ports of every address of a place; they end with this.
struct Echo {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn new(place: &Namespace, protocol: &str, ports: &[u16]) -> Self {
        let addresses: Vec<IpAddr> = ip(place, "address show scope global")
            .iter()
            .flat_map(|link| link["addr_info"].as_array().cloned().unwrap_or_default())
            .filter_map(|info| info["local"].as_str()?.parse().ok())
            .collect();
        // One for each address: the answer comes from the one that was asked.
        let all = addresses.iter().flat_map(|address| ports.iter().map(|port| (*address, *port).into()));
        let all: Vec<SocketAddr> = all.collect();
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = if protocol == "tcp" {
            let sockets: Vec<TcpListener> =
                place.inside(|| all.iter().map(|it| TcpListener::bind(it).unwrap()).collect());
            for socket in &sockets {
                socket.set_nonblocking(true).unwrap();
            }
            answering(end, move || {
                for (mut stream, _) in sockets.iter().filter_map(|socket| socket.accept().ok()) {
                    let _ = stream.write_all(b"echo");
                }
            })
        } else {
            let sockets: Vec<UdpSocket> =
                place.inside(|| all.iter().map(|it| UdpSocket::bind(it).unwrap()).collect());
            for socket in &sockets {
                socket.set_nonblocking(true).unwrap();
            }
            answering(end, move || {
                for socket in &sockets {
                    if let Ok((_, peer)) = socket.recv_from(&mut [0; 8192]) {
                        let _ = socket.send_to(b"echo", peer);
                    }
                }
            })
        };
        Self { ended, thread: Some(thread) }
    }
}

fn answering(end: Arc<AtomicBool>, look: impl Fn() + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        while !end.load(Ordering::Relaxed) {
            look();
            thread::sleep(Duration::from_millis(2));
        }
    })
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Its sockets would keep the namespace.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What comes back from there, of UDP after that many bytes were sent.
fn ask(from: &Namespace, to: &str, protocol: &str, port: u16, size: usize) -> io::Result<Vec<u8>> {
    let to = SocketAddr::new(to.parse().expect("an address"), port);
    let wait = Duration::from_secs(3);
    let mut answer = [0; 100];
    let length = from.inside(|| {
        if protocol == "tcp" {
            let mut stream = TcpStream::connect_timeout(&to, wait)?;
            stream.set_read_timeout(Some(wait))?;
            return stream.read(&mut answer);
        }
        let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
        socket.set_read_timeout(Some(wait))?;
        socket.connect(to)?;
        socket.send(&vec![0; size])?;
        socket.recv(&mut answer)
    })?;
    Ok(answer[..length].to_vec())
}

fn reaches(from: &Namespace, to: &str, protocol: &str, port: u16) -> bool {
    ask(from, to, protocol, port, 4).is_ok_and(|answer| answer == b"echo")
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
            assert!(reaches(&pod, open, protocol, 80), "80/{protocol} of {open} is nobody's business");
            assert!(reaches(&free, metadata, protocol, 80), "{metadata} from another network");
            assert!(reaches(&server.node, metadata, protocol, 80), "{metadata} from the node");
        }
        assert!(!ping(&pod, metadata), "what has no ports is blocked, too: {metadata}");
        assert!(ping(&free, metadata) && ping(&pod, open));
    }
    // In fragments, only the first of which has the port.
    assert!(ask(&pod, METADATA[0], "udp", 53, 4000).is_ok());
    assert!(ask(&pod, METADATA[0], "udp", 80, 4000).is_err());
    assert!(ask(&pod, METADATA[1], "udp", 80, 4000).is_err());
    // The pod hears that it is refused, and does not wait.
    let error = ask(&pod, METADATA[0], "tcp", 80, 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EHOSTUNREACH), "{error}");
}

#[test]
fn pods_cannot_reach_blocked_ports_of_any_of_the_nodes_addresses() {
    let server = Server::with(BLOCK);
    let _world = world(&server);
    let _tcp = Echo::new(&server.node, "tcp", &[22623, 22624, 22625]);
    let _udp = Echo::new(&server.node, "udp", &[7, 22623]);
    let (pod, free) = (Namespace::new(), other(&server));
    server.add("pod", &pod).result();
    for node in GATEWAYS.into_iter().chain(["198.51.100.1", "2001:db8::1"]) {
        for port in [22623, 22624] {
            assert!(!reaches(&pod, node, "tcp", port), "{port}/tcp of {node}");
            assert!(reaches(&free, node, "tcp", port), "{port}/tcp of {node} from another network");
        }
        assert!(!reaches(&pod, node, "udp", 7), "7/udp of {node}");
        assert!(reaches(&pod, node, "tcp", 22625) && reaches(&pod, node, "udp", 22623), "others of {node}");
    }
    assert!(ping(&pod, GATEWAYS[0]) && ping(&pod, GATEWAYS[1]));
}

#[test]
fn a_node_that_is_blocked_as_a_whole_still_reaches_its_pods_and_they_the_world() {
    let server = Server::with("subnets = [\"10.128.0.0/23\", \"fd01::/64\"]\nblock = [{ to = \"node\" }]");
    let world = server.world();
    let _world = Echo::new(&world, "tcp", &[80]);
    let pod = Namespace::new();
    let own = server.add("pod", &pod).addresses();
    let _pod = Echo::new(&pod, "tcp", &[80]);
    for index in [0, 1] {
        assert!(!ping(&pod, GATEWAYS[index]), "{}", GATEWAYS[index]);
        // Its probes: the answers go to the node.
        assert!(reaches(&server.node, &own[index], "tcp", 80) && ping(&server.node, &own[index]));
        // The way out begins with neighbour discovery of the gateway.
        server.node.ok("ip neighbour flush dev hostcni0");
        pod.ok("ip neighbour flush dev eth0");
        assert!(reaches(&pod, WORLD[index], "tcp", 80), "{}", WORLD[index]);
    }
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

    // A flushed chain is noticed by CHECK, unless it is back already.
    until("a CHECK that fails", || {
        server.node.ok("nft flush chain inet hostcni block_0");
        let answer = server.check("pod", &pod, &result);
        !answer.succeeded() && answer.text().contains("the block list as configured is gone")
    });
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

/// A datagram to what every node listens at without having been asked to: groups, and the subnet's own address.
fn heard(from: &Namespace, node: &Namespace, to: &str) -> bool {
    let to: SocketAddr = to.parse().expect("an address and a port");
    let any = if to.is_ipv4() { "0.0.0.0" } else { "[::]" };
    let socket = node.inside(|| UdpSocket::bind(format!("{any}:{}", to.port())).unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    from.inside(|| UdpSocket::bind(format!("{any}:0")).and_then(|own| own.send_to(b"?", to)).unwrap());
    socket.recv_from(&mut [0; 8]).is_ok()
}

#[test]
fn the_node_is_not_reached_by_its_groups_either() {
    let server = Server::with(
        "subnets = [\"10.128.0.0/23\", \"fd01::/64\"]\nblock = [{ to = \"node\", ports = [\"7/udp\"] }]",
    );
    let pod = Namespace::new();
    server.add("pod", &pod).result();
    let index = ip(&pod, "link show dev eth0")[0]["ifindex"].as_u64().unwrap();
    for to in ["224.0.0.1", "[fd01::]", &format!("[ff02::1%{index}]"), "10.128.0.1", "[fd01::1]"] {
        assert!(heard(&pod, &server.node, &format!("{to}:8")), "{to}: nothing is blocked there");
        assert!(!heard(&pod, &server.node, &format!("{to}:7")), "{to}");
    }
}
