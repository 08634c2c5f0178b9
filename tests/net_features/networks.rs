//! One pod in two networks, each with its own conf, bridge and subnets.

use serde_json::{Value, json};

use crate::support::cni::{Answer, Call};
use crate::support::namespace::Namespace;
use crate::support::observe::{Here, Place, addresses, ip};
use crate::support::server::{HOSTCNI, Server};

const TWO: &str = r#"
subnets = ["10.128.0.0/23", "fd01::/64"]
[[network]]
name = "storage"
bridge = "storage0"
subnets = ["10.200.0.0/24", "fd02::/64"]
mtu = 1400
conf.path = "/etc/cni/net.d/90-storage.conf"
[[network.route]]
dst = "192.0.2.0/24"
gateway = "10.200.0.1"
"#;

fn call(
    server: &Server,
    command: &str,
    network: &str,
    ifname: &str,
    pod: &Namespace,
    more: &Value,
) -> Answer {
    let mut config = server.config.clone();
    config["name"] = network.into();
    for (key, value) in more.as_object().expect("keys") {
        config[key] = value.clone();
    }
    Call::new(command, "pod", &config.to_string())
        .through(HOSTCNI)
        .with("CNI_NETNS", &pod.path().display().to_string())
        .with("CNI_IFNAME", ifname)
        .send(&Here)
}

#[test]
fn a_pod_has_an_interface_in_each_of_two_networks() {
    let mut server = Server::with(TWO);
    let (pod, other) = (Namespace::new(), Namespace::new());
    let first = server.add("pod", &pod).result();
    let second = call(&server, "ADD", "storage", "net1", &pod, &json!({})).result();
    assert_eq!(addresses(&pod, "eth0"), ["10.128.0.2/23", "fd01::2/64"]);
    assert_eq!(addresses(&pod, "net1"), ["10.200.0.2/24", "fd02::2/64"]);
    for (family, gateway) in [("-4", "10.128.0.1"), ("-6", "fd01::1")] {
        let default = ip(&pod, &format!("{family} route show default"));
        assert_eq!((default.len(), &default[0]["gateway"]), (1, &json!(gateway)), "the first network's");
    }
    assert_eq!(ip(&pod, "route show 192.0.2.0/24")[0]["dev"], "net1");
    assert_eq!(second["routes"], json!([{"dst": "192.0.2.0/24", "gw": "10.200.0.1"}]), "what was made");
    assert_eq!(ip(&pod, "link show dev net1")[0]["mtu"], 1400);
    for (link, address) in [("hostcni0", "10.128.0.1/23"), ("storage0", "10.200.0.1/24")] {
        assert!(addresses(&server.node, link).contains(&address.to_owned()), "{link}");
    }
    let masters: Vec<Value> =
        ip(&server.node, "link show type veth").iter().map(|it| it["master"].clone()).collect();
    assert_eq!(masters, ["hostcni0", "storage0"]);

    // Each by its own way, and pods of either reach each other.
    for gateway in ["10.128.0.1", "fd01::1", "10.200.0.1", "fd02::1"] {
        pod.ok(&format!("ping -q -c 1 -W 2 {gateway}"));
    }
    let theirs = call(&server, "ADD", "storage", "eth0", &other, &json!({})).addresses();
    for address in &theirs {
        pod.ok(&format!("ping -q -c 1 -W 2 -I net1 {address}"));
    }

    let check = |server: &Server| {
        server.check("pod", &pod, &first).result();
        call(server, "CHECK", "storage", "net1", &pod, &json!({"prevResult": second})).result();
    };
    check(&server);
    server.kill();
    server.start_again();
    check(&server);

    // The end of one is not the end of the other, by DEL and by GC.
    call(&server, "DEL", "storage", "net1", &pod, &json!({})).result();
    server.check("pod", &pod, &first).result();
    call(&server, "ADD", "storage", "net1", &pod, &json!({})).result();
    let valid = json!({"cni.dev/valid-attachments": [{"containerID": "pod", "ifname": "net1"}]});
    call(&server, "GC", "storage", "", &pod, &valid).result();
    assert_eq!(server.veths().len(), 2);
    server.del("pod", "").result();
    pod.ok("ping -q -c 1 -W 2 10.200.0.1");
    call(&server, "DEL", "storage", "net1", &pod, &json!({})).result();
    server.holds_nothing();
}
