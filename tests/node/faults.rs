//! The fault loop: every step that `hostcni::failpoint` lists is made to fail, to wait and to die, once each,
//! in the middle of a runtime's work. systemd starts again what died. Then the promises are looked at.

use std::collections::BTreeSet;
use std::fmt::Write;

use hostcni::failpoint::STEPS;
use serde_json::{Value, json};

use super::product::*;
use crate::support::cni::{Answer, Call};
use crate::support::node::Node;
use crate::support::observe::{Place, links};
use crate::support::wait::until;

/// The next start has the faults that the test left here, and the one after it has none.
const ONCE: &str = "EnvironmentFile=-/run/faults\nRestartSec=100ms\n\
    ExecStartPre=+/bin/sh -c 'mv -f /run/faults.next /run/faults 2>/dev/null || rm -f /run/faults'";

/// Steps of the plugin's own process; the others are the server's and its helpers'.
const PLUGIN: &[&str] = &["plugin.", "spool.fsync", "spool.rename", "spool.write"];

pub fn every_step_of_a_request_may_fail_wait_or_die(node: &mut Node) {
    visit(node, of_a_request);
}

pub fn every_step_of_the_service_may_fail_wait_or_die(node: &mut Node) {
    visit(node, |step| !of_a_request(step) && !step.starts_with("delegate."));
}

fn of_a_request(step: &str) -> bool {
    ["add.", "datapath.", "del.", "gc.", "plugin.", "spool.", "store."]
        .iter()
        .any(|room| step.starts_with(room))
}

fn visit(node: &mut Node, ours: impl Fn(&str) -> bool) {
    drop_in(node, "once", ONCE);
    boot(node);
    let kept = add(node, "kept");
    let round = Rounds { node, config: conf(node), kept: kept.addresses(), result: kept.result() };
    let mut table = String::from("step                  fail  wait  die   (times met)\n");
    for (step, fails) in STEPS.iter().filter(|(step, _)| ours(step)) {
        let met = ["fail", "wait", "die"].map(|action| {
            let possible = *fails || action != "fail";
            possible.then(|| round.run(step, action))
        });
        let cells = met.map(|met| met.map_or("-".to_owned(), |met| met.to_string()));
        let _ = writeln!(table, "{step:<20}  {:>4}  {:>4}  {:>3}", cells[0], cells[1], cells[2]);
    }
    println!("{table}");
}

struct Rounds<'a> {
    node: &'a Node,
    config: String,
    kept: Vec<String>,
    result: Value,
}

impl Rounds<'_> {
    /// One fault in the middle of everything a runtime and an administrator do; says how often it was met.
    fn run(&self, step: &str, action: &str) -> usize {
        let node = self.node;
        let fault = format!("{step}=1*return({action})->off");
        let plugins = PLUGIN.iter().any(|of| step.starts_with(of));
        let since = node.ok("date +%s.%N");
        let arm = || node.ok(&format!("echo 'FAILPOINTS={fault}' > /run/faults.next"));
        arm();
        // Whether this start succeeds is the fault's choice; that a later one does is systemd's.
        drop(node.run("systemctl restart hostcni.service"));
        until_active(node);

        // The first call of each kind has the fault, where it is one of the plugin's.
        let call = |command: &str, pod: &str, config: &Value, first: bool| {
            let fault = if plugins && first { &fault } else { "" };
            Call::new(command, pod, &config.to_string()).with("FAILPOINTS", fault)
        };
        let plain: Value = serde_json::from_str(&self.config).expect("the conf is JSON");
        let mut ports = plain.clone();
        ports["runtimeConfig"] = json!({"portMappings": [
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 5353, "containerPort": 53, "protocol": "udp"},
        ], "bandwidth": {"egressRate": 50_000_000, "egressBurst": 1_000_000}});

        for pod in ["once", "again", "spooled"] {
            node.ok(&format!("ip netns add {pod}"));
        }
        let mut heard = Heard::default();
        // A runtime that gives up after one failure and never sends a DEL for it.
        let once = call("ADD", "once", &ports, true).send(node);
        heard.note(&once);
        if addresses(&once).is_empty() {
            until("nothing of a failed ADD", || !node.succeeds("ip -n once link show dev eth0"));
        } else {
            heard.retried(|first| call("DEL", "once", &ports, first).send(node));
        }
        // One that tries again.
        let again = heard.retried(|first| call("ADD", "again", &ports, first).send(node));
        let mut check = plain.clone();
        check["prevResult"] = again.result();
        heard.retried(|first| call("CHECK", "again", &check, first).send(node));
        let mut gc = plain.clone();
        gc["cniVersion"] = json!("1.1.0");
        gc["cni.dev/valid-attachments"] = json!([
            {"containerID": "kept", "ifname": "eth0"}, {"containerID": "again", "ifname": "eth0"}]);
        heard.retried(|first| call("GC", "", &gc, first).send(node));
        node.ok(&format!("rm -f {CONF}"));
        until("the conf to be restored", || node.has(CONF));
        drop(node.run("systemctl reload hostcni.service"));
        until_active(node);
        // A DEL has one chance; only a plugin that was made to die or to find no disk may lose it.
        let del = call("DEL", "again", &ports, true).send(node);
        heard.note(&del);
        if !plugins {
            del.result();
        }
        heard.retried(|first| call("DEL", "again", &ports, first).send(node));

        heard.retried(|first| call("ADD", "spooled", &plain, first).send(node));
        drop(node.run("systemctl stop hostcni.socket hostcni.service"));
        heard.retried(|first| call("DEL", "spooled", &plain, first).send(node));
        if step == "spool.replay" {
            arm();
        }
        drop(node.run("systemctl start hostcni.service"));
        until_active(node);
        until("the spool to be carried out", || spooled(node).is_empty());
        for pod in ["once", "again", "spooled"] {
            node.ok(&format!("ip netns delete {pod}"));
        }

        self.promises_hold(step, action, &heard.addresses);
        let journal = node
            .ok(&format!("journalctl -q --no-pager -o cat --since @{since} | grep -a ^failpoint || true"));
        let word = format!("failpoint {step} {action}");
        let met = heard.said.matches(&word).count() + journal.matches(&word).count();
        assert!(met > 0, "{step} was never met, or did not {action}");
        met
    }

    #[track_caller]
    fn promises_hold(&self, step: &str, action: &str, seen: &[String]) {
        let node = self.node;
        let round = format!("{step} {action}");
        let mut found: Vec<Value> = Vec::new();
        // A deletion that the kernel or the disk refused is tried again within seconds.
        until(&format!("{round}: only the kept pod"), || {
            found = attachments(node);
            found.len() == 1
                && records(node).len() == 1
                && host_links(node).len() == 1
                && shapers(node).is_empty()
        });
        assert_eq!(found[0]["containerId"], "kept", "{round}: {found:?}");
        let listed: BTreeSet<&str> =
            found[0]["addresses"].as_array().into_iter().flatten().filter_map(bare).collect();
        assert_eq!(listed, self.kept.iter().map(String::as_str).collect(), "{round}");
        assert_eq!(leased(node), 2, "{round}: leases without attachment");
        let rules = node.ok("nft list ruleset");
        let routes = node.ok("ip route; ip -6 route");
        for address in seen.iter().filter(|address| !self.kept.contains(address)) {
            let word = |text: &str| {
                text.split(|c: char| !(c.is_ascii_hexdigit() || ".:".contains(c))).any(|it| it == *address)
            };
            assert!(!word(&rules), "{round}: an element of {address} is left\n{rules}");
            assert!(!word(&routes), "{round}: a route of {address} is left\n{routes}");
        }
        let there = links(node);
        for name in rules
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| word.starts_with("hc") && word.len() == 15)
        {
            assert!(there.iter().any(|link| link == name), "{round}: an element of {name} is left\n{rules}");
        }
        assert!(node.has(CONF), "{round}: ready, and no conf");
        let mut check: Value = serde_json::from_str(&self.config).expect("the conf is JSON");
        check["prevResult"] = self.result.clone();
        assert!(
            node.succeeds(&format!("ip netns exec kept ping -q -c 1 -W 5 {}", GATEWAYS[0])),
            "{round}: the running pod lost its network"
        );
        Call::new("CHECK", "kept", &check.to_string()).send(node).result();
    }
}

/// What plugins said in one round.
#[derive(Default)]
struct Heard {
    said: String,
    addresses: Vec<String>,
}

impl Heard {
    fn note(&mut self, answer: &Answer) {
        self.said += &answer.text();
        self.addresses.extend(addresses(answer));
    }

    /// Calls as a runtime does: again, a few times, until it succeeds.
    fn retried(&mut self, send: impl Fn(bool) -> Answer) -> Answer {
        let mut answer = send(true);
        self.note(&answer);
        for _ in 0..5 {
            if answer.succeeded() {
                return answer;
            }
            answer = send(false);
            self.note(&answer);
        }
        panic!("five times in vain: {}", answer.text());
    }
}

fn bare(address: &Value) -> Option<&str> {
    address.as_str()?.split('/').next()
}

/// The addresses of an ADD that succeeded; none of one that failed.
fn addresses(answer: &Answer) -> Vec<String> {
    if answer.succeeded() && answer.text().contains("\"ips\"") { answer.addresses() } else { Vec::new() }
}
