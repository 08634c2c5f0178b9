//! What travels: parameters and replies of `io.hostcni.Node`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Parameters of `Invoke`. The configuration is text: as a JSON value it would lose the order of its keys and
/// the spelling of its numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Invoke {
    /// `CNI_COMMAND`
    pub command: String,
    /// `CNI_CONTAINERID`
    pub container_id: String,
    /// `CNI_IFNAME`
    pub if_name: String,
    /// `CNI_NETNS`, for the record; the descriptor counts.
    pub netns: String,
    /// The namespace's index among the descriptors of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns_fd: Option<u32>,
    /// `CNI_ARGS`
    pub args: String,
    /// `CNI_PATH`
    pub path: String,
    /// The network configuration's text, unchanged.
    pub config: String,
    /// `TRACEPARENT`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// `TRACESTATE`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// How long the caller waits for the answer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
}

/// Reply of `Invoke`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InvokeReply {
    /// The result's text in the version asked for; empty for verbs without one.
    pub result: String,
}

/// Parameters of the error `CniError`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CniErrorParameters {
    /// The CNI error code.
    pub code: u32,
    /// The message.
    pub msg: String,
    /// More of it.
    pub details: String,
}

/// Reply of `Status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusReply {
    /// Whether requests are carried out.
    pub ready: bool,
    /// `starting`, `ready` or `stopping`.
    pub state: String,
    /// The step that the start is at.
    pub step: String,
    /// The server's version.
    pub version: String,
    /// Since when the state lasts, in microseconds since the epoch.
    pub since: u64,
    /// The server's process.
    pub pid: u32,
    /// The networks.
    pub networks: Vec<NetworkStatus>,
    /// DELs that wait on disk.
    pub spooled: u64,
    /// Open connections.
    pub connections: u64,
    /// The last thing that went wrong; empty when nothing did.
    pub last_error: String,
}

/// One network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkStatus {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// Its bridge.
    pub bridge: String,
    /// Its conf.
    pub conf: ConfStatus,
    /// Its ranges.
    pub ranges: Vec<RangeStatus>,
    /// How many attachments it has.
    pub attachments: u64,
    /// Whether a pod can be added.
    pub able: bool,
    /// Why not.
    pub reason: String,
    /// The pods' MTU in bytes.
    pub mtu: u32,
    /// What the network stands on and lacks: then it has no conf. Empty when nothing lacks.
    pub lacks: String,
}

/// A network's conf.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfStatus {
    /// Where it is, or would be.
    pub path: String,
    /// `absent`, `ours`, `stale` (ours, but not as rendered now), `foreign`, `unusable` (it cannot be placed) or
    /// `contested` (somebody else keeps changing it).
    pub state: String,
    /// Why, for the last three.
    pub reason: String,
}

/// One range of addresses; counts end at `u64::MAX`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RangeStatus {
    /// The subnet.
    pub subnet: String,
    /// Addresses that can be leased.
    pub capacity: u64,
    /// Addresses that are leased.
    pub used: u64,
    /// Addresses that are free.
    pub free: u64,
}

/// One attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttachmentInfo {
    /// The network.
    pub network: String,
    /// The container.
    pub container_id: String,
    /// The interface in it.
    pub if_name: String,
    /// The pod's namespace, if the runtime said.
    pub pod_namespace: String,
    /// The pod's name.
    pub pod_name: String,
    /// The pod's UID.
    pub pod_uid: String,
    /// Its addresses with their prefix lengths.
    pub addresses: Vec<String>,
    /// The pod's MAC address.
    pub mac: String,
    /// The node's end of its link.
    pub host_link: String,
    /// Its namespace as the runtime named it.
    pub netns: String,
    /// `pending`, `ready` or `deleting`.
    pub state: String,
    /// When it was added, in microseconds since the epoch.
    pub created: u64,
}

/// Something that happened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MonitorEvent {
    /// When, in microseconds since the epoch.
    pub at: u64,
    /// What: a verb, or `ready`, `stopping`, `repaired`, `lease-freed`.
    pub kind: String,
    /// Its particulars.
    pub fields: BTreeMap<String, String>,
}
