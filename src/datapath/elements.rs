//! Elements of hostcni's nftables sets and maps: what a pod costs.
//!
//! One description of each set and of each element, rendered twice: as nft's words (for the whole ruleset)
//! and as netlink bytes (for a pod that comes or goes), so that the two cannot drift apart. Pure: `batch`
//! sends them. Nothing here knows rules, files or pods' names.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use netlink_packet_netfilter::nftables::{
    DataAttribute, ListAttribute, NfTablesMessage, SetElementAttribute, SetElementList, SetElementMessage,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterProtoFamily};
use nix::libc;

use super::nfnl;

/// The name of hostcni's tables, one of family `inet` and one of family `bridge`.
pub const TABLE: &str = "hostcni";

/// A family of tables that hostcni has one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TableFamily {
    /// Masquerade and port mappings.
    Inet,
    /// Anti-spoofing.
    Bridge,
}

impl TableFamily {
    pub(super) fn netlink(self) -> NetfilterProtoFamily {
        match self {
            Self::Inet => NetfilterProtoFamily::Inet,
            Self::Bridge => NetfilterProtoFamily::Bridge,
        }
    }

    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::Inet, Self::Bridge].into_iter().find(|family| u8::from(family.netlink()) == number)
    }
}

/// A transport protocol that has ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// The protocol's number in an IP header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

/// The sets and maps that elements are added to and deleted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Set {
    /// Ports of every local IPv4 address → IPv4 address and port of a pod.
    PortMap4,
    /// Ports of one local IPv4 address → IPv4 address and port of a pod.
    PortMap4Addr,
    /// Ports of every local IPv6 address → IPv6 address and port of a pod.
    PortMap6,
    /// Ports of one local IPv6 address → IPv6 address and port of a pod.
    PortMap6Addr,
    /// The links that are held to what the next three say.
    PodHeld,
    /// The hardware address that a link may send from.
    PodMac,
    /// The hardware and IPv4 address that a link may send from.
    PodIp4,
    /// The hardware and IPv6 address that a link may send from.
    PodIp6,
}

impl Set {
    /// The sets of the `inet` table.
    pub const INET: [Self; 4] = [Self::PortMap4, Self::PortMap4Addr, Self::PortMap6, Self::PortMap6Addr];
    /// The sets of the `bridge` table.
    pub const BRIDGE: [Self; 4] = [Self::PodHeld, Self::PodMac, Self::PodIp4, Self::PodIp6];

    /// The set's name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::PortMap4 => "portmap4",
            Self::PortMap4Addr => "portmap4_addr",
            Self::PortMap6 => "portmap6",
            Self::PortMap6Addr => "portmap6_addr",
            Self::PodHeld => "pod_held",
            Self::PodMac => "pod_mac",
            Self::PodIp4 => "pod_ip4",
            Self::PodIp6 => "pod_ip6",
        }
    }

    /// `map` or `set`, and its type, in nft's words. `typeof` with raw payload where a key is compared with
    /// a field that nft 1.0.6 has no name for (a neighbour advertisement's target, its option).
    pub(super) fn definition(self) -> (&'static str, &'static str) {
        match self {
            Self::PortMap4 => ("map", "type inet_proto . inet_service : ipv4_addr . inet_service"),
            Self::PortMap4Addr => {
                ("map", "type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service")
            }
            Self::PortMap6 => ("map", "type inet_proto . inet_service : ipv6_addr . inet_service"),
            Self::PortMap6Addr => {
                ("map", "type ipv6_addr . inet_proto . inet_service : ipv6_addr . inet_service")
            }
            Self::PodHeld => ("set", "type ifname"),
            Self::PodMac => ("set", "typeof iifname . @ll,48,48"),
            Self::PodIp4 => ("set", "type ifname . ether_addr . ipv4_addr"),
            Self::PodIp6 => ("set", "typeof iifname . ether saddr . @nh,64,128"),
        }
    }

    /// The table it stands in.
    pub fn table(self) -> TableFamily {
        if Self::INET.contains(&self) { TableFamily::Inet } else { TableFamily::Bridge }
    }
}

/// A part of a key or of a map's value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Value {
    Protocol(Protocol),
    Port(u16),
    Address(IpAddr),
    Link(String),
    Mac([u8; 6]),
    /// As [`Value::Mac`], in a set typed by raw payload, whose words are numbers.
    RawMac([u8; 6]),
    RawIp6(Ipv6Addr),
}

impl Value {
    /// The kernel's form: network byte order, padded to whole registers of four bytes.
    fn bytes(&self, into: &mut Vec<u8>) {
        match self {
            Self::Protocol(protocol) => into.push(protocol.number()),
            Self::Port(port) => into.extend(port.to_be_bytes()),
            Self::Address(IpAddr::V4(address)) => into.extend(address.octets()),
            Self::Address(IpAddr::V6(address)) | Self::RawIp6(address) => into.extend(address.octets()),
            Self::Link(name) => {
                let mut field = [0; libc::IFNAMSIZ];
                let length = name.len().min(libc::IFNAMSIZ - 1);
                field[..length].copy_from_slice(&name.as_bytes()[..length]);
                into.extend(field);
            }
            Self::Mac(mac) | Self::RawMac(mac) => into.extend(mac),
        }
        into.resize(into.len().next_multiple_of(4), 0);
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(protocol) => protocol.fmt(f),
            Self::Port(port) => port.fmt(f),
            Self::Address(address) => address.fmt(f),
            Self::Link(name) => write!(f, "\"{name}\""),
            Self::Mac([a, b, c, d, e, g]) => write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"),
            Self::RawMac(mac) => {
                let [a, b, c, d, e, g] = mac;
                write!(f, "0x{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{g:02x}")
            }
            Self::RawIp6(address) => write!(f, "0x{:032x}", u128::from(*address)),
        }
    }
}

/// One element of one set or map. Made from a [`PortMap`] or a [`PodPort`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Element {
    set: Set,
    key: Vec<Value>,
    data: Vec<Value>,
}

impl Element {
    /// The set it is for.
    pub fn set(&self) -> Set {
        self.set
    }

    /// The element in nft's words: `tcp . 80 : 10.128.0.2 . 8080`.
    pub(super) fn text(&self) -> String {
        let join = |values: &[Value]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" . ");
        if self.data.is_empty() {
            join(&self.key)
        } else {
            format!("{} : {}", join(&self.key), join(&self.data))
        }
    }

    /// The message that adds, deletes or asks for this element.
    pub(super) fn message(&self, action: Action) -> NetfilterMessage {
        let bytes = |values: &[Value]| {
            let mut bytes = Vec::with_capacity(40);
            for value in values {
                value.bytes(&mut bytes);
            }
            DataAttribute::Value(bytes)
        };
        let mut element = vec![SetElementAttribute::Key(bytes(&self.key))];
        if action == Action::Add && !self.data.is_empty() {
            element.push(SetElementAttribute::Data(bytes(&self.data)));
        }
        let attributes = vec![
            SetElementList::Table(TABLE.to_owned()),
            SetElementList::Set(self.set.name().to_owned()),
            SetElementList::Elements(vec![ListAttribute::Element(element)]),
        ];
        let message = SetElementMessage { attributes };
        let inner = match action {
            Action::Add => NfTablesMessage::NewSetElement(message),
            Action::Delete => NfTablesMessage::DeleteSetElement(message),
            Action::Get => NfTablesMessage::GetSetElement(message),
        };
        nfnl::message(self.set.table().netlink(), inner)
    }

    /// Where in its message the list of elements starts: an acknowledgement that points at it, or behind it,
    /// means the element, one that points before it the table or the set.
    pub(super) fn list_offset(&self) -> u32 {
        let string = |text: &str| (4 + text.len() + 1).next_multiple_of(4);
        let offset = nfnl::NLMSG_HEADER + nfnl::NFGEN_HEADER + string(TABLE) + string(self.set.name());
        u32::try_from(offset).unwrap_or(u32::MAX)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ {} }} of {}", self.text(), self.set.name())
    }
}

/// A port of the host that leads to a port of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PortMap {
    /// The protocol.
    pub protocol: Protocol,
    /// The only local address it is reached at; `None`, or the unspecified address: every local address.
    pub host_address: Option<IpAddr>,
    /// The host's port, 1 to 65535.
    pub host_port: u16,
    /// The pod's address. Decides the family: a pod with two families has two of these.
    pub pod_address: IpAddr,
    /// The pod's port, 1 to 65535.
    pub pod_port: u16,
}

impl PortMap {
    /// The map's element; `None` when host address and pod address are of two families.
    pub fn element(&self) -> Option<Element> {
        let host = self.host_address.filter(|address| !address.is_unspecified());
        if self.host_address.is_some_and(|address| address.is_ipv4() != self.pod_address.is_ipv4()) {
            return None;
        }
        let set = match (self.pod_address, host) {
            (IpAddr::V4(_), None) => Set::PortMap4,
            (IpAddr::V4(_), Some(_)) => Set::PortMap4Addr,
            (IpAddr::V6(_), None) => Set::PortMap6,
            (IpAddr::V6(_), Some(_)) => Set::PortMap6Addr,
        };
        let mut key: Vec<Value> = host.map(Value::Address).into_iter().collect();
        key.extend([Value::Protocol(self.protocol), Value::Port(self.host_port)]);
        Some(Element { set, key, data: vec![Value::Address(self.pod_address), Value::Port(self.pod_port)] })
    }
}

/// A pod's link as the anti-spoofing table sees it: who may speak behind it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodPort {
    /// The link's end on the host, the bridge's port.
    pub host_link: String,
    /// The pod's hardware address.
    pub mac: [u8; 6],
    /// The pod's addresses; the IPv6 link-local address of its hardware address is always allowed too.
    pub addresses: Vec<IpAddr>,
}

impl PodPort {
    /// The elements: one each for the link, the hardware address, every address, and the link-local address.
    pub fn elements(&self) -> Vec<Element> {
        let link = || Value::Link(self.host_link.clone());
        let element = |set, key| Element { set, key, data: Vec::new() };
        let ip6 = |address| element(Set::PodIp6, vec![link(), Value::Mac(self.mac), Value::RawIp6(address)]);
        let own = link_local(self.mac);
        let held = element(Set::PodHeld, vec![link()]);
        let mut elements = vec![held, element(Set::PodMac, vec![link(), Value::RawMac(self.mac)]), ip6(own)];
        for address in &self.addresses {
            match address {
                IpAddr::V4(_) => {
                    let key = vec![link(), Value::Mac(self.mac), Value::Address(*address)];
                    elements.push(element(Set::PodIp4, key));
                }
                IpAddr::V6(address) if *address != own => elements.push(ip6(*address)),
                IpAddr::V6(_) => {}
            }
        }
        elements
    }
}

/// The link-local address that the kernel derives from a hardware address (RFC 4291, appendix A).
pub fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// What to do about an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Action {
    Add,
    Delete,
    Get,
}

#[cfg(test)]
#[path = "elements_tests.rs"]
mod tests;
