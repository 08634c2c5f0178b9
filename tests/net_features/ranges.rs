//! A pod gets its addresses from the ranges that it asks for.

use serde_json::{Value, json};

use crate::support::cni::{Answer, Call};
use crate::support::namespace::Namespace;
use crate::support::observe::{Here, Place, addresses, ip};
use crate::support::server::{HOSTCNI, Server};

/// A call with ranges.
fn call(server: &Server, command: &str, name: &str, pod: &Namespace, ranges: &Value) -> Call {
    server.call_with(command, name, pod, ("ipRanges", ranges))
}

fn add(server: &Server, name: &str, pod: &Namespace, ranges: &Value) -> Answer {
    call(server, "ADD", name, pod, ranges).send(&Here)
}

/// Two addresses of each family.
fn both() -> Value {
    json!([
        [{"subnet": "10.128.0.0/23", "rangeStart": "10.128.1.10", "rangeEnd": "10.128.1.11", "gateway": "10.128.0.1"}],
        [{"subnet": "fd01::/64", "rangeStart": "fd01::a:0", "rangeEnd": "fd01::a:1"}],
    ])
}

#[test]
fn a_pod_gets_one_address_of_each_range_and_the_networks_gateway() {
    let server = Server::new();
    let pod = Namespace::new();
    let result = add(&server, "pod", &pod, &both()).result();
    assert_eq!(addresses(&pod, "eth0"), ["10.128.1.10/23", "fd01::a:0/64"]);
    assert_eq!(result["ips"][0]["gateway"], "10.128.0.1");
    for gateway in ["10.128.0.1", "fd01::1"] {
        pod.ok(&format!("ping -q -c 1 -W 2 {gateway}"));
    }
    server.check("pod", &pod, &result).result();
    assert_eq!(add(&server, "pod", &pod, &both()).result(), result, "the same again");

    // One of both families, and a subnet that is a part of the network's.
    let other = json!([[{"subnet": "10.128.1.64/26"}]]);
    let moved = add(&server, "pod", &pod, &other).result();
    assert_eq!(addresses(&pod, "eth0"), ["10.128.1.64/23"]);
    assert_eq!(ip(&pod, "-6 route show default"), Vec::<Value>::new());
    server.check("pod", &pod, &moved).result();
    assert_eq!(server.used(), [1, 0]);
    call(&server, "DEL", "pod", &pod, &other).send(&Here).result();
    server.holds_nothing();
}

#[test]
fn a_full_range_is_code_100_though_the_network_has_others_also_after_a_restart() {
    let mut server = Server::new();
    let pods: Vec<Namespace> = (0..4).map(|_| Namespace::new()).collect();
    let results: Vec<Value> =
        (0..2).map(|number| add(&server, &format!("pod{number}"), &pods[number], &both()).result()).collect();
    let full = |server: &Server| {
        let full = add(server, "third", &pods[2], &both());
        assert_eq!(full.code(), 100, "{}", full.text());
        assert!(full.text().contains("10.128.0.0/23 (10.128.1.10 to 10.128.1.11)"), "{}", full.text());
        assert_eq!(server.veths().len(), 2);
    };
    full(&server);
    server.kill();
    server.start_again();
    assert_eq!(server.used(), [2, 2]);
    for (number, result) in results.iter().enumerate() {
        server.check(&format!("pod{number}"), &pods[number], result).result();
    }
    full(&server);
    server.add("other", &pods[3]).result();
    server.del("pod0", "").result();
    assert_eq!(add(&server, "third", &pods[2], &both()).addresses(), ["10.128.1.10", "fd01::a:0"]);
    for name in ["pod1", "third", "other"] {
        server.del(name, "").result();
    }
    server.holds_nothing();
}

#[test]
fn two_addresses_of_one_family_share_the_default_route_and_the_first_has_the_host_port() {
    let server = Server::new();
    let world = server.world();
    let pod = Namespace::new();
    let mut config = server.config.clone();
    config["runtimeConfig"] = json!({
        "ipRanges": [[{"subnet": "10.128.0.16/28"}], [{"subnet": "10.128.1.16/28"}]],
        "ips": ["10.128.1.20"],
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
    });
    let call = |command: &str| {
        Call::new(command, "pod", &config.to_string())
            .through(HOSTCNI)
            .with("CNI_NETNS", &pod.path().display().to_string())
    };
    let added = call("ADD").send(&Here);
    assert_eq!(added.addresses(), ["10.128.0.16", "10.128.1.20"]);
    let result = added.result();
    assert_eq!(result["routes"].as_array().map(Vec::len), Some(1), "{result}");
    server.check("pod", &pod, &result).result();
    let listener = pod.inside(|| std::net::TcpListener::bind("0.0.0.0:80")).unwrap();
    let client = world.inside(|| std::net::TcpStream::connect("198.51.100.1:8080")).unwrap();
    let (stream, _) = listener.accept().unwrap();
    assert_eq!(stream.local_addr().unwrap().to_string(), "10.128.0.16:80");
    drop((client, stream));
    // The other one is held to by anti-spoofing as well.
    pod.ok("ping -q -c 1 -W 2 -I 10.128.1.20 10.128.0.1");
    call("DEL").send(&Here).result();
    server.holds_nothing();
}
