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

pub fn crashes_and_restarts_under_load_lose_no_request_and_leak_no_address(node: &mut Node) {
    drop_in(node, "pause", "RestartSec=200ms");
    boot(node);
    let config = conf(node);
    let node = &*node;
    let work = |worker: usize| {
        for round in 0..8 {
            let pod = format!("pod-{worker}-{round}");
            node.ok(&format!("ip netns add {pod}"));
            // A runtime tries an ADD again that a crash has cut off; a DEL has one chance.
            let added = (0..5).any(|_| Call::new("ADD", &pod, &config).send(node).text().contains("\"ips\""));
            assert!(added, "no ADD of {pod} in five");
            Call::new("DEL", &pod, &config).send(node).result();
            node.ok(&format!("ip netns delete {pod}"));
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|worker| scope.spawn(move || work(worker))).collect();
        for round in 0.. {
            if workers.iter().all(thread::ScopedJoinHandle::is_finished) {
                break;
            }
            match round % 2 {
                0 => drop(node.run("systemctl restart hostcni.service")),
                _ => drop(node.run("systemctl kill -s KILL --kill-who=main hostcni.service")),
            }
            thread::sleep(Duration::from_millis(400));
        }
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    until_active(node);
    nothing_left(node);
}
