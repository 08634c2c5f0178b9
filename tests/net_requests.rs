//! Every verb through the real plugin and a real server, in network namespaces, without systemd.

mod support;
#[path = "net_requests/races.rs"]
mod races;

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use support::cni::{Answer, Call};
use support::namespace::Namespace;
use support::observe::{self, Here, Place};
use support::server::{HOSTCNI, Server};
use support::wait;

fn ping(place: &impl Place, address: &str) -> bool {
    place.succeeds(&format!("ping -c 1 -W 5 {address}"))
}

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
fn a_namespace_that_vanishes_frees_its_lease_without_a_del() {
    let server = Server::new();
    let pod = Namespace::new();
    server.add("pod", &pod).result();
    assert_eq!(server.used(), [1, 1]);
    drop(pod);
    wait::until("the lease to be free", || server.used() == [0, 0]);
    server.holds_nothing();
}

#[test]
fn a_namespace_that_vanishes_while_the_server_is_down_frees_its_lease_at_the_start() {
    let mut server = Server::new();
    let (pod, stays) = (Namespace::new(), Namespace::new());
    server.add("pod", &pod).result();
    server.add("stays", &stays).result();
    server.kill();
    drop(pod);
    wait::until("the kernel to take the veth", || server.veths().len() == 1);
    server.start_again();
    assert_eq!(server.used(), [1, 1]);
    assert!(ping(&stays, "10.128.0.1"), "a pod that runs keeps its network");
}

#[test]
fn a_lost_or_damaged_record_is_rebuilt_from_the_kernel_and_never_gives_its_address_away() {
    for damage in ["gone", "empty", "half"] {
        let mut server = Server::new();
        let (pod, other) = (Namespace::new(), Namespace::new());
        let addresses = server.add("pod", &pod).addresses();
        server.kill();
        let record = server.attachments().pop().expect("one record");
        match damage {
            "gone" => fs::remove_file(&record).unwrap(),
            "empty" => fs::write(&record, "").unwrap(),
            _ => {
                let text = fs::read_to_string(&record).unwrap();
                fs::write(&record, &text[..text.len() / 2]).unwrap();
            }
        }
        server.start_again();
        assert_eq!(server.used(), [1, 1], "{damage}: {}", server.log());
        assert!(ping(&pod, "10.128.0.1"), "{damage}");
        assert_ne!(server.add("other", &other).addresses(), addresses, "{damage}");
        server.del("pod", "").result();
        server.del("other", "").result();
        server.holds_nothing();
    }
}

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

#[test]
fn check_names_what_happened_on_the_node() {
    for (line, named) in [("nomaster", "is not a port of bridge"), ("down", "is down")] {
        let server = Server::new();
        let pod = Namespace::new();
        let result = server.add("pod", &pod).result();
        let veth = server.veths().pop().expect("one pod, one veth");
        server.node.ok(&format!("ip link set {veth} {line}"));
        let answer = server.check("pod", &pod, &result);
        assert!(answer.text().contains(named) && answer.text().contains(&veth), "{}", answer.text());
    }
}

#[test]
fn check_of_an_attachment_that_does_not_exist_is_code_3() {
    let server = Server::new();
    let pod = Namespace::new();
    let previous = json!({"cniVersion": "1.1.0", "interfaces": [], "ips": []});
    assert_eq!(server.check("pod", &pod, &previous).code(), 3);
}

#[test]
fn an_exhausted_pool_is_code_100_and_status_51_and_a_del_makes_room_again() {
    let server = Server::with(r#"subnets = ["10.9.0.0/30"]"#);
    let (one, two) = (Namespace::new(), Namespace::new());
    let status = || server.call("STATUS", "", "").send(&Here);
    status().result();
    server.add("one", &one).result();
    assert_eq!(server.add("two", &two).code(), 100);
    assert_eq!(status().code(), 51);
    assert_eq!(server.veths().len(), 1, "the failed ADD left nothing");
    server.del("one", "").result();
    status().result();
    server.add("two", &two).result();
}

#[test]
fn gc_removes_exactly_what_is_not_listed_and_refuses_a_missing_list() {
    let server = Server::new();
    let pods: Vec<Namespace> = (0..4).map(|_| Namespace::new()).collect();
    for (number, pod) in pods.iter().enumerate() {
        server.add(&format!("pod{number}"), pod).result();
    }
    let gc = |valid: Option<Value>| {
        let mut config = server.config.clone();
        if let Some(valid) = valid {
            config["cni.dev/valid-attachments"] = valid;
        }
        Call::new("GC", "", &config.to_string()).through(HOSTCNI).with("CNI_NETNS", "").send(&Here)
    };
    assert_eq!(gc(None).code(), 7);
    assert_eq!(server.veths().len(), 4);
    gc(Some(json!([{"containerID": "pod1", "ifname": "eth0"}, {"containerID": "pod3", "ifname": "eth0"}])))
        .result();
    assert_eq!(server.used(), [2, 2]);
    assert!(ping(&pods[1], "10.128.0.1") && !ping(&pods[0], "10.128.0.1"));
    gc(Some(json!([]))).result();
    server.holds_nothing();
}

#[test]
fn two_hundred_pods_at_once_get_two_hundred_addresses_and_leave_nothing() {
    let server = Server::new();
    let pods: Vec<Namespace> = (0..200).map(|_| Namespace::new()).collect();
    let name = |number: usize| format!("pod{number}");
    let addresses: HashSet<String> =
        at_once(16, 200, |number| server.add(&name(number), &pods[number]).addresses().remove(0))
            .into_iter()
            .collect();
    assert_eq!(addresses.len(), 200);
    assert_eq!(server.veths().len(), 200);
    at_once(16, 200, |number| server.del(&name(number), &pods[number].path().display().to_string()).result());
    server.holds_nothing();
}

/// Runs `work` for each number below `count`, `concurrency` at a time.
fn at_once<T: Send>(concurrency: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..concurrency {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let result = work(number);
                    results.lock().unwrap().push(result);
                }
            });
        }
    });
    results.into_inner().unwrap()
}

#[test]
fn a_plugin_that_is_killed_during_its_add_leaves_nothing() {
    let server = Server::new();
    let pods: Vec<Namespace> = (0..20).map(|_| Namespace::new()).collect();
    for (number, pod) in pods.iter().enumerate() {
        let call = server.call("ADD", &format!("pod{number}"), &pod.path().display().to_string());
        let asked = call.start(&Here);
        // At every moment between its start and its answer.
        std::thread::sleep(std::time::Duration::from_micros(300 * number as u64));
        asked.kill();
    }
    // What was answered before the kill is the runtime's to delete; everything else is undone by itself.
    wait::until("nothing half-made to be left", || {
        server
            .attachments()
            .iter()
            .all(|path| fs::read_to_string(path).is_ok_and(|text| text.contains("\"ready\"")))
    });
    for number in 0..pods.len() {
        server.del(&format!("pod{number}"), "").result();
    }
    server.holds_nothing();
}

#[test]
fn results_and_errors_come_in_the_version_asked_for() {
    let server = Server::new();
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let pod = Namespace::new();
        let mut config = server.config.clone();
        config["cniVersion"] = json!(version);
        let call = |command: &str, netns: &str| {
            Call::new(command, &format!("v{version}"), &config.to_string())
                .through(HOSTCNI)
                .with("CNI_NETNS", netns)
        };
        let result = call("ADD", &pod.path().display().to_string()).send(&Here).result();
        assert_eq!(result["cniVersion"], version);
        if version < "0.3.0" {
            assert!(result["ip4"]["ip"].is_string() && result["ip6"]["ip"].is_string(), "{result}");
        } else {
            assert_eq!(result["ips"].as_array().map(Vec::len), Some(2), "{result}");
            assert_eq!(result["ips"][0]["version"].is_string(), version < "1.0.0", "{result}");
        }
        let refused = call("ADD", "/etc/hostname").with("CNI_CONTAINERID", "other").send(&Here);
        assert_eq!(refused.code(), 8);
        assert!(refused.text().contains(&format!("\"{version}\"")), "{}", refused.text());
        call("DEL", "").send(&Here).result();
    }
    server.holds_nothing();
}

#[test]
fn an_absent_version_is_the_first_one() {
    let server = Server::new();
    let pod = Namespace::new();
    let mut config = server.config.clone();
    config.as_object_mut().unwrap().remove("cniVersion");
    let call = |command: &str| {
        Call::new(command, "old", &config.to_string())
            .through(HOSTCNI)
            .with("CNI_NETNS", &pod.path().display().to_string())
            .send(&Here)
    };
    assert_eq!(call("ADD").result()["cniVersion"], "0.1.0");
    call("DEL").result();
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

#[test]
fn killing_the_server_leaves_running_pods_and_their_leases_as_they_are() {
    let mut server = Server::new();
    let pods: Vec<Namespace> = (0..5).map(|_| Namespace::new()).collect();
    for (number, pod) in pods.iter().enumerate() {
        server.add(&format!("pod{number}"), pod).result();
    }
    for _ in 0..3 {
        server.kill();
        assert!(ping(&pods[0], "10.128.0.1"));
        server.start_again();
        assert_eq!(server.used(), [5, 5]);
    }
    let new = Namespace::new();
    let fresh = server.add("new", &new).addresses();
    assert_eq!(observe::addresses(&new, "eth0").len(), 2);
    for pod in &pods {
        assert!(!observe::addresses(pod, "eth0").iter().any(|it| it.starts_with(&fresh[0])));
    }
}

#[test]
fn the_bridge_and_the_rules_are_repaired_when_somebody_removes_them() {
    let server = Server::new();
    let (one, two) = (Namespace::new(), Namespace::new());
    server.add("one", &one).result();
    server.add("two", &two).result();
    server.node.ok("nft flush ruleset");
    wait::until("the table to be back", || {
        !observe::nft(&server.node).iter().all(|it| it["table"].is_null())
    });
    server.node.ok("ip link delete hostcni0");
    wait::until("pods to reach each other again", || ping(&one, "10.128.0.1") && ping(&two, "fd01::1"));
    server.node.ok("ip address del 10.128.0.1/23 dev hostcni0");
    wait::until("the gateway to be back", || ping(&one, "10.128.0.1"));
    server.node.ok("ip link set hostcni0 down");
    wait::until("the bridge to be up again", || ping(&one, "10.128.0.1") && ping(&one, "fd01::1"));
}

#[test]
fn nothing_of_others_is_touched() {
    let node_before = |server: &Server| {
        (
            server.node.ok("nft list tables | grep -v hostcni || true"),
            observe::addresses(&server.node, "other0"),
        )
    };
    let mut server = Server::new();
    server
        .node
        .ok("ip link add other0 type bridge; ip address add 192.0.2.1/24 dev other0; ip link set other0 up");
    server.node.ok("ip link add hcother type veth peer name hcpeer; nft add table inet other");
    let before = node_before(&server);
    let pod = Namespace::new();
    server.add("pod", &pod).result();
    server.kill();
    server.start_again();
    server.del("pod", "").result();
    assert_eq!(node_before(&server), before);
    let links = observe::links(&server.node);
    for theirs in ["other0", "hcother", "hcpeer"] {
        assert!(links.contains(&theirs.to_owned()), "{theirs} is there: {links:?}");
    }
}

/// What differs from run to run, as a word.
fn settled(text: &str, pod: &Namespace, server: &Server) -> Value {
    let text = text
        .replace(&pod.path().display().to_string(), "NETNS")
        .replace(&server.directory.path().display().to_string(), "DIRECTORY");
    if text.trim().is_empty() {
        return Value::Null;
    }
    let mut value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    for interface in value.get_mut("interfaces").and_then(Value::as_array_mut).into_iter().flatten() {
        // The kernel makes up the host end's.
        if interface["name"].as_str().is_some_and(|name| name.starts_with("hc") && name != "hostcni0") {
            interface["mac"] = json!("HOST MAC");
        }
    }
    value
}

/// Compares with `tests/golden/<version>/<name>.json`; `UPDATE_GOLDEN=1` writes it.
#[track_caller]
fn golden(version: &str, name: &str, value: &Value) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(version)
        .join(format!("{name}.json"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("{value:#}\n")).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let wanted: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(*value, wanted, "{}: {value:#}", path.display());
}

#[test]
fn every_verb_in_every_version_answers_as_the_golden_files_say() {
    let server = Server::with(
        "subnets = [\"10.128.0.0/23\", \"fd01::/64\"]\nmtu = 1400\n[network.dns]\nnameservers = [\"10.0.0.53\"]\n\
         search = [\"example.org\"]\n[[network.route]]\ndst = \"192.0.2.0/24\"\ngateway = \"10.128.0.1\"\npriority = 50\n",
    );
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let pod = Namespace::new();
        let send = |command: &str, netns: &str, changes: &[(&str, Value)]| {
            let mut config = server.config.clone();
            config["cniVersion"] = json!(version);
            config["runtimeConfig"] = json!({"ips": ["10.128.1.1", "fd01::1:1"]});
            for (key, value) in changes {
                config[*key] = value.clone();
            }
            Call::new(command, "golden", &config.to_string())
                .through(HOSTCNI)
                .with("CNI_NETNS", netns)
                .send(&Here)
        };
        let netns = pod.path().display().to_string();
        let say =
            |name: &str, answer: &Answer| golden(version, name, &settled(&answer.text(), &pod, &server));
        let added = send("ADD", &netns, &[]);
        say("add", &added);
        let previous = added.result();
        say("check", &send("CHECK", &netns, &[("prevResult", previous.clone())]));
        pod.ok("ip route del default");
        say("check-route-gone", &send("CHECK", &netns, &[("prevResult", previous)]));
        say("add-no-netns", &send("ADD", "/etc/hostname", &[]));
        say("add-address-outside", &send("ADD", &netns, &[("runtimeConfig", json!({"ips": ["192.0.2.9"]}))]));
        say("status", &send("STATUS", "", &[]));
        say("gc-without-list", &send("GC", "", &[]));
        say("gc", &send("GC", "", &[("cni.dev/valid-attachments", json!([]))]));
        say("del", &send("DEL", &netns, &[]));
        say("version", &send("VERSION", "", &[]));
    }
    server.holds_nothing();
}

#[test]
fn peers_that_misbehave_are_cut_off_and_others_are_served_meanwhile() {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    let server = Server::new();
    let connect = || UnixStream::connect(server.socket()).expect("the server listens");
    // Connected and silent; half a message and silent; half a message and gone.
    let silent: Vec<UnixStream> = (0..200).map(|_| connect()).collect();
    let mut half = connect();
    half.write_all(b"{\"method\":\"io.hostcni.Node.Inv").unwrap();
    connect().write_all(b"{\"method\":").unwrap();
    for bad in [
        "\0".to_owned(),
        "not JSON\0".to_owned(),
        "[]\0".to_owned(),
        format!("{}\0", "[".repeat(100_000)),
        format!("{{\"method\":\"{}\"}}\0", "x".repeat(2 << 20)),
        "x".repeat(2 << 20),
    ] {
        let mut peer = connect();
        // The server may close before it has all.
        let _ = peer.write_all(bad.as_bytes());
        let mut answer = Vec::new();
        let closed = peer.set_read_timeout(Some(wait::LONG)).and_then(|()| peer.read_to_end(&mut answer));
        let reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(closed.is_ok() || closed.as_ref().is_err_and(reset), "{closed:?}");
    }
    let pod = Namespace::new();
    server.add("served", &pod).result();
    // The idle ones are cut off within their time.
    for mut peer in silent.into_iter().chain([half]) {
        peer.set_read_timeout(Some(wait::LONG)).unwrap();
        assert_eq!(peer.read(&mut [0; 16]).expect("an end and no time-out"), 0);
    }
    // Root only, even where the file system would let others in.
    fs::set_permissions(server.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(server.socket(), fs::Permissions::from_mode(0o666)).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(["/bin/sh", "-c", "exec \"$0\" status --socket \"$1\""])
        .args([HOSTCNI.into(), server.socket()])
        .output()
        .expect("setpriv is part of util-linux");
    assert!(!output.status.success(), "{}", observe::both(&output));
    server.del("served", "").result();
    server.holds_nothing();
    let status = fs::read_dir(format!("/proc/{}/fd", server.child.id())).expect("it runs");
    assert!(status.count() < 60, "no descriptor is left from them");
}

/// UDP has no end: a client that goes on from the same port keeps its flow, and with it the translation to a
/// pod that is gone, or to the host itself (kubernetes#95258).
#[test]
fn a_udp_client_that_never_stops_finds_the_next_holder_of_the_host_port() {
    use std::net::UdpSocket;

    let server = Server::new();
    let world = server.world();
    let clients = ["198.51.100.1:5300", "[2001:db8::1]:5300"].map(|target| {
        let client = world.inside(|| UdpSocket::bind("[::]:0").or_else(|_| UdpSocket::bind("0.0.0.0:0")));
        let client = client.expect("the world has addresses");
        client.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        let target: std::net::SocketAddr = target.parse().unwrap();
        let mapped = match target.ip() {
            std::net::IpAddr::V4(address) => address.to_ipv6_mapped(),
            std::net::IpAddr::V6(address) => address,
        };
        (client, std::net::SocketAddr::from((mapped, target.port())))
    });
    let mut config = server.config.clone();
    config["runtimeConfig"] =
        json!({"portMappings": [{"hostPort": 5300, "containerPort": 53, "protocol": "udp"}]});
    let send = |command: &str, name: &str, pod: &Namespace| {
        Call::new(command, name, &config.to_string())
            .through(HOSTCNI)
            .with("CNI_NETNS", &pod.path().display().to_string())
            .send(&Here)
            .result()
    };
    // Before any pod: the node itself gets the packets, and remembers the flows.
    for (client, target) in &clients {
        client.send_to(b"early", target).unwrap();
        let _ = client.recv_from(&mut [0; 16]);
    }
    for name in ["first", "second"] {
        let pod = Namespace::new();
        send("ADD", name, &pod);
        let listener = pod.inside(|| UdpSocket::bind("[::]:53")).expect("the pod has addresses");
        listener.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        for (client, target) in &clients {
            wait::until(&format!("{name} to be asked at {target}"), || {
                client.send_to(name.as_bytes(), target).unwrap();
                let mut buffer = [0; 16];
                listener.recv_from(&mut buffer).is_ok_and(|(length, _)| &buffer[..length] == name.as_bytes())
            });
        }
        send("DEL", name, &pod);
    }
    server.holds_nothing();
}
