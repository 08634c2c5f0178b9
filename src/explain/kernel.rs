//! What the kernel has, in the words of `ip` and `tc`.

use std::path::Path;

use serde_json::Value;

use super::{Form, Look};
use crate::attachment;
use crate::doctor::json;
use crate::wire::AttachmentInfo;

/// The attachments that the links' aliases name: what is known without the server.
pub fn attachments() -> Vec<AttachmentInfo> {
    let links = json("ip", &["-j", "link", "show"]).unwrap_or_default();
    let links = links.as_array().cloned().unwrap_or_default();
    links.iter().filter_map(named).collect()
}

fn named(link: &Value) -> Option<AttachmentInfo> {
    let (key, addresses) = attachment::parse_alias(link["ifalias"].as_str()?)?;
    let host_link = attachment::host_link_name(&key);
    // The ifb of a limited pod has an alias like its host end's.
    (link["ifname"] == host_link.as_str()).then(|| AttachmentInfo {
        network: key.network.to_string(),
        container_id: key.container_id.to_string(),
        if_name: key.ifname.to_string(),
        addresses: addresses.iter().map(ToString::to_string).collect(),
        host_link,
        state: "unknown".to_owned(),
        ..AttachmentInfo::default()
    })
}

/// The node's end of the link, its counters and its queues. Other plugins' links are not known by name.
pub fn outside(attachment: &AttachmentInfo, form: Form) -> Vec<Look> {
    let link = attachment.host_link.as_str();
    let is_there = |name: &str| Path::new("/sys/class/net").join(name).exists();
    if link.is_empty() || !is_there(link) {
        return Vec::new();
    }
    let mut looks = vec![look(form, None, "ip", &["-d", "-s", "link", "show", "dev", link])];
    let shaper = attachment::shaper_name(link);
    if is_there(&shaper) {
        looks.push(look(form, None, "tc", &["-s", "qdisc", "show", "dev", link]));
        looks.push(look(form, None, "tc", &["-s", "qdisc", "show", "dev", &shaper]));
    }
    looks
}

/// Addresses, routes and neighbours in the pod.
pub fn inside(attachment: &AttachmentInfo, form: Form) -> Vec<Look> {
    let netns = attachment.netns.as_str();
    if netns.is_empty() {
        return Vec::new();
    }
    let asked: [&[&str]; 4] =
        [&["-s", "address", "show"], &["route", "show"], &["-6", "route", "show"], &["neighbour", "show"]];
    asked.map(|arguments| look(form, Some(netns), "ip", arguments)).into()
}

/// Runs the tool, in a namespace where one is given.
fn look(form: Form, netns: Option<&str>, program: &str, arguments: &[&str]) -> Look {
    let enter = netns.map(|path| format!("--net={path}"));
    let mut words: Vec<&str> = enter.iter().flat_map(|enter| ["nsenter", enter.as_str()]).collect();
    words.push(program);
    if form == Form::Json {
        words.push("-j");
    }
    words.extend(arguments);
    Look::at(&words, form)
}
