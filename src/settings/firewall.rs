//! What other firewalls and hostcni's own rules do with a network's packets: the block list, the acceptance of what is
//! forwarded, the zone of firewalld.

use super::fragment::{BlockFragment, NetworkInput, Table};
use super::model::{BlockPorts, BlockSettings, BlockTarget, PortRange};
use super::problem::Problem;
use super::value::{Text, from_text, to_text};
use crate::cni::Protocol;
use crate::ipam::RangeSet;
use ipnet::IpNet;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::str::FromStr;
use toml::Spanned;

from_text! {
    Target: "an address, a prefix or \"node\", in quotes",
    Ports: "a port and its protocol in quotes, such as \"53/udp\"",
}

to_text! {
    Target: |target| target,
    Ports: |ports| ports,
}

/// What a block list names: an address, all with a prefix, or `node`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target(BlockTarget);

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "node" {
            return Ok(Self(BlockTarget::Node));
        }
        let net = match text.parse::<IpAddr>() {
            Ok(address) => Ok(address.into()),
            Err(_) if text.contains('/') => super::prefix::strict(text),
            Err(_) => Err("neither an address, nor a prefix, nor \"node\" (any address of this node)".into()),
        };
        net.map(|net| Self(BlockTarget::Net(net)))
    }
}

impl fmt::Display for BlockTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("node"),
            Self::Net(net) if net.prefix_len() == net.max_prefix_len() => net.addr().fmt(f),
            Self::Net(net) => net.fmt(f),
        }
    }
}

/// Ports of one protocol: `53/udp`, `30000-32767/tcp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ports(PortRange);

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((ports, protocol)) = text.split_once('/') else {
            return Err("no protocol: write port and protocol, such as \"53/udp\"".into());
        };
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "sctp" => Protocol::Sctp,
            _ if matches!(ports, "tcp" | "udp" | "sctp") => {
                return Err(format!("the port comes first: \"{protocol}/{ports}\""));
            }
            _ => return Err(format!("`{protocol}` is no protocol that has ports: tcp, udp or sctp")),
        };
        let port = |text: &str| match text.parse::<u16>() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(format!("`{text}` is no port: 1 to 65535")),
        };
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let (first, last) = (port(first)?, port(last)?);
        if last < first {
            return Err("the range ends before it begins".into());
        }
        Ok(Self(PortRange { protocol, first, last }))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        };
        if self.first == self.last {
            write!(f, "{}/{protocol}", self.first)
        } else {
            write!(f, "{}-{}/{protocol}", self.first, self.last)
        }
    }
}

/// A zone of firewalld's, or `false`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Zone(pub(super) Option<String>);

impl Zone {
    pub(super) fn trusted() -> Self {
        Self(Some("trusted".to_owned()))
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ZoneVisitor)
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(zone) => serializer.serialize_str(zone),
            None => serializer.serialize_bool(false),
        }
    }
}

struct ZoneVisitor;

impl Visitor<'_> for ZoneVisitor {
    type Value = Zone;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a firewalld zone in quotes, such as \"trusted\", or false")
    }

    fn visit_bool<E: de::Error>(self, on: bool) -> Result<Zone, E> {
        if on { Err(E::custom("name the zone: \"trusted\"")) } else { Ok(Zone(None)) }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Zone, E> {
        /// firewalld.zone(5).
        const LONGEST: usize = 17;
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/');
        if text.is_empty() || text.len() > LONGEST || !text.chars().all(letter) {
            return Err(E::custom("not the name of a firewalld zone: `firewall-cmd --get-zones` lists them"));
        }
        Ok(Zone(Some(text.to_owned())))
    }
}

/// Whether the network's packets are to be accepted.
pub(super) fn accept_forward(input: &NetworkInput, problems: &mut Vec<Problem>) -> bool {
    let accept = *input.accept_forward.get();
    if accept && input.bridge.get().0.as_str().ends_with('+') {
        let message = "with accept_forward: iptables would take it for any name that begins so";
        problems.push(input.bridge.problem("network.bridge", message));
    }
    accept
}

/// The block list of a network with these ranges.
pub(super) fn block(
    input: &NetworkInput,
    ranges: &[RangeSet],
    problems: &mut Vec<Problem>,
) -> Vec<BlockSettings> {
    let mut list = Vec::new();
    for entry in input.block.get() {
        match one(input, entry, ranges) {
            Ok(block) => list.push(block),
            Err(problem) => problems.push(*problem),
        }
    }
    list
}

fn one(
    input: &NetworkInput,
    entry: &Spanned<Table<BlockFragment>>,
    ranges: &[RangeSet],
) -> Result<BlockSettings, Box<Problem>> {
    let Table(fragment) = entry.get_ref();
    let Some(target) = &fragment.to else {
        let missing = "not set: every entry needs its destination, such as to = \"169.254.169.254\"";
        let problem = Problem::at(input.block.origin_in(entry), missing);
        return Err(Box::new(Problem { key: "network.block.to".into(), ..problem }));
    };
    let wrong = |part, option: &str, message: &str| {
        Err(Box::new(input.block.problem_in(part, &format!("network.block.{option}"), message)))
    };
    let Target(to) = *target.get_ref();
    if is_unseen(to, ranges) {
        let message = "of the network's own subnet: pods reach each other over the bridge, where nothing is \
                       blocked; isolated = true keeps them apart";
        return Err(Box::new(input.block.problem_in(target, "network.block.to", message)));
    }
    let empty = "an empty list: name ports, or leave it out to block all";
    let ports =
        |list: &Spanned<Vec<Spanned<Ports>>>| list.get_ref().iter().map(|it| it.get_ref().0).collect();
    let ports = match (&fragment.ports, &fragment.except) {
        (None, None) => BlockPorts::All,
        (Some(_), Some(both)) => {
            return wrong(
                both,
                "except",
                "set together with ports: ports blocks only these, except all others",
            );
        }
        (Some(none), None) if none.get_ref().is_empty() => return wrong(none, "ports", empty),
        (None, Some(none)) if none.get_ref().is_empty() => return wrong(none, "except", empty),
        (Some(only), None) => BlockPorts::Only(ports(only)),
        (None, Some(others)) => BlockPorts::AllBut(ports(others)),
    };
    Ok(BlockSettings { to, ports })
}

/// Whether it lies among the pods of one bridge, whose packets to each other do not go through the node. The gateway is
/// the node's.
fn is_unseen(to: BlockTarget, ranges: &[RangeSet]) -> bool {
    let BlockTarget::Net(net) = to else { return false };
    let is_gateway = |gateway: Option<IpAddr>| gateway.is_some_and(|gateway| IpNet::from(gateway) == net);
    let mut all = ranges.iter().flat_map(RangeSet::ranges);
    let inside = all.clone().any(|range| range.subnet().contains(&net));
    inside && !all.any(|range| is_gateway(range.gateway()))
}
