//! The reference plugins in chains: what runtimes and administrators know of them stays as it is.

use std::time::Duration;

use serde_json::{Value, json};

use crate::plugins::Plugins;
use crate::support::cni::{Answer, Call};
use crate::support::namespace::Namespace;
use crate::support::observe::{self, Here, Place};
use crate::support::server::Server;
use crate::support::wait;

const HOSTCNI: &str = env!("CARGO_BIN_EXE_hostcni");

/// A call with the server's conf and more keys in it.
fn call(server: &Server, command: &str, container: &str, pod: &Namespace, more: &Value) -> Answer {
    let mut config = server.config.clone();
    for (key, value) in more.as_object().expect("an object") {
        config[key] = value.clone();
    }
    Call::new(command, container, &config.to_string())
        .through(HOSTCNI)
        .with("CNI_NETNS", &pod.path().display().to_string())
        .send(&Here)
}

/// ADD, what `look` wants, CHECK, DEL; then nothing is left of links, addresses, records or rules.
fn works(plugins: &Plugins, chain: &Value, runtime: &Value, look: impl Fn(&Server, &Namespace, &Value)) {
    let server = plugins.server("1.0.0", chain, "");
    server.node.ok("ip link add up0 type veth peer name up1; ip link set up1 up; ip address add 198.51.100.1/24 dev up0; ip link set up0 up");
    let pod = Namespace::new();
    let more = json!({"cniVersion": "1.0.0", "runtimeConfig": runtime});
    // The first pod makes what all share: the bridge, chains of iptables.
    let first = Namespace::new();
    let others = call(&server, "ADD", "first", &first, &json!({"cniVersion": "1.0.0"}));
    others.result();
    let before = (observe::links(&server.node).len(), rules(&server, "pod"));
    let result = call(&server, "ADD", "pod", &pod, &more).result();
    assert_eq!(server.delegated().len(), 2);
    look(&server, &pod, &result);
    let check = json!({"cniVersion": "1.0.0", "runtimeConfig": runtime, "prevResult": result});
    call(&server, "CHECK", "pod", &pod, &check).result();
    assert_eq!(plugins.addresses().len(), 2);
    call(&server, "DEL", "pod", &pod, &more).result();
    assert_eq!((observe::links(&server.node).len(), rules(&server, "pod")), before, "{}", server.log());
    assert_eq!(observe::links(&pod), ["lo"]);
    assert_eq!(plugins.addresses().len(), 1);
    assert_eq!(server.delegated().len(), 1);
    // CHECK of what is gone is an error, DEL of it is none.
    assert!(!call(&server, "CHECK", "pod", &pod, &check).succeeded());
    call(&server, "DEL", "pod", &pod, &more).result();
    call(&server, "DEL", "first", &first, &json!({})).result();
    assert_eq!(plugins.addresses(), Vec::<String>::new());
    assert_eq!(server.delegated().len(), 0);
}

/// Rules that name a container.
fn rules(server: &Server, container: &str) -> usize {
    let all = server.node.ok("iptables-save 2>/dev/null; nft list ruleset");
    all.lines()
        .filter(|line| line.contains(&format!("id: \"{container}\"")) || line.contains(container))
        .count()
}

fn address(result: &Value) -> String {
    result["ips"][0]["address"].as_str().expect("an address").split('/').next().unwrap_or_default().to_owned()
}

#[test]
fn bridge_and_host_local() {
    let plugins = Plugins::new(&[]);
    let bridge = json!({"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
                        "ipam": plugins.ipam("10.90.0.0/24")});
    works(&plugins, &json!([bridge]), &json!({}), |server, pod, result| {
        assert!(pod.succeeds("ping -c1 -W5 10.90.0.1"), "{}", server.log());
        assert!(pod.succeeds("ping -c1 -W5 10.90.0.2"), "the other pod");
        assert!(observe::addresses(pod, "eth0").contains(&format!("{}/24", address(result))));
        assert_eq!(result["interfaces"][2]["sandbox"], pod.path().display().to_string());
    });
}

#[test]
fn ptp_and_host_local() {
    let plugins = Plugins::new(&[]);
    let ptp = json!({"type": "ptp", "ipMasq": true, "ipam": plugins.ipam("10.91.0.0/24")});
    works(&plugins, &json!([ptp]), &json!({}), |_, pod, _| {
        pod.ok("ping -c1 -W5 198.51.100.1");
    });
}

#[test]
fn macvlan_with_tuning() {
    let plugins = Plugins::new(&[]);
    let chain = json!([
        {"type": "macvlan", "master": "up0", "ipam": plugins.ipam("198.51.100.0/24")},
        {"type": "tuning", "sysctl": {"net.core.somaxconn": "511"}, "capabilities": {"mac": true}},
    ]);
    let runtime = json!({"mac": "c2:b0:57:49:47:f1"});
    works(&plugins, &chain, &runtime, |_, pod, _| {
        assert_eq!(pod.ok("cat /proc/sys/net/core/somaxconn"), "511");
        assert_eq!(observe::ip(pod, "link show dev eth0")[0]["address"], "c2:b0:57:49:47:f1");
    });
}

#[test]
fn portmap_leads_a_host_port_to_the_pod() {
    let plugins = Plugins::new(&[]);
    // The CHECK of portmap 1.1 asks for IPv6 chains that a pod without IPv6 does not have.
    let chain = json!({"disableCheck": true, "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": plugins.ipam("10.92.0.0/24")},
        {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
    ]});
    let runtime = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
    works(&plugins, &chain, &runtime, |server, _, result| {
        let to = format!("--to-destination {}:80", address(result));
        assert!(server.node.ok("iptables-save -t nat").contains(&to));
    });
}

#[test]
fn bandwidth_and_firewall() {
    let plugins = Plugins::new(&[]);
    let chain = json!([
        {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": plugins.ipam("10.93.0.0/24")},
        {"type": "bandwidth", "capabilities": {"bandwidth": true}},
        {"type": "firewall", "backend": "iptables"},
    ]);
    let runtime = json!({"bandwidth": {"ingressRate": 1_000_000, "ingressBurst": 1_000_000,
                                       "egressRate": 1_000_000, "egressBurst": 1_000_000}});
    works(&plugins, &chain, &runtime, |server, _, result| {
        assert!(server.node.ok("tc qdisc show").contains("tbf"));
        assert!(server.node.ok("iptables-save -t filter").contains(&address(result)));
    });
}

#[test]
fn gc_without_gc_deletes_what_is_not_listed() {
    let plugins = Plugins::new(&[]);
    let chain = json!([{"type": "bridge", "bridge": "cni0", "ipam": plugins.ipam("10.94.0.0/24")}]);
    let server = plugins.server("1.0.0", &chain, "");
    let pods = [Namespace::new(), Namespace::new(), Namespace::new()];
    for (pod, name) in pods.iter().zip(["one", "two", "three"]) {
        server.add(name, pod).result();
    }
    let valid = json!({"cni.dev/valid-attachments": [{"containerID": "two", "ifname": "eth0"}]});
    call(&server, "GC", "", &pods[0], &valid).result();
    assert_eq!(plugins.addresses(), ["10.94.0.3"]);
    assert_eq!(server.delegated().len(), 1);
    assert!(observe::links(&pods[1]).contains(&"eth0".to_owned()));
}

#[test]
fn thirty_two_at_a_time() {
    let plugins = Plugins::new(&[]);
    let chain = json!([{"type": "bridge", "bridge": "cni0", "ipam": plugins.ipam("10.95.0.0/24")}]);
    let server = plugins.server("1.0.0", &chain, "");
    let pods: Vec<Namespace> = (0..32).map(|_| Namespace::new()).collect();
    for command in ["ADD", "DEL"] {
        let asked: Vec<_> = pods
            .iter()
            .map(|pod| server.call(command, pod.name(), &pod.path().display().to_string()).start(&Here))
            .collect();
        for one in asked {
            one.answer().result();
        }
        assert_eq!(plugins.addresses().len(), if command == "ADD" { 32 } else { 0 });
    }
    assert_eq!(server.delegated().len(), 0);
}

#[test]
fn a_namespace_that_goes_without_a_del_is_no_obstacle_to_the_del() {
    let plugins = Plugins::new(&[]);
    let chain = json!([{"type": "bridge", "bridge": "cni0", "ipam": plugins.ipam("10.96.0.0/24")}]);
    let server = plugins.server("1.0.0", &chain, "");
    let pod = Namespace::new();
    let path = pod.path().display().to_string();
    server.add("pod", &pod).result();
    drop(pod);
    server.del("pod", &path).result();
    wait::within(Duration::from_secs(10), "the address to be free", || plugins.addresses().is_empty());
    assert_eq!(server.delegated().len(), 0);
}
