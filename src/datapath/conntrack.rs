//! Forgetting UDP flows of a host port, by ctnetlink.
//!
//! UDP has no end, so a client that goes on sending keeps its connection-tracking entry, and with it the
//! address translation of the moment it began: to a pod that is gone, or to the host itself from before
//! there was a mapping (kubernetes#95258, plugins#123). Promises to delete exactly the flows of the given
//! ports and addresses, of no other pod and no other service of the same port number elsewhere.

use std::collections::HashSet;
use std::net::IpAddr;

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED};
use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::conntrack::{ConntrackMessage, ProtoTuple, Protocol as TrackedProtocol};
use nix::ifaddrs::getifaddrs;
use nix::libc;

use super::elements::{PortMap, Protocol};
use super::error::{KernelError, Result};
use super::nfnl::{self, NfSocket};

/// `linux/netfilter/nfnetlink_conntrack.h`.
const IPCTNL_MSG_CT_GET: u8 = 1;
const IPCTNL_MSG_CT_DELETE: u8 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
const CTA_FILTER: u16 = 25;
/// Inside a tuple.
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
/// Inside a filter.
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
/// Bits of the two before: the protocol's number, its destination port.
const FILTER_PROTO_NUM: u32 = 1 << 3;
const FILTER_PROTO_DST_PORT: u32 = 1 << 5;

/// Which flows of a port mapping are stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stale {
    /// The mapping is new: flows to the host's port that do not lead to its pod.
    BeforeAdd,
    /// The mapping is gone: flows to the host's port that lead to its pod.
    AfterDelete,
}

/// Deletes the stale flows of those of `port_maps` that are UDP; gives how many there were.
///
/// With no host address given, every address of the host counts. Run `BeforeAdd` after the elements are in
/// place, and `AfterDelete` after they are gone: else a packet in between makes the flow anew.
pub fn flush(port_maps: &[PortMap], stale: Stale) -> Result<usize> {
    let udp: Vec<&PortMap> = port_maps.iter().filter(|map| map.protocol == Protocol::Udp).collect();
    if udp.is_empty() {
        return Ok(0);
    }
    let local = if stale == Stale::BeforeAdd { local_addresses()? } else { HashSet::new() };
    let mut socket = NfSocket::open()?;
    let mut deleted = 0;
    for map in udp {
        let family = match map.pod_address {
            IpAddr::V4(_) => NetfilterProtoFamily::IPv4,
            IpAddr::V6(_) => NetfilterProtoFamily::IPv6,
        };
        let object = format!("udp flows of host port {}", map.host_port);
        let found = socket.request(dump(family, map.host_port), true, "look up", &object)?;
        for flow in found.iter().filter_map(|raw| Flow::parse(&raw.attributes)) {
            if flow.is_stale(map, stale, &local) {
                deleted += usize::from(flow.delete(&mut socket, family, &object)?);
            }
        }
    }
    Ok(deleted)
}

/// Asks for the flows of one UDP port. Kernels before 5.8 know no filter and give all: so what comes is
/// looked at again.
fn dump(family: NetfilterProtoFamily, port: u16) -> netlink_packet_netfilter::NetfilterMessage {
    let protocol = [ProtoTuple::Protocol(TrackedProtocol::Udp), ProtoTuple::DestinationPort(port)];
    let tuple = nest(CTA_TUPLE_ORIG, &[nest(CTA_TUPLE_PROTO, &protocol)]);
    let flags = |kind, flags: u32| DefaultNla::new(kind, flags.to_ne_bytes().to_vec());
    let filter = nest(
        CTA_FILTER,
        &[
            flags(CTA_FILTER_ORIG_FLAGS, FILTER_PROTO_NUM | FILTER_PROTO_DST_PORT),
            flags(CTA_FILTER_REPLY_FLAGS, 0),
        ],
    );
    message(family, IPCTNL_MSG_CT_GET, vec![tuple, filter])
}

/// An attribute that holds others. The kernel takes a filter only with the flag that says so, which the typed
/// attributes of `netlink-packet-netfilter` lose.
fn nest(kind: u16, inner: &[impl Emitable]) -> DefaultNla {
    let mut value = Vec::new();
    for attribute in inner {
        let start = value.len();
        value.resize(start + attribute.buffer_len(), 0);
        attribute.emit(&mut value[start..]);
    }
    DefaultNla::new(kind | NLA_F_NESTED, value)
}

fn message(
    family: NetfilterProtoFamily,
    message_type: u8,
    attributes: Vec<DefaultNla>,
) -> netlink_packet_netfilter::NetfilterMessage {
    nfnl::message(family, ConntrackMessage::Other { message_type, attributes })
}

/// One direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Direction {
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    protocol: u8,
}

/// A tracked flow, with what is needed to name it to the kernel again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Flow {
    original: Direction,
    reply: Direction,
    name: Vec<(u16, Vec<u8>)>,
}

impl Flow {
    fn parse(attributes: &[u8]) -> Option<Self> {
        let original = nfnl::attribute(attributes, CTA_TUPLE_ORIG)?;
        let reply = nfnl::attribute(attributes, CTA_TUPLE_REPLY)?;
        // The id makes sure that it is this flow, and not one that took its place since.
        let name = [CTA_TUPLE_ORIG, CTA_ZONE, CTA_ID].into_iter().filter_map(|kind| {
            let value = nfnl::attribute(attributes, kind)?.to_vec();
            let nested = if kind == CTA_TUPLE_ORIG { NLA_F_NESTED } else { 0 };
            Some((kind | nested, value))
        });
        Some(Self { original: direction(original)?, reply: direction(reply)?, name: name.collect() })
    }

    fn is_stale(&self, map: &PortMap, stale: Stale, local: &HashSet<IpAddr>) -> bool {
        let (address, port) = self.original.destination;
        if self.original.protocol != Protocol::Udp.number() || port != map.host_port {
            return false;
        }
        let host = map.host_address.filter(|host| !host.is_unspecified());
        if host.is_some_and(|host| host != address) {
            return false;
        }
        // Who answers: the pod, or the address itself where nothing was translated.
        let to_pod = self.reply.source == (map.pod_address, map.pod_port);
        match stale {
            Stale::AfterDelete => to_pod && address != map.pod_address,
            Stale::BeforeAdd => {
                !to_pod && (host.is_some() || address.is_loopback() || local.contains(&address))
            }
        }
    }

    /// Whether it was still there.
    fn delete(self, socket: &mut NfSocket, family: NetfilterProtoFamily, object: &str) -> Result<bool> {
        let name = self.name.into_iter().map(|(kind, value)| DefaultNla::new(kind, value));
        let message = message(family, IPCTNL_MSG_CT_DELETE, name.collect());
        match socket.request(message, false, "delete", object) {
            Ok(_) => Ok(true),
            Err(error) if error.errno == libc::ENOENT => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// `CTA_TUPLE_IP` (1) with source and destination of either family, `CTA_TUPLE_PROTO` (2) with number and
/// ports.
fn direction(tuple: &[u8]) -> Option<Direction> {
    let (ip, proto) = (nfnl::attribute(tuple, CTA_TUPLE_IP)?, nfnl::attribute(tuple, CTA_TUPLE_PROTO)?);
    let address = |v4, v6| {
        let ipv4 =
            nfnl::attribute(ip, v4).and_then(|value| value.first_chunk::<4>()).map(|b| IpAddr::from(*b));
        ipv4.or_else(|| Some(IpAddr::from(*nfnl::attribute(ip, v6)?.first_chunk::<16>()?)))
    };
    let port = |kind| Some(u16::from_be_bytes(*nfnl::attribute(proto, kind)?.first_chunk::<2>()?));
    Some(Direction {
        source: (address(1, 3)?, port(2)?),
        destination: (address(2, 4)?, port(3)?),
        protocol: *nfnl::attribute(proto, 1)?.first()?,
    })
}

/// The addresses of the links of the calling thread's network namespace.
fn local_addresses() -> Result<HashSet<IpAddr>> {
    let all = getifaddrs().map_err(|e| KernelError::new(e as i32, "list", "the host's addresses"))?;
    Ok(all
        .filter_map(|link| link.address)
        .filter_map(|address| {
            let ipv4 = address.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
            ipv4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::from(a.ip())))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(destination: (&str, u16), answers: (&str, u16)) -> Flow {
        let at = |(address, port): (&str, u16)| (address.parse().unwrap(), port);
        let client = at(("192.0.2.9", 4000));
        Flow {
            original: Direction { source: client, destination: at(destination), protocol: 17 },
            reply: Direction { source: at(answers), destination: client, protocol: 17 },
            name: Vec::new(),
        }
    }

    fn map(host: Option<&str>) -> PortMap {
        PortMap {
            protocol: Protocol::Udp,
            host_address: host.map(|h| h.parse().unwrap()),
            host_port: 53,
            pod_address: "10.1.0.2".parse().unwrap(),
            pod_port: 5353,
        }
    }

    #[test]
    fn after_a_delete_only_flows_to_the_pod_by_the_host_port_are_stale() {
        let stale = |f: Flow, m: PortMap| f.is_stale(&m, Stale::AfterDelete, &HashSet::new());
        assert!(stale(flow(("192.0.2.1", 53), ("10.1.0.2", 5353)), map(None)));
        assert!(stale(flow(("192.0.2.1", 53), ("10.1.0.2", 5353)), map(Some("192.0.2.1"))));
        assert!(!stale(flow(("192.0.2.1", 53), ("10.1.0.2", 5353)), map(Some("192.0.2.2"))));
        assert!(!stale(flow(("192.0.2.1", 53), ("10.1.0.3", 5353)), map(None)), "another pod's");
        assert!(!stale(flow(("192.0.2.1", 54), ("10.1.0.2", 5353)), map(None)), "another port's");
    }

    #[test]
    fn before_an_add_only_flows_to_the_host_that_miss_the_pod_are_stale() {
        let local: HashSet<IpAddr> = ["192.0.2.1".parse().unwrap()].into();
        let stale = |f: Flow, m: PortMap| f.is_stale(&m, Stale::BeforeAdd, &local);
        assert!(stale(flow(("192.0.2.1", 53), ("192.0.2.1", 53)), map(None)), "the host itself");
        assert!(stale(flow(("192.0.2.1", 53), ("10.1.0.3", 5353)), map(None)), "a pod that is gone");
        assert!(stale(flow(("127.0.0.1", 53), ("127.0.0.1", 53)), map(None)));
        assert!(!stale(flow(("192.0.2.1", 53), ("10.1.0.2", 5353)), map(None)), "already to the pod");
        assert!(!stale(flow(("8.8.8.8", 53), ("8.8.8.8", 53)), map(None)), "a pod's query to the world");
    }
}
