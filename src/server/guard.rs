//! Keeps the conf as it was placed while the server is ready, and takes a kept one away when a planned
//! restart takes too long.
//!
//! The ledger says what should be there: `conf place` and `conf remove` write it, so a conf that `systemctl
//! stop` takes away is not put back, and one that somebody else deletes is.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::netconf::{self, Ownership, PlaceError, Watch};
use crate::settings::{ConfSettings, ForeignPolicy, NetworkSettings};
use crate::systemd::journal::{self, Event};

use super::Phase;
use super::node::Node;

/// More repairs than this within `WINDOW` mean that somebody else writes there too: back off.
const REPAIRS: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// How long to stand back from another writer, and how often to look when no event comes.
const BACK_OFF: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Takes away what the last server's conf is when this one is not ready within the grace.
pub async fn grace(node: Rc<Node>) {
    let settings = node.settings();
    let waits = settings.networks.iter().map(|network| give_grace(&node, &network.conf));
    futures_util::future::join_all(waits).await;
}

async fn give_grace(node: &Node, conf: &ConfSettings) {
    if node.readiness.ready_within(conf.restart_grace).await || node.readiness.phase() == Phase::Stopping {
        return;
    }
    match netconf::remove(&conf.path, &node.ledger) {
        Ok(netconf::Removed::Removed) => {
            journal::emit(&Event::ConfRemoved {
                path: &conf.path,
                why: "the server was not ready within the grace",
            });
        }
        Ok(_) => {}
        Err(error) => node.failed(&error.to_string()),
    }
}

/// Watches the confs until the server stops.
pub async fn run(node: Rc<Node>) {
    if !node.readiness.ready_within(Duration::MAX).await {
        return;
    }
    let mut repairs: Vec<Instant> = Vec::new();
    loop {
        let settings = node.settings();
        let mut watch = match Watch::new(settings.networks.iter().map(|network| network.conf.path.as_path()))
        {
            Ok(watch) => Some(watch),
            Err(error) => {
                tracing::debug!(%error, "cannot watch the conf directories, looking from time to time");
                None
            }
        };
        look(&node, &mut repairs);
        let changed = async {
            let failed = match &mut watch {
                Some(watch) => watch.changed().await.is_err(),
                None => true,
            };
            // A watch that fails is made anew when the time comes to look again.
            if failed {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = node.stop.cancelled() => return,
            () = changed => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
        repairs.retain(|repair| repair.elapsed() < WINDOW);
        if repairs.len() >= REPAIRS {
            node.failed("somebody else keeps changing the conf: see `hostcni conf show` and the journal");
            tokio::select! {
                () = node.stop.cancelled() => return,
                () = tokio::time::sleep(BACK_OFF) => {}
            }
        }
    }
}

fn look(node: &Node, repairs: &mut Vec<Instant>) {
    let settings = node.settings();
    for network in &settings.networks {
        let content = netconf::render(network, &settings);
        match netconf::inspect(&network.conf.path, &content, &node.ledger) {
            Ok(Ownership::Ours { as_rendered: true }) => {}
            Ok(Ownership::Absent | Ownership::Ours { .. }) => restore(node, network, &content, repairs),
            Ok(Ownership::Foreign { why }) => foreign(node, network, &why),
            Err(error) => node.failed(&error.to_string()),
        }
    }
}

/// Told to wait, the server takes its place as soon as it is free; until then it says who has it.
fn foreign(node: &Node, network: &NetworkSettings, why: &str) {
    let path = &network.conf.path;
    let text = format!("{} is not hostcni's ({why}): remove it, or choose another conf.path", path.display());
    node.was_foreign.borrow_mut().insert(path.clone());
    if *node.last_error.borrow() != text {
        journal::emit(&Event::ForeignConf { path, why });
        node.failed(&text);
    }
}

fn restore(node: &Node, network: &NetworkSettings, content: &[u8], repairs: &mut Vec<Instant>) {
    if node.readiness.phase() != Phase::Ready {
        return;
    }
    crate::step!("guard.restore");
    match put_back(node, network, content) {
        Ok(true) => {
            repairs.push(Instant::now());
            let what =
                format!("placed {} again: somebody removed or changed it", network.conf.path.display());
            journal::emit(&Event::Repaired { what: &what });
            node.tell("repaired", &[("what", what.clone())]);
        }
        Ok(false) => {}
        Err(error) => {
            let text = error.to_string();
            if *node.last_error.borrow() != text {
                journal::emit(&Event::ConfRefused { path: &network.conf.path, why: &text });
            }
            node.failed(&text);
        }
    }
}

/// Puts the conf where it belongs. With the policy `wait` it may be that the placing helper met a foreign file:
/// then nobody has placed it yet, and that it is to be there is known from the service being up.
fn put_back(node: &Node, network: &NetworkSettings, content: &[u8]) -> Result<bool, PlaceError> {
    let path = &network.conf.path;
    if network.conf.foreign == ForeignPolicy::Wait && node.was_foreign.borrow().contains(path) {
        let placed =
            netconf::place(path, content, &node.ledger).map(|placed| placed != netconf::Placed::Already);
        if placed.is_ok() {
            node.was_foreign.borrow_mut().remove(path);
        }
        return placed;
    }
    netconf::restore(path, content, &node.ledger)
}
