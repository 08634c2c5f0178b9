//! Keeps the conf as it was placed while the server is ready, and takes a kept one away when a planned
//! restart takes too long.
//!
//! The ledger says what should be there: `conf place` and `conf remove` write it, so a conf that `systemctl
//! stop` takes away is not put back, and one that somebody else deletes is.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::netconf::{self, Ownership, PlaceError, Watch};
use crate::settings::{ConfSettings, ForeignPolicy, NetworkSettings};
use crate::systemd::journal::{self, Event};

use super::Phase;
use super::metrics::Repair;
use super::node::Node;

/// More repairs than this within `WINDOW` mean that somebody else writes there too: back off.
const REPAIRS: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// How long to stand back from another writer, and how often to look when no event comes.
const BACK_OFF: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The same while a conf is not as it should be: what hinders it may go without an event.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Why a conf is not as it should be, in the words of `hostcni status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// `unusable` or `contested`.
    pub state: &'static str,
    /// What hinders it.
    pub why: String,
}

/// When each conf was repaired within the last `WINDOW`.
#[derive(Default)]
struct Repairs(HashMap<PathBuf, Vec<Instant>>);

impl Repairs {
    fn note(&mut self, path: &Path) {
        self.0.entry(path.to_owned()).or_default().push(Instant::now());
    }

    /// Forgets the old ones; whether there are too many still.
    fn too_many(&mut self, path: &Path) -> bool {
        let Some(times) = self.0.get_mut(path) else { return false };
        times.retain(|time| time.elapsed() < WINDOW);
        times.len() >= REPAIRS
    }
}

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
    let mut repairs = Repairs::default();
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
        let patience = if node.conf_trouble.borrow().is_empty() { LOOK_AGAIN } else { TRY_AGAIN };
        tokio::select! {
            () = node.stop.cancelled() => return,
            () = changed => {}
            () = tokio::time::sleep(patience) => {}
        }
        let contested = settings.networks.iter().filter(|network| repairs.too_many(&network.conf.path));
        if contested.map(|network| contest(&node, &network.conf.path)).count() > 0 {
            tokio::select! {
                () = node.stop.cancelled() => return,
                () = tokio::time::sleep(BACK_OFF) => {}
            }
        }
    }
}

/// Stands back, and says so. Who it is the kernel tells nobody afterwards; how to catch him can be said.
fn contest(node: &Node, path: &Path) {
    let directory = path.parent().unwrap_or(path).display();
    let why = format!(
        "somebody else keeps changing {} ({REPAIRS} repairs within a minute), trying again every {} s; {}; \
         who it is `auditctl -w {directory} -p wa` tells",
        path.display(),
        BACK_OFF.as_secs(),
        netconf::describe(path),
    );
    trouble(node, path, "contested", why);
}

fn trouble(node: &Node, path: &Path, state: &'static str, why: String) {
    let new = Trouble { state, why };
    let old = node.conf_trouble.borrow_mut().insert(path.to_owned(), new.clone());
    if old.is_none_or(|old| old.state != state) {
        journal::emit(&Event::ConfRefused { path, why: &new.why });
        node.tell("conf-trouble", &[("path", path.display().to_string()), ("why", new.why.clone())]);
    }
    node.failed(&new.why);
}

/// The conf is as it should be.
fn settled(node: &Node, path: &Path) {
    let Some(old) = node.conf_trouble.borrow_mut().remove(path) else { return };
    // Nothing goes wrong any more: whoever looks shall not be sent after it.
    if *node.last_error.borrow() == old.why {
        node.last_error.borrow_mut().clear();
    }
    node.show_status();
}

fn look(node: &Node, repairs: &mut Repairs) {
    let settings = node.settings();
    for network in settings.networks.iter().filter(|it| !node.lacks.borrow().contains_key(&it.name)) {
        let path = &network.conf.path;
        let content = netconf::render(network, &settings);
        match netconf::inspect(path, &content, &node.ledger) {
            // It holds when it still holds later: until then it was only placed.
            Ok(Ownership::Ours { as_rendered: true }) => {
                if !repairs.too_many(path) {
                    settled(node, path);
                }
            }
            Ok(Ownership::Absent | Ownership::Ours { .. }) => restore(node, network, &content, repairs),
            Ok(Ownership::Foreign { why }) => foreign(node, network, &why),
            Err(error) => trouble(node, path, "unusable", error.to_string()),
        }
    }
}

/// Told to wait, the server takes its place as soon as it is free; until then it says who has it.
fn foreign(node: &Node, network: &NetworkSettings, why: &str) {
    let path = &network.conf.path;
    let text = format!("{} is not hostcni's ({why}): remove it, or choose another conf.path", path.display());
    settled(node, path);
    node.was_foreign.borrow_mut().insert(path.clone());
    if *node.last_error.borrow() != text {
        journal::emit(&Event::ForeignConf { path, why });
        node.failed(&text);
    }
}

fn restore(node: &Node, network: &NetworkSettings, content: &[u8], repairs: &mut Repairs) {
    if node.readiness.phase() != Phase::Ready {
        return;
    }
    crate::step!("guard.restore");
    let path = &network.conf.path;
    match put_back(node, network, content) {
        Ok(true) => {
            repairs.note(path);
            let what = format!("placed {} again: somebody removed or changed it", path.display());
            journal::emit(&Event::Repaired { what: &what });
            node.metrics.repaired(Repair::Conf);
            node.tell("repaired", &[("what", what.clone())]);
            if !repairs.too_many(path) {
                settled(node, path);
            }
        }
        // What is not to be there is in no trouble.
        Ok(false) => settled(node, path),
        Err(error) => trouble(node, path, "unusable", error.to_string()),
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
