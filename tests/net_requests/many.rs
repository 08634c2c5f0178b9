//! Many pods at once, and plugins that are killed.

use std::collections::HashSet;
use std::fs;

use crate::support::namespace::Namespace;
use crate::support::observe::Here;
use crate::support::server::Server;
use crate::support::wait;

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
