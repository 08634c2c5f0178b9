//! An upgrade, and the way back: another build takes over, while pods run and others come and go.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::load::{Load, leave, name, stand};
use super::product::*;
use crate::support::cni::Call;
use crate::support::node::{Node, older};
use crate::support::observe::Place;
use crate::support::wait::until;

/// Where the plugin's link leads, too.
const BINARY: &str = "/usr/bin/hostcni";
const STANDING: usize = 20;

pub fn an_older_build_is_replaced_under_load_and_comes_back(node: &mut Node) {
    let (old, new) = (older(), Path::new(env!("CARGO_BIN_EXE_hostcni")));
    drop_in(node, "pause", "RestartSec=200ms");
    install(node, &old);
    boot(node);
    let node = &*node;
    let config = conf(node);
    let standing = stand(node, &config, STANDING);
    let pinging: Vec<_> = [0, STANDING - 1].map(|pod| Pinging::from(node, &name(pod))).into();
    let load = Load::new(node, &config);
    load.during(|| {
        for build in [new, &old, new] {
            // As a package does: the file first, so that for a while the new plugin talks to the old server.
            install(node, build);
            load.goes_on();
            node.ok("systemctl restart hostcni.service");
            runs(node, build);
            assert!(node.has(CONF), "an upgrade took the conf");
            load.goes_on();
        }
    });
    println!("{STANDING} pods stood; {}", load.report());
    assert_eq!(leased(node), 2 * STANDING as u64);
    for ping in pinging {
        ping.lost_none();
    }
    leave(node, &config, &standing);
}

pub fn a_del_that_another_build_spooled_is_carried_out(node: &mut Node) {
    let (old, new) = (older(), Path::new(env!("CARGO_BIN_EXE_hostcni")));
    install(node, &old);
    boot(node);
    let config = conf(node);
    for (pod, before, after) in [("up", old.as_path(), new), ("down", new, &old)] {
        add(node, pod).result();
        runs(node, before);
        node.ok("systemctl stop hostcni.socket hostcni.service");
        Call::new("DEL", pod, &config).send(node).result();
        assert_eq!(spooled(node).len(), 1);
        install(node, after);
        node.ok("systemctl start hostcni.socket hostcni.service");
        runs(node, after);
        until("the spool to be carried out", || spooled(node).is_empty());
        nothing_left(node);
    }
}

/// By a rename, as `make install` and packages do. Another process writes the file: in this one a child of another
/// thread could hold it open for a moment, and "text file busy" would be the answer to the plugin's call.
fn install(node: &Node, build: &Path) {
    let path = node.path(BINARY);
    let coming = path.with_extension("new");
    let written = Command::new("cp").arg(build).arg(&coming).status().expect("cp is there");
    assert!(written.success(), "{} cannot be copied", build.display());
    fs::rename(coming, path).expect("within one directory");
}

/// The service runs that build.
#[track_caller]
fn runs(node: &Node, build: &Path) {
    let running = node.live(&format!("/proc/{}/exe", server(node)));
    let size = |path: &Path| fs::metadata(path).expect("it is there").len();
    assert_eq!(size(&running), size(build), "another build runs");
}
