//! The requests: one function builds one message. No I/O.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute, LinkExtentMask,
    LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::socket::Request;
use super::{PodLinkSpec, PodRoute};

/// The main routing table.
pub(super) const MAIN_TABLE: u8 = 254;
/// The table of the node's own addresses.
const LOCAL_TABLE: u8 = 255;
/// Every namespace's loopback has this index.
pub(super) const LOOPBACK: u32 = 1;

fn request(
    message: RouteNetlinkMessage,
    flags: u16,
    operation: &'static str,
    object: impl Into<String>,
) -> Request {
    Request { message, flags, operation, object: object.into() }
}

fn link_message(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    message
}

fn named(name: &str) -> LinkAttribute {
    LinkAttribute::IfName(name.to_owned())
}

/// Statistics are most of a link's message, and nobody here reads them.
fn without_statistics() -> LinkAttribute {
    LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])
}

/// The link of that name.
pub(super) fn link_by_name(name: &str) -> Request {
    let message = link_message(0, vec![named(name), without_statistics()]);
    request(RouteNetlinkMessage::GetLink(message), 0, "look up link", name)
}

/// The link of that index.
pub(super) fn link_by_index(index: u32) -> Request {
    let message = link_message(index, vec![without_statistics()]);
    request(RouteNetlinkMessage::GetLink(message), 0, "look up link", index.to_string())
}

/// All links (a dump).
pub(super) fn all_links() -> Request {
    request(
        RouteNetlinkMessage::GetLink(link_message(0, vec![without_statistics()])),
        0,
        "read links",
        "of the namespace",
    )
}

/// Both ends of a pod's link: the host end up and a port of the bridge, the other inside the namespace
/// under its final name and MAC. (A peer cannot be created up: ENOTCONN.)
pub(super) fn create_veth(spec: &PodLinkSpec, namespace: BorrowedFd<'_>, bridge: u32) -> Request {
    // One queue each: a veth gains nothing from one per processor, and creation takes a fifth less.
    let common = |name| {
        vec![
            named(name),
            LinkAttribute::Mtu(spec.mtu),
            LinkAttribute::NumTxQueues(1),
            LinkAttribute::NumRxQueues(1),
        ]
    };
    let mut peer = common(&spec.ifname);
    peer.push(LinkAttribute::Address(spec.mac.to_vec()));
    peer.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
    let mut host = common(&spec.host_link);
    host.push(LinkAttribute::Controller(bridge));
    host.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(link_message(0, peer)))),
    ]));
    let mut message = link_message(0, host);
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    let object = format!("{} (veth, with {} in the pod)", spec.host_link, spec.ifname);
    request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, "create link", object)
}

/// What a link takes only once it exists: an alias, and its settings as a port of its bridge.
pub(super) fn set_port(name: &str, alias: Option<&str>, hairpin: bool, isolated: bool) -> Request {
    let port = vec![InfoBridgePort::HairpinMode(hairpin), InfoBridgePort::Isolated(isolated)];
    let mut attributes = vec![
        named(name),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::PortKind(InfoPortKind::Bridge),
            LinkInfo::PortData(InfoPortData::BridgePort(port)),
        ]),
    ];
    attributes.extend(alias.map(|alias| LinkAttribute::IfAlias(alias.to_owned())));
    let message = RouteNetlinkMessage::NewLink(link_message(0, attributes));
    request(message, 0, "set alias and port flags of link", name)
}

/// A link a port of a bridge.
pub(super) fn set_master(index: u32, name: &str, bridge: u32) -> Request {
    change(index, LinkAttribute::Controller(bridge), "make a port of the bridge of link", name)
}

/// A bridge with its MAC, down.
pub(super) fn create_bridge(name: &str, mac: [u8; 6]) -> Request {
    let attributes = vec![
        named(name),
        LinkAttribute::Address(mac.to_vec()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
    ];
    request(
        RouteNetlinkMessage::NewLink(link_message(0, attributes)),
        NLM_F_CREATE | NLM_F_EXCL,
        "create bridge",
        name,
    )
}

/// An ifb, down: a link that gives back what is sent by it.
pub(super) fn create_ifb(name: &str, mtu: u32) -> Request {
    let attributes = vec![
        named(name),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::NumTxQueues(1),
        LinkAttribute::NumRxQueues(1),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]),
    ];
    let message = RouteNetlinkMessage::NewLink(link_message(0, attributes));
    request(message, NLM_F_CREATE | NLM_F_EXCL, "create ifb", name)
}

/// An alias for a link, and the link up.
pub(super) fn set_alias_up(name: &str, alias: &str) -> Request {
    let mut message = link_message(0, vec![named(name), LinkAttribute::IfAlias(alias.to_owned())]);
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    request(RouteNetlinkMessage::NewLink(message), 0, "set alias of link and set up", name)
}

fn change(index: u32, attribute: LinkAttribute, operation: &'static str, name: &str) -> Request {
    request(RouteNetlinkMessage::SetLink(link_message(index, vec![attribute])), 0, operation, name)
}

/// Another MAC for a link.
pub(super) fn set_mac(index: u32, name: &str, mac: [u8; 6]) -> Request {
    change(index, LinkAttribute::Address(mac.to_vec()), "set MAC address of link", name)
}

/// Another MTU for a link.
pub(super) fn set_mtu(index: u32, name: &str, mtu: u32) -> Request {
    change(index, LinkAttribute::Mtu(mtu), "set MTU of link", name)
}

/// Another group for a link.
pub(super) fn set_group(index: u32, name: &str, group: u32) -> Request {
    change(index, LinkAttribute::Group(group), "set group of link", name)
}

/// A link up.
pub(super) fn set_up(index: u32, name: &str) -> Request {
    let mut message = link_message(index, Vec::new());
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    request(RouteNetlinkMessage::SetLink(message), 0, "set up link", name)
}

/// A link away.
pub(super) fn delete_link(index: u32, name: &str) -> Request {
    request(RouteNetlinkMessage::DelLink(link_message(index, Vec::new())), 0, "delete link", name)
}

/// A link away, by its name.
pub(super) fn delete_link_by_name(name: &str) -> Request {
    let message = link_message(0, vec![named(name)]);
    request(RouteNetlinkMessage::DelLink(message), 0, "delete link", name)
}

/// All links of a group away, at the price of one.
pub(super) fn delete_group(group: u32) -> Request {
    let message = link_message(0, vec![LinkAttribute::Group(group)]);
    request(RouteNetlinkMessage::DelLink(message), 0, "delete links of group", group.to_string())
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// An address for a link; an IPv6 one is usable at once (no duplicate address detection).
pub(super) fn add_address(index: u32, name: &str, address: IpNet) -> Request {
    let mut message = AddressMessage::default();
    message.header.family = family(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    message.header.scope = AddressScope::Universe;
    message.attributes =
        vec![AddressAttribute::Local(address.addr()), AddressAttribute::Address(address.addr())];
    match address {
        IpNet::V4(net) if net.prefix_len() < 31 => {
            message.attributes.push(AddressAttribute::Broadcast(net.broadcast()));
        }
        IpNet::V4(_) => {}
        IpNet::V6(_) => message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad)),
    }
    request(
        RouteNetlinkMessage::NewAddress(message),
        NLM_F_CREATE | NLM_F_EXCL,
        "add address",
        format!("{address} to {name}"),
    )
}

/// The addresses of a link, both families (a dump).
pub(super) fn addresses(index: u32) -> Request {
    let mut message = AddressMessage::default();
    message.header.index = index;
    request(RouteNetlinkMessage::GetAddress(message), 0, "read addresses", format!("of link {index}"))
}

/// A route out of a link. `on_link` says that the gateway is behind the link though no address tells so.
pub(super) fn add_route(index: u32, name: &str, route: &PodRoute, on_link: bool) -> Request {
    let mut message = RouteMessage::default();
    message.header.address_family = family(route.dst.addr());
    message.header.destination_prefix_length = route.dst.prefix_len();
    message.header.table = MAIN_TABLE;
    message.header.protocol = RouteProtocol::Boot;
    message.header.kind = RouteType::Unicast;
    message.header.scope = match (route.gateway, route.dst) {
        (None, IpNet::V4(_)) => RouteScope::Link,
        _ => RouteScope::Universe,
    };
    let mut attributes = vec![RouteAttribute::Oif(index)];
    if route.dst.prefix_len() > 0 {
        attributes.push(RouteAttribute::Destination(route_address(route.dst.network())));
    }
    if let Some(gateway) = route.gateway {
        attributes.push(RouteAttribute::Gateway(route_address(gateway)));
        if on_link {
            message.header.flags = RouteFlags::Onlink;
        }
    }
    attributes.extend(route.priority.map(RouteAttribute::Priority));
    let metrics: Vec<_> =
        route.mtu.map(RouteMetric::Mtu).into_iter().chain(route.advmss.map(RouteMetric::Advmss)).collect();
    if !metrics.is_empty() {
        attributes.push(RouteAttribute::Metrics(metrics));
    }
    message.attributes = attributes;
    let by = route.gateway.map_or(String::new(), |gateway| format!(" by {gateway}"));
    request(
        RouteNetlinkMessage::NewRoute(message),
        NLM_F_CREATE | NLM_F_EXCL,
        "add route",
        format!("to {}{by} on {name}", route.dst),
    )
}

/// A local route for `::1` on a link, behind the loopback's own.
pub(super) fn add_loopback6(index: u32, name: &str, priority: u32) -> Request {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.header.destination_prefix_length = 128;
    message.header.table = LOCAL_TABLE;
    message.header.protocol = RouteProtocol::Boot;
    message.header.kind = RouteType::Local;
    message.attributes = vec![
        RouteAttribute::Destination(route_address(std::net::Ipv6Addr::LOCALHOST.into())),
        RouteAttribute::Oif(index),
        RouteAttribute::Priority(priority),
    ];
    request(
        RouteNetlinkMessage::NewRoute(message),
        NLM_F_CREATE | NLM_F_EXCL,
        "add local route to ::1 on",
        name,
    )
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

/// The routes of one family's main table (a dump). The address only names the family.
pub(super) fn routes(of: IpAddr) -> Request {
    let mut message = RouteMessage::default();
    message.header.address_family = family(of);
    message.header.table = MAIN_TABLE;
    request(RouteNetlinkMessage::GetRoute(message), 0, "read routes", "of the main table")
}

/// The route that a packet to the address would take.
pub(super) fn route_to(address: IpAddr) -> Request {
    let mut message = RouteMessage::default();
    message.header.address_family = family(address);
    message.header.destination_prefix_length = IpNet::from(address).prefix_len();
    message.attributes = vec![RouteAttribute::Destination(route_address(address))];
    request(RouteNetlinkMessage::GetRoute(message), 0, "look up route", format!("to {address}"))
}

/// Any IPv4 address.
pub(super) const V4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// Any IPv6 address.
pub(super) const V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED);
