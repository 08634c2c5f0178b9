//! Notices of the networks on their way to the journal.

use std::sync::Arc;

use crate::network::{Notice, Tell};
use crate::systemd::journal::{self, AttachmentFields, Behind, Event, PodFields};

/// Writes every notice down, with the pod's fields.
pub fn journal() -> Tell {
    Arc::new(|notice| journal::emit(&Event::Behind(event(&notice))))
}

fn event<'a>(notice: &Notice<'a>) -> Behind<'a> {
    match *notice {
        Notice::Said { plugin, command, key, pod, text } => Behind::PluginSaid {
            plugin,
            command: command.as_str(),
            attachment: key.map(AttachmentFields::from),
            pod: pod.map(PodFields::from),
            text,
        },
        Notice::DelKept { key, pod, failures, why } => {
            Behind::DelKept { attachment: key.into(), pod: pod.map(PodFields::from), failures, why }
        }
        Notice::DelDone { key, pod } => {
            Behind::KeptDelDone { attachment: key.into(), pod: pod.map(PodFields::from) }
        }
    }
}
