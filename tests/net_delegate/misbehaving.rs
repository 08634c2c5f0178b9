//! Plugins that hang, crash, lie, vanish and talk nonsense: each is a clear error, and nothing stays behind.

use std::fs;

use serde_json::json;

use crate::plugins::Plugins;
use crate::support::cni::Call;
use crate::support::namespace::Namespace;
use crate::support::observe::{Here, Place};
use crate::support::wait::until;

const HOSTCNI: &str = env!("CARGO_BIN_EXE_hostcni");

#[test]
fn each_misbehaviour_is_its_own_error() {
    let plugins = Plugins::new(&["odd"]);
    let server = plugins.server("1.0.0", &json!([{"type": "odd"}]), "timeout = \"6s\"");
    let pod = Namespace::new();
    for (mode, code, words) in [
        ("crash", 105, "ended by signal 11"),
        ("garbage", 105, "what is no answer"),
        ("silent", 105, "exit code 0 and no output"),
        ("mute", 105, "exit code 2 and no output; its last words: \\\"panic: at the disco\\\""),
        ("error", 51, "no room (its code 51); at all"),
        ("lie", 7, "it did not go well"),
        ("nonsense", 105, "what is no answer"),
        ("hang", 11, "killed with its process group"),
    ] {
        plugins.behave("odd", "ADD", mode);
        let answer = server.add("pod", &pod);
        assert_eq!(answer.code(), code, "{mode}: {}", answer.text());
        assert!(answer.text().contains(words), "{mode}: {}", answer.text());
        assert_eq!((plugins.held().len(), server.delegated().len()), (0, 0), "{mode}");
    }
    let child = fs::read_to_string(plugins.path("child")).unwrap();
    let lives = format!("grep '^State:' /proc/{}/status | grep -qv Z", child.trim());
    assert!(!Here.succeeds(&lives), "the group is gone");
    plugins.behave("odd", "ADD", "loud");
    server.add("pod", &pod).result();
    assert!(
        server.log().contains("plugin odd, ADD of eth0 of container pod in network test: a word of warning")
    );
}

#[test]
fn a_plugin_that_vanishes_costs_its_network_and_no_del() {
    let plugins = Plugins::new(&["odd"]);
    let server = plugins.server("1.1.0", &json!([{"type": "odd"}]), "[network.delegate.ready]\ngrace = 0");
    let pod = Namespace::new();
    let path = pod.path().display().to_string();
    server.add("pod", &pod).result();
    server.call("STATUS", "", "").send(&Here).result();
    plugins.remove("odd");
    let answer = server.call("STATUS", "", "").send(&Here);
    assert_eq!(answer.code(), 50);
    assert!(answer.text().contains("there is no such program in"), "{}", answer.text());
    assert_eq!(server.add("other", &pod).code(), 105);
    server.del("pod", &path).result();
    assert_eq!((plugins.held().len(), server.delegated().len()), (1, 1), "kept");
    plugins.install("odd");
    until("the DEL to be done", || plugins.held().is_empty() && server.delegated().is_empty());
    until("the network to be back", || server.call("STATUS", "", "").send(&Here).succeeded());
}

#[test]
fn versions_are_reconciled_with_what_the_plugins_know() {
    let plugins = Plugins::new(&["odd"]);
    fs::write(plugins.path("versions"), r#""0.3.1","0.4.0""#).unwrap();
    let chain = json!({"cniVersions": ["0.4.0", "1.1.0"], "plugins": [{"type": "odd"}]});
    let server = plugins.server("1.0.0", &chain, "");
    let pod = Namespace::new();
    server.add("pod", &pod).result();
    assert_eq!(plugins.config("odd", "ADD")["cniVersion"], "0.4.0", "the newest that both know");
    // None that both know: the network is not ready, and says why.
    let none = plugins.server("1.0.0", &json!([{"type": "odd"}]), "[network.delegate.ready]\nwait = 0");
    let answer = none.call("STATUS", "", "").send(&Here);
    assert_eq!(answer.code(), 50);
    assert!(
        answer.text().contains("knows the versions 0.3.1, 0.4.0, and the list allows 1.0.0"),
        "{}",
        answer.text()
    );
    assert_eq!(none.add("pod", &pod).code(), 1);
}

#[test]
fn status_and_gc_reach_plugins_that_know_them() {
    let plugins = Plugins::new(&["new"]);
    let server = plugins.server("1.1.0", &json!([{"type": "new"}]), "");
    plugins.behave("new", "STATUS", "error");
    let answer = server.call("STATUS", "", "").send(&Here);
    assert_eq!(answer.code(), 51, "the plugin's own: {}", answer.text());
    plugins.behave("new", "STATUS", "mute");
    assert_eq!(server.call("STATUS", "", "").send(&Here).code(), 50);
    plugins.behave("new", "STATUS", "");
    let (one, two) = (Namespace::new(), Namespace::new());
    server.add("one", &one).result();
    server.add("two", &two).result();
    let mut config = server.config.clone();
    config["cni.dev/valid-attachments"] = json!([{"containerID": "two", "ifname": "eth0"}]);
    Call::new("GC", "", &config.to_string()).through(HOSTCNI).with("CNI_NETNS", "").send(&Here).result();
    assert_eq!(plugins.held(), ["new-two"]);
    let seen = plugins.config("new", "GC");
    assert_eq!(seen["cni.dev/valid-attachments"], json!([{"containerID": "two", "ifname": "eth0"}]));
}

#[test]
fn a_namespace_under_a_path_that_the_server_cannot_see_gets_one_for_the_plugins() {
    let plugins = Plugins::new(&["odd"]);
    let server = plugins.server(
        "1.0.0",
        &json!([{"type": "bridge", "bridge": "cni0", "ipam": plugins.ipam("10.98.0.0/24")}, {"type": "odd"}]),
        "",
    );
    let pod = Namespace::new();
    let private = plugins.path("private");
    fs::write(&private, "").unwrap();
    let mounts = server.directory.path().join("netns");
    for command in ["ADD", "DEL"] {
        // A runtime with mounts of its own.
        let wrapper = plugins.path("wrapper");
        let text = format!(
            "#!/bin/sh\nexec unshare -m sh -c 'mount --bind {} {} && exec {HOSTCNI}'\n",
            pod.path().display(),
            private.display()
        );
        fs::write(&wrapper, text).unwrap();
        Here.ok(&format!("chmod +x {}", wrapper.display()));
        let call = server.call(command, "pod", &private.display().to_string());
        call.through(wrapper.to_str().unwrap()).send(&Here).result();
        let seen = plugins.variable("odd", command, "CNI_NETNS").unwrap();
        assert!(seen.starts_with(&mounts.display().to_string()), "{command}: {seen}");
        assert_eq!(fs::read_dir(&mounts).unwrap().count(), 0, "it is removed after");
        let there = pod.succeeds("ip link show dev eth0");
        assert_eq!(there, command == "ADD", "it led to the pod");
    }
    assert_eq!(server.delegated().len(), 0);
}

#[test]
fn what_a_network_stands_on_gates_it_each_time() {
    use std::os::unix::net::UnixListener;
    let plugins = Plugins::new(&["odd"]);
    let socket = plugins.path("db.sock");
    let more = format!(
        "ready = {{ files = [\"{}\"], sockets = [\"{}\"], wait = \"1s\", grace = \"6s\" }}",
        plugins.path("ready").display(),
        socket.display()
    );
    let server = plugins.server("1.1.0", &json!([{"type": "odd"}]), &more);
    let status = || server.call("STATUS", "", "").send(&Here);
    assert!(status().text().contains("no file"), "{}", status().text());
    fs::write(plugins.path("ready"), "").unwrap();
    until("the socket to be awaited", || status().text().contains("nobody accepts at"));
    for _ in 0..2 {
        let listener = UnixListener::bind(&socket).unwrap();
        until("the network to be ready", || status().succeeded());
        drop(listener);
        assert!(status().succeeded(), "within the grace");
        until("the network to be away", || !status().succeeded());
        fs::remove_file(&socket).unwrap();
    }
    assert!(server.log().contains("network test has all it stands on again"), "{}", server.log());
}
