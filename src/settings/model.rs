//! The third stage: settings that can be relied on. Everything is checked, nothing is optional that has a default.

use crate::cni::{Bounds, CniVersion, ConfList, Dns, MacAddr, NetworkName, Protocol, Route};
use crate::ipam::RangeSet;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// hostcni's configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where hostcni keeps what it needs.
    pub paths: Paths,
    /// What goes to the journal.
    pub log: LogSettings,
    /// What clients can take up.
    pub limits: Limits,
    /// How long a CNI call may take; whole seconds.
    pub bounds: Bounds,
    /// The networks, at least one, in the order in which they were first named.
    pub networks: Vec<NetworkSettings>,
    /// Threads that enter network namespaces, 1 to 64.
    pub workers: usize,
    /// How long a stop waits for requests that are being worked on.
    pub stop_timeout: Duration,
}

/// Paths, all absolute and none inside another's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The socket that the conf names; at most 107 bytes.
    pub socket: PathBuf,
    /// Attachments, on a tmpfs.
    pub state_dir: PathBuf,
    /// DELs that nobody could answer, on a disk.
    pub spool_dir: PathBuf,
    /// Attachments that other plugins made, on a disk.
    pub delegated_dir: PathBuf,
    /// Own names of pods' namespaces, on a tmpfs.
    pub netns_dir: PathBuf,
}

/// What goes to the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// A filter as `tracing_subscriber::EnvFilter` takes it; it has been parsed once.
    pub filter: String,
}

/// What clients can take up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time, at least 1.
    pub max_connections: usize,
    /// How long a client may be connected without a whole message.
    pub idle_timeout: Duration,
}

/// One network.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkSettings {
    /// Its name.
    pub name: NetworkName,
    /// What makes it.
    pub driver: DriverSettings,
    /// Its CNI network configuration file.
    pub conf: ConfSettings,
}

impl NetworkSettings {
    /// hostcni's own bridge, where that makes the network.
    pub fn bridge(&self) -> Option<&BridgeSettings> {
        match &self.driver {
            DriverSettings::Bridge(bridge) => Some(bridge),
            DriverSettings::Delegate(_) => None,
        }
    }
}

/// What makes a network.
#[derive(Debug, Clone, PartialEq)]
pub enum DriverSettings {
    /// hostcni's own bridge.
    Bridge(Box<BridgeSettings>),
    /// A chain of other CNI plugins.
    Delegate(Box<DelegateSettings>),
}

impl DriverSettings {
    /// The driver's name as it is written in a file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bridge(_) => "bridge",
            Self::Delegate(_) => "delegate",
        }
    }
}

/// The settings of a chain of other CNI plugins.
#[derive(Debug, Clone, PartialEq)]
pub struct DelegateSettings {
    /// The network configuration list.
    pub list: ConfList,
    /// Where the plugins are looked for, at least one directory.
    pub plugin_dirs: Vec<PathBuf>,
    /// How long one call of one plugin may take; whole seconds.
    pub timeout: Duration,
    /// How long a CNI call may take.
    pub bounds: Bounds,
    /// What has to be there for the chain to work.
    pub ready: ReadySettings,
}

/// What has to be there for a chain to work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadySettings {
    /// Files that exist.
    pub files: Vec<PathBuf>,
    /// Unix sockets that accept.
    pub sockets: Vec<PathBuf>,
    /// The chain's own STATUS succeeds.
    pub status: bool,
    /// How long a start waits for it.
    pub wait: Duration,
    /// How long it may be gone before the conf goes.
    pub grace: Duration,
}

/// The CNI network configuration file of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfSettings {
    /// Where; ends in `.conf` or `.conflist`. No other network has the same.
    pub path: PathBuf,
    /// The version it is written for.
    pub cni_version: CniVersion,
    /// What becomes of it in a planned restart.
    pub restart: RestartPolicy,
    /// How long a kept one may wait for the new server.
    pub restart_grace: Duration,
    /// What to do when somebody else's file is there.
    pub foreign: ForeignPolicy,
}

/// What becomes of the conf in a planned restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartPolicy {
    /// It stays: the socket answers for the server, and the node does not turn `NotReady`.
    Keep,
    /// It goes and comes, so that it never exists without a server.
    Remove,
}

/// What to do when a file that hostcni did not write is at the conf's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ForeignPolicy {
    /// The start fails and says so.
    Fail,
    /// The server serves, says so, and places the conf when the other file is gone.
    Wait,
}

/// The built-in driver's own settings.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // switches that have nothing to do with each other
pub struct BridgeSettings {
    /// The bridge; no other network has the same.
    pub bridge: String,
    /// Its MAC address: configured, or made from the network's name. Never a pod's (those begin 0a:58).
    pub mac: MacAddr,
    /// MTU of bridge and pods; `None`: that of the default route's link less `mtu_overhead`.
    pub mtu: Option<u32>,
    /// Bytes that a tunnel around the pods' packets needs.
    pub mtu_overhead: u32,
    /// A pod gets one address of each set; at least one set, none empty.
    pub ranges: Vec<RangeSet>,
    /// Replace pods' addresses by the node's on the way out.
    pub masquerade: bool,
    /// Destinations that see pods' own addresses all the same.
    pub no_masquerade: Vec<IpNet>,
    /// A pod may reach itself through a host port or a service.
    pub hairpin: bool,
    /// Pods of this network cannot reach each other over the bridge.
    pub isolated: bool,
    /// Whether pods are held to their own addresses.
    pub anti_spoofing: bool,
    /// Routes in pods beside the default route.
    pub routes: Vec<Route>,
    /// Resolver settings that runtimes are told.
    pub dns: Dns,
    /// Switch the node's IP forwarding on.
    pub forwarding: bool,
    /// Destinations that pods cannot reach.
    pub block: Vec<BlockSettings>,
    /// Have the network's packets accepted where another firewall drops what is forwarded.
    pub accept_forward: bool,
    /// The zone that the bridge is put into when firewalld runs; `None`: firewalld is not spoken to.
    pub firewalld_zone: Option<String>,
}

impl BridgeSettings {
    /// Whether pods have addresses of the family.
    pub fn has_family(&self, ipv4: bool) -> bool {
        let mut ranges = self.ranges.iter().flat_map(RangeSet::ranges);
        ranges.any(|range| range.subnet().addr().is_ipv4() == ipv4)
    }
}

/// A destination that pods cannot reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSettings {
    /// Where it is.
    pub to: BlockTarget,
    /// What of it.
    pub ports: BlockPorts,
}

/// Where something is that pods cannot reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockTarget {
    /// Any address of the node itself.
    Node,
    /// All with a prefix, or one address as a prefix of full length.
    Net(IpNet),
}

/// Which ports of it are blocked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockPorts {
    /// All of every protocol, also of those that have none.
    All,
    /// These and nothing else.
    Only(Vec<PortRange>),
    /// Everything but these.
    AllBut(Vec<PortRange>),
}

/// Ports of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// The protocol.
    pub protocol: Protocol,
    /// The first port, 1 to 65535.
    pub first: u16,
    /// The last port, not below the first.
    pub last: u16,
}

/// A bridge's MAC address, the same at every start and on every node for one network's name.
///
/// It begins with 0e: locally administered, one interface's, and apart from pods' addresses, which begin with 0a:58.
pub(super) fn bridge_mac(network: &NetworkName) -> MacAddr {
    // FNV-1a: the value must never change between versions, which the standard library's hashers do not promise.
    let hash = network.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut octets = [0x0e; 6];
    octets[1..].copy_from_slice(&hash.to_be_bytes()[3..]);
    MacAddr::new(octets)
}
