//! Pods between firewalls: hostcni's own block list, and those of others.

use super::product::*;
use crate::support::cni::Call;
use crate::support::node::Node;
use crate::support::observe::{Place, journal};
use crate::support::wait::until;

/// The default network with both families and more keys.
fn network(keys: &str) -> String {
    format!(
        "[[network]]\nname = \"openshift-sdn\"\nsubnets = [\"10.128.0.0/23\", \"fd01:0:0:1::/64\"]\n{keys}\n"
    )
}

fn boot_with(node: &mut Node, keys: &str) {
    node.write(CONFIG, &network(keys));
    node.boot();
    assert_eq!(active(node), "active");
}

fn restart_with(node: &Node, keys: &str) {
    node.write(CONFIG, &network(keys));
    node.ok("systemctl restart hostcni.service");
}

fn reaches(node: &Node, pod: &str, address: &str) -> bool {
    node.succeeds(&format!("ip netns exec {pod} ping -q -c2 -i0.3 -W2 {address}"))
}

/// Whether a pod reaches the world by both families.
fn passes(node: &Node, pod: &str) -> [bool; 2] {
    WORLD.map(|world| reaches(node, pod, world))
}

/// What the doctor says of a check: verdict and remedy.
fn doctor(node: &Node, check: &str) -> (String, String) {
    let text = node.ok("hostcni doctor --json || true");
    let found: Vec<serde_json::Value> = serde_json::from_str(&text).expect("the doctor prints JSON");
    let found = found.iter().find(|it| it["check"] == check).expect("it looks at that");
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("verdict"), text("remedy"))
}

/// The reasons of the entries of an event since boot.
fn told(node: &Node, message_id: &str) -> Vec<String> {
    let entries = journal(node, &format!("-b MESSAGE_ID={message_id}"));
    entries.iter().filter_map(|entry| Some(entry["HOSTCNI_REASON"].as_str()?.to_owned())).collect()
}

pub fn a_container_cannot_reach_what_its_network_blocks(node: &mut Node) {
    boot_with(
        node,
        "block = [{ to = \"198.51.100.1\" }, { to = \"2001:db8:ffff::/48\" }, { to = \"node\", ports = [\"22623/tcp\"] }]",
    );
    let node = &*node;
    node.ok("systemctl start containerd.service");
    let running = super::pods::container(node, "one");
    let inside = |line: &str| node.succeeds(&format!("ctr task exec --exec-id look one /bin/sh -c '{line}'"));
    let ping = |address: &str| inside(&format!("ping -c1 -W2 {address}"));
    for address in GATEWAYS.into_iter().chain(NODE).chain(["192.0.2.1", "2001:db8::1"]) {
        assert!(ping(address), "{address} is not blocked");
    }
    for blocked in WORLD {
        assert!(!ping(blocked), "{blocked}");
        assert!(node.succeeds(&format!("ping -q -c1 -W5 {blocked}")), "{blocked} from the node");
    }
    for port in [22623, 22624] {
        node.ok(&format!("systemd-run -q --unit=port-{port} busybox nc -ll -p {port} -e /bin/true"));
        until("the port", || node.succeeds(&format!("ss -Hltn sport = {port} | grep -q {port}")));
    }
    assert!(inside(&format!("nc -w2 {} 22624 </dev/null", NODE[0])));
    assert!(!inside(&format!("nc -w2 {} 22623 </dev/null", NODE[0])));
    node.ok("ctr task kill -s KILL one");
    running.wait();
    nothing_left(node);
}

pub fn where_iptables_drops_what_is_forwarded_pods_pass_with_the_option(node: &mut Node) {
    boot_with(node, "");
    let node = &*node;
    add(node, "pod").result();
    assert_eq!(passes(node, "pod"), [true, true]);
    node.ok("iptables -P FORWARD DROP && ip6tables -P FORWARD DROP");
    assert_eq!(passes(node, "pod"), [false, false]);
    let (verdict, remedy) = doctor(node, "firewall");
    assert!(verdict == "error" && remedy.contains("accept_forward = true"), "{verdict}: {remedy}");

    restart_with(node, "accept_forward = true");
    assert_eq!(passes(node, "pod"), [true, true]);
    assert_eq!(doctor(node, "firewall").0, "fine");
    node.ok("iptables -F FORWARD");
    until("the rules", || passes(node, "pod") == [true, true]);
    node.ok("systemctl stop hostcni.socket hostcni.service");
    assert_eq!(passes(node, "pod"), [true, true], "a stop leaves running pods their network");
    node.ok("systemctl start hostcni.socket hostcni.service");

    // Without the program it is told, with what to do, and served all the same.
    node.ok("mkdir /away && mv /usr/sbin/xtables-nft-multi /away");
    node.ok("nft flush chain ip filter FORWARD && systemctl restart hostcni.service");
    let refused = told(node, "80edc8baee5844e69fe52c4776ba8088");
    assert!(refused.iter().any(|why| why.contains("install iptables")), "{refused:?}");
    assert_eq!(doctor(node, "firewall").0, "error");
    node.ok("mv /away/xtables-nft-multi /usr/sbin");
    until("the rules", || passes(node, "pod") == [true, true]);

    one_that_hangs_costs_no_conf(node);

    if node.succeeds("iptables-legacy -S") {
        the_older_kind_needs_a_drop_in(node);
    }

    restart_with(node, "");
    until("no rules", || {
        !node.ok("iptables -S; ip6tables -S; iptables-legacy -S || true").contains("hostcni")
    });
    assert_eq!(passes(node, "pod"), [false, false]);
}

fn one_that_hangs_costs_no_conf(node: &Node) {
    let file = || node.ok(&format!("stat -c '%i %w' {CONF}"));
    let before = file();
    node.ok("printf '#!/bin/sh\\nsleep 100\\n' > /away/hangs && chmod 755 /away/hangs");
    node.ok("mv /usr/sbin/iptables-nft /away && cp /away/hangs /usr/sbin/iptables-nft");
    node.ok("nft flush chain ip filter FORWARD && systemctl restart hostcni.service");
    assert_eq!(file(), before, "it stays over the restart");
    add(node, "meanwhile").result();
    Call::new("DEL", "meanwhile", &conf(node)).send(node).result();
    node.ok("mv /away/iptables-nft /usr/sbin");
    until("the rules", || passes(node, "pod") == [true, true]);
    let rules = node.ok("iptables -S FORWARD; ip6tables -S FORWARD");
    assert_eq!(rules.matches("hostcni: ").count(), 4, "none twice: {rules}");
}

/// It needs more than the service's sandbox lets it.
fn the_older_kind_needs_a_drop_in(node: &Node) {
    node.ok("iptables-legacy -P FORWARD DROP");
    assert_eq!(passes(node, "pod"), [false, true]);
    restart_with(node, "accept_forward = true");
    let refused = told(node, "80edc8baee5844e69fe52c4776ba8088");
    assert!(refused.iter().any(|why| why.contains("examples/iptables-legacy.conf")), "{refused:?}");
    node.ok(
        "install -Dt /etc/systemd/system/hostcni.service.d /usr/share/doc/hostcni/examples/iptables-legacy.conf \
         && systemctl daemon-reload && systemctl restart hostcni.service",
    );
    assert_eq!(passes(node, "pod"), [true, true]);
}

pub fn firewalld_takes_the_bridge_into_its_zone_at_every_start_and_reload(node: &mut Node) {
    boot_with(node, "");
    let node = &*node;
    add(node, "pod").result();
    let zone = || node.ok("firewall-cmd --get-zone-of-interface=hostcni0 2>/dev/null || true");
    // It comes after hostcni.
    node.ok("systemctl start firewalld.service && firewall-cmd --state");
    until("the zone", || zone() == "trusted");
    assert_eq!(passes(node, "pod"), [true, true]);
    assert!(reaches(node, "pod", GATEWAYS[0]) && reaches(node, "pod", GATEWAYS[1]));
    assert_eq!(doctor(node, "firewalld").0, "fine");

    for again in
        ["firewall-cmd --reload", "firewall-cmd --complete-reload", "systemctl restart firewalld.service"]
    {
        node.ok(again);
        until(again, || zone() == "trusted");
        assert_eq!(passes(node, "pod"), [true, true], "after {again}");
    }
    node.ok("firewall-cmd --zone=trusted --remove-interface=hostcni0");
    assert_eq!(passes(node, "pod"), [false, false], "without the zone firewalld does drop");
    let (verdict, remedy) = doctor(node, "firewalld");
    assert!(verdict == "error" && remedy.contains("systemctl restart hostcni"), "{verdict}: {remedy}");

    // hostcni comes after it.
    node.ok("systemctl restart hostcni.service");
    assert_eq!(zone(), "trusted");
    assert_eq!(passes(node, "pod"), [true, true]);

    // A zone that is not there is told; the service serves.
    restart_with(node, "firewalld_zone = \"nowhere\"");
    let refused = told(node, "e85f7618c04a40e7a1bf4f3f1f212af2");
    assert!(refused.iter().any(|why| why.contains("INVALID_ZONE")), "{refused:?}");
    // Left alone.
    restart_with(node, "firewalld_zone = false");
    node.ok("firewall-cmd --zone=trusted --remove-interface=hostcni0; firewall-cmd --reload");
    assert_eq!(zone(), "");
    restart_with(node, "");
    assert_eq!(zone(), "trusted");

    // A firewalld that does not answer keeps nobody waiting for long.
    node.ok(
        "firewall-cmd --zone=trusted --remove-interface=hostcni0 && systemctl kill -s STOP firewalld.service",
    );
    node.ok("systemctl restart hostcni.service");
    assert_eq!(active(node), "active");
    node.ok("systemctl kill -s CONT firewalld.service");
    until("the zone", || zone() == "trusted");
}
