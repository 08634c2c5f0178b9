//! A pod sends from its own addresses only.

use serde_json::Value;

use crate::support::namespace::Namespace;
use crate::support::observe::{Here, Place};
use crate::support::server::Server;
use crate::support::wait::until;

/// A pod and its addresses of both families.
fn pod(server: &Server, name: &str) -> (Namespace, [String; 2]) {
    let pod = Namespace::new();
    let addresses = server.add(name, &pod).addresses();
    (pod, addresses.try_into().expect("both families"))
}

fn ping(from: &Namespace, options: &str, to: &str) -> bool {
    from.succeeds(&format!("ping -q -c 2 -i 0.3 -W 2 {options} {to}"))
}

#[test]
fn a_pod_cannot_send_from_anothers_addresses() {
    let server = Server::new();
    let world = server.world();
    let (good, _) = pod(&server, "good");
    let (bad, own) = pod(&server, "bad");
    let (victim, his) = pod(&server, "victim");
    for (own, his, target) in [(&own[0], &his[0], "198.51.100.2"), (&own[1], &his[1], "2001:db8::2")] {
        assert!(ping(&bad, &format!("-I {own}"), target), "from its own");
        // Its own interface with an address of somebody else's, of a free one, and of the gateway.
        let (prefix, free, gateway) =
            if own.contains(':') { (64, "fd01::77", "fd01::1") } else { (23, "10.128.1.77", "10.128.0.1") };
        for other in [his.as_str(), free, gateway] {
            bad.ok(&format!("ip address add {other}/{prefix} dev eth0 nodad 2>/dev/null || ip address add {other}/{prefix} dev eth0"));
            assert!(!ping(&bad, &format!("-I {other}"), target), "from {other}");
            bad.ok(&format!("ip address del {other}/{prefix} dev eth0"));
        }
        assert!(ping(&victim, &format!("-I {his}"), target) && ping(&good, "", his), "others go on");
    }
    drop(world);
}

#[test]
fn a_pod_cannot_take_anothers_place_in_arp_or_neighbour_discovery() {
    let server = Server::new();
    let (bad, _) = pod(&server, "bad");
    let (victim, his) = pod(&server, "victim");
    let (asks, _) = pod(&server, "asks");
    for (address, prefix) in [(&his[0], 23), (&his[1], 64)] {
        // With the victim away only the liar could answer.
        victim.ok("ip link set eth0 down");
        bad.ok(&format!("ip address add {address}/{prefix} dev eth0; ip -6 address change {address}/128 dev eth0 nodad 2>/dev/null; true"));
        assert!(!ping(&asks, "", address), "{address} was answered");
        let neighbours = asks.ok(&format!("ip neighbour show {address}"));
        assert!(!neighbours.contains("lladdr"), "{neighbours}");
        bad.ok(&format!("ip address del {address}/{prefix} dev eth0; ip address del {address}/128 dev eth0 2>/dev/null; true"));
        victim.ok("ip link set eth0 up");
    }
}

#[test]
fn a_pod_cannot_send_from_another_mac() {
    let server = Server::new();
    let (bad, _) = pod(&server, "bad");
    assert!(ping(&bad, "", "10.128.0.1"));
    let mac = bad.ok("cat /sys/class/net/eth0/address");
    bad.ok("ip link set eth0 address 0a:58:0a:80:00:fe");
    assert!(!ping(&bad, "", "10.128.0.1"), "from another MAC");
    bad.ok(&format!("ip link set eth0 address {mac}"));
    assert!(ping(&bad, "", "10.128.0.1"), "back");
}

#[test]
fn it_costs_elements_that_go_with_the_pod_and_come_back_when_somebody_takes_them() {
    let server = Server::new();
    let (one, _) = pod(&server, "one");
    let elements = || server.node.ok("nft -j list table bridge hostcni").matches("\"hc").count();
    let each = elements();
    assert!(each >= 4, "its MAC, its addresses, its link-local one: {each}");
    let (_two, _) = pod(&server, "two");
    assert_eq!(elements(), 2 * each);
    server.del("two", "").result();
    assert_eq!(elements(), each);

    // CHECK sees one that is gone, and the repair brings it back.
    let result = server.add("one", &one).result();
    server.check("one", &one, &result).result();
    server.node.ok("nft delete table bridge hostcni");
    until("the table", || server.node.succeeds("nft list table bridge hostcni") && elements() == each);
    assert!(ping(&one, "", "10.128.0.1"));
    server.check("one", &one, &result).result();
    server.del("one", "").result();
    assert_eq!(elements(), 0);
    server.holds_nothing();
}

#[test]
fn a_pod_whose_record_is_lost_keeps_its_network() {
    let mut server = Server::new();
    let pod = Namespace::new();
    let mut config = server.config.clone();
    config["runtimeConfig"]["mac"] = "0a:11:22:33:44:55".into();
    let add = crate::support::cni::Call::new("ADD", "pod", &config.to_string())
        .through(crate::support::server::HOSTCNI)
        .with("CNI_NETNS", &pod.path().display().to_string());
    add.send(&Here).result();
    assert!(ping(&pod, "", "10.128.0.1"));
    server.kill();
    for record in server.attachments() {
        std::fs::remove_file(record).unwrap();
    }
    server.start_again();
    assert!(ping(&pod, "", "10.128.0.1"), "{}", server.log());
    server.del("pod", "").result();
    server.holds_nothing();
}

#[test]
fn it_can_be_switched_off_for_a_network() {
    let server = Server::with("subnets = [\"10.128.0.0/23\"]\nanti_spoofing = false");
    let pod = Namespace::new();
    let result: Value = server.add("pod", &pod).result();
    pod.ok("ip address add 10.128.1.77/23 dev eth0");
    assert!(ping(&pod, "-I 10.128.1.77", "10.128.0.1"));
    assert!(!server.node.succeeds("nft list table bridge hostcni"));
    server.check("pod", &pod, &result).result();
}
