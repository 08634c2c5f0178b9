//! The trait behind which a network's kind stands.
//!
//! `bridge` is the native one, `delegate` has other CNI plugins do the work.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

use crate::attachment::{Attachment, SpooledDel};
use crate::cni::{AddResult, AttachmentKey, CniVersion, PodIdentity, RuntimeConfig, ValidAttachment};
use crate::datapath::{Change, NetworkRules, PodPort, PortMap};
use crate::ipam::RangeUsage;

use super::Error;

/// What a driver's asynchronous call returns. Not `Send`: requests live on the server's one thread.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// ADD, as a driver sees it.
#[derive(Debug)]
pub struct AddRequest {
    /// Which attachment.
    pub key: AttachmentKey,
    /// The pod's network namespace.
    pub netns: OwnedFd,
    /// The path under which the runtime knows it.
    pub netns_path: String,
    /// Whose pod it is, when the runtime says.
    pub pod: Option<PodIdentity>,
    /// Capability arguments.
    pub runtime: RuntimeConfig,
    /// The version asked for; kept for the record.
    pub version: CniVersion,
    /// `CNI_ARGS` as they came.
    pub args: String,
    /// The network configuration as it came.
    pub config: String,
    /// Cancelled when the plugin process is gone: the work is then rolled back.
    pub caller: CancellationToken,
}

/// What an ADD gave.
#[derive(Debug, Clone)]
pub struct Added {
    /// The result, in the internal model.
    pub result: AddResult,
    /// Tells this answer from an earlier or later one for the same attachment.
    pub serial: u64,
}

/// Under which condition an attachment is taken down; looked at when its turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Only {
    /// In any case.
    Always,
    /// Unless it was added after that moment: a DEL spooled earlier does not end it.
    IfOlder(SystemTime),
    /// Only if no later ADD has been answered with it.
    IfSerial(u64),
}

/// DEL, as a driver sees it.
#[derive(Debug)]
pub struct DelRequest {
    /// Which attachment.
    pub key: AttachmentKey,
    /// Under which condition.
    pub only: Only,
    /// How long the answer may take; the driver's own bound when none.
    pub within: Option<Duration>,
    /// The pod's network namespace, while it is there.
    pub netns: Option<OwnedFd>,
    /// The path under which the runtime knows it; may be empty.
    pub netns_path: String,
    /// Whose pod it is, when the runtime says.
    pub pod: Option<PodIdentity>,
    /// `CNI_ARGS` as they came.
    pub args: String,
    /// The network configuration as it came.
    pub config: String,
}

impl DelRequest {
    /// A deletion of which nothing is known but the attachment.
    pub fn of(key: AttachmentKey, only: Only) -> Self {
        Self {
            key,
            only,
            within: None,
            netns: None,
            netns_path: String::new(),
            pod: None,
            args: String::new(),
            config: String::new(),
        }
    }

    /// A deletion that was written down: an ADD that came after it wins.
    pub fn spooled(del: &SpooledDel, within: Duration) -> Self {
        Self {
            within: Some(within),
            netns_path: del.netns.clone().unwrap_or_default(),
            pod: del.pod(),
            args: del.args.clone(),
            config: del.config.clone(),
            ..Self::of(del.key.clone(), Only::IfOlder(del.at))
        }
    }
}

/// CHECK, as a driver sees it.
#[derive(Debug)]
pub struct CheckRequest {
    /// Which attachment.
    pub key: AttachmentKey,
    /// The pod's network namespace.
    pub netns: OwnedFd,
    /// The result of ADD as the runtime remembers it.
    pub prev_result: Option<AddResult>,
}

/// What a reconciliation found and did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Reconciled {
    /// Attachments that are as their records say.
    pub kept: usize,
    /// Attachments rebuilt from the kernel because their record was gone.
    pub rebuilt: usize,
    /// Records without a link: their leases are free again.
    pub freed: usize,
    /// Half-made or half-deleted attachments taken down.
    pub undone: usize,
    /// Links of ours that belonged to nobody, deleted.
    pub orphans: usize,
    /// What could not be done, in words; it is tried again while running.
    pub failures: Vec<String>,
}

/// What became of an attachment whose link vanished.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// Not an attachment of this network, or it is being worked on.
    NotOurs,
    /// The lease is free again.
    Freed(Box<Attachment>),
    /// Something that belongs to an attachment was made again: in words.
    Repaired(String),
    /// Something that belongs to an attachment is gone and could not be made again: in words.
    Failed(String),
}

/// A network's figures.
#[derive(Debug, Clone)]
pub struct Report {
    /// The driver's name.
    pub driver: &'static str,
    /// The bridge, if the driver has one.
    pub bridge: String,
    /// The pods' MTU.
    pub mtu: u32,
    /// Leases per range.
    pub ranges: Vec<RangeUsage>,
    /// How many attachments.
    pub attachments: usize,
    /// How many of them are being deleted; what cannot be taken down yet stays so, and is tried again.
    pub deleting: usize,
    /// Why no further pod can be added, if so.
    pub unable: Option<String>,
}

/// A network's kind.
pub trait Driver {
    /// Makes what the network needs on the node; says what it changed. Idempotent, also used for repair.
    fn prepare(&self) -> Answer<'_, Result<Vec<String>, Error>>;
    /// Matches the records of this network with the kernel; run once, before the first request.
    fn reconcile(&self, records: Vec<Attachment>) -> Answer<'_, Result<Reconciled, Error>>;
    /// Attaches a pod. The same request again gives the same result.
    fn add(&self, request: AddRequest) -> Answer<'_, Result<Added, Error>>;
    /// Takes an attachment down, under its condition; that something is missing is no error.
    fn del(&self, request: DelRequest) -> Answer<'_, Result<Option<Attachment>, Error>>;
    /// Compares kernel, lease and the runtime's `prevResult`.
    fn check(&self, request: CheckRequest) -> Answer<'_, Result<(), Error>>;
    /// Removes every attachment that is not listed, unless its ADD came after the call; says which.
    fn gc<'a>(&'a self, valid: &'a [ValidAttachment]) -> Answer<'a, Result<Vec<AttachmentKey>, Error>>;
    /// Whether the plugins that the network is made of are there and fit together.
    fn stands(&self) -> Answer<'_, Result<(), Error>>;
    /// Whether they say that they are able to serve.
    fn status(&self) -> Answer<'_, Result<(), Error>>;
    /// A link of the node went away or changed.
    fn changed<'a>(&'a self, change: &'a Change) -> Answer<'a, Fate>;
    /// Tries again what could not be taken down; says how many are left.
    fn retry(&self) -> Answer<'_, usize>;
    /// Looks, from time to time, at what no event tells of, and puts it right.
    fn tend(&self) -> Answer<'_, Vec<Fate>>;
    /// This network's part of the ruleset; none where hostcni has no rules of its own.
    fn rules(&self) -> Option<NetworkRules>;
    /// The host ports of its live attachments.
    fn port_maps(&self) -> Vec<PortMap>;

    /// The links of its pods that are held to their own addresses.
    fn identities(&self) -> Vec<PodPort>;
    /// This network's figures.
    fn report(&self) -> Report;
    /// Every attachment, for people.
    fn attachments(&self) -> Vec<Attachment>;
}
