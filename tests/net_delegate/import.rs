//! Taking over from `host-local`: what is live is kept away from, what is stale goes, what is neither stays.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::plugins::Plugins;
use crate::support::cni::Call;
use crate::support::namespace::Namespace;
use crate::support::observe::{Here, Place, both};
use crate::support::server::Server;
use crate::support::wait::until;

const HOSTCNI: &str = env!("CARGO_BIN_EXE_hostcni");

/// A namespace with an address, as another plugin left it.
fn pod(address: &str) -> Namespace {
    let pod = Namespace::new();
    pod.ok(&format!(
        "ip link add eth0 type veth peer name other; ip address add {address}/24 dev eth0; ip link set eth0 up"
    ));
    pod
}

/// A file of `host-local`, an hour old.
fn entry(directory: &Path, name: &str, text: &str) {
    fs::write(directory.join(name), text).unwrap();
    Here.ok(&format!("touch -d '1 hour ago' {}", directory.join(name).display()));
}

fn import(server: &Server, directory: &Path, apply: &str) -> String {
    let root = server.directory.path().display();
    let line = format!("{HOSTCNI} import {apply} --root {root} --directory {}", directory.display());
    let output = Here.run(&line);
    assert!(output.status.success(), "{}", both(&output));
    both(&output)
}

#[test]
fn live_addresses_are_kept_away_from_until_their_pods_end_and_stale_ones_go() {
    let mut server = Server::with("subnets = [\"10.203.0.0/28\"]");
    server.kill();
    let old = tempfile::tempdir().unwrap();
    let at = |name: &str| old.path().join(name);
    let live = pod("10.203.0.2");
    let (one, two) = (pod("10.203.0.9"), pod("10.203.0.9"));
    entry(old.path(), "10.203.0.2", "live\r\neth0");
    entry(old.path(), "10.203.0.3", "gone\r\neth0");
    entry(old.path(), "10.203.0.9", "clash\r\neth0");
    entry(old.path(), "10.203.0.10", "");
    entry(old.path(), "notes", "mine");
    fs::write(at("10.203.0.4"), "starting\r\neth0").unwrap();
    fs::write(at("last_reserved_ip.0"), "10.203.0.4").unwrap();

    let report: Value = serde_json::from_str(&import(&server, old.path(), "--json")).unwrap();
    let states: Vec<(&str, &str)> = report["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["address"].as_str().unwrap(), it["state"].as_str().unwrap()))
        .collect();
    let expected =
        [("10.203.0.2", "live"), ("10.203.0.3", "stale"), ("10.203.0.4", "new"), ("10.203.0.9", "clash")];
    assert_eq!(states, expected);
    assert_eq!(report["malformed"].as_array().unwrap().len(), 2, "{report}");
    assert!(at("10.203.0.3").exists() && server.attachments().is_empty(), "a report changes nothing");
    let text = import(&server, old.path(), "--dry-run");
    assert!(text.contains("1 live, 1 stale, 1 new, 1 clashing, 2 malformed"), "{text}");

    let text = import(&server, old.path(), "--apply");
    assert!(text.contains("noted 1 live containers, removed 1 stale addresses"), "{text}");
    assert!(!at("10.203.0.3").exists());
    for name in ["10.203.0.2", "10.203.0.4", "10.203.0.9", "10.203.0.10", "notes"] {
        assert!(at(name).exists(), "{name} is left alone");
    }
    server.start_again();
    assert_eq!(server.used(), [1]);
    // Thirteen can be given; the live one is not among them.
    let pods: Vec<Namespace> = (0..12).map(|_| Namespace::new()).collect();
    let given: Vec<String> = pods.iter().flat_map(|pod| server.add(pod.name(), pod).addresses()).collect();
    assert!(!given.contains(&"10.203.0.2".to_owned()), "{given:?}");
    let last = Namespace::new();
    assert_eq!(server.add("last", &last).code(), 100, "full");
    // A restart forgets nothing, and the end of the pod frees the address, DEL or no DEL.
    server.kill();
    server.start_again();
    assert_eq!(server.used(), [13]);
    drop(live);
    until("the address to be free", || server.used() == [12]);
    assert_eq!(server.add("last", &last).addresses(), ["10.203.0.2"]);
    drop((one, two));
}

#[test]
fn a_del_of_an_imported_pod_frees_its_address() {
    let mut server = Server::with("subnets = [\"10.204.0.0/28\"]");
    server.kill();
    let old = tempfile::tempdir().unwrap();
    let live = pod("10.204.0.2");
    entry(old.path(), "10.204.0.2", "live\r\neth0");
    import(&server, old.path(), "--apply");
    server.start_again();
    assert_eq!(server.used(), [1]);
    server.del("live", &live.path().display().to_string()).result();
    assert_eq!((server.used(), server.attachments().len()), (vec![0], 0));
}

#[test]
fn pods_of_the_same_plugins_are_taken_into_custody() {
    let plugins = Plugins::new(&[]);
    let bridge = json!({"type": "bridge", "bridge": "cni0", "ipam": plugins.ipam("10.205.0.0/24")});
    let mut server = plugins.server("1.0.0", &json!([bridge]), "");
    server.kill();
    // As before hostcni: the runtime calls the plugin itself.
    let mut config = bridge;
    config["cniVersion"] = "1.0.0".into();
    config["name"] = "test".into();
    let pod = Namespace::new();
    let plugin =
        ["/usr/lib/cni", "/usr/libexec/cni"].into_iter().find(|it| Path::new(it).join("bridge").exists());
    let directory = plugin.expect("the reference plugins are installed");
    Call::new("ADD", "old", &config.to_string())
        .through(&format!("{directory}/bridge"))
        .with("CNI_PATH", directory)
        .with("CNI_NETNS", &pod.path().display().to_string())
        .send(&server.node)
        .result();
    import(&server, &plugins.path("networks/test"), "--apply");
    assert_eq!((plugins.addresses().len(), server.delegated().len()), (1, 1));
    server.start_again();
    assert_eq!(plugins.addresses().len(), 1, "it lives");
    // The node boots, and nobody ever asks.
    server.kill();
    server.age();
    server.start_again();
    assert_eq!((plugins.addresses().len(), server.delegated().len()), (0, 0));
}
