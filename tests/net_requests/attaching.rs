//! What an ADD gives a pod, what a DEL takes, and what is refused.

use serde_json::{Value, json};

use crate::ping;
use crate::support::cni::Call;
use crate::support::namespace::Namespace;
use crate::support::observe::{self, Here, Place};
use crate::support::server::{HOSTCNI, Server};

#[test]
fn a_pod_gets_addresses_and_reaches_its_gateway_and_another_pod() {
    let server = Server::new();
    let (one, two) = (Namespace::new(), Namespace::new());
    server.add("one", &one).result();
    let addresses = server.add("two", &two).addresses();
    assert_eq!(addresses.len(), 2, "one of each family");
    for target in addresses.iter().map(String::as_str).chain(["10.128.0.1", "fd01::1"]) {
        assert!(ping(&one, target), "one reaches {target}\n{}", server.log());
    }
    assert_eq!(observe::addresses(&two, "eth0").len(), 2);
    let link = &observe::ip(&two, "link show dev eth0")[0];
    let octets: Vec<u8> = addresses[0].split('.').map(|octet| octet.parse().unwrap()).collect();
    let mac = format!("0a:58:{:02x}:{:02x}:{:02x}:{:02x}", octets[0], octets[1], octets[2], octets[3]);
    assert_eq!(link["address"], Value::String(mac), "the MAC address follows the address");
    server.del("one", &one.path().display().to_string()).result();
    server.del("two", &two.path().display().to_string()).result();
    server.holds_nothing();
}

#[test]
fn a_pod_reaches_the_world_masqueraded() {
    let server = Server::new();
    let (pod, _world) = (Namespace::new(), server.world());
    server.add("pod", &pod).result();
    assert!(ping(&pod, "198.51.100.2"), "{}", server.log());
    assert!(ping(&pod, "2001:db8::2"), "{}", server.log());
}

#[test]
fn the_same_add_again_gives_the_same_result() {
    let server = Server::new();
    let pod = Namespace::new();
    let first = server.add("twice", &pod).result();
    assert_eq!(first, server.add("twice", &pod).result());
    assert_eq!(server.veths().len(), 1);
}

#[test]
fn an_add_for_a_new_namespace_replaces_what_is_left_of_the_old_one() {
    let server = Server::new();
    let (old, new) = (Namespace::new(), Namespace::new());
    server.add("same", &old).result();
    server.add("same", &new).result();
    assert!(observe::links(&new).contains(&"eth0".to_owned()));
    assert!(!observe::links(&old).contains(&"eth0".to_owned()));
    assert_eq!(server.veths().len(), 1);
    assert_eq!(server.used(), [1, 1]);
}

#[test]
fn a_del_succeeds_twice_before_any_add_and_whatever_became_of_the_namespace() {
    let server = Server::new();
    let gone = "/run/netns/hostcni-test-never-made";
    server.del("never", gone).result();
    let pod = Namespace::new();
    let path = pod.path().display().to_string();
    server.add("pod", &pod).result();
    server.del("pod", &path).result();
    server.del("pod", &path).result();
    server.holds_nothing();
    server.add("pod", &pod).result();
    server.del("pod", "").result();
    server.holds_nothing();
    server.add("pod", &pod).result();
    server.del("pod", gone).result();
    server.holds_nothing();
    server.add("pod", &pod).result();
    server.del("pod", "/etc/hostname").result();
    server.holds_nothing();
}

#[test]
fn an_address_asked_for_is_given_or_refused_and_never_another_one() {
    let server = Server::new();
    let (one, two) = (Namespace::new(), Namespace::new());
    let ask = |container: &str, pod: &Namespace, ips: Value| {
        let mut config = server.config.clone();
        config["runtimeConfig"] = json!({"ips": ips});
        Call::new("ADD", container, &config.to_string())
            .through(HOSTCNI)
            .with("CNI_NETNS", &pod.path().display().to_string())
            .send(&Here)
    };
    assert_eq!(ask("one", &one, json!(["10.128.0.77"])).addresses()[0], "10.128.0.77");
    let taken = ask("two", &two, json!(["10.128.0.77"]));
    assert!(taken.code() > 0);
    assert!(taken.text().contains("10.128.0.77"), "{}", taken.text());
    assert!(ask("two", &two, json!(["192.0.2.1"])).code() > 0);
    assert_eq!(server.veths().len(), 1);
}

#[test]
fn an_interface_that_is_there_already_is_code_102_and_stays() {
    let server = Server::new();
    let pod = Namespace::new();
    pod.ok("ip link add eth0 type veth peer name other");
    assert_eq!(server.add("pod", &pod).code(), 102);
    assert!(observe::links(&pod).contains(&"eth0".to_owned()), "what others made is left alone");
    server.holds_nothing();
}

#[test]
fn a_path_that_is_no_network_namespace_is_code_8() {
    let server = Server::new();
    for path in ["/etc/hostname", "/run", "/proc/self/ns/uts", "/nowhere"] {
        assert_eq!(server.call("ADD", "pod", path).send(&Here).code(), 8, "{path}");
    }
    // The node's own namespace would lose its interfaces to the pod.
    let own = format!("/run/netns/{}", server.node.name());
    assert_eq!(server.call("ADD", "pod", &own).send(&Here).code(), 8);
    server.holds_nothing();
}
