//! What cannot be meant is refused: with the right code, by its name, and nothing of it is left.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::cni::Call;
use crate::support::namespace::Namespace;
use crate::support::observe::{Here, Place, both};
use crate::support::server::{HOSTCNI, Server};

/// Capability arguments, the code they are refused with, and what the message names.
fn arguments() -> Vec<(Value, u64, &'static str)> {
    let port = |host: i64, pod: i64| json!({"portMappings": [{"hostPort": host, "containerPort": pod}]});
    let host =
        |address: &str| json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "hostIP": address}]});
    let range = |subnet: &str| json!({"ipRanges": [[{"subnet": subnet}]]});
    vec![
        (port(0, 80), 7, "port 0"),
        (port(65_536, 80), 7, "port 65536"),
        (port(8080, 0), 7, "port 0"),
        (port(8080, 65_536), 7, "port 65536"),
        (port(-1, 80), 7, "port -1"),
        (json!({"portMappings": [{"hostPort": 1, "containerPort": 1, "protocol": "icmp"}]}), 7, "icmp"),
        (host("192.0.2.7"), 2, "host port 8080/tcp: this node has no address 192.0.2.7"),
        (host("2001:db8::7"), 2, "this node has no address 2001:db8::7"),
        (host("10.128.0.77"), 2, "this node has no address 10.128.0.77"),
        (host("node"), 7, "\\\"node\\\" is no IP address"),
        (json!({"bandwidth": {"ingressRate": 0, "ingressBurst": 1_000_000}}), 2, "without ingressRate"),
        (json!({"bandwidth": {"egressRate": 1_000_000, "egressBurst": 0}}), 2, "without egressBurst"),
        (json!({"bandwidth": {"ingressRate": -1, "ingressBurst": 1}}), 7, "-1"),
        (json!({"ips": ["192.0.2.9"]}), 2, "192.0.2.9"),
        (json!({"ips": ["10.128.0.1"]}), 2, "10.128.0.1"),
        (json!({"ips": ["10.128.0.255.1"]}), 7, "10.128.0.255.1"),
        (json!({"ips": ["10.128.0.5", "10.128.0.6"]}), 2, "10.128.0.5 and 10.128.0.6"),
        (json!({"mac": "0a:58:00:00:00"}), 7, "0a:58:00:00:00"),
        (json!({"mac": "01:00:5e:00:00:01"}), 7, "01:00:5e:00:00:01"),
        (json!({"mac": "00:00:00:00:00:00"}), 7, "00:00:00:00:00:00"),
        (
            range("192.0.2.0/24"),
            7,
            "range 192.0.2.0/24 lies outside the network's subnets 10.128.0.0/23, fd01::/64",
        ),
        (range("10.128.0.0/16"), 7, "range 10.128.0.0/16 lies outside"),
        (range("10.128.0.7/23"), 7, "10.128.0.7/23 has bits set"),
        (range("10.128.0.0"), 7, "\\\"10.128.0.0\\\" is no subnet"),
        (range("10.128.0.0/31"), 7, "range 10.128.0.0/31 has no address for a pod"),
        (json!({"ipRanges": [[]]}), 7, "a set of ranges has no range"),
        (json!({"ipRanges": [{"subnet": "10.128.0.0/23"}]}), 7, "runtimeConfig"),
        (
            json!({"ipRanges": [[{"subnet": "10.128.0.0/24"}], [{"subnet": "10.128.0.128/25"}]]}),
            7,
            "ranges 10.128.0.0/24 and 10.128.0.128/25 overlap",
        ),
        (
            json!({"ipRanges": [[{"subnet": "10.128.0.0/23", "gateway": "10.128.0.254"}]]}),
            7,
            "asks for gateway 10.128.0.254, and that of 10.128.0.0/23 is 10.128.0.1",
        ),
        (
            json!({"ipRanges": [[{"subnet": "10.128.0.0/23", "rangeStart": "10.128.2.1"}]]}),
            7,
            "range start 10.128.2.1 is outside",
        ),
        (
            json!({"ipRanges": [[{"subnet": "10.128.0.0/24"}]], "ips": ["10.128.1.5"]}),
            7,
            "address 10.128.1.5 is in none of the requested ranges",
        ),
    ]
}

#[test]
fn arguments_that_cannot_be_meant_are_refused_by_name_and_leave_nothing() {
    let server = Server::new();
    let pod = Namespace::new();
    let pods = pod.ok("ip -o link; ip -o address");
    let rules = server.node.ok("nft list ruleset");
    for (runtime, code, said) in arguments() {
        let mut config = server.config.clone();
        config["runtimeConfig"] = runtime.clone();
        let answer = Call::new("ADD", "pod", &config.to_string())
            .through(HOSTCNI)
            .with("CNI_NETNS", &pod.path().display().to_string())
            .send(&Here);
        assert_eq!(answer.code(), code, "{runtime}: {}", answer.text());
        assert!(answer.text().contains(said), "{runtime}: {}", answer.text());
    }
    server.holds_nothing();
    assert_eq!(server.node.ok("nft list ruleset"), rules, "no element is left");
    assert_eq!(pod.ok("ip -o link; ip -o address"), pods);
    server.add("pod", &pod).result();
}

#[test]
fn a_host_port_at_an_address_of_the_node_is_taken() {
    let server = Server::new();
    let _world = server.world();
    for address in ["198.51.100.1", "2001:db8::1", "127.0.0.1", "::1", "0.0.0.0", "::", "10.128.0.1", ""] {
        let pod = Namespace::new();
        let mut config = server.config.clone();
        config["runtimeConfig"] =
            json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "hostIP": address}]});
        let call = |command: &str| {
            Call::new(command, "pod", &config.to_string())
                .through(HOSTCNI)
                .with("CNI_NETNS", &pod.path().display().to_string())
                .send(&Here)
                .result()
        };
        call("ADD");
        call("DEL");
    }
    server.holds_nothing();
}

#[test]
fn a_configuration_that_cannot_be_meant_is_refused_with_its_line() {
    let range = "[[network.range]]\nsubnet = \"10.0.0.0/24\"\n";
    for (network, said) in [
        (
            format!("{range}range_end = \"10.0.0.9\"\n{range}range_start = \"10.0.0.9\""),
            "has addresses of the range 10.0.0.1 to 10.0.0.9",
        ),
        (
            format!("{range}gateway = \"10.0.1.1\""),
            "gateway = \"10.0.1.1\" (network test): not in the range's subnet",
        ),
        ("subnets = [\"10.0.0.0/24\", \"10.0.0.0/16\"]".into(), "overlaps the subnet 10.0.0.0/24"),
        ("mac = \"01:00:5e:00:00:01\"".into(), "01:00:5e:00:00:01"),
        ("mtu = 1400\nmtu_overhead = 50".into(), "network.mtu_overhead = 50"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let etc = directory.path().join("etc/hostcni");
        std::fs::create_dir_all(&etc).unwrap();
        std::fs::write(etc.join("config.toml"), format!("[[network]]\nname = \"test\"\n{network}\n"))
            .unwrap();
        let check = Command::new(HOSTCNI).args(["config", "check", "--root"]).arg(directory.path()).output();
        let check = check.unwrap();
        assert!(!check.status.success(), "{network}");
        assert!(both(&check).contains(said) && both(&check).contains("config.toml:"), "{}", both(&check));
    }
}
