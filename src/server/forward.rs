//! `accept_forward`: hostcni's rules in the chains of others, put back when somebody empties those.
//!
//! There is no event for that which is not also one for every rule that kube-proxy changes, so they are looked at from
//! time to time. A stop leaves them: running pods keep their network. A start whose configuration wants none takes away
//! what an earlier one made.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::datapath::forward::{self, Forwarded, Outcome};
use crate::settings::{NetworkSettings, Settings};
use crate::systemd::journal::{self, Event, Firewall};

use super::node::Node;

/// How often they are looked at.
const LOOK: Duration = Duration::from_secs(10);
/// What a start waits for `iptables`, which may wait for its lock: less than `restart_grace`, after which a planned
/// restart loses the confs.
const START: Duration = Duration::from_secs(3);

/// The networks that want it.
fn wanted(settings: &Settings) -> Vec<Forwarded> {
    let of = |network: &NetworkSettings| {
        let bridge = network.bridge().filter(|bridge| bridge.accept_forward)?;
        Some(Forwarded {
            network: network.name.to_string(),
            bridge: bridge.bridge.clone(),
            ipv4: bridge.has_family(true),
            ipv6: bridge.has_family(false),
        })
    };
    settings.networks.iter().filter_map(of).collect()
}

/// The rules, and what was last in their way.
pub struct Forward {
    networks: Vec<Forwarded>,
    failures: RefCell<Vec<String>>,
    /// A look that is under way, also when nobody waits for it any more: two at a time would make rules twice.
    looking: Mutex<Option<JoinHandle<Outcome>>>,
}

impl Forward {
    /// As the configuration wants it; nothing is touched yet.
    pub fn new(settings: &Settings) -> Self {
        Self { networks: wanted(settings), failures: RefCell::default(), looking: Mutex::default() }
    }

    /// Before the server is ready: the first pod's packets shall pass. No reason to fail.
    pub async fn at_start(&self, node: &Rc<Node>) {
        if !self.networks.is_empty() && tokio::time::timeout(START, self.look(node)).await.is_err() {
            self.tell(
                node,
                Outcome { failures: vec!["iptables takes too long".to_owned()], changes: Vec::new() },
            );
        }
    }

    /// Looks after them until the server stops.
    pub async fn run(&self, node: &Rc<Node>) {
        if !node.readiness.ready_within(Duration::MAX).await {
            return;
        }
        if self.networks.is_empty() {
            return self.look(node).await;
        }
        // What the start did not wait for.
        let mut pause = if self.looking.lock().await.is_some() { Duration::ZERO } else { LOOK };
        loop {
            tokio::select! {
                () = node.stop.cancelled() => return,
                () = tokio::time::sleep(pause) => self.look(node).await,
            }
            pause = LOOK;
        }
    }

    async fn look(&self, node: &Rc<Node>) {
        let mut looking = self.looking.lock().await;
        let begin = || {
            let networks = self.networks.clone();
            tokio::task::spawn_blocking(move || forward::ensure(&networks))
        };
        let outcome = looking.get_or_insert_with(begin).await;
        *looking = None;
        match outcome {
            Ok(outcome) => self.tell(node, outcome),
            Err(error) => node.failed(&error.to_string()),
        }
    }

    /// Failures are told when they come or change.
    fn tell(&self, node: &Rc<Node>, outcome: Outcome) {
        for what in &outcome.changes {
            journal::emit(&Event::Firewall(Firewall::ForwardChanged { what }));
        }
        if self.networks.is_empty() {
            // Nobody wants anything: most likely there was nothing to take away either.
            tracing::debug!(failures = ?outcome.failures, "looked for rules of an earlier start");
            return;
        }
        if *self.failures.borrow() != outcome.failures {
            for why in &outcome.failures {
                journal::emit(&Event::Firewall(Firewall::ForwardRefused { why }));
                node.failed(&format!("accept_forward: {why}"));
            }
        }
        *self.failures.borrow_mut() = outcome.failures;
    }
}
