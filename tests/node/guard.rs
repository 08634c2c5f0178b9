//! The conf of a ready server is as it was placed, whatever others do in its directory.

use std::thread::sleep;
use std::time::Duration;

use super::product::*;
use crate::support::cni::Call;
use crate::support::node::Node;
use crate::support::observe::Place;
use crate::support::wait::{until, within};

const SOON: Duration = Duration::from_secs(2);

pub fn what_somebody_does_to_the_conf_is_undone_at_once_and_told(node: &mut Node) {
    boot(node);
    let placed = conf(node);
    let done = [
        format!("rm {CONF}"),
        format!(": > {CONF}"),
        format!("truncate -s 40 {CONF}"),
        format!("echo '# mine' >> {CONF}"),
        format!("sed -i s/socket/other/g {CONF}"),
        format!("echo '{{\"name\": \"mine\"}}' > {CONF}"),
        format!("mv {CONF} /etc/cni/away"),
        "rm -r /etc/cni/net.d".to_owned(),
        format!("chmod 666 {CONF}"),
    ];
    for (number, line) in done.iter().enumerate() {
        if number == 5 {
            // So many repairs in a minute would be a fight.
            node.ok("systemctl restart hostcni.service");
        }
        let told = told_repairs(node);
        node.ok(line);
        within(SOON, &format!("the repair after `{line}`"), || {
            node.read(CONF).as_deref() == Some(&placed) && told_repairs(node) > told
        });
        assert_eq!(node.ok(&format!("stat -c %a:%u {CONF}")), "600:0", "after `{line}`");
        let conf = &status(node)["networks"][0]["conf"];
        assert_eq!(conf["state"], "ours", "after `{line}`: {conf}");
    }
    // Out of the sandbox's reach, so for the next start; that server can do the rest itself again.
    node.ok("rm -r /etc/cni");
    until("the status to say that it cannot", || status(node)["networks"][0]["conf"]["state"] == "unusable");
    node.ok("systemctl restart hostcni.service");
    assert_eq!(conf(node), placed);
    node.ok(&format!("rm {CONF}"));
    within(SOON, "the conf in its place", || node.read(CONF).as_deref() == Some(&placed));
    // The configuration of another plugin is somebody's, also in our file: he is told of, and not overwritten.
    let foreign = "{\"name\": \"mine\", \"type\": \"loopback\"}";
    node.ok(&format!("echo '{foreign}' > {CONF}"));
    until("the status to say whose it is", || status(node)["networks"][0]["conf"]["state"] == "foreign");
    assert_eq!(conf(node).trim(), foreign);
    node.ok(&format!("rm {CONF}"));
    within(SOON, "the conf in its place", || node.read(CONF).as_deref() == Some(&placed));
}

pub fn a_conf_that_cannot_be_restored_is_told_of_and_restored_as_soon_as_it_can(node: &mut Node) {
    boot(node);
    node.ok("systemctl stop hostcni.service; mount -t tmpfs -o size=64k,mode=755 tmpfs /etc/cni/net.d");
    node.ok("systemctl start hostcni.service");
    let placed = live_conf(node).expect("placed on the small file system");
    let hindrances = [
        ("mount -o remount,ro /etc/cni/net.d", "Read-only file system", "mount -o remount,rw /etc/cni/net.d"),
        ("cat /dev/zero > /etc/cni/net.d/full || true", "No space left on device", "rm /etc/cni/net.d/full"),
    ];
    for (hinder, words, allow) in hindrances {
        // A server that stands still cannot be faster than the second command.
        let server = server(node);
        node.ok(&format!(
            "kill -STOP {server}; rm {CONF} && {hinder}; done=$?; kill -CONT {server}; exit $done"
        ));
        until("the status to say why", || status(node)["networks"][0]["conf"]["state"] == "unusable");
        let told = status(node);
        let reason = told["networks"][0]["conf"]["reason"].as_str().unwrap_or_default().to_owned();
        assert!(reason.contains(CONF) && reason.contains(words), "{told}");
        assert!(node.ok("hostcni status").contains(words));
        assert!(node.ok("systemctl status --no-pager -l hostcni.service").contains(words));
        assert_eq!(state_of(node, &placed), 50, "{hinder}");
        assert_eq!(live_conf(node), None, "{hinder}");

        node.ok(allow);
        until("the conf in its place", || live_conf(node).as_ref() == Some(&placed));
        until("the trouble to be over", || status(node)["networks"][0]["conf"]["state"] == "ours");
        Call::new("STATUS", "", &with_status(&placed)).send(node).result();
        assert!(!node.ok("hostcni status").contains(words), "the last error is one of the past");
    }
}

pub fn from_another_writer_hostcni_stands_back_and_says_so(node: &mut Node) {
    boot(node);
    let placed = conf(node);
    node.ok("systemd-run -q --unit=watcher -p StandardOutput=file:/run/events hostcni monitor");
    until("the watcher", || node.ok("systemctl is-active watcher.service").trim() == "active");
    sleep(Duration::from_secs(1));
    node.ok("touch /run/fight");
    let fight = node.start(&format!("while [ -e /run/fight ]; do rm -f {CONF}; sleep 0.02; done"));
    until("hostcni to stand back", || status(node)["networks"][0]["conf"]["state"] == "contested");
    let count = repairs(node);
    assert!((10..=12).contains(&count), "{count} repairs");
    let said = node.ok("hostcni status");
    assert!(said.contains("somebody else keeps changing") && said.contains("auditctl"), "{said}");
    assert_eq!(state_of(node, &placed), 50);
    sleep(Duration::from_secs(3));
    assert_eq!(repairs(node), count, "it did not stand back");
    // The journal tells the same thing a few times, and counts the rest.
    assert_eq!(told_repairs(node), 5);

    node.ok("rm /run/fight");
    fight.wait_ok();
    until("the conf in its place", || node.has(CONF));
    assert_eq!(conf(node), placed);
}

/// The conf as the running node sees it, with its mounts.
fn live_conf(node: &Node) -> Option<String> {
    std::fs::read_to_string(node.live(CONF)).ok()
}

/// How many repairs of the conf the journal tells of.
fn told_repairs(node: &Node) -> u64 {
    let count = node.ok("journalctl -q --no-pager -o cat -u hostcni | grep -c 'placed .* again' || true");
    count.trim().parse().expect("a number")
}

/// How many repairs of the conf a monitor has seen.
fn repairs(node: &Node) -> u64 {
    let count = node.ok("grep -c '^[0-9:]*Z repaired .*placed .* again' /run/events || true");
    count.trim().parse().expect("a number")
}

/// The conf as a runtime would have to have it for STATUS.
fn with_status(conf: &str) -> String {
    let mut conf: serde_json::Value = serde_json::from_str(conf).expect("the conf is JSON");
    conf["cniVersion"] = "1.1.0".into();
    conf.to_string()
}

fn state_of(node: &Node, conf: &str) -> u64 {
    Call::new("STATUS", "", &with_status(conf)).send(node).code()
}
