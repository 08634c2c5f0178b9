//! More peers, slower peers and fewer descriptors than the server likes: root's DELs go on, memory stays bounded.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use super::product::*;
use crate::support::cni::Call;
use crate::support::node::Node;
use crate::support::observe::{Place, property};
use crate::support::wait::{LONG, until};

/// More than the server accepts at a time.
const PEERS: usize = 2000;
/// What the unit allows.
const MEMORY: u64 = 512 << 20;

pub fn two_thousand_idle_and_slow_peers_keep_nobody_from_their_del(node: &mut Node) {
    boot(node);
    for pod in ["before", "behind"] {
        add(node, pod).result();
    }
    let config = conf(node);
    let pid = server(node);
    // Silent ones, some that send a byte a second, and some that stop short of the largest message.
    let mut slow = Vec::new();
    let mut idle = Vec::new();
    for number in 0..PEERS {
        let mut peer = connect(node);
        match number % 10 {
            0 => slow.push(peer),
            1 => {
                peer.set_write_timeout(Some(Duration::from_millis(1))).unwrap();
                // As much as it takes now; it is not to be read at all once too many do this.
                let _ = peer.write(&vec![b'x'; 1 << 20]);
                idle.push(peer);
            }
            _ => idle.push(peer),
        }
    }
    let del = Call::new("DEL", "before", &config).start(node);
    thread::scope(|scope| {
        scope.spawn(|| drip(&mut slow));
        del.answer().result();
        Call::new("DEL", "behind", &config).send(node).result();
    });
    assert_eq!(spooled(node), Vec::<String>::new(), "both were answered by the server");
    // The peers are cut off in their time, and what they held is given back.
    for mut peer in idle.into_iter().chain(slow) {
        peer.set_read_timeout(Some(LONG)).unwrap();
        let mut answer = Vec::new();
        let end = peer.read_to_end(&mut answer);
        assert!(
            !matches!(&end, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
            "a silent peer was never cut off"
        );
    }
    assert_eq!(server(node), pid, "the same server");
    let kib: u64 = node.ok(&format!("awk '/^VmHWM:/ {{ print $2 }}' /proc/{pid}/status")).parse().unwrap();
    println!("{PEERS} peers: at most {} MiB resident", kib >> 10);
    assert!(kib << 10 < MEMORY / 2, "{kib} KiB");
    nothing_left(node);
}

pub fn without_descriptors_requests_wait_and_are_served_when_there_are_some(node: &mut Node) {
    drop_in(node, "few", "LimitNOFILE=64");
    boot(node);
    add(node, "web").result();
    let config = conf(node);
    let pid = server(node);
    let hoard: Vec<UnixStream> = (0..200).map(|_| connect(node)).collect();
    let began = Instant::now();
    Call::new("DEL", "web", &config).send(node).result();
    println!("64 descriptors, 200 peers: a DEL took {:?}", began.elapsed());
    drop(hoard);
    add(node, "next").result();
    Call::new("DEL", "next", &config).send(node).result();
    assert_eq!(server(node), pid, "the same server");
    until("the watchdog's content", || property(node, "hostcni.service", "NRestarts") == "0");
    nothing_left(node);
}

fn connect(node: &Node) -> UnixStream {
    UnixStream::connect(node.live("/run/hostcni/cni.sock")).expect("the socket listens")
}

/// A byte a second to each, until the server has had enough of all of them.
fn drip(peers: &mut [UnixStream]) {
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        let taken = peers.iter_mut().filter_map(|peer| peer.write_all(b" ").ok()).count();
        if taken == 0 {
            return;
        }
        thread::sleep(Duration::from_secs(1));
    }
}
