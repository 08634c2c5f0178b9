//! No DEL is lost and no ADD refused: what finds no server waits in the socket for the next one.

use std::thread;
use std::time::Duration;

use super::product::*;
use crate::support::cni::Call;
use crate::support::node::Node;
use crate::support::observe::{Place, property};
use crate::support::wait::until;

pub fn requests_during_a_slow_start_are_answered_by_the_server_that_comes(node: &mut Node) {
    boot(node);
    let config = conf(node);
    add(node, "old").result();
    node.ok("ip netns add new");
    node.ok("systemctl stop hostcni.service");
    failpoints(node, &format!("{BEFORE_READY}=sleep(3000)"));
    node.ok("systemctl start --no-block hostcni.service");
    until("the server to be starting", || active(node) == "activating");

    let mut del = Call::new("DEL", "old", &config).start(node);
    let mut add = Call::new("ADD", "new", &config).start(node);
    thread::sleep(Duration::from_millis(500));
    assert!(del.waits() && add.waits(), "nothing is answered before the server is ready");
    assert_eq!(active(node), "activating");
    del.answer().result();
    assert_eq!(add.answer().addresses().len(), 2);
    until_active(node);
    assert_eq!(leased(node), 2, "the new one's");
    assert_eq!(spooled(node), Vec::<String>::new());
}

pub fn requests_during_an_auto_restart_are_answered_by_the_server_that_comes(node: &mut Node) {
    drop_in(node, "pause", "RestartSec=2s");
    boot(node);
    let config = conf(node);
    add(node, "old").result();
    node.ok("ip netns add new");
    node.ok(&format!("kill -9 {}", server(node)));
    until("the service in auto-restart", || property(node, "hostcni.service", "SubState") == "auto-restart");

    let mut del = Call::new("DEL", "old", &config).start(node);
    let mut add = Call::new("ADD", "new", &config).start(node);
    thread::sleep(Duration::from_millis(300));
    assert!(del.waits() && add.waits(), "nobody is there to answer");
    del.answer().result();
    assert_eq!(add.answer().addresses().len(), 2);
    until_active(node);
    assert_eq!(leased(node), 2, "the new one's");
    assert_eq!(spooled(node), Vec::<String>::new());
}
