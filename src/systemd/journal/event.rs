//! Everything hostcni reports, as one enum: what happened, its fields, its level, its message id.
//!
//! A message id never changes once released: people's `journalctl MESSAGE_ID=…` and the catalog
//! (`packaging/usr/lib/systemd/catalog/hostcni.catalog`, shown by `journalctl -x`) hang on it. A new event
//! gets a new id (`systemd-id128 new`) and a catalog entry; tests hold both directions.

use std::path::Path;
use std::time::Duration;

use tracing::Level;

use crate::cni::{AttachmentKey, PodIdentity};

use super::behind::Behind;
use super::firewall::Firewall;
use super::words::{about, milliseconds, usec};

/// The attachment that an event is about.
#[derive(Debug, Clone, Copy)]
pub struct AttachmentFields<'a> {
    /// The network's name.
    pub network: &'a str,
    /// `CNI_CONTAINERID`.
    pub container_id: &'a str,
    /// `CNI_IFNAME`.
    pub ifname: &'a str,
}

impl<'a> From<&'a AttachmentKey> for AttachmentFields<'a> {
    fn from(key: &'a AttachmentKey) -> Self {
        Self {
            network: key.network.as_str(),
            container_id: key.container_id.as_str(),
            ifname: key.ifname.as_str(),
        }
    }
}

impl<'a> From<&'a PodIdentity> for PodFields<'a> {
    fn from(pod: &'a PodIdentity) -> Self {
        Self { namespace: &pod.namespace, name: &pod.name, uid: &pod.uid }
    }
}

/// The pod that an event is about, as the runtime named it.
#[derive(Debug, Clone, Copy)]
pub struct PodFields<'a> {
    /// `K8S_POD_NAMESPACE`.
    pub namespace: &'a str,
    /// `K8S_POD_NAME`.
    pub name: &'a str,
    /// `K8S_POD_UID`.
    pub uid: &'a str,
}

/// One thing that happened.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // the fields are what their names and the catalog say
pub enum Event<'a> {
    /// A request was answered; `code` is the CNI error code of a failure, `msg` its text.
    RequestFinished {
        command: &'a str,
        attachment: Option<AttachmentFields<'a>>,
        pod: Option<PodFields<'a>>,
        /// Comma-separated, with prefix lengths; empty when there are none.
        addresses: &'a str,
        duration: Duration,
        code: Option<u32>,
        msg: &'a str,
    },
    /// The server answers; `duration` is how long the start took.
    ServerReady { status: &'a str, duration: Duration },
    /// The server accepts no more and finishes what is in flight.
    ServerStopping,
    /// The configuration was read again and taken over.
    Reloaded,
    /// The configuration was read again and not taken over: the old one stays in force.
    ReloadFailed { error: &'a str },
    /// The conf is in place.
    ConfPlaced { network: &'a str, path: &'a Path },
    /// The conf was taken away.
    ConfRemoved { path: &'a Path, why: &'a str },
    /// The conf stays over a planned restart.
    ConfKept { path: &'a Path },
    /// The conf was not placed.
    ConfRefused { path: &'a Path, why: &'a str },
    /// The conf could not be taken away: the gate is open although nobody answers.
    ConfRemoveFailed { path: &'a Path, error: &'a str },
    /// A file that hostcni did not write is where the conf belongs.
    ForeignConf { path: &'a Path, why: &'a str },
    /// A runtime takes another file first.
    ShadowedConf { path: &'a Path, by: &'a Path },
    /// The plugin could not deliver a DEL and wrote it down.
    DelSpooled { attachment: AttachmentFields<'a>, pod: Option<PodFields<'a>>, why: &'a str },
    /// One that had been written down is carried out, or has nothing left to do.
    DelReplayed { attachment: AttachmentFields<'a>, pod: Option<PodFields<'a>> },
    /// Written down DELs were carried out.
    SpoolReplayed { count: usize, failed: usize },
    /// A written down DEL is unreadable.
    SpoolSetAside { path: &'a Path, why: &'a str },
    /// An attachment's file is unreadable.
    StateSetAside { path: &'a Path, why: &'a str },
    /// Files and kernel agree again.
    Reconciled { attachments: usize, undone: usize, leases_freed: usize, links_deleted: usize },
    /// A pod's interface vanished without a DEL.
    LeaseFreed { attachment: AttachmentFields<'a>, pod: Option<PodFields<'a>>, addresses: &'a str },
    /// Something of ours that somebody else removed or changed is back.
    Repaired { what: &'a str },
    /// The server cannot start.
    StartFailed { step: &'a str, error: &'a str },
    /// The plugin could not reach the server.
    ServerUnreachable {
        command: &'a str,
        attachment: Option<AttachmentFields<'a>>,
        pod: Option<PodFields<'a>>,
        socket: &'a Path,
        error: &'a str,
    },
    /// An ADD was undone.
    AddRolledBack { attachment: AttachmentFields<'a>, pod: Option<PodFields<'a>>, why: &'a str },
    /// Something about what stands behind a network.
    Behind(Behind<'a>),
    /// Something about another firewall.
    Firewall(Firewall<'a>),
    /// The journal did not take entries as fast as they came.
    EntriesLost { count: u64 },
}

/// Every message id, by the event's name.
pub const MESSAGE_IDS: &[(&str, &str)] = &[
    ("RequestFinished", "352eacd4ddb04decacae201a9ef9b779"),
    ("ServerReady", "9f488b3f1eb546f48ed205765e7a29e9"),
    ("ServerStopping", "fa574c53f51f4e17bdf65bf504be564d"),
    ("Reloaded", "21605592ac2647dab0c48561ac1010be"),
    ("ReloadFailed", "ebdf4a2330684c9baae1b37235105bfb"),
    ("ConfPlaced", "ab82369adc3144e184f5e4ea45937908"),
    ("ConfRemoved", "ff49162c122a4acabf3d0703f10510a2"),
    ("ConfKept", "5ac1446616454d969a6bdcc0b4274934"),
    ("ConfRefused", "c664e9551b734094898445bcbf5ea511"),
    ("ConfRemoveFailed", "fe9764e9ad584e7f96411eac820902ad"),
    ("ForeignConf", "5bcacce2ade648c491a6472b50d4f064"),
    ("ShadowedConf", "1ee214a1bab444aabd779f3373acbe11"),
    ("DelSpooled", "a12d2bb6fe014c7299ac5007eb94d2d8"),
    ("DelReplayed", "9338ce6be14d4395b182f5d5985965a4"),
    ("SpoolReplayed", "50fd2601c06c4f7890bdc0ca0f26cef4"),
    ("SpoolSetAside", "b2605c91371043818de163f1e8112f3f"),
    ("StateSetAside", "34ebc0eb8b544fb8867010a27bad707e"),
    ("Reconciled", "831cb6e947264f1abf6ed6898f2ab19d"),
    ("LeaseFreed", "edbec7820e9e41b4b16070d119116b18"),
    ("Repaired", "0d36762f792b4e028d2eb6ab3d89b996"),
    ("StartFailed", "bf1eee27b3ff40d79170806a04d95870"),
    ("ServerUnreachable", "fbef37bb305c42428c5c32f933181766"),
    ("AddRolledBack", "75f23ec33a8044a4ba766b0dc3b41b58"),
    ("PluginSaid", "adfb538f30ac4c15aa47439d099a9331"),
    ("DelKept", "8cc3f3765a7a4e2e9b96a15fbc318c4e"),
    ("KeptDelDone", "d82ab71f534b4f08a0324bf4ab92692a"),
    ("NetworkWaits", "07dd76aa05414eaf900d5ea2d5b5e715"),
    ("NetworkBack", "ee4b5cbce71e43c7a5a64c7ab739f643"),
    ("BootSwept", "c2c658857fe443cf89c3a901fbc3ede8"),
    ("ForwardChanged", "d286104e174944af963fbdd612139925"),
    ("ForwardRefused", "80edc8baee5844e69fe52c4776ba8088"),
    ("ZoneTaken", "58d7903c8a064933825a72698f83a274"),
    ("ZoneRefused", "e85f7618c04a40e7a1bf4f3f1f212af2"),
    ("EntriesLost", "a4891ff580fc4d709aab421279dc3e27"),
];

/// The fields of an entry, each absent one left out of the journal.
#[derive(Debug, Default)]
pub(super) struct Entry<'a> {
    pub(super) command: Option<&'a str>,
    pub(super) attachment: Option<AttachmentFields<'a>>,
    pub(super) pod: Option<PodFields<'a>>,
    pub(super) network: Option<&'a str>,
    pub(super) address: Option<&'a str>,
    pub(super) duration_usec: Option<u64>,
    pub(super) code: Option<u32>,
    pub(super) path: Option<String>,
    pub(super) by: Option<String>,
    pub(super) step: Option<&'a str>,
    pub(super) plugin: Option<&'a str>,
    pub(super) count: Option<u64>,
    /// Why it happened, or the error; what a catalog entry quotes.
    pub(super) reason: Option<&'a str>,
}

impl<'a> Event<'a> {
    /// The event's name: its key in [`MESSAGE_IDS`].
    pub fn name(&self) -> &'static str {
        match self {
            Self::RequestFinished { .. } => "RequestFinished",
            Self::ServerReady { .. } => "ServerReady",
            Self::ServerStopping => "ServerStopping",
            Self::Reloaded => "Reloaded",
            Self::ReloadFailed { .. } => "ReloadFailed",
            Self::ConfPlaced { .. } => "ConfPlaced",
            Self::ConfRemoved { .. } => "ConfRemoved",
            Self::ConfKept { .. } => "ConfKept",
            Self::ConfRefused { .. } => "ConfRefused",
            Self::ConfRemoveFailed { .. } => "ConfRemoveFailed",
            Self::ForeignConf { .. } => "ForeignConf",
            Self::ShadowedConf { .. } => "ShadowedConf",
            Self::DelSpooled { .. } => "DelSpooled",
            Self::DelReplayed { .. } => "DelReplayed",
            Self::SpoolReplayed { .. } => "SpoolReplayed",
            Self::SpoolSetAside { .. } => "SpoolSetAside",
            Self::StateSetAside { .. } => "StateSetAside",
            Self::Reconciled { .. } => "Reconciled",
            Self::LeaseFreed { .. } => "LeaseFreed",
            Self::Repaired { .. } => "Repaired",
            Self::StartFailed { .. } => "StartFailed",
            Self::ServerUnreachable { .. } => "ServerUnreachable",
            Self::AddRolledBack { .. } => "AddRolledBack",
            Self::Behind(behind) => behind.name(),
            Self::Firewall(firewall) => firewall.name(),
            Self::EntriesLost { .. } => "EntriesLost",
        }
    }

    /// The event's `MESSAGE_ID`.
    pub fn message_id(&self) -> &'static str {
        let name = self.name();
        // A test visits every variant, so the fallback is never seen.
        MESSAGE_IDS.iter().find(|(known, _)| *known == name).map_or("", |(_, id)| id)
    }

    /// How loud it is. A STATUS is asked every few seconds and a CHECK before every pod counts as running:
    /// their normal answers are for debugging only.
    pub fn level(&self) -> Level {
        match *self {
            Self::RequestFinished { command: "STATUS" | "VERSION", .. }
            | Self::RequestFinished { command: "CHECK", code: None, .. } => Level::DEBUG,
            // "Try again later" is the normal answer of a server that is starting.
            Self::RequestFinished { code: Some(11), .. } => Level::WARN,
            Self::RequestFinished { code: Some(_), .. }
            | Self::ConfRemoveFailed { .. }
            | Self::ForeignConf { .. }
            | Self::ReloadFailed { .. }
            | Self::StartFailed { .. } => Level::ERROR,
            Self::RequestFinished { code: None, .. }
            | Self::ServerReady { .. }
            | Self::ServerStopping
            | Self::Reloaded
            | Self::ConfPlaced { .. }
            | Self::ConfRemoved { .. }
            | Self::ConfKept { .. }
            | Self::DelReplayed { .. }
            | Self::SpoolReplayed { failed: 0, .. }
            | Self::Reconciled { .. }
            | Self::LeaseFreed { .. } => Level::INFO,
            Self::Behind(behind) => behind.level(),
            Self::Firewall(firewall) => firewall.level(),
            _ => Level::WARN,
        }
    }

    /// The line a person reads.
    pub fn message(&self) -> String {
        match *self {
            Self::RequestFinished { command, attachment, pod, addresses, duration, code, msg } => {
                let about = about(attachment, pod);
                let took = milliseconds(duration);
                match code {
                    None if addresses.is_empty() => format!("{command}{about} done in {took} ms"),
                    None => format!("{command}{about} done in {took} ms: {addresses}"),
                    Some(code) => format!("{command}{about} failed in {took} ms with CNI code {code}: {msg}"),
                }
            }
            Self::ServerReady { status, duration } => {
                format!("ready after {} ms: {status}", milliseconds(duration))
            }
            Self::ServerStopping => "stopping: finishing what is in flight".to_owned(),
            Self::Reloaded => "took over the configuration".to_owned(),
            Self::ReloadFailed { error } => format!("not reloaded, the old configuration stays: {error}"),
            Self::ConfPlaced { network, path } => format!("placed {} for network {network}", path.display()),
            Self::ConfRemoved { path, why } => format!("removed {}: {why}", path.display()),
            Self::ConfKept { path } => format!("keeping {} over a planned restart", path.display()),
            Self::ConfRefused { path, why } => format!("not placing {}: {why}", path.display()),
            Self::ConfRemoveFailed { path, error } => format!("cannot remove {}: {error}", path.display()),
            Self::ForeignConf { path, why } => {
                format!("{} was not written by hostcni ({why}), leaving it alone", path.display())
            }
            Self::ShadowedConf { path, by } => {
                format!("{} comes before {}: runtimes take it first", by.display(), path.display())
            }
            Self::DelSpooled { attachment, pod, why } => {
                format!("DEL{} written down for the next start: {why}", about(Some(attachment), pod))
            }
            Self::DelReplayed { attachment, pod } => {
                format!("DEL{}, which had been written down, is carried out", about(Some(attachment), pod))
            }
            Self::SpoolReplayed { count, failed: 0 } => {
                format!("carried out {count} DELs that had been written down")
            }
            Self::SpoolReplayed { count, failed } => {
                format!(
                    "carried out {count} DELs that had been written down, {failed} failed and are tried again"
                )
            }
            Self::SpoolSetAside { path, why } => {
                format!("set the spooled DEL {} aside: {why}", path.display())
            }
            Self::StateSetAside { path, why } => {
                format!("set the attachment file {} aside: {why}", path.display())
            }
            Self::Reconciled { attachments, undone, leases_freed, links_deleted } => format!(
                "reconciled with the kernel: {attachments} attachments live, {undone} unfinished ones undone, \
                 {leases_freed} leases freed, {links_deleted} links deleted"
            ),
            Self::LeaseFreed { attachment, pod, addresses } => {
                format!(
                    "the interface{} is gone without a DEL, freed {addresses}",
                    about(Some(attachment), pod)
                )
            }
            Self::Repaired { what } => format!("repaired: {what}"),
            Self::StartFailed { step, error } => format!("cannot start, {step}: {error}"),
            Self::ServerUnreachable { command, attachment, pod, socket, error } => {
                format!("{command}{}: no answer at {}: {error}", about(attachment, pod), socket.display())
            }
            Self::AddRolledBack { attachment, pod, why } => {
                format!("ADD{} undone: {why}", about(Some(attachment), pod))
            }
            Self::Behind(behind) => behind.message(),
            Self::Firewall(firewall) => firewall.message(),
            Self::EntriesLost { count } => {
                format!("{count} journal entries were lost: the journal did not read")
            }
        }
    }

    pub(super) fn entry(&self) -> Entry<'a> {
        let path_of = |path: &Path| Some(path.display().to_string());
        match *self {
            Self::RequestFinished { command, attachment, pod, addresses, duration, code, msg } => Entry {
                command: Some(command),
                attachment,
                pod,
                address: (!addresses.is_empty()).then_some(addresses),
                duration_usec: Some(usec(duration)),
                code,
                reason: (!msg.is_empty()).then_some(msg),
                ..Entry::default()
            },
            Self::ServerReady { status, duration } => {
                Entry { duration_usec: Some(usec(duration)), reason: Some(status), ..Entry::default() }
            }
            Self::ServerStopping | Self::Reloaded => Entry::default(),
            Self::ReloadFailed { error } => Entry { reason: Some(error), ..Entry::default() },
            Self::ConfPlaced { network, path } => {
                Entry { network: Some(network), path: path_of(path), ..Entry::default() }
            }
            Self::ConfKept { path } => Entry { path: path_of(path), ..Entry::default() },
            Self::ConfRemoved { path, why }
            | Self::ConfRefused { path, why }
            | Self::ForeignConf { path, why }
            | Self::SpoolSetAside { path, why }
            | Self::StateSetAside { path, why }
            | Self::ConfRemoveFailed { path, error: why } => {
                Entry { path: path_of(path), reason: Some(why), ..Entry::default() }
            }
            Self::ShadowedConf { path, by } => {
                Entry { path: path_of(path), by: path_of(by), ..Entry::default() }
            }
            Self::DelReplayed { attachment, pod } => {
                Entry { command: Some("DEL"), attachment: Some(attachment), pod, ..Entry::default() }
            }
            Self::DelSpooled { attachment, pod, why } => Entry {
                command: Some("DEL"),
                attachment: Some(attachment),
                pod,
                reason: Some(why),
                ..Entry::default()
            },
            Self::SpoolReplayed { count, .. } => {
                Entry { count: u64::try_from(count).ok(), ..Entry::default() }
            }
            Self::Reconciled { attachments, .. } => {
                Entry { count: u64::try_from(attachments).ok(), ..Entry::default() }
            }
            Self::LeaseFreed { attachment, pod, addresses } => {
                Entry { attachment: Some(attachment), pod, address: Some(addresses), ..Entry::default() }
            }
            Self::Repaired { what } => Entry { reason: Some(what), ..Entry::default() },
            Self::StartFailed { step, error } => {
                Entry { step: Some(step), reason: Some(error), ..Entry::default() }
            }
            Self::ServerUnreachable { command, attachment, pod, socket, error } => Entry {
                command: Some(command),
                attachment,
                pod,
                path: path_of(socket),
                reason: Some(error),
                ..Entry::default()
            },
            Self::AddRolledBack { attachment, pod, why } => Entry {
                command: Some("ADD"),
                attachment: Some(attachment),
                pod,
                reason: Some(why),
                ..Entry::default()
            },
            Self::Behind(behind) => behind.entry(),
            Self::Firewall(firewall) => firewall.entry(),
            Self::EntriesLost { count } => Entry { count: Some(count), ..Entry::default() },
        }
    }
}
