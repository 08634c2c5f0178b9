//! What the server says of itself.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Findings;
use super::scene::{Scene, files};

/// A range is nearly used up when fewer than one in so many addresses are free.
const NEARLY: u64 = 20;

/// It answers, and is ready.
pub fn check(scene: &Scene, found: &mut Findings) {
    match &scene.status {
        Err(why) => found.error(why.clone(), "systemctl status hostcni.socket hostcni"),
        Ok(status) if !status.ready => {
            let doing = if status.step.is_empty() { &status.state } else { &status.step };
            found.error(format!("not ready: {doing}"), "journalctl -b -u hostcni");
        }
        Ok(status) => {
            for network in status.networks.iter().filter(|network| !network.lacks.is_empty()) {
                let reason = format!("network {} waits: {}", network.name, network.lacks);
                found.error(reason, "start what it stands on: network.delegate.ready in the configuration");
            }
            if !status.last_error.is_empty() {
                found.warning(
                    format!("its last error: {}", status.last_error),
                    "journalctl -b -p warning -u hostcni",
                );
            }
        }
    }
}

/// There are addresses for more pods.
pub fn addresses(scene: &Scene, found: &mut Findings) {
    for network in scene.status.iter().flat_map(|status| &status.networks) {
        let remedy =
            "hostcni attachments: who has them; a larger subnet, or another range, in the configuration";
        if !network.able {
            found.error(format!("network {}: {}", network.name, network.reason), remedy);
            continue;
        }
        for range in network.ranges.iter().filter(|range| range.free < range.capacity / NEARLY) {
            found.warning(
                format!("{}: {} of {} addresses are free", range.subnet, range.free, range.capacity),
                remedy,
            );
        }
    }
}

/// Nothing waits to be taken down.
pub fn deletions(scene: &Scene, found: &mut Findings) {
    // Without a server the files tell.
    let written_down =
        || scene.settings.as_ref().map_or(0, |it| files(&it.paths.spool_dir, &["json"]).len() as u64);
    let spooled = scene.status.as_ref().map_or_else(|_| written_down(), |status| status.spooled);
    if spooled > 0 {
        let reason = format!("{spooled} DELs were written down and are not carried out yet");
        found.warning(
            reason,
            "the server does it when it starts: systemctl restart hostcni; journalctl -b -u hostcni",
        );
    }
    let left = scene.attachments.iter().filter(|it| it.state == "deleting");
    for attachment in left {
        let reason = format!("container {} cannot be taken down", attachment.container_id);
        found.warning(
            reason,
            format!("it is tried again; journalctl CNI_CONTAINERID={}", attachment.container_id),
        );
    }
}

/// No attachment is from the future: what was written down, and what GC was not told of, is judged by its time.
pub fn clock(scene: &Scene, found: &mut Findings) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros());
    let ahead = scene.attachments.iter().filter(|it| u128::from(it.created) > now + 1_000_000).count();
    if ahead > 0 {
        let reason = format!("{ahead} attachments were added later than now: the clock was set back");
        found.warning(
            reason,
            "set the clock (chronyc makestep; timedatectl); until then a DEL that is written down may count as older \
             than its ADD: look at hostcni attachments",
        );
    }
}

/// The namespaces of the pods are there.
pub fn namespaces(scene: &Scene, found: &mut Findings) {
    let gone = scene.attachments.iter().filter(|it| !it.netns.is_empty() && !Path::new(&it.netns).exists());
    for attachment in gone {
        let reason = format!(
            "the namespace {} of container {} has no name any more, and its link is still there",
            attachment.netns, attachment.container_id
        );
        found.warning(reason, "a process or a mount keeps it: lsns -t net; the lease ends with the link");
    }
}
