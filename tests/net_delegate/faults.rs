//! The fault loop over this driver: every step fails, waits and dies once, among plugins that hang, crash and lie.

use std::thread;

use hostcni::failpoint::STEPS;
use serde_json::json;

use crate::plugins::Plugins;
use crate::support::namespace::Namespace;
use crate::support::observe::Here;
use crate::support::server::Server;
use crate::support::wait::until;

const ADD: [&str; 8] = ["hang", "crash", "lie", "garbage", "", "mute", "error", "silent"];
/// A plugin that does nothing and reports success cannot be told from one that did it.
const DEL: [&str; 6] = ["crash", "", "hang", "error", "lie", "mute"];

#[test]
fn every_step_may_fail_wait_or_die_whatever_the_plugins_do() {
    let steps = STEPS.iter().filter(|(step, _)| step.starts_with("delegate."));
    let rounds: Vec<_> = steps
        .flat_map(|(step, _)| ["fail", "wait", "die"].map(|action| (*step, action)))
        .enumerate()
        .collect();
    assert_eq!(rounds.len(), 18);
    // A round is mostly waiting for the next try of something.
    thread::scope(|scope| {
        for part in rounds.chunks(3) {
            scope.spawn(move || {
                for (number, (step, action)) in part {
                    round(step, action, ADD[number % ADD.len()], DEL[number % DEL.len()]);
                }
            });
        }
    });
}

/// The record is put, and then the disk is full: what was made is taken down with what the plugins said of it.
#[test]
fn a_disk_that_is_full_after_the_plugins_ran_keeps_no_result_from_their_del() {
    let plugins = Plugins::new(&["one", "two"]);
    let network = plugins.network("1.0.0", &json!([{"type": "one"}, {"type": "two"}]), "");
    let fault = "store.put=1*off->2*return(fail)->off".to_owned();
    let server = Server::with_environment(&network, &[("FAILPOINTS", fault)]);
    let pod = Namespace::new();
    assert!(!server.add("pod", &pod).succeeded());
    for plugin in ["one", "two"] {
        let seen = plugins.config(plugin, "DEL");
        assert!(
            seen["prevResult"]["ips"].is_array() || seen["prevResult"]["two"].is_object(),
            "{plugin}: {seen}"
        );
    }
    assert_eq!((plugins.held().len(), server.delegated().len()), (0, 0));
}

/// A runtime's work, with one fault in the server and plugins that misbehave in turn; then all is well again, and
/// nothing may be left.
fn round(step: &str, action: &str, add: &str, del: &str) {
    let what = format!("{step} {action}, ADD {add:?}, DEL {del:?}");
    let plugins = Plugins::new(&["one", "two"]);
    let network = plugins.network("1.0.0", &json!([{"type": "one"}, {"type": "two"}]), "timeout = \"5s\"");
    let fault = format!("{step}=1*return({action})->off");
    let mut server = Server::with_environment(&network, &[("FAILPOINTS", fault)]);
    server.environment.clear();
    let call = |server: &mut Server, command: &str, pod: &Namespace| {
        let path = pod.path().display().to_string();
        let answer = server.call(command, "pod", &path).send(&Here).succeeded();
        as_systemd(server);
        answer
    };
    let (pod, other) = (Namespace::new(), Namespace::new());
    call(&mut server, "ADD", &pod);
    plugins.behave("two", "ADD", add);
    plugins.behave("one", "DEL", del);
    call(&mut server, "ADD", &other);
    let answered = call(&mut server, "DEL", &other);
    plugins.behave("two", "ADD", "");
    plugins.behave("one", "DEL", "");
    // A runtime that got an error asks again; one that was told of success never does.
    if !answered {
        call(&mut server, "DEL", &other);
    }
    until(&format!("{what}: nothing is left"), || {
        as_systemd(&mut server);
        plugins.held().is_empty() && server.delegated().is_empty()
    });
    let met = server.log().contains(&format!("failpoint {step} {action}"));
    assert!(met, "{what}: it was never met\n{}", server.log());
    assert!(call(&mut server, "ADD", &pod), "{what}: {}", server.log());
    assert!(call(&mut server, "DEL", &pod), "{what}: {}", server.log());
    assert_eq!((plugins.held().len(), server.delegated().len()), (0, 0), "{what}");
}

/// Starts again what died.
fn as_systemd(server: &mut Server) {
    if matches!(server.child.try_wait(), Ok(Some(_))) {
        server.start_again();
    }
}
