//! What is reported of the plugins that stand behind a network, and of what those stand on.

use tracing::Level;

use super::event::{AttachmentFields, Entry, PodFields};
use super::words::about;

/// One thing that happened behind a network.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // the fields are what their names and the catalog say
pub enum Behind<'a> {
    /// A plugin wrote to its standard error.
    PluginSaid {
        plugin: &'a str,
        command: &'a str,
        attachment: Option<AttachmentFields<'a>>,
        pod: Option<PodFields<'a>>,
        text: &'a str,
    },
    /// A deletion failed; it is kept and tried again.
    DelKept { attachment: AttachmentFields<'a>, pod: Option<PodFields<'a>>, failures: u32, why: &'a str },
    /// A deletion that had been kept is done.
    KeptDelDone { attachment: AttachmentFields<'a>, pod: Option<PodFields<'a>> },
    /// What the network stands on is not there.
    NetworkWaits { network: &'a str, why: &'a str },
    /// What the network stands on is there again.
    NetworkBack { network: &'a str },
    /// What an earlier boot or an unfinished request had left is being taken down.
    BootSwept { count: usize, left: usize },
}

impl<'a> Behind<'a> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::PluginSaid { .. } => "PluginSaid",
            Self::DelKept { .. } => "DelKept",
            Self::KeptDelDone { .. } => "KeptDelDone",
            Self::NetworkWaits { .. } => "NetworkWaits",
            Self::NetworkBack { .. } => "NetworkBack",
            Self::BootSwept { .. } => "BootSwept",
        }
    }

    pub(super) fn level(&self) -> Level {
        match self {
            Self::DelKept { .. } | Self::NetworkWaits { .. } => Level::WARN,
            _ => Level::INFO,
        }
    }

    pub(super) fn message(&self) -> String {
        match *self {
            Self::PluginSaid { plugin, command, attachment, pod, text } => {
                format!("plugin {plugin}, {command}{}: {text}", about(attachment, pod))
            }
            Self::DelKept { attachment, pod, failures, why } => {
                let about = about(Some(attachment), pod);
                format!("DEL{about} has failed, time {failures}, and is tried again: {why}")
            }
            Self::KeptDelDone { attachment, pod } => {
                format!("DEL{} is done at last", about(Some(attachment), pod))
            }
            Self::NetworkWaits { network, why } => format!("network {network} has no conf now: {why}"),
            Self::NetworkBack { network } => format!("network {network} has all it stands on again"),
            Self::BootSwept { count, left: 0 } => {
                format!("took down {count} attachments that an earlier boot or start had left")
            }
            Self::BootSwept { count, left } => {
                format!("{left} of {count} attachments that an earlier boot or start had left still go down")
            }
        }
    }

    pub(super) fn entry(&self) -> Entry<'a> {
        match *self {
            Self::PluginSaid { plugin, command, attachment, pod, text } => Entry {
                plugin: Some(plugin),
                command: Some(command),
                attachment,
                pod,
                reason: Some(text),
                ..Entry::default()
            },
            Self::DelKept { attachment, pod, failures, why } => Entry {
                command: Some("DEL"),
                attachment: Some(attachment),
                pod,
                count: Some(failures.into()),
                reason: Some(why),
                ..Entry::default()
            },
            Self::KeptDelDone { attachment, pod } => {
                Entry { command: Some("DEL"), attachment: Some(attachment), pod, ..Entry::default() }
            }
            Self::NetworkWaits { network, why } => {
                Entry { network: Some(network), reason: Some(why), ..Entry::default() }
            }
            Self::NetworkBack { network } => Entry { network: Some(network), ..Entry::default() },
            Self::BootSwept { count, .. } => Entry { count: u64::try_from(count).ok(), ..Entry::default() },
        }
    }
}
