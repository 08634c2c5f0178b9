//! Nothing is lost: what was added is on disk, and goes with what added it, whatever happens in between.

use std::fs;

use serde_json::{Value, json};

use crate::plugins::Plugins;
use crate::support::cni::Call;
use crate::support::namespace::Namespace;
use crate::support::observe::Here;
use crate::support::server::{Server, newest};
use crate::support::wait::until;

fn record(server: &Server) -> Value {
    let files = server.delegated();
    assert_eq!(files.len(), 1, "{files:?}");
    newest(&files[0])
}

#[test]
fn all_that_a_del_needs_is_on_disk_before_the_first_plugin_runs() {
    let plugins = Plugins::new(&["odd"]);
    plugins.behave("odd", "ADD", "slow");
    let server = plugins.server("1.0.0", &json!([{"type": "odd", "capabilities": {"mac": true}}]), "");
    let pod = Namespace::new();
    let mut config = server.config.clone();
    config["runtimeConfig"] = json!({"mac": "c2:b0:57:49:47:f1", "ips": ["10.1.1.1/24"]});
    let path = pod.path().display().to_string();
    let asked = Call::new("ADD", "pod", &config.to_string())
        .through(env!("CARGO_BIN_EXE_hostcni"))
        .with("CNI_NETNS", &path)
        .with("CNI_ARGS", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=db-0;A=b=c")
        .start(&Here);
    until("the plugin to run", || !plugins.held().is_empty());
    let pending = record(&server);
    assert_eq!(pending["state"], "pending");
    assert_eq!(pending["pod"]["name"], "db-0");
    let delegated = &pending["delegated"];
    assert_eq!(delegated["args"], "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=db-0;A=b=c");
    assert!(delegated["conflist"].as_str().unwrap().contains(r#""type":"odd""#));
    assert_eq!(delegated["runtime_config"], r#"{"mac":"c2:b0:57:49:47:f1","ips":["10.1.1.1/24"]}"#);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().replace('-', "");
    assert!(delegated["boot"].as_str().unwrap().starts_with(&boot), "{delegated}");

    asked.answer().result();
    let ready = record(&server);
    assert_eq!(
        (ready["state"].as_str(), ready["addresses"][0].as_str()),
        (Some("ready"), Some("10.99.0.5/24"))
    );
    assert!(
        ready["delegated"]["result"].as_str().unwrap().contains(r#""odd":{"z":1,"a":2}"#),
        "as it was given"
    );
    // The plugin gets what the specification says, and only the arguments that it asked for.
    let seen = plugins.config("odd", "ADD");
    assert_eq!((&seen["name"], &seen["cniVersion"]), (&json!("test"), &json!("1.0.0")));
    assert_eq!(seen["runtimeConfig"], json!({"mac": "c2:b0:57:49:47:f1"}));
    assert!(seen.get("prevResult").is_none());
    for (name, value) in [("CNI_NETNS", path.as_str()), ("CNI_IFNAME", "eth0"), ("CNI_CONTAINERID", "pod")] {
        assert_eq!(plugins.variable("odd", "ADD", name).as_deref(), Some(value), "{name}");
    }
    assert!(plugins.variable("odd", "ADD", "CNI_PATH").unwrap().ends_with(":/usr/lib/cni:/usr/libexec/cni"));
}

#[test]
fn a_chain_passes_results_on_and_is_taken_down_in_reverse() {
    let plugins = Plugins::new(&["one", "two"]);
    let server = plugins.server("1.0.0", &json!([{"type": "one"}, {"type": "two"}]), "");
    let pod = Namespace::new();
    let result = server.add("pod", &pod).result();
    assert_eq!(result["cniVersion"], "1.1.0", "the runtime gets the version it asked for");
    assert_eq!(plugins.config("two", "ADD")["prevResult"]["one"], json!({"z": 1, "a": 2}));
    assert_eq!(result, server.add("pod", &pod).result(), "the same again gives the same");
    assert_eq!(plugins.calls(), ["one ADD pod", "two ADD pod"]);
    server.del("pod", &pod.path().display().to_string()).result();
    assert_eq!(plugins.calls()[2..], ["two DEL pod", "one DEL pod"]);
    assert_eq!(plugins.config("one", "DEL")["prevResult"]["two"], json!({"z": 1, "a": 2}));
    assert_eq!(server.delegated().len(), 0);
}

#[test]
fn a_del_uses_what_its_add_used_whatever_the_configuration_says_today() {
    let plugins = Plugins::new(&["one", "two"]);
    let mut server = plugins.server("1.0.0", &json!([{"type": "one", "key": "old"}]), "");
    let pods = [Namespace::new(), Namespace::new()];
    server.add("here", &pods[0]).result();
    server.add("there", &pods[1]).result();
    server.kill();
    server.configure(&plugins.network("0.4.0", &json!([{"type": "two"}]), ""));
    server.start_again();
    server.del("here", &pods[0].path().display().to_string()).result();
    assert_eq!(plugins.config("one", "DEL")["key"], "old");
    assert_eq!(plugins.held(), ["one-there"]);
    // A network that has quite another driver by now.
    server.kill();
    server.configure("subnets = [\"10.128.0.0/23\"]");
    server.start_again();
    server.del("there", &pods[1].path().display().to_string()).result();
    assert_eq!(plugins.held(), Vec::<String>::new());
    assert_eq!(server.delegated().len(), 0);
}

#[test]
fn a_del_that_fails_is_success_for_the_runtime_and_is_tried_until_it_is_done() {
    let plugins = Plugins::new(&["one", "two"]);
    let mut server = plugins.server("1.0.0", &json!([{"type": "one"}, {"type": "two"}]), "");
    let pod = Namespace::new();
    server.add("pod", &pod).result();
    plugins.behave("one", "DEL", "error");
    plugins.behave("two", "DEL", "mute");
    server.del("pod", &pod.path().display().to_string()).result();
    assert_eq!(record(&server)["state"], "deleting");
    assert!(server.log().contains("plugin one, DEL: no room (its code 51); at all"), "{}", server.log());
    assert!(server.log().contains("plugin two, DEL: exit code 2"), "all steps: {}", server.log());
    plugins.behave("two", "DEL", "");
    until("the second plugin's part to be done", || plugins.held() == ["one-pod"]);
    server.kill();
    server.start_again();
    assert_eq!(record(&server)["state"], "deleting", "also over a restart");
    plugins.behave("one", "DEL", "");
    until("the rest to be done", || plugins.held().is_empty() && server.delegated().is_empty());
}

#[test]
fn a_del_that_takes_longer_than_its_bound_goes_on_after_the_answer() {
    let plugins = Plugins::new(&["odd"]);
    let server =
        plugins.server("1.0.0", &json!([{"type": "odd"}]), "timeout = \"4s\"\n[bounds]\ndel = \"4s\"");
    let pod = Namespace::new();
    server.add("pod", &pod).result();
    plugins.behave("odd", "DEL", "hang");
    let answer = server.del("pod", &pod.path().display().to_string());
    answer.result();
    assert_eq!(record(&server)["state"], "deleting");
    plugins.behave("odd", "DEL", "");
    until("it to be done", || plugins.held().is_empty() && server.delegated().is_empty());
}

#[test]
fn a_chain_that_fails_half_way_is_taken_down() {
    let plugins = Plugins::new(&["one", "two", "three"]);
    plugins.behave("two", "ADD", "error");
    let server = plugins.server("1.0.0", &json!([{"type": "one"}, {"type": "two"}, {"type": "three"}]), "");
    let pod = Namespace::new();
    let answer = server.add("pod", &pod);
    assert_eq!(answer.code(), 51, "the plugin's own code: {}", answer.text());
    assert!(answer.text().contains("plugin two, ADD: no room"), "{}", answer.text());
    assert_eq!(
        plugins.calls(),
        ["one ADD pod", "two ADD pod", "three DEL pod", "two DEL pod", "one DEL pod"]
    );
    assert_eq!((plugins.held().len(), server.delegated().len()), (0, 0));
    plugins.behave("two", "ADD", "");
    server.add("pod", &pod).result();
}

#[test]
fn a_server_that_dies_in_the_middle_of_an_add_leaves_nothing() {
    let plugins = Plugins::new(&["odd"]);
    plugins.behave("odd", "ADD", "hang");
    let mut server = plugins.server("1.0.0", &json!([{"type": "odd"}]), "");
    let pod = Namespace::new();
    let asked = server.call("ADD", "pod", &pod.path().display().to_string()).start(&Here);
    until("the plugin to run", || !plugins.held().is_empty());
    // Its runtime dies as well; else it would ask the next server.
    server.kill();
    asked.kill();
    server.start_again();
    assert_eq!((plugins.held().len(), server.delegated().len()), (0, 0), "before READY");
}

#[test]
fn what_an_earlier_boot_left_is_taken_down_although_nobody_asks() {
    let plugins = Plugins::new(&["odd"]);
    let chain = json!([
        {"type": "bridge", "bridge": "cni0", "ipam": plugins.ipam("10.97.0.0/24")}, {"type": "odd"},
    ]);
    let mut server = plugins.server("1.0.0", &chain, "");
    let pods: Vec<Namespace> = (0..20).map(|_| Namespace::new()).collect();
    for pod in &pods {
        server.add(pod.name(), pod).result();
    }
    assert_eq!(plugins.addresses().len(), 20);
    server.kill();
    server.age();
    server.start_again();
    assert_eq!((plugins.addresses().len(), plugins.held().len(), server.delegated().len()), (0, 0, 0));
    assert_eq!(plugins.variable("odd", "DEL", "CNI_NETNS"), None, "a path of another boot leads elsewhere");
    assert!(server.log().contains("took down 20 attachments"), "{}", server.log());
    // And the runtime may ask all the same.
    server.del(pods[0].name(), &pods[0].path().display().to_string()).result();
}

#[test]
fn attachments_of_this_boot_outlive_a_restart() {
    let plugins = Plugins::new(&["odd"]);
    let mut server = plugins.server("1.0.0", &json!([{"type": "odd"}]), "");
    let pod = Namespace::new();
    let result = server.add("pod", &pod).result();
    server.kill();
    server.start_again();
    assert_eq!(plugins.held(), ["odd-pod"]);
    assert_eq!(server.add("pod", &pod).result(), result, "the same again gives the same");
    assert_eq!(plugins.calls(), ["odd ADD pod"]);
    // In a new namespace it is another pod: the old one goes first.
    let other = Namespace::new();
    server.add("pod", &other).result();
    assert_eq!(plugins.calls(), ["odd ADD pod", "odd DEL pod", "odd ADD pod"]);
}

#[test]
fn a_pod_that_was_added_before_hostcni_came_gets_its_del() {
    let plugins = Plugins::new(&["odd"]);
    let server = plugins.server("1.0.0", &json!([{"type": "odd"}]), "");
    fs::create_dir_all(plugins.path("held")).unwrap();
    fs::write(plugins.path("held/odd-old"), "").unwrap();
    let pod = Namespace::new();
    server.del("old", &pod.path().display().to_string()).result();
    assert_eq!((plugins.held().len(), server.delegated().len()), (0, 0));
    assert_eq!(plugins.variable("odd", "DEL", "CNI_NETNS"), Some(pod.path().display().to_string()));
}

#[test]
fn an_add_whose_runtime_gave_up_is_undone() {
    let plugins = Plugins::new(&["odd"]);
    plugins.behave("odd", "ADD", "slow");
    let server = plugins.server("1.0.0", &json!([{"type": "odd"}]), "");
    let pod = Namespace::new();
    let asked = server.call("ADD", "pod", &pod.path().display().to_string()).start(&Here);
    until("the plugin to run", || !plugins.held().is_empty());
    asked.kill();
    until("it to be undone", || plugins.held().is_empty() && server.delegated().is_empty());
}
