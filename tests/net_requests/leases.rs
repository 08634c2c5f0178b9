//! Leases and records last as long as their pods: without a DEL, over a restart, and by GC.

use std::fs;

use serde_json::{Value, json};

use crate::ping;
use crate::support::cni::Call;
use crate::support::namespace::Namespace;
use crate::support::observe::{self, Here};
use crate::support::server::{HOSTCNI, Server};
use crate::support::wait;

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
