//! The words that several events share.

use std::time::Duration;

use super::event::{AttachmentFields, PodFields};

/// " of pod ns/name (interface eth0 of container 0123456789ab)", or as much of it as is known.
pub(super) fn about(attachment: Option<AttachmentFields<'_>>, pod: Option<PodFields<'_>>) -> String {
    let pod = pod.map(|pod| format!(" of pod {}/{}", pod.namespace, pod.name));
    let attachment = attachment.map(|attachment| {
        let short: String = attachment.container_id.chars().take(12).collect();
        format!("{} of container {short} in network {}", attachment.ifname, attachment.network)
    });
    match (pod, attachment) {
        (Some(pod), Some(attachment)) => format!("{pod} ({attachment})"),
        (Some(pod), None) => pod,
        (None, Some(attachment)) => format!(" of {attachment}"),
        (None, None) => String::new(),
    }
}

/// Microseconds, as the journal counts.
pub(super) fn usec(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// For people.
pub(super) fn milliseconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1000.0)
}
