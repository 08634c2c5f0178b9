//! Matching records with the kernel: at start, before the first request, and after missed events.
//!
//! The kernel is the truth. A link keeps its address leased even when its record is lost: the link's alias
//! carries the attachment and its addresses, and the record is written again from it.

use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

use crate::attachment::{self, Attachment, NetnsId, State};
use crate::cni::{AttachmentKey, CniVersion};
use crate::datapath::{Link, netns};

use super::driver::Reconciled;
use super::{Bridge, Error, bandwidth};

/// Reconciles one bridge network.
pub async fn run(bridge: &Bridge, records: Vec<Attachment>) -> Result<Reconciled, Error> {
    crate::step!("reconcile.links", Error::Injected("reconcile.links"));
    let mut links: HashMap<String, Link> =
        bridge.kernel.links().await?.into_iter().map(|link| (link.name.clone(), link)).collect();
    let mut done = Reconciled::default();
    // Every lease is back before anything is undone: an address whose link is still there is never given.
    let last = records.iter().max_by_key(|record| record.created).map(addresses_of);
    let mut undo = Vec::new();
    for record in records {
        let link = links.remove(&record.host_link).filter(|link| link.alias.is_some());
        restore(bridge, &record, &mut done);
        match (record.state, link) {
            (State::Ready, Some(link)) => {
                done.kept += 1;
                adopt(bridge, &link, &mut done).await;
                if let Err(error) = bridge.shape(&record).await {
                    done.failures.push(error.to_string());
                }
            }
            (State::Ready, None) if lives_elsewhere(&record) => done.kept += 1,
            (State::Ready, None) => {
                done.freed += 1;
                undo.push(record.key.clone());
            }
            (State::Pending | State::Deleting, _) => {
                done.undone += 1;
                undo.push(record.key.clone());
            }
        }
        bridge.table.borrow_mut().remember(record);
    }
    // The ifbs come last: whose they are is known only then.
    let (shapers, links): (Vec<Link>, Vec<Link>) =
        links.into_values().partition(|link| attachment::host_link_of_shaper(&link.name).is_some());
    for link in &links {
        unrecorded(bridge, link, &mut done).await;
    }
    for link in shapers.iter().filter(|link| bandwidth::is_orphan(bridge, link)) {
        orphan(bridge, link, "no pod needs it", &mut done).await;
    }
    if let Some(last) = last {
        bridge.table.borrow_mut().pool.rest_after(&last);
    }
    crate::step!("reconcile.undo", Error::Injected("reconcile.undo"));
    for (_, outcome) in bridge.take_down_all(undo, |_| true).await {
        if let Err(error) = outcome {
            done.failures.push(error.to_string());
        }
    }
    Ok(done)
}

/// Whether another plugin made it and its namespace is still there.
pub(super) fn lives_elsewhere(record: &Attachment) -> bool {
    let Some(path) = record.netns.as_deref().filter(|_| record.imported) else { return false };
    match netns::open(Path::new(path)) {
        Ok(opened) => netns::id(opened).ok().map(NetnsId::of) == record.netns_id,
        // Not to be seen from here, but there.
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

fn addresses_of(record: &Attachment) -> Vec<std::net::IpAddr> {
    record.addresses.iter().map(ipnet::IpNet::addr).collect()
}

fn restore(bridge: &Bridge, record: &Attachment, done: &mut Reconciled) {
    if let Err(error) = bridge.table.borrow_mut().pool.restore(&record.key, &addresses_of(record)) {
        done.failures.push(format!("lease of {}: {error}", record.key));
    }
}

/// A running pod's link goes back under the bridge when somebody took it off while nobody watched.
async fn adopt(bridge: &Bridge, link: &Link, done: &mut Reconciled) {
    if link.master == Some(bridge.index.get()) {
        return;
    }
    let settings = &bridge.settings;
    if let Err(error) =
        bridge.kernel.enslave(&link.name, &settings.bridge, settings.hairpin, settings.isolated).await
    {
        done.failures.push(error.to_string());
    }
}

/// A link of this network without a record: its alias says whose it is and what is leased to it.
async fn unrecorded(bridge: &Bridge, link: &Link, done: &mut Reconciled) {
    let Some(alias) = link.alias.as_deref() else { return };
    let Some((key, addresses)) = attachment::parse_alias(alias) else {
        if attachment::is_short_alias_of(alias, &bridge.name) {
            orphan(bridge, link, "its alias is too short to say whose it is", done).await;
        }
        return;
    };
    if key.network != bridge.name || link.name != attachment::host_link_name(&key) {
        return;
    }
    match rebuilt(bridge, key, addresses) {
        Ok(mut record) => {
            record.bandwidth = bridge.limits_of(&link.name).await.unwrap_or_else(|error| {
                done.failures.push(error.to_string());
                None
            });
            restore(bridge, &record, done);
            if let Err(error) = bridge.table.borrow_mut().put(record) {
                done.failures.push(error.to_string());
            }
            done.rebuilt += 1;
            adopt(bridge, link, done).await;
        }
        Err(why) => orphan(bridge, link, &why, done).await,
    }
}

/// A link of ours of which nobody can say whose it is goes.
async fn orphan(bridge: &Bridge, link: &Link, why: &str, done: &mut Reconciled) {
    done.orphans += 1;
    if let Err(error) = bridge.kernel.delete_link(&link.name).await {
        done.failures.push(format!("{}: {why}; {error}", link.name));
    }
}

/// The record that belongs to a link, as far as the kernel tells. Without the namespace's identity, the
/// same ADD again makes the attachment anew.
fn rebuilt(bridge: &Bridge, key: AttachmentKey, addresses: Vec<ipnet::IpNet>) -> Result<Attachment, String> {
    if addresses.is_empty() {
        return Err(format!("the alias of {key} carries no address"));
    }
    let table = bridge.table.borrow();
    if let Some(owner) = addresses.iter().find_map(|address| table.pool.owner(address.addr())) {
        return Err(format!("{key} claims an address that is leased to {owner}"));
    }
    Ok(Attachment {
        state: State::Ready,
        created: SystemTime::now(),
        addresses,
        cni_version: CniVersion::CURRENT,
        ..Attachment::new(key)
    })
}
