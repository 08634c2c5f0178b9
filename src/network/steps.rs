//! How long the steps of a request take: at DEBUG an entry each, with the fields of the request's own.

use std::time::Instant;

use crate::cni::{AttachmentKey, Command};

/// A request on its way.
pub(super) struct Steps<'a> {
    command: Command,
    key: &'a AttachmentKey,
    since: Instant,
}

impl<'a> Steps<'a> {
    /// Before the first step.
    pub(super) fn of(command: Command, key: &'a AttachmentKey) -> Self {
        Self { command, key, since: Instant::now() }
    }

    /// The step is behind it, done or failed.
    pub(super) fn passed(&mut self, step: &str) {
        let now = Instant::now();
        let took = now.duration_since(self.since);
        self.since = now;
        tracing::debug!(
            target: "hostcni",
            CNI_COMMAND = self.command.as_str(),
            CNI_CONTAINERID = self.key.container_id.as_str(),
            CNI_IFNAME = self.key.ifname.as_str(),
            HOSTCNI_NETWORK = self.key.network.as_str(),
            HOSTCNI_STEP = step,
            HOSTCNI_DURATION_USEC = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            "{}: {step} took {:.1} ms",
            self.command,
            took.as_secs_f64() * 1000.0
        );
    }
}
