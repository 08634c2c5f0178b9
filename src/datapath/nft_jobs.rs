//! The thread for nftables and connection tracking: rulesets by `nft`, elements and flows by netlink, one
//! after the other.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot::Sender;

use super::conntrack::{self, Stale};
use super::nft::{self, Nft};
use super::worker::{self, Queue};
use super::{Element, ElementBatch, KernelError, PortMap, TableFamily, UpdateError};

/// What the thread can be asked for.
pub(super) enum Job {
    Apply(String, Sender<Result<(), KernelError>>),
    Update(ElementBatch, Sender<Result<(), UpdateError>>),
    Intact(Sender<Result<bool, KernelError>>),
    Present(TableFamily, Sender<Result<bool, KernelError>>),
    BridgeTables(Sender<bool>),
    Holder(Box<PortMap>, Sender<Result<Option<(IpAddr, u16)>, KernelError>>),
    Missing(Vec<Element>, Sender<Result<Vec<Element>, KernelError>>),
    Flush(Vec<PortMap>, Stale, Sender<Result<usize, KernelError>>),
}

/// Starts the thread. `touched` is set by whoever hears that somebody else changed our tables; applying a
/// ruleset takes it back.
pub(super) fn start(queue: Queue<Job>, touched: Arc<AtomicBool>) -> Result<(), KernelError> {
    let mut nft = Nft::open()?;
    worker::spawn("hc-nft", move || {
        while let Some(job) = queue.next() {
            serve(&mut nft, &touched, job);
        }
    })
}

fn serve(nft: &mut Nft, touched: &AtomicBool, job: Job) {
    // Whoever asked may have given up; what was done stays done.
    match job {
        Job::Apply(text, reply) => drop(reply.send(apply(&text, touched))),
        Job::Update(batch, reply) => drop(reply.send(nft.update(&batch))),
        Job::Intact(reply) => drop(reply.send(intact(nft, touched))),
        Job::Present(family, reply) => drop(reply.send(nft.table_present(family))),
        Job::BridgeTables(reply) => drop(reply.send(nft::has_bridge_tables())),
        Job::Holder(port_map, reply) => drop(reply.send(nft.holder(&port_map))),
        Job::Missing(elements, reply) => drop(reply.send(nft.missing(elements))),
        Job::Flush(port_maps, stale, reply) => drop(reply.send(conntrack::flush(&port_maps, stale))),
    }
}

/// What is changed meanwhile may be lost or not, so it counts as touched: the mark goes first.
fn apply(text: &str, touched: &AtomicBool) -> Result<(), KernelError> {
    let before = touched.swap(false, Ordering::SeqCst);
    let result = nft::apply(text);
    if result.is_err() {
        touched.fetch_or(before, Ordering::SeqCst);
    }
    result
}

fn intact(nft: &mut Nft, touched: &AtomicBool) -> Result<bool, KernelError> {
    Ok(nft.table_present(TableFamily::Inet)? && !touched.load(Ordering::SeqCst))
}
