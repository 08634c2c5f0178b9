//! CHECK names what differs.

use serde_json::json;

use crate::support::cni::Call;
use crate::support::namespace::Namespace;
use crate::support::observe::{self, Here, Place};
use crate::support::server::{HOSTCNI, Server};
use crate::support::wait::until;

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

/// What somebody does on the node to the host end HOST, the ifb IFB or the rules, and how CHECK calls it.
const ON_THE_NODE: &[(&str, &str)] = &[
    ("ip link set HOST nomaster", "host interface HOST is not a port of bridge hostcni0"),
    ("ip link set HOST down", "host interface HOST is down"),
    ("bridge link set dev HOST hairpin off", "hairpin mode of host interface HOST is off instead of on"),
    ("bridge link set dev HOST isolated on", "isolation of host interface HOST is on instead of off"),
    ("tc qdisc del dev HOST root", "the ingress limit is gone from HOST"),
    ("tc qdisc del dev HOST ingress", "what the container sends is not led from HOST to IFB"),
    ("tc qdisc del dev IFB root", "the egress limit is gone from IFB"),
    ("ip link set IFB down", "interface IFB, which limits what the container sends, is gone or down"),
    ("nft delete element inet hostcni portmap4 '{ tcp . 8080 }'", "host port 8080/tcp of 10.128.0.2 is gone"),
    ("nft delete element inet hostcni portmap6 '{ tcp . 8080 }'", "host port 8080/tcp of fd01::2 is gone"),
    (
        "nft flush set bridge hostcni pod_ip4",
        "the identity { \\\"HOST\\\" . 0a:58:0a:80:00:02 . 10.128.0.2 } of pod_ip4",
    ),
    ("nft flush set bridge hostcni pod_mac", "of pod_mac of the pod's link is gone from nftables"),
    ("nft flush set bridge hostcni pod_held", "of pod_held of the pod's link is gone from nftables"),
    (
        "nft flush chain inet hostcni postrouting",
        "a table of hostcni's was changed by somebody else: masquerading",
    ),
    ("nft flush chain bridge hostcni from_ip", "a table of hostcni's was changed by somebody else"),
    ("nft delete table inet hostcni", "a table of hostcni's was changed by somebody else: masquerading"),
];

#[test]
fn check_names_each_thing_that_was_broken_on_the_node() {
    // The rules are loaded once: what is taken from them is not put back before CHECK looks.
    let broken = [("FAILPOINTS", "prepare.rules=1*off->return".to_owned())];
    for (line, named) in ON_THE_NODE {
        let server = Server::with_environment(r#"subnets = ["10.128.0.0/23", "fd01::/64"]"#, &broken);
        let pod = Namespace::new();
        let mut config = server.config.clone();
        config["runtimeConfig"] = json!({
            "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
            "bandwidth": {"ingressRate": 10_000_000, "ingressBurst": 1_000_000,
                          "egressRate": 10_000_000, "egressBurst": 1_000_000},
        });
        let add = Call::new("ADD", "pod", &config.to_string()).through(HOSTCNI);
        let result = add.with("CNI_NETNS", &pod.path().display().to_string()).send(&Here).result();
        server.check("pod", &pod, &result).result();
        let host = server.veths().remove(0);
        let ifb = observe::links(&server.node).into_iter().find(|link| link.starts_with("hi")).unwrap();
        let of_this_pod = |text: &str| text.replace("HOST", &host).replace("IFB", &ifb);
        server.node.ok(&of_this_pod(line));
        // The kernel's word of what happened to the rules may still be on its way.
        until(line, || !server.check("pod", &pod, &result).succeeded());
        let answer = server.check("pod", &pod, &result);
        assert_eq!(answer.code(), 104, "{line}: {}", answer.text());
        assert!(answer.text().contains(&of_this_pod(named)), "{line}: {}", answer.text());
    }
}

#[test]
fn check_of_an_attachment_that_does_not_exist_is_code_3() {
    let server = Server::new();
    let pod = Namespace::new();
    let previous = json!({"cniVersion": "1.1.0", "interfaces": [], "ips": []});
    assert_eq!(server.check("pod", &pod, &previous).code(), 3);
}
