//! Requests that meet each other over one attachment.

use serde_json::json;

use crate::support::cni::Asked;
use crate::support::namespace::Namespace;
use crate::support::observe::Here;
use crate::support::server::Server;
use crate::support::wait::until;

/// A server whose first ADD stays in the kernel for a while, and the plugin that waits for it.
fn with_an_add_under_way(pod: &Namespace) -> (Server, Asked) {
    let slow = [("FAILPOINTS", "datapath.attach=1*sleep(2000)".to_owned())];
    let server = Server::with_environment("subnets = [\"10.128.0.0/23\", \"fd01::/64\"]", &slow);
    let mut add = server.call("ADD", "pod", &pod.path().display().to_string()).start(&Here);
    until("the ADD to have begun", || server.attachments().len() == 1);
    assert!(add.waits(), "it is not answered yet");
    (server, add)
}

/// Azure/azure-container-networking#4829.
#[test]
fn a_del_that_comes_while_its_add_is_under_way_waits_and_leaves_nothing_of_it() {
    let pod = Namespace::new();
    let (server, mut add) = with_an_add_under_way(&pod);
    let mut del = server.call("DEL", "pod", &pod.path().display().to_string()).start(&Here);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(del.waits() && add.waits(), "the DEL has its turn after the ADD");
    assert_eq!(add.answer().addresses().len(), 2);
    del.answer().result();
    server.holds_nothing();
}

#[test]
fn an_add_that_is_under_way_is_not_collected() {
    let pod = Namespace::new();
    let (server, mut add) = with_an_add_under_way(&pod);
    let mut config = server.config.clone();
    config["cni.dev/valid-attachments"] = json!([]);
    let gc = crate::support::cni::Call::new("GC", "", &config.to_string())
        .through(crate::support::server::HOSTCNI);
    gc.send(&Here).result();
    assert!(add.waits(), "GC did not wait for it");
    assert_eq!(add.answer().addresses().len(), 2);
    assert_eq!(server.attachments().len(), 1);
    server.del("pod", "").result();
    server.holds_nothing();
}

/// A second runtime's ADD for the same attachment, which the first one has not got answered yet.
#[test]
fn the_same_add_twice_at_a_time_has_one_result() {
    let pod = Namespace::new();
    let (server, add) = with_an_add_under_way(&pod);
    let again = server.add("pod", &pod);
    assert_eq!(again.addresses(), add.answer().addresses());
    assert_eq!(server.used(), [1, 1]);
    server.del("pod", "").result();
    server.holds_nothing();
}
