//! Reboots and power cuts: the last DELs are answered, and the next boot is clean.

use super::product::*;
use crate::support::cni::Call;
use crate::support::node::Node;
use crate::support::observe::{Place, property};
use crate::support::wait::until;

/// A unit like a runtime that knows nothing of hostcni's ordering: it starts as early as any ordinary unit.
const EARLY: &str = "[Unit]\nDescription=An early reader of the conf directory\n\
    [Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -c 'ls /etc/cni/net.d > /var/log/early; echo read >> /var/log/early'\n";

pub fn a_reboot_answers_every_last_del_and_the_next_boot_is_clean(node: &mut Node) {
    boot(node);
    let config = conf(node);
    for pod in ["one", "two", "three"] {
        add(node, pod).result();
        node.write(&format!("/var/lib/runtime-like/{pod}"), &config);
    }
    assert_eq!(leased(node), 6);

    node.go_down();
    assert!(!node.has(CONF), "the conf outlived the boot");
    assert_eq!(spooled(node), Vec::<String>::new(), "a DEL was not answered but spooled");
    let log = node.read("/var/log/runtime-like").unwrap_or_default();
    for pod in ["one", "two", "three"] {
        let answer = log.lines().find(|line| line.contains(&format!("del {pod} "))).unwrap_or("none");
        assert!(
            answer.contains("status=0") && answer.contains("conf=/etc/cni/net.d/80-openshift"),
            "DEL of {pod}: {answer}"
        );
    }

    node.boot();
    until_active(node);
    nothing_left(node);
    let log = node.read("/var/log/runtime-like").unwrap_or_default();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.ends_with("start conf=/etc/cni/net.d/80-openshift-network.conf "), "{log}");
    assert_eq!(add(node, "again").addresses().len(), 2);
}

pub fn a_reboot_with_pods_that_nobody_deletes_leaves_no_lease(node: &mut Node) {
    boot(node);
    let config = conf(node);
    for pod in ["one", "two"] {
        add(node, pod).result();
    }
    node.reboot();
    until_active(node);
    nothing_left(node);
    // The runtime remembers them now, and its namespaces are those of the last boot.
    for pod in ["one", "two"] {
        Call::new("DEL", pod, &config).send(node).result();
        Call::new("DEL", pod, &config).with("CNI_NETNS", "").send(node).result();
    }
    nothing_left(node);
}

pub fn after_a_power_cut_the_stale_conf_is_gone_before_any_unit_reads_it(node: &mut Node) {
    boot(node);
    add(node, "web").result();
    node.write("/etc/systemd/system/early.service", EARLY);
    node.ok("systemctl add-wants multi-user.target early.service && sync");
    failpoints(node, &format!("{BEFORE_READY}=sleep(3000)"));

    node.cut_power();
    assert!(node.has(CONF), "the power went before anybody could take the conf away");
    node.power_on();
    until("the early unit", || node.read("/var/log/early").is_some_and(|text| text.contains("read")));
    assert_ne!(active(node), "active", "it was early");
    let seen = node.read("/var/log/early").unwrap_or_default();
    assert!(!seen.contains("80-openshift"), "an early unit saw {seen:?}");

    node.settle();
    until_active(node);
    assert!(node.has(CONF));
    nothing_left(node);
}

pub fn a_del_without_socket_is_spooled_and_carried_out_before_ready(node: &mut Node) {
    boot(node);
    let config = conf(node);
    add(node, "web").result();
    node.ok("systemctl stop hostcni.socket hostcni.service");
    assert_eq!(property(node, "hostcni.socket", "ActiveState"), "inactive");
    Call::new("DEL", "web", &config).send(node).result();
    assert_eq!(spooled(node).len(), 1);
    assert_eq!(host_links(node).len(), 1, "nobody was there to delete it");

    node.ok("systemctl start hostcni.service");
    nothing_left(node);
}
