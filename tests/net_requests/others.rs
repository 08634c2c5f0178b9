//! What others do to the node and to the server, and what is left alone of theirs.

use std::fs;
use std::process::Command;

use crate::ping;
use crate::support::namespace::Namespace;
use crate::support::observe::{self, Place};
use crate::support::server::{HOSTCNI, Server};
use crate::support::wait;

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
