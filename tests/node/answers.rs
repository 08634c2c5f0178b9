//! What the node itself answers when a pod has no network: its journal, and `hostcni doctor`.

use serde_json::Value;

use super::product::*;
use crate::support::cni::Call;
use crate::support::node::Node;
use crate::support::observe::Place;
use crate::support::wait::until;

/// `hostcni doctor` with its exit status.
fn doctor(node: &Node) -> (String, i32) {
    let text = node.ok("hostcni doctor --json; echo $?");
    let (json, status) = text.trim().rsplit_once('\n').expect("JSON, then the status");
    (json.to_owned(), status.parse().expect("a number"))
}

/// The doctor finds such an error, with such words in its reason, and has a remedy.
#[track_caller]
fn finds(node: &Node, check: &str, words: &str) {
    finds_as("error", node, check, words);
}

/// It finds that, as an error or a warning.
#[track_caller]
fn finds_as(verdict: &str, node: &Node, check: &str, words: &str) {
    let (json, status) = doctor(node);
    let found: Vec<Value> = serde_json::from_str(&json).expect("the doctor prints JSON");
    let meant = found.iter().any(|it| {
        it["check"] == check
            && it["verdict"] == verdict
            && it["reason"].as_str().is_some_and(|reason| reason.contains(words))
            && it["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty())
    });
    assert!(meant, "no {verdict} of {check} with {words:?}: {json}");
    assert!(status >= if verdict == "error" { 2 } else { 1 }, "exit status {status}");
}

/// It finds no error any more.
#[track_caller]
fn finds_no_error(node: &Node) {
    let (json, status) = doctor(node);
    assert!(status < 2, "exit status {status}: {json}");
}

pub fn the_doctor_finds_what_keeps_pods_from_their_network(node: &mut Node) {
    boot(node);
    let node = &*node;
    finds_no_error(node);

    let other = "/etc/cni/net.d/10-other.conf";
    let strict =
        "add table ip strict; add chain ip strict f { type filter hook forward priority 0; policy drop; }";
    let (there, away) = ("/usr/libexec/cni/hostcni", "/usr/libexec/cni/away");
    let route = "10.128.1.0/24 dev uplink";
    for (done, check, words, undone) in [
        (
            format!("echo '{{\"cniVersion\":\"1.0.0\",\"name\":\"o\",\"type\":\"x\"}}' > {other}"),
            "conf",
            "10-other.conf comes before",
            format!("rm {other}"),
        ),
        (format!("nft '{strict}'"), "firewall", "strict", "nft delete table ip strict".to_owned()),
        (
            format!("ip route add {route}"),
            "routes",
            "10.128.1.0/24 goes to uplink",
            format!("ip route del {route}"),
        ),
        (format!("mv {there} {away}"), "runtime", "hostcni is not there", format!("mv {away} {there}")),
        (
            "sysctl -qw net.ipv4.ip_forward=0".to_owned(),
            "forwarding",
            "ip_forward is 0",
            "sysctl -qw net.ipv4.ip_forward=1".to_owned(),
        ),
    ] {
        node.ok(&done);
        finds(node, check, words);
        node.ok(&undone);
    }
    finds_no_error(node);

    add(node, "down").result();
    let config = conf(node);
    node.ok("systemctl stop hostcni.socket hostcni.service");
    Call::new("DEL", "down", &config).send(node).result();
    finds(node, "units", "hostcni.service is inactive");

    node.write(
        "/etc/hostcni/config.d/90-bad.toml",
        "[[network]]\nname = \"openshift-sdn\"\nmtu = \"much\"\n",
    );
    node.ok("systemctl start hostcni.socket hostcni.service || true");
    finds(node, "configuration", "mtu");
    node.ok("rm /etc/hostcni/config.d/90-bad.toml; systemctl restart hostcni.socket hostcni.service");
    until_active(node);
    finds_no_error(node);
    nothing_left(node);
}

pub fn the_doctor_finds_a_full_subnet_owed_deletions_and_a_namespace_without_a_name(node: &mut Node) {
    node.write(CONFIG, "[[network]]\nname = \"openshift-sdn\"\nsubnets = [\"10.128.0.0/29\"]\n");
    node.boot();
    let node = &*node;
    let pods: Vec<String> = (0..5).map(|number| format!("pod{number}")).collect();
    for pod in &pods {
        add(node, pod).result();
    }
    finds(node, "addresses", "no free address");
    assert_eq!(add(node, "one-more").code(), 100);
    let config = conf(node);
    let del = |pod: &str| Call::new("DEL", pod, &config).send(node).result();
    del("pod0");
    finds_no_error(node);

    // A process keeps the namespace, whose name the runtime has removed.
    node.ok("systemd-run -q --unit=keeper ip netns exec pod1 sleep 1000");
    until("the namespace is kept", || node.ok("ip netns pids pod1; true").lines().count() > 0);
    node.ok("umount /run/netns/pod1; rm /run/netns/pod1");
    finds_as("warning", node, "namespaces", "pod1");
    node.ok("systemctl stop keeper");
    until("the lease ends with the link", || !node.ok("hostcni attachments").contains("pod1"));
    finds_no_error(node);

    node.ok("systemctl stop hostcni.socket hostcni.service");
    del("pod2");
    finds_as("warning", node, "deletions", "1 DELs were written down");
    node.ok("systemctl start hostcni.socket hostcni.service");
    until_active(node);
    finds_no_error(node);
    assert!(!doctor(node).0.contains("DELs were written down"));
}

pub fn a_pods_story_is_found_by_its_name_and_by_its_trace(node: &mut Node) {
    boot(node);
    let node = &*node;
    let config = conf(node);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=3f2a";
    let call = |verb: &str| {
        Call::new(verb, "traced", &config).with("CNI_ARGS", args).with("TRACEPARENT", &parent).send(node)
    };
    node.ok("ip netns add traced");
    let result = call("ADD").result();
    node.ok("systemctl stop hostcni.socket hostcni.service");
    call("DEL").result();

    let entries = |matching: &str| -> Vec<Value> {
        let text = node.ok(&format!("journalctl --sync; journalctl -q -b -o json {matching}"));
        text.lines().map(|line| serde_json::from_str(line).expect("a line is an entry")).collect()
    };
    let story = entries("K8S_POD_NAME=web-0");
    let told: Vec<&str> = story.iter().filter_map(|entry| entry["CNI_COMMAND"].as_str()).collect();
    assert_eq!(told, ["ADD", "DEL"], "{story:?}");
    for (name, value) in [
        ("CNI_CONTAINERID", "traced"),
        ("CNI_IFNAME", "eth0"),
        ("K8S_POD_NAMESPACE", "shop"),
        ("K8S_POD_UID", "3f2a"),
        ("TRACE_ID", trace),
        ("SPAN_ID", "00f067aa0ba902b7"),
        ("PRIORITY", "6"),
        ("MESSAGE_ID", "352eacd4ddb04decacae201a9ef9b779"),
    ] {
        assert_eq!(story[0][name], value, "{name}");
    }
    let address = result["ips"][0]["address"].as_str().expect("an address");
    assert!(story[0]["HOSTCNI_ADDRESS"].as_str().is_some_and(|list| list.contains(address)));
    assert!(story[0]["HOSTCNI_DURATION_USEC"].as_str().is_some_and(|usec| usec.parse::<u64>().is_ok()));
    // The server told of the ADD, the plugin itself of the DEL that it wrote down.
    assert_eq!(entries(&format!("TRACE_ID={trace}")).len(), 2);
    node.ok("journalctl --update-catalog");
    let explained = node.ok("journalctl -q -b -x K8S_POD_NAME=web-0");
    assert!(explained.contains("Defined-By: hostcni"), "{explained}");
}

pub fn explain_tells_of_a_pod_by_any_of_its_names_also_when_it_is_gone(node: &mut Node) {
    boot(node);
    let node = &*node;
    let config = conf(node);
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=3f2a";
    let id = "0123456789abcdef";
    let call = |verb: &str| Call::new(verb, id, &config).with("CNI_ARGS", args).send(node);
    node.ok(&format!("ip netns add {id}"));
    let result = call("ADD").result();
    let address = result["ips"][0]["address"].as_str().expect("an address");
    let bare = address.split('/').next().expect("an address");
    let link = result["interfaces"][1]["name"].as_str().expect("the node's end");
    let names = ["web-0", "shop/web-0", "3f2a", id, "01234567", address, bare, link];

    for name in names {
        let told = node.ok(&format!("hostcni explain {name}"));
        for words in [
            "shop/web-0 (uid 3f2a)",
            address,
            "all is as ADD made it",
            "default via",
            "ADD of pod",
            "set pod_ip4",
        ] {
            assert!(told.contains(words), "{name}: no {words:?}: {told}");
        }
    }
    let json: Value = serde_json::from_str(&node.ok("hostcni explain --json web-0")).expect("JSON");
    assert_eq!(json["attachments"][0]["check"], "asMade");
    assert_eq!(json["attachments"][0]["inside"][0]["says"][1]["operstate"], "UP", "{json:#}");
    assert_eq!(json["story"]["says"][0]["CNI_COMMAND"], "ADD");

    node.ok(&format!("ip -n {id} address del {address} dev eth0"));
    assert!(node.ok("hostcni explain web-0").contains(&format!("DIFFERS: address {address} is gone")));
    // Without the server the kernel and the journal tell.
    node.ok("systemctl stop hostcni.socket hostcni.service");
    assert!(node.ok(&format!("hostcni explain {bare}")).contains("ADD of pod"));
    call("DEL").result();
    node.ok("systemctl start hostcni.socket hostcni.service");
    until_active(node);
    for name in names {
        let told = node.ok(&format!("hostcni explain {name}"));
        assert!(told.starts_with("not attached now\n"), "{name}: {told}");
        for words in
            ["ADD of pod", "written down for the next start", "which had been written down, is carried out"]
        {
            assert!(told.contains(words), "{name}: no {words:?}: {told}");
        }
    }
    node.ok("! hostcni explain nobody && ! hostcni explain 10.128.1.250");
    odd_words_mean_what_is_named_so(node, &config);
}

fn odd_words_mean_what_is_named_so(node: &Node, config: &str) {
    for (id, pod) in [("nameless", ""), ("like-address", "10.0.0.1"), ("like-link", "hcl-vault-agent")] {
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod};K8S_POD_UID={id}");
        let args = if pod.is_empty() { "" } else { args.as_str() };
        let call = |verb: &str| Call::new(verb, id, config).with("CNI_ARGS", args).send(node);
        node.ok(&format!("ip netns add {id}"));
        call("ADD").result();
        for word in ["/", "''", "' '", "-- --root=/", "shop/", "/10.0.0.1"] {
            node.ok(&format!("! hostcni explain {word}"));
        }
        call("DEL").result();
        if !pod.is_empty() {
            for word in [pod.to_owned(), format!("shop/{pod}")] {
                assert!(node.ok(&format!("hostcni explain {word}")).contains("ADD of pod"), "{word}");
            }
        }
    }
    // Anybody may write such an entry; what is shown is there to be typed again.
    node.ok("printf 'MESSAGE=x\\nK8S_POD_NAME=evil\\nCNI_CONTAINERID=a; reboot\\n' | logger --journald; journalctl --sync");
    node.ok("! hostcni explain evil");
    let without =
        "mount --bind /dev/null /usr/bin/journalctl; hostcni explain evil; umount /usr/bin/journalctl";
    let told = node.ok(without);
    assert!(told.contains("what the journal knows of it cannot be told: cannot run journalctl"), "{told}");
}

pub fn what_is_logged_is_changed_while_the_server_runs(node: &mut Node) {
    boot(node);
    let node = &*node;
    let steps = |container: &str| {
        add(node, container).result();
        let found = format!("CNI_CONTAINERID={container} HOSTCNI_STEP=link PRIORITY=7");
        node.ok(&format!("journalctl --sync; journalctl -q -b -o cat {found}")).lines().count()
    };
    assert_eq!(node.ok("hostcni log-level").trim(), "info");
    assert_eq!(steps("quiet"), 0);
    assert_eq!(node.ok("hostcni log-level hostcni=debug").trim(), "hostcni=debug");
    assert_eq!(steps("loud"), 1, "the step is told once, with how long it took");
    node.ok("! hostcni log-level debgu && ! hostcni log-level hostcni=lots");
    assert_eq!(node.ok("hostcni log-level").trim(), "hostcni=debug");
    assert_eq!(node.ok("hostcni log-level --reset").trim(), "info");
    assert_eq!(steps("quiet-again"), 0);
}
