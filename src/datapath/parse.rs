//! Reading what the kernel sends: only the attributes that are used, by number. A whole typed decoding of
//! each message would fail on a foreign link with one attribute that the decoder does not know, and costs
//! several times as much.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Link, PodRoute};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IFF_UP: u32 = 1;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_GROUP: u16 = 27;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BRPORT_MODE: u16 = 4;
const IFLA_BRPORT_ISOLATED: u16 = 33;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RTPROT_KERNEL: u8 = 2;
const RTM_F_CLONED: u32 = 0x200;

/// The attributes in a stretch of bytes, kinds without their flags, up to the first that is not whole.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// A string attribute, with or without the closing zero.
pub(super) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn u32_of(value: &[u8]) -> Option<u32> {
    value.get(..4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn i32_of(value: &[u8]) -> Option<i32> {
    value.get(..4)?.try_into().ok().map(i32::from_ne_bytes)
}

fn ip_of(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
        _ => None,
    }
}

/// A link message and the address family it was sent under (0 for the link itself; a bridge sends its
/// ports' changes under `AF_BRIDGE`, and a "deleted" there is a port that left).
pub(super) fn link(body: &[u8]) -> Option<(u8, Link)> {
    let header = body.get(..16)?;
    let mut link =
        Link { index: u32_of(&header[4..])?, up: u32_of(&header[8..])? & IFF_UP != 0, ..Link::default() };
    for (kind, value) in attributes(&body[16..]) {
        match kind {
            IFLA_ADDRESS => link.mac = value.try_into().ok(),
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = u32_of(value)?,
            // 0 where there is no other end (any more).
            IFLA_LINK => link.peer_index = u32_of(value).filter(|peer| *peer != 0),
            IFLA_MASTER => link.master = u32_of(value),
            IFLA_IFALIAS => link.alias = Some(text(value)),
            IFLA_GROUP => link.group = u32_of(value)?,
            IFLA_LINK_NETNSID => link.peer_netnsid = i32_of(value),
            IFLA_LINKINFO => link_info(value, &mut link),
            _ => {}
        }
    }
    Some((header[0], link))
}

fn link_info(value: &[u8], link: &mut Link) {
    let mut port_of_bridge = false;
    for (kind, value) in attributes(value) {
        match kind {
            IFLA_INFO_KIND => link.kind = Some(text(value)),
            IFLA_INFO_SLAVE_KIND => port_of_bridge = text(value) == "bridge",
            IFLA_INFO_SLAVE_DATA if port_of_bridge => {
                for (kind, value) in attributes(value) {
                    match kind {
                        IFLA_BRPORT_MODE => link.hairpin = value.first().map(|on| *on != 0),
                        IFLA_BRPORT_ISOLATED => link.isolated = value.first().map(|on| *on != 0),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

/// An address message: the link's index and the address.
pub(super) fn address(body: &[u8]) -> Option<(u32, IpNet)> {
    let header = body.get(..8)?;
    let (mut address, mut local) = (None, None);
    for (kind, value) in attributes(&body[8..]) {
        match kind {
            IFA_ADDRESS => address = ip_of(value),
            // On a point-to-point link the other one is the peer's.
            IFA_LOCAL => local = ip_of(value),
            _ => {}
        }
    }
    Some((u32_of(&header[4..])?, IpNet::new(local.or(address)?, header[1]).ok()?))
}

/// A unicast route of the main table.
pub(super) struct Route {
    pub(super) what: PodRoute,
    /// The link it leaves by (of several, the first).
    pub(super) interface: Option<u32>,
    /// Whether the kernel made it, for an address or a link.
    pub(super) from_kernel: bool,
}

/// A route message; none for what is no unicast route of the main table.
pub(super) fn route(body: &[u8]) -> Option<Route> {
    let header = body.get(..12)?;
    let (family, dst_len, kind) = (header[0], header[1], header[7]);
    let mut table = u32::from(header[4]);
    let mut dst = None;
    let mut route =
        Route { what: empty_route(family)?, interface: None, from_kernel: header[5] == RTPROT_KERNEL };
    for (kind, value) in attributes(&body[12..]) {
        match kind {
            RTA_DST => dst = ip_of(value),
            RTA_OIF => route.interface = u32_of(value),
            RTA_GATEWAY => route.what.gateway = ip_of(value),
            RTA_VIA => route.what.gateway = value.get(2..).and_then(ip_of),
            RTA_PRIORITY => route.what.priority = u32_of(value),
            RTA_TABLE => table = u32_of(value)?,
            RTA_METRICS => metrics(value, &mut route.what),
            RTA_MULTIPATH => first_hop(value, &mut route),
            _ => {}
        }
    }
    if let Some(dst) = dst {
        route.what.dst = IpNet::new(dst, dst_len).ok()?;
    }
    let cloned = u32_of(&header[8..])? & RTM_F_CLONED != 0;
    (table == u32::from(super::message::MAIN_TABLE) && kind == RTN_UNICAST && !cloned).then_some(route)
}

/// Whether a route message is of a route to the node itself.
pub(super) fn is_local_route(body: &[u8]) -> bool {
    body.get(7) == Some(&RTN_LOCAL)
}

fn empty_route(family: u8) -> Option<PodRoute> {
    let any: IpAddr = match family {
        AF_INET => std::net::Ipv4Addr::UNSPECIFIED.into(),
        AF_INET6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    Some(PodRoute { dst: IpNet::new(any, 0).ok()?, gateway: None, priority: None, mtu: None, advmss: None })
}

fn metrics(value: &[u8], route: &mut PodRoute) {
    for (kind, value) in attributes(value) {
        match kind {
            RTAX_MTU => route.mtu = u32_of(value),
            RTAX_ADVMSS => route.advmss = u32_of(value),
            _ => {}
        }
    }
}

/// The first of several next hops (struct rtnexthop, then its attributes).
fn first_hop(value: &[u8], route: &mut Route) {
    let Some(header) = value.get(..8) else { return };
    route.interface = u32_of(&header[4..]);
    let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
    for (kind, value) in attributes(value.get(8..length).unwrap_or_default()) {
        if kind == RTA_GATEWAY {
            route.what.gateway = ip_of(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_attributes_end_the_reading() {
        assert_eq!(attributes(&[]).count(), 0);
        assert_eq!(attributes(&[0, 0, 0, 0]).count(), 0);
        assert_eq!(attributes(&[3, 0, 1, 0, 1]).count(), 0);
        assert_eq!(attributes(&[200, 0, 1, 0, 1]).count(), 0);
        let two: Vec<_> = attributes(&[5, 0, 1, 0x80, 9, 0, 0, 0, 4, 0, 2, 0]).collect();
        assert_eq!(two, [(1, &[9][..]), (2, &[][..])]);
    }

    #[test]
    fn short_messages_are_no_links_addresses_or_routes() {
        for length in 0..16 {
            assert!(link(&vec![0; length]).is_none());
            assert!(route(&vec![0; length]).is_none());
            assert!(address(&vec![0; length]).is_none());
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut seed = 1_u32;
        for length in 0..200 {
            let bytes: Vec<u8> = std::iter::repeat_with(|| {
                seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
                u8::try_from((seed >> 16) % 40).unwrap()
            })
            .take(length)
            .collect();
            let _ = (link(&bytes), address(&bytes), route(&bytes));
        }
    }
}
