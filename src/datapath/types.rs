//! What is asked of the kernel and what it tells: plain structs without behaviour.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{KernelError, Shaping};

/// The bridge that a network's links hang on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeSpec {
    /// Name of the link.
    pub name: String,
    /// Its MAC address: fixed, so that it does not follow the lowest of its ports.
    pub mac: [u8; 6],
    /// MTU in bytes.
    pub mtu: u32,
    /// The addresses it must have (the pods' gateways). Others that it has are left alone.
    pub addresses: Vec<IpNet>,
}

/// What [`Kernel::ensure_bridge`](super::Kernel::ensure_bridge) found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeReport {
    /// Index of the bridge.
    pub index: u32,
    /// Whether it was made just now.
    pub created: bool,
    /// What was repaired, one phrase each; empty when all was as it should be, or when it was created.
    pub changes: Vec<String>,
    /// Addresses that it has beside those asked for, IPv6 link-local ones left out.
    pub other_addresses: Vec<IpNet>,
}

/// A route in a pod; by default the IPv4 default route on the link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodRoute {
    /// Destination; a zero-length prefix is the default route.
    pub dst: IpNet,
    /// Next hop; none is a route on the link.
    pub gateway: Option<IpAddr>,
    /// Metric; none is the kernel's default (0 for IPv4, 1024 for IPv6).
    pub priority: Option<u32>,
    /// MTU of the path in bytes.
    pub mtu: Option<u32>,
    /// Maximum segment size to announce, in bytes.
    pub advmss: Option<u32>,
}

/// A pod's link: a veth pair whose host end is a port of a bridge. The pod's end ignores router
/// advertisements, from before it goes up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodLinkSpec {
    /// Name of the host end.
    pub host_link: String,
    /// Alias of the host end, at most 255 bytes.
    pub alias: String,
    /// The bridge that the host end becomes a port of.
    pub bridge: String,
    /// Name of the interface in the pod.
    pub ifname: String,
    /// MAC address of the interface in the pod.
    pub mac: [u8; 6],
    /// MTU of both ends in bytes.
    pub mtu: u32,
    /// Addresses of the interface in the pod.
    pub addresses: Vec<IpNet>,
    /// Routes in the pod. One that the pod has already (of another interface) stays as it is.
    pub routes: Vec<PodRoute>,
    /// Whether the pod may reach itself by way of the bridge (needed to reach oneself through a host port).
    pub hairpin: bool,
    /// Whether the pod's port may not talk to other isolated ports.
    pub isolated: bool,
    /// Rate limits; they stand before the pod can send.
    pub shaping: Option<Shaping>,
}

impl PodLinkSpec {
    /// The names of all links that are made on the node.
    pub(super) fn links(&self) -> Vec<String> {
        let shaper = self.shaping.as_ref().filter(|shaping| shaping.from_pod.is_some());
        let shaper = shaper.map(|shaping| shaping.shaper.clone());
        std::iter::once(self.host_link.clone()).chain(shaper).collect()
    }
}

/// A pod's link, made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodLink {
    /// Index of the host end.
    pub host_index: u32,
    /// MAC address of the host end.
    pub host_mac: [u8; 6],
    /// Index of the interface in the pod.
    pub pod_index: u32,
    /// Routes not made because the pod had one to the same destination already.
    pub skipped_routes: Vec<PodRoute>,
}

/// A link of the node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// Index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Alias, if it has one.
    pub alias: Option<String>,
    /// Kind (`veth`, `bridge`, …); none for a device.
    pub kind: Option<String>,
    /// Index of the bridge (or bond, …) it is a port of.
    pub master: Option<u32>,
    /// Whether it is administratively up.
    pub up: bool,
    /// MAC address, if it is of six bytes.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Index of the other end (for a veth), in the namespace it is in.
    pub peer_index: Option<u32>,
    /// The node's number of the namespace the other end is in; none when it is in the same one.
    pub peer_netnsid: Option<i32>,
    /// Group number.
    pub group: u32,
    /// For a bridge port: whether hairpin mode is on.
    pub hairpin: Option<bool>,
    /// For a bridge port: whether it is isolated.
    pub isolated: Option<bool>,
}

/// An interface in a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkView {
    /// Index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Kind; none for a device.
    pub kind: Option<String>,
    /// MAC address, if it is of six bytes.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// For a veth: index of its other end, to be compared with the host end's.
    pub peer_index: Option<u32>,
}

/// A pod as its namespace and the node show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// The interface asked for, if the namespace has it.
    pub pod: Option<LinkView>,
    /// Its addresses, IPv6 link-local ones left out.
    pub addresses: Vec<IpNet>,
    /// The routes of the main table that leave by it, without those that came with its addresses.
    pub routes: Vec<PodRoute>,
    /// The routes of the main table that leave by other interfaces.
    pub other_routes: Vec<PodRoute>,
    /// The host end, if the node has it.
    pub host: Option<Link>,
    /// Whether the namespace's loopback is up.
    pub lo_up: bool,
}

/// Which links a watcher is told of; of our nftables tables it always is.
#[derive(Debug, Clone, Default)]
pub struct Interest {
    /// All that happens to these, and that one of their addresses goes.
    pub links: Vec<String>,
    /// The end of every link whose name this holds for.
    pub ends: Option<fn(&str) -> bool>,
}

/// Something in the kernel changed, by whomever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A link is there, new or changed.
    LinkChanged {
        /// Its index.
        index: u32,
        /// Its name now.
        name: String,
        /// How it is now.
        link: Box<Link>,
    },
    /// A link is gone from the node's namespace (deleted, or moved away).
    LinkRemoved {
        /// Index it had.
        index: u32,
        /// Name it had.
        name: String,
    },
    /// A link lost an address.
    AddressRemoved {
        /// The link.
        index: u32,
        /// The address.
        address: IpNet,
    },
    /// Somebody else changed or deleted a table of ours in nftables: apply the ruleset again.
    Rules,
    /// Events were lost: look at everything again.
    Resync,
}

/// Why a pod's link was not made. Nothing of it is left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// The namespace has an interface of that name already; it was not touched.
    #[error("the network namespace already has an interface {ifname}")]
    InterfaceExists {
        /// The name that is taken.
        ifname: String,
    },
    /// The descriptor is not a network namespace.
    #[error("the descriptor is not a network namespace")]
    NotANetns,
    /// The descriptor is the node's own network namespace.
    #[error("the network namespace is the node's own")]
    HostNetns,
    /// The kernel refused a step.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}
