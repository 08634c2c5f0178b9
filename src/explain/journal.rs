//! A pod's story from the journal, over restarts and boots, also when the pod is gone.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::{Asked, Form, Look, PATIENCE};
use crate::attachment;
use crate::cni::{AttachmentKey, ContainerId};
use crate::datapath::spawn;
use crate::doctor::said;
use crate::wire::AttachmentInfo;

/// An address or a pod's name had many containers in the course of time; so many of the newest are told of.
const CONTAINERS: usize = 10;
/// Entries of one story.
const ENTRIES: &str = "500";

/// Why there is nothing to read in the journal.
pub fn unread() -> Option<String> {
    match spawn::run("journalctl", &["-q", "-n", "0"], "", PATIENCE) {
        Err(error) => Some(error.to_string()),
        Ok(output) if !output.success() => Some(output.stderr.trim().to_owned()),
        Ok(_) if !nix::unistd::geteuid().is_root() => Some("only root is shown all of it".to_owned()),
        Ok(_) => None,
    }
}

/// The entries of all containers that are meant, in order, and how many containers were left out.
pub fn story(asked: &Asked, live: &[AttachmentInfo], form: Form) -> (Option<Look>, usize) {
    let mut containers = newest(&matches(asked));
    for attachment in live {
        containers.retain(|id| *id != attachment.container_id);
        containers.insert(0, attachment.container_id.clone());
    }
    let earlier = containers.len().saturating_sub(CONTAINERS.max(live.len()));
    containers.truncate(containers.len() - earlier);
    if containers.is_empty() {
        return (None, 0);
    }
    let fields: Vec<String> = containers.iter().map(|id| format!("CNI_CONTAINERID={id}")).collect();
    let output = if form == Form::Json { "json" } else { "short-iso" };
    // Matches of one field are alternatives.
    let mut words = vec!["journalctl", "-q", "--no-pager", "-n", ENTRIES, "-o", output];
    words.extend(fields.iter().map(String::as_str));
    let look = Look::at(&words, form);
    let is_empty = look.says.as_str().is_some_and(|text| text.trim().is_empty())
        || look.says.as_array().is_some_and(Vec::is_empty);
    ((!is_empty).then_some(look), earlier)
}

/// What `journalctl` has to look for, one list for each alternative. A pod may be named like an address or a link.
fn matches(asked: &Asked) -> Vec<Vec<String>> {
    if let Some((namespace, name)) = asked.pod() {
        return vec![vec![format!("K8S_POD_NAMESPACE={namespace}"), format!("K8S_POD_NAME={name}")]];
    }
    let any_of = |field: &str, meant: &dyn Fn(&str) -> bool| -> Vec<String> {
        values(field).iter().filter(|value| meant(value)).map(|value| format!("{field}={value}")).collect()
    };
    let word = asked.word.as_str();
    let mut found = vec![vec![format!("K8S_POD_NAME={word}")]];
    if asked.address.is_some() {
        found.push(any_of("HOSTCNI_ADDRESS", &|list| asked.means_addresses(list.split(','))));
    } else {
        found.push(any_of("CNI_CONTAINERID", &|id| asked.means_container(id)));
        found.push(vec![format!("K8S_POD_UID={word}")]);
        found.push(containers_of_link(word));
    }
    found.into_iter().filter(|fields| !fields.is_empty()).collect()
}

/// The containers whose link has that name, which is a hash; none when it does not look like one.
fn containers_of_link(link: &str) -> Vec<String> {
    if link.strip_prefix("hc").is_none_or(|digits| digits.len() != 13) {
        return Vec::new();
    }
    let (networks, ifnames) = (values("HOSTCNI_NETWORK"), values("CNI_IFNAME"));
    let has_it = |id: &String| {
        networks.iter().flat_map(|network| ifnames.iter().map(move |ifname| (network, ifname))).any(
            |(network, ifname)| {
                key(network, id, ifname).is_some_and(|key| attachment::host_link_name(&key) == link)
            },
        )
    };
    let containers = values("CNI_CONTAINERID").into_iter().filter(has_it);
    containers.map(|id| format!("CNI_CONTAINERID={id}")).collect()
}

fn key(network: &str, container: &str, ifname: &str) -> Option<AttachmentKey> {
    Some(AttachmentKey {
        network: network.parse().ok()?,
        container_id: container.parse().ok()?,
        ifname: ifname.parse().ok()?,
    })
}

/// Every value that the field has in the journal.
fn values(field: &str) -> BTreeSet<String> {
    said("journalctl", &["-q", "-F", field]).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The containers of the entries found, the one that was last heard of first.
fn newest(matches: &[Vec<String>]) -> Vec<String> {
    let mut last: HashMap<String, u64> = HashMap::new();
    for fields in matches {
        // The newest first: of an output that is too long the oldest are dropped.
        let mut words = vec!["-q", "--no-pager", "-r", "-o", "json", "--output-fields=CNI_CONTAINERID"];
        words.extend(fields.iter().map(String::as_str));
        for entry in said("journalctl", &words).unwrap_or_default().lines() {
            let Ok(entry) = serde_json::from_str::<Value>(entry) else { continue };
            let at = entry["__REALTIME_TIMESTAMP"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
            // Anybody can write to the journal, and the id becomes part of a command that is shown to be typed.
            if let Some(id) = entry["CNI_CONTAINERID"].as_str().filter(|id| id.parse::<ContainerId>().is_ok())
            {
                let known = last.entry(id.to_owned()).or_default();
                *known = at.max(*known);
            }
        }
    }
    let mut ids: Vec<(String, u64)> = last.into_iter().collect();
    ids.sort_by_key(|(_, at)| Reverse(*at));
    ids.into_iter().map(|(id, _)| id).collect()
}
