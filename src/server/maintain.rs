//! While the server is ready: follows the kernel's events, repairs what others remove, frees the leases of
//! pods whose namespace went without a DEL, and carries out DELs that were left on disk.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::attachment::{self, Attachment, SpooledDel};
use crate::datapath::{Change, Interest};
use crate::network::Fate;
use crate::settings::{NetworkSettings, Settings};
use crate::systemd::journal::{self, AttachmentFields, Behind, Event, PodFields};

use super::Phase;
use super::metrics::Repair;
use super::node::Node;

/// Events come in bursts; a repair waits this long for the burst to end.
const SETTLE: Duration = Duration::from_millis(100);
/// How often deletions that failed are tried again, and the spool is looked at when no event tells.
const RETRY: Duration = Duration::from_secs(5);
/// How often what no event tells of is looked at.
const TEND: Duration = Duration::from_secs(30);

/// What is to be told of the kernel: nothing of links where other plugins make them all.
pub fn interest(settings: &Settings) -> Interest {
    let links = bridges(settings);
    let ends = (!links.is_empty()).then_some(attachment::is_link_name as fn(&str) -> bool);
    Interest { links, ends }
}

fn bridges(settings: &Settings) -> Vec<String> {
    settings.networks.iter().filter_map(NetworkSettings::bridge).map(|it| it.bridge.clone()).collect()
}

/// Follows the kernel until the server stops.
pub async fn run(node: Rc<Node>, mut changes: UnboundedReceiver<Change>) {
    if !node.readiness.ready_within(Duration::MAX).await {
        return;
    }
    let bridges = bridges(&node.settings());
    let (mut retry, mut tend) = (tokio::time::interval(RETRY), tokio::time::interval(TEND));
    let mut repair_at = None;
    loop {
        let settled = async {
            match repair_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = node.stop.cancelled() => return,
            change = changes.recv() => {
                let Some(change) = change else { return };
                if concerns_node(&change, &bridges) && repair_at.is_none() {
                    repair_at = Some(tokio::time::Instant::now() + SETTLE);
                }
                follow(&node, change);
            }
            () = settled => {
                repair_at = None;
                repair(&node).await;
            }
            _ = retry.tick() => {
                node.networks.retry().await;
                spooled(&node).await;
                journal::tell_repeats(false);
            }
            _ = tend.tick() => {
                for fate in node.networks.tend().await {
                    tell(&node, fate);
                }
            }
        }
    }
}

/// Whether a change may have taken something of the node's side of a network.
fn concerns_node(change: &Change, bridges: &[String]) -> bool {
    match change {
        Change::LinkRemoved { name, .. } | Change::LinkChanged { name, .. } => bridges.contains(name),
        Change::AddressRemoved { .. } | Change::Rules | Change::Resync => true,
    }
}

/// A vanished link frees its lease; each in a task of its own, so that they are looked at together.
fn follow(node: &Rc<Node>, change: Change) {
    if !matches!(change, Change::LinkRemoved { .. }) {
        return;
    }
    let node = Rc::clone(node);
    node.clone().sessions.spawn_local(async move {
        let fate = node.networks.changed(&change).await;
        tell(&node, fate);
    });
}

fn tell(node: &Rc<Node>, fate: Fate) {
    match fate {
        Fate::Freed(attachment) => freed(node, &attachment),
        Fate::Repaired(what) => repaired(node, Repair::Node, &what),
        Fate::Failed(why) => {
            tracing::warn!("{why}");
            node.failed(&why);
        }
        Fate::NotOurs => {}
    }
}

fn freed(node: &Rc<Node>, attachment: &Attachment) {
    node.metrics.reclaimed.inc();
    let addresses: Vec<String> = attachment.addresses.iter().map(ToString::to_string).collect();
    journal::emit(&Event::LeaseFreed {
        attachment: AttachmentFields::from(&attachment.key),
        pod: attachment.pod.as_ref().map(PodFields::from),
        addresses: &addresses.join(","),
    });
    node.tell("lease-freed", &[("attachment", attachment.key.to_string())]);
    node.show_status();
}

fn repaired(node: &Rc<Node>, object: Repair, what: &str) {
    node.metrics.repaired(object);
    journal::emit(&Event::Repaired { what });
    node.tell("repaired", &[("what", what.to_owned())]);
}

/// Makes the node's side as it should be, and says what was missing.
async fn repair(node: &Rc<Node>) {
    let mut repairs = match node.networks.prepare().await {
        Ok(changes) => changes.into_iter().map(|change| (Repair::Node, change)).collect(),
        Err(error) => {
            node.failed(&error.to_string());
            Vec::new()
        }
    };
    if !node.kernel.table_intact().await.unwrap_or(false) {
        match node.networks.apply_rules().await {
            Ok(()) => repairs.push((Repair::Nftables, "loaded the nftables table again".to_owned())),
            Err(error) => node.failed(&error.to_string()),
        }
    }
    for (object, what) in repairs {
        repaired(node, object, &what);
    }
}

/// How long a start waits for the deletions of what an earlier boot left; the rest goes on meanwhile.
const SWEEP: Duration = Duration::from_secs(20);

/// Has everything taken down that other plugins made in an earlier boot, or did not finish.
pub async fn sweep(node: &Rc<Node>) {
    let begun = node.networks.sweep();
    let count = begun.len();
    if count == 0 {
        return;
    }
    let left = Cell::new(count);
    let each = begun.into_iter().map(|one| async {
        let _ = one.await;
        left.set(left.get() - 1);
    });
    let _ = tokio::time::timeout(SWEEP, join_all(each)).await;
    journal::emit(&Event::Behind(Behind::BootSwept { count, left: left.get() }));
}

/// Carries out what is in the spool; what fails stays there.
pub async fn spooled(node: &Rc<Node>) -> usize {
    if node.spool.is_empty() {
        return 0;
    }
    let loaded = match node.spool.load_all() {
        Ok(loaded) => loaded,
        Err(error) => {
            node.failed(&error.to_string());
            return 0;
        }
    };
    for (path, why) in &loaded.set_aside {
        journal::emit(&Event::SpoolSetAside { path, why });
    }
    replay(node, loaded.dels).await
}

async fn replay(node: &Rc<Node>, dels: Vec<SpooledDel>) -> usize {
    crate::step!("spool.replay");
    let (mut done, mut failed) = (0, 0);
    for replayed in node.networks.replay(dels).await {
        node.metrics.replayed(replayed.outcome.is_ok());
        match replayed.outcome {
            Ok(_) => {
                node.spool.remove(&replayed.del.key, replayed.del.at);
                let pod = replayed.del.pod();
                let pod = pod.as_ref().map(PodFields::from);
                journal::emit(&Event::DelReplayed { attachment: (&replayed.del.key).into(), pod });
                done += 1;
            }
            Err(error) => {
                node.failed(&error.to_string());
                failed += 1;
            }
        }
    }
    if done + failed > 0 {
        journal::emit(&Event::SpoolReplayed { count: done, failed });
    }
    if node.readiness.phase() == Phase::Ready {
        node.show_status();
    }
    done
}
