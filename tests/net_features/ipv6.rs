//! IPv6: usable at once, without router advertisements in pods, and without taking the node's own away.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sendto, setsockopt, socket,
    sockopt,
};

use crate::support::namespace::Namespace;
use crate::support::observe::{Place, addresses, ip};
use crate::support::server::Server;
use crate::support::wait::until;

#[test]
fn a_network_of_ipv6_alone_serves_its_pods_at_once() {
    let server = Server::with(r#"subnets = ["fd01::/64"]"#);
    let (one, two) = (Namespace::new(), Namespace::new());
    let result = server.add("one", &one).result();
    // The very first packet, without a wait for duplicate address detection.
    one.ok("ping -q -c 1 -W 1 fd01::1");
    assert_eq!(result["ips"].as_array().map(Vec::len), Some(1), "{result}");
    assert_eq!(addresses(&one, "eth0"), ["fd01::2/64"]);
    assert!(ip(&one, "-4 address show dev eth0").is_empty(), "no IPv4");
    let flags = one.ok("ip -6 address show dev eth0 scope global");
    assert!(flags.contains("nodad") && !flags.contains("tentative"), "{flags}");
    until("the link-local address", || {
        one.succeeds("ip -6 address show dev eth0 scope link | grep -q fe80::")
    });
    assert_eq!(one.ok("cat /proc/sys/net/ipv6/conf/eth0/accept_ra"), "0");

    let other = server.add("two", &two).addresses().remove(0);
    two.ok("ping -q -c 1 -W 1 fd01::1");
    one.ok(&format!("ping -q -c 1 -W 1 {other}"));
    let _world = server.world();
    one.ok("ping -q -c 1 -W 2 2001:db8::2");
    server.check("one", &one, &result).result();
    server.del("one", &one.path().display().to_string()).result();
    server.del("two", "").result();
    assert_eq!((server.veths(), server.used()), (vec![], vec![0]));
}

#[test]
fn a_pod_takes_no_route_from_a_router_advertisement() {
    let server = Server::new();
    let pod = Namespace::new();
    server.add("pod", &pod).result();
    until("the pod's link-local address", || link_local(&pod, "eth0").is_some());
    until("the bridge's link-local address", || link_local(&server.node, "hostcni0").is_some());
    let to = link_local(&pod, "eth0").unwrap();
    let before = pod.ok("ip -6 route; ip -6 address show scope global");
    for _ in 0..3 {
        advertise(&server.node, "hostcni0", to);
    }
    // What follows them on the same link has arrived, so they have.
    pod.ok("ping -q -c 1 -W 2 fd01::1");
    assert_eq!(pod.ok("ip -6 route; ip -6 address show scope global"), before);
    // It is one that a link would take.
    pod.ok("echo 1 > /proc/sys/net/ipv6/conf/eth0/accept_ra");
    advertise(&server.node, "hostcni0", to);
    until("a route from it", || pod.ok("ip -6 route show default").contains("proto ra"));
}

#[test]
fn a_node_that_lives_by_router_advertisements_keeps_its_default_route() {
    let mut server = Server::new();
    server.kill();
    server.node.ok("ip link del hostcni0; echo 0 > /proc/sys/net/ipv6/conf/all/forwarding");
    let router = Namespace::new();
    server.node.ok(&format!("ip link add uplink type veth peer name eth0 netns {}", router.name()));
    server
        .node
        .ok("ip link add set type veth peer name peer; echo 0 > /proc/sys/net/ipv6/conf/set/accept_ra");
    server.node.ok("ip link set uplink up");
    router.ok("ip link set eth0 up");
    let node = || link_local(&server.node, "uplink");
    until("the link-local addresses", || node().is_some() && link_local(&router, "eth0").is_some());
    let to = node().unwrap();
    let default =
        |server: &Server| server.node.ok("ip -6 route show default dev uplink").contains("proto ra");
    advertise(&router, "eth0", to);
    until("the default route", || default(&server));

    server.start_again();
    assert_eq!(server.node.ok("cat /proc/sys/net/ipv6/conf/all/forwarding"), "1");
    assert!(default(&server), "{}", server.log());
    let setting = |link: &str| server.node.ok(&format!("cat /proc/sys/net/ipv6/conf/{link}/accept_ra"));
    assert_eq!(
        (setting("uplink"), setting("set"), setting("hostcni0")),
        ("2".into(), "0".into(), "0".into())
    );
    assert!(server.log().contains("ipv6/conf/uplink/accept_ra: 1 -> 2"), "{}", server.log());
    // And the next one is taken, too.
    server.node.ok("ip -6 route del default dev uplink");
    advertise(&router, "eth0", to);
    until("the default route again", || default(&server));

    // Another start finds all as it should be.
    server.kill();
    server.start_again();
    assert!(default(&server), "{}", server.log());
    assert_eq!(server.log().matches("uplink/accept_ra: 1 -> 2").count(), 1, "{}", server.log());
}

/// The link-local address there, once it can be used.
fn link_local(place: &impl Place, link: &str) -> Option<Ipv6Addr> {
    let text = place.ok(&format!("ip -6 -o address show dev {link} scope link -tentative"));
    text.split_whitespace().find_map(|word| word.split_once('/')?.0.parse().ok())
}

/// Sends a router advertisement from the link's own address: a default route for half an hour. To one address: by
/// multicast the hop limit, which has to be 255, is another option.
fn advertise(from: &Namespace, link: &str, to: Ipv6Addr) {
    let index =
        ip(from, &format!("link show dev {link}"))[0]["ifindex"].as_u64().expect("a link has an index");
    // RFC 4861, section 4.2; the kernel fills in the checksum.
    let mut packet = [0; 16];
    packet[0] = 134;
    packet[4] = 64;
    packet[6..8].copy_from_slice(&1800_u16.to_be_bytes());
    from.inside(|| {
        let raw = socket(AddressFamily::Inet6, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::IcmpV6);
        let raw = raw.expect("root may");
        setsockopt(&raw, sockopt::Ipv6Ttl, &255).expect("a hop limit");
        let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, u32::try_from(index).expect("an index")));
        sendto(raw.as_raw_fd(), &packet, &to, MsgFlags::empty()).expect("it is sent");
    });
}
