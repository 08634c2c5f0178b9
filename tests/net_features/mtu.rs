//! The MTU follows the uplink, less what a tunnel needs, and a smaller one on the way is told to the pod.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;

use crate::support::namespace::Namespace;
use crate::support::observe::{Place, both, ip};
use crate::support::server::{HOSTCNI, Server};

const DUAL: &str = r#"subnets = ["10.128.0.0/23", "fd01::/64"]"#;

fn mtu(place: &impl Place, link: &str) -> u64 {
    ip(place, &format!("link show dev {link}"))[0]["mtu"].as_u64().expect("a link has an MTU")
}

/// An uplink with that MTU and the default route.
fn uplink(server: &Server, mtu: u32) -> Namespace {
    let world = server.world();
    server.node.ok(&format!("ip link set uplink mtu {mtu}; ip route add default via 198.51.100.2"));
    world
}

#[test]
fn bridge_and_pods_have_the_uplinks_mtu_less_the_overhead() {
    let mut server = Server::with(&format!("{DUAL}\nmtu_overhead = 50"));
    let _world = uplink(&server, 1420);
    server.kill();
    server.start_again();
    let pod = Namespace::new();
    let result = server.add("pod", &pod).result();
    let veth = server.veths().remove(0);
    let seen = [mtu(&server.node, "hostcni0"), mtu(&server.node, &veth), mtu(&pod, "eth0")];
    assert_eq!(seen, [1370; 3]);
    assert_eq!(result["interfaces"][2]["mtu"], 1370);
    server.check("pod", &pod, &result).result();

    // An uplink that goes while pods run changes nothing, also where a repair looks at all again.
    server.node.ok("ip link del uplink; ip link del hostcni0");
    crate::support::wait::until("the bridge to be back", || server.node.succeeds("ip link show hostcni0"));
    crate::support::wait::until("the gateway to be back", || pod.succeeds("ping -q -c 1 -W 1 10.128.0.1"));
    assert_eq!(mtu(&server.node, "hostcni0"), 1370, "{}", server.log());
}

#[test]
fn an_overhead_that_leaves_too_little_keeps_the_server_from_its_start() {
    for (network, uplink_mtu, said) in [
        (format!("{DUAL}\nmtu_overhead = 221"), 1500, "leaves 1279, and pods need 1280"),
        (format!("{DUAL}\nmtu_overhead = 8000"), 9000, "leaves 1000, and pods need 1280"),
        ("subnets = [\"10.128.0.0/23\"]\nmtu_overhead = 1600".into(), 1500, "leaves 0, and pods need 68"),
        (DUAL.into(), 1279, "the MTU of uplink, 1279, less mtu_overhead = 0"),
    ] {
        let mut server = Server::new();
        let _world = uplink(&server, uplink_mtu);
        server.kill();
        server.configure(&network);
        let mut serve = server.node.command("timeout");
        serve.args(["30", HOSTCNI, "serve", "--listen"]).arg(server.socket());
        let output = serve.arg("--root").arg(server.directory.path()).output().unwrap();
        assert!(!output.status.success(), "{network}");
        assert!(both(&output).contains(said), "{network}: {}", both(&output));
    }
}

/// node — router — far, the last link with a small MTU that only the router knows of: what far announces to TCP is more.
fn behind_a_narrow_link(server: &Server) -> (Namespace, Namespace) {
    let (router, far) = (server.world(), Namespace::new());
    router.ok(&format!("ip link add narrow type veth peer name eth0 netns {}", far.name()));
    for line in [
        "ip link set narrow mtu 1300 up",
        "ip address add 203.0.113.1/24 dev narrow",
        "ip address add 2001:db8:1::1/64 dev narrow nodad",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
    ] {
        router.ok(line);
    }
    for line in [
        "ip link set eth0 mtu 1500 up",
        "ip address add 203.0.113.2/24 dev eth0",
        "ip address add 2001:db8:1::2/64 dev eth0 nodad",
        "ip route add default via 203.0.113.1",
        "ip route add default via 2001:db8:1::1",
    ] {
        far.ok(line);
    }
    server.node.ok("ip route add default via 198.51.100.2; ip route add default via 2001:db8::2");
    (router, far)
}

#[test]
fn a_smaller_mtu_on_the_way_is_told_to_the_pod_through_the_bridge() {
    let server = Server::with(&format!("{DUAL}\nmtu = 1500"));
    let (_router, far) = behind_a_narrow_link(&server);
    for (address, bind) in [("203.0.113.2", "0.0.0.0:7000"), ("2001:db8:1::2", "[::]:7000")] {
        // A datagram that must not be cut.
        let pod = Namespace::new();
        server.add("datagrams", &pod).result();
        let told = pod.run(&format!("ping -q -c 3 -i 0.3 -W 2 -M do -s 1400 {address}"));
        assert!(!told.status.success(), "{}", both(&told));
        assert_eq!(learnt(&pod, address), Some(1300), "{}", both(&told));
        pod.ok(&format!("ping -q -c 1 -W 2 -M do -s 1200 {address}"));
        server.del("datagrams", "").result();

        // A stream of whole segments.
        let pod = Namespace::new();
        server.add("stream", &pod).result();
        let listener = far.inside(|| TcpListener::bind(bind)).unwrap();
        let sent = vec![7; 1 << 20];
        let received = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut received = Vec::new();
                listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
                received
            });
            pod.inside(|| {
                let mut stream = TcpStream::connect((address, 7000)).unwrap();
                stream.write_all(&sent).unwrap();
            });
            reader.join().unwrap()
        });
        assert_eq!((received.len(), learnt(&pod, address)), (sent.len(), Some(1300)));
        server.del("stream", "").result();
    }
    server.holds_nothing();
}

/// The MTU of the path that the pod knows of.
fn learnt(pod: &Namespace, address: &str) -> Option<u64> {
    let route = &ip(pod, &format!("route get {address}"))[0];
    route["metrics"].as_array()?.iter().find_map(|metric: &Value| metric["mtu"].as_u64())
}
