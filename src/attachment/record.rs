//! What is known of one attachment.

use std::net::IpAddr;
use std::time::SystemTime;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};

use crate::cni::{AddResult, AttachmentKey, Bandwidth, CniVersion, MacAddr, PodIdentity, PortMapping};

use super::{Delegated, host_link_name, time};

/// Where an attachment is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its ADD is under way: whatever is there is undone by the next start.
    Pending,
    /// Its ADD was answered, or is about to be.
    Ready,
    /// Its deletion has begun and is finished by the next start.
    Deleting,
}

/// The identity of a network namespace: the device and inode of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NetnsId {
    /// The device number of nsfs.
    pub dev: u64,
    /// The inode number of the namespace.
    pub ino: u64,
}

impl NetnsId {
    /// The identity made of device and inode.
    pub fn of((dev, ino): (u64, u64)) -> Self {
        Self { dev, ino }
    }
}

/// The record of one attachment: what the kernel cannot tell.
///
/// Written by other versions of hostcni too: unknown fields are ignored, missing ones have their default;
/// only the key and the state have none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    /// The version of the format that the record was written in.
    #[serde(default)]
    pub version: u32,
    /// Which attachment.
    pub key: AttachmentKey,
    /// Where it is in its life.
    pub state: State,
    /// When its ADD began.
    #[serde(with = "time", default = "time::epoch")]
    pub created: SystemTime,
    /// The namespace's path as the runtime named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Which namespace that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns_id: Option<NetnsId>,
    /// The pod's addresses with their prefix lengths.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// The pod's gateways.
    #[serde(default)]
    pub gateways: Vec<IpAddr>,
    /// The MAC address of the pod's interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// The MTU of the pod's interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The node's end of the link; always [`host_link_name`] of the key.
    #[serde(default)]
    pub host_link: String,
    /// The pod, where the runtime told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodIdentity>,
    /// The CNI version that the ADD asked for.
    #[serde(default = "current_version", deserialize_with = "known_version")]
    pub cni_version: CniVersion,
    /// The result of the ADD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<AddResult>,
    /// Host ports that lead to the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub port_mappings: Vec<PortMapping>,
    /// Rate limits that the pod has; absent where nothing is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Another plugin made it before hostcni came: there is no link of ours, and it lasts as long as its namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub imported: bool,
    /// What other plugins were called with, where they made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated: Option<Box<Delegated>>,
}

impl Attachment {
    /// The version of the format that this hostcni writes.
    pub const FORMAT: u32 = 1;

    /// A pending attachment, begun now, of which nothing is known but its key.
    pub fn new(key: AttachmentKey) -> Self {
        Self {
            version: Self::FORMAT,
            state: State::Pending,
            created: SystemTime::now(),
            netns: None,
            netns_id: None,
            addresses: Vec::new(),
            gateways: Vec::new(),
            mac: None,
            mtu: None,
            host_link: host_link_name(&key),
            pod: None,
            cni_version: CniVersion::CURRENT,
            result: None,
            port_mappings: Vec::new(),
            bandwidth: None,
            imported: false,
            delegated: None,
            key,
        }
    }

    /// The record of a file's bytes; what is wrong with them otherwise.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut record: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("is no attachment: {error}"))?;
        let link = host_link_name(&record.key);
        if record.host_link.is_empty() {
            record.host_link = link;
        } else if record.host_link != link {
            // A link of another name is not ours: a DEL would take it away.
            return Err(format!(
                "names link {:?}, and the link of {} is {link}",
                record.host_link, record.key
            ));
        }
        Ok(record)
    }
}

fn current_version() -> CniVersion {
    CniVersion::CURRENT
}

/// A later hostcni may know CNI versions that this one does not.
fn known_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CniVersion, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or(CniVersion::CURRENT))
}
