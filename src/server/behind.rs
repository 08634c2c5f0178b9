//! What stands behind a network of other plugins: files, sockets, the plugins themselves and their STATUS.
//!
//! While something lacks, the network has no conf and STATUS answers 50; every other network goes on.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::net::UnixStream;

use crate::cni::NetworkName;
use crate::netconf::{self, Removed};
use crate::settings::{DelegateSettings, DriverSettings, NetworkSettings};
use crate::systemd::journal::{self, Behind, Event};

use super::Phase;
use super::node::Node;

/// How often files and sockets are looked at, and how often the plugins are asked, which takes processes.
const LOOK: Duration = Duration::from_secs(1);
const ASK: Duration = Duration::from_secs(5);
/// A socket that has not accepted by then does not.
const CONNECT: Duration = Duration::from_secs(1);

/// The networks that lack something now, and what.
pub type Lacks = BTreeMap<NetworkName, String>;

/// One network's watch.
struct Watched {
    name: NetworkName,
    conf: NetworkSettings,
    settings: DelegateSettings,
    /// When the plugins were asked last, and what came of it.
    asked: Option<(Instant, Result<(), String>)>,
}

fn watched(node: &Node) -> Vec<Watched> {
    let settings = node.settings();
    let delegate = |network: &NetworkSettings| match &network.driver {
        DriverSettings::Bridge(_) => None,
        DriverSettings::Delegate(delegate) => Some(Watched {
            name: network.name.clone(),
            conf: network.clone(),
            settings: delegate.as_ref().clone(),
            asked: None,
        }),
    };
    settings.networks.iter().filter_map(delegate).collect()
}

/// Waits for what stands behind each network, for as long as its settings say; what lacks then is noted, and its
/// conf of an earlier server is taken away.
pub async fn wait(node: &Rc<Node>, gates: bool) {
    let each = watched(node).into_iter().map(|mut network| async move {
        let begun = Instant::now();
        while let Err(why) = network.look(node).await {
            if begun.elapsed() >= network.settings.ready.wait {
                network.lost(node, &why, gates);
                return;
            }
            node.readiness.at(&format!("waiting for what network {} stands on: {why}", network.name));
            tokio::time::sleep(LOOK).await;
        }
    });
    join_all(each).await;
}

/// Follows what stands behind each network until the server stops.
pub async fn run(node: Rc<Node>, gates: bool) {
    if !node.readiness.ready_within(Duration::MAX).await {
        return;
    }
    let each = watched(&node).into_iter().map(|network| network.follow(&node, gates));
    tokio::select! {
        () = node.stop.cancelled() => {}
        _ = join_all(each) => {}
    }
}

impl Watched {
    async fn follow(mut self, node: &Node, gates: bool) {
        let mut since: Option<Instant> = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let lacks = node.lacks.borrow().contains_key(&self.name);
            match self.look(node).await {
                Ok(()) => {
                    since = None;
                    if lacks {
                        self.back(node, gates);
                    }
                }
                Err(why) if lacks => {
                    node.lacks.borrow_mut().insert(self.name.clone(), why);
                }
                Err(why) => {
                    let since = *since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.settings.ready.grace {
                        self.lost(node, &why, gates);
                    }
                }
            }
        }
    }

    /// The first thing that lacks.
    async fn look(&mut self, node: &Node) -> Result<(), String> {
        let ready = &self.settings.ready;
        if let Some(file) = ready.files.iter().find(|file| !file.exists()) {
            return Err(format!("no file {}", file.display()));
        }
        for socket in &ready.sockets {
            accepts(socket).await?;
        }
        if let Some((at, outcome)) = &self.asked
            && at.elapsed() < ASK
        {
            return outcome.clone();
        }
        let asked = node.networks.stands(&self.name, ready.status).await.map_err(|error| error.to_string());
        self.asked = Some((Instant::now(), asked.clone()));
        asked
    }

    fn lost(&self, node: &Node, why: &str, gates: bool) {
        node.lacks.borrow_mut().insert(self.name.clone(), why.to_owned());
        journal::emit(&Event::Behind(Behind::NetworkWaits { network: self.name.as_str(), why }));
        node.tell("network-waits", &[("network", self.name.to_string()), ("why", why.to_owned())]);
        node.failed(&format!("network {}: {why}", self.name));
        let path = &self.conf.conf.path;
        match if gates { netconf::remove(path, &node.ledger) } else { Ok(Removed::Absent) } {
            Ok(Removed::Removed) => journal::emit(&Event::ConfRemoved { path, why }),
            Ok(_) => {}
            Err(error) => {
                journal::emit(&Event::ConfRemoveFailed { path, error: &error.to_string() });
                node.failed(&error.to_string());
            }
        }
    }

    fn back(&self, node: &Node, gates: bool) {
        let (name, path) = (self.name.as_str(), &self.conf.conf.path);
        if node.readiness.phase() != Phase::Ready {
            return;
        }
        // By now the conf's own settings may have been reloaded.
        let settings = node.settings();
        let Some(network) = settings.networks.iter().find(|network| network.name == self.name) else {
            return;
        };
        match if gates {
            netconf::place(path, &netconf::render(network, &settings), &node.ledger).map(drop)
        } else {
            Ok(())
        } {
            Ok(()) if gates => journal::emit(&Event::ConfPlaced { network: name, path }),
            Ok(()) => {}
            Err(error) => {
                // The next look tries again.
                journal::emit(&Event::ConfRefused { path, why: &error.to_string() });
                return node.failed(&error.to_string());
            }
        }
        node.lacks.borrow_mut().remove(&self.name);
        node.last_error.borrow_mut().clear();
        journal::emit(&Event::Behind(Behind::NetworkBack { network: name }));
        node.tell("network-back", &[("network", name.to_owned())]);
        node.show_status();
    }
}

/// Whether somebody accepts at a socket.
async fn accepts(socket: &Path) -> Result<(), String> {
    let told = |why: &dyn std::fmt::Display| format!("nobody accepts at {}: {why}", socket.display());
    match tokio::time::timeout(CONNECT, UnixStream::connect(socket)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(told(&error)),
        Err(_) => Err(told(&"no answer")),
    }
}
