//! What happens behind a request, for whoever writes the log.

use std::sync::Arc;

use crate::cni::{AttachmentKey, Command, PodIdentity};

/// Something that somebody should be able to read about.
#[derive(Debug, Clone, Copy)]
pub enum Notice<'a> {
    /// A plugin wrote to its standard error.
    Said {
        /// The plugin.
        plugin: &'a str,
        /// What it was called for.
        command: Command,
        /// The attachment, if it was about one.
        key: Option<&'a AttachmentKey>,
        /// The pod, where it is known.
        pod: Option<&'a PodIdentity>,
        /// What it wrote.
        text: &'a str,
    },
    /// A deletion failed and is kept.
    DelKept {
        /// The attachment.
        key: &'a AttachmentKey,
        /// The pod, where it is known.
        pod: Option<&'a PodIdentity>,
        /// How often it has failed.
        failures: u32,
        /// Why, this time.
        why: &'a str,
    },
    /// A deletion that had been kept is done.
    DelDone {
        /// The attachment.
        key: &'a AttachmentKey,
        /// The pod, where it is known.
        pod: Option<&'a PodIdentity>,
    },
}

/// Where notices go, from whatever thread.
pub type Tell = Arc<dyn Fn(Notice<'_>) + Send + Sync>;
