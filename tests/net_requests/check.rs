//! CHECK names what differs.

use serde_json::json;

use crate::support::namespace::Namespace;
use crate::support::observe::Place;
use crate::support::server::Server;

#[test]
fn check_names_each_difference() {
    let tamper = [
        ("true", ""),
        ("ip address del 10.128.0.2/23 dev eth0", "address 10.128.0.2/23"),
        ("ip -6 address del fd01::2/64 dev eth0", "address fd01::2/64"),
        ("ip route del default", "the default route via 10.128.0.1"),
        ("ip link set eth0 down", "interface eth0 is down"),
        ("ip link set eth0 mtu 1400", "MTU 1400"),
        ("ip link set eth0 address 02:00:00:00:00:01", "02:00:00:00:00:01"),
        ("ip link set lo down", "interface lo is down"),
        ("ip link set eth0 down; ip link set eth0 name eth1", "interface eth0 is gone"),
    ];
    for (line, named) in tamper {
        let server = Server::new();
        let pod = Namespace::new();
        let result = server.add("pod", &pod).result();
        pod.ok(line);
        let answer = server.check("pod", &pod, &result);
        if named.is_empty() {
            answer.result();
        } else {
            assert!(answer.code() >= 100, "{}", answer.text());
            assert!(answer.text().contains(named), "{line}: {}", answer.text());
        }
    }
}

#[test]
fn check_names_what_happened_on_the_node() {
    for (line, named) in [("nomaster", "is not a port of bridge"), ("down", "is down")] {
        let server = Server::new();
        let pod = Namespace::new();
        let result = server.add("pod", &pod).result();
        let veth = server.veths().pop().expect("one pod, one veth");
        server.node.ok(&format!("ip link set {veth} {line}"));
        let answer = server.check("pod", &pod, &result);
        assert!(answer.text().contains(named) && answer.text().contains(&veth), "{}", answer.text());
    }
}

#[test]
fn check_of_an_attachment_that_does_not_exist_is_code_3() {
    let server = Server::new();
    let pod = Namespace::new();
    let previous = json!({"cniVersion": "1.1.0", "interfaces": [], "ips": []});
    assert_eq!(server.check("pod", &pod, &previous).code(), 3);
}
