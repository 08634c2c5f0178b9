//! A range: the part of one subnet that may be leased, and the gateway that goes with it.

use std::net::IpAddr;

use ipnet::IpNet;

use super::span::{Family, Span, has, number, without};

/// Why a range or a set of ranges makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// An address is not part of the subnet.
    #[error("{what} {address} is outside subnet {subnet}")]
    Outside {
        /// Which address: "range start", "range end", "gateway" or "exclude".
        what: &'static str,
        /// The address or subnet as given.
        address: String,
        /// The range's subnet.
        subnet: IpNet,
    },
    /// The range ends before it starts.
    #[error("range end {end} comes before range start {start}")]
    Backwards {
        /// The first address.
        start: IpAddr,
        /// The last address.
        end: IpAddr,
    },
    /// The range has no address left for a pod.
    #[error(
        "subnet {0} has no address for a pod between its range's start and end: all are reserved or excluded"
    )]
    Empty(IpNet),
    /// The ranges of one set are alternatives for one address, so they have one family.
    #[error(
        "subnets {0} and {1} are in one set, but not of one address family: give each family a set of its own"
    )]
    MixedFamilies(IpNet, IpNet),
    /// A set without a range gives no address.
    #[error("a set of ranges has no range")]
    NoRange,
}

/// The part of a subnet that may be leased.
///
/// Never leased: the gateway, what is excluded, the network and broadcast address of IPv4 (none in a /31,
/// RFC 3021), and the subnet-router anycast address of IPv6 (none in a /127, RFC 6164).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    subnet: IpNet,
    start: IpAddr,
    end: IpAddr,
    gateway: Option<IpAddr>,
    usable: Vec<Span>,
}

impl Range {
    /// The range from `start` to `end`, both included; the whole subnet where they are `None`.
    ///
    /// Without a `gateway` it is the subnet's first address that is not reserved; a subnet of one address has
    /// none. Host bits of `subnet` are dropped. An exclude may be any part of the subnet, also outside
    /// `start` to `end`.
    pub fn new(
        subnet: IpNet,
        start: Option<IpAddr>,
        end: Option<IpAddr>,
        gateway: Option<IpAddr>,
        excludes: &[IpNet],
    ) -> Result<Self, RangeError> {
        let subnet = subnet.trunc();
        let inside = |what, address: Option<IpAddr>| match address {
            Some(address) if !subnet.contains(&address) => Err(outside(what, &address, subnet)),
            _ => Ok(address),
        };
        let assignable = assignable(subnet);
        let gateway = inside("gateway", gateway)?.or_else(|| default_gateway(subnet, assignable));
        let start = inside("range start", start)?.unwrap_or_else(|| subnet_address(subnet, assignable.first));
        let end = inside("range end", end)?.unwrap_or_else(|| subnet_address(subnet, assignable.last));
        if start > end {
            return Err(RangeError::Backwards { start, end });
        }
        if let Some(exclude) = excludes.iter().find(|it| !(subnet.contains(*it) || it.contains(&subnet))) {
            return Err(outside("exclude", exclude, subnet));
        }
        let first = number(start).max(assignable.first);
        let last = number(end).min(assignable.last);
        let mut usable = if first <= last { vec![Span { first, last }] } else { Vec::new() };
        let gateway_span = gateway.map(|address| Span { first: number(address), last: number(address) });
        for hole in excludes.iter().map(|exclude| whole(*exclude)).chain(gateway_span) {
            usable = without(&usable, hole);
        }
        if usable.is_empty() {
            return Err(RangeError::Empty(subnet));
        }
        Ok(Self { subnet, start, end, gateway, usable })
    }

    /// The subnet, without host bits.
    pub fn subnet(&self) -> IpNet {
        self.subnet
    }

    /// The first address of the range; it may be reserved or excluded.
    pub fn start(&self) -> IpAddr {
        self.start
    }

    /// The last address of the range; it may be reserved or excluded.
    pub fn end(&self) -> IpAddr {
        self.end
    }

    /// The pods' gateway; `None` only in a subnet of one address.
    pub fn gateway(&self) -> Option<IpAddr> {
        self.gateway
    }

    /// How many addresses may be leased.
    pub fn usable(&self) -> u128 {
        self.usable.iter().map(|span| span.len()).fold(0, u128::saturating_add)
    }

    /// Whether the address may be leased from this range.
    pub fn contains(&self, address: IpAddr) -> bool {
        Family::of(address) == self.family() && has(&self.usable, number(address))
    }

    pub(super) fn family(&self) -> Family {
        Family::of(self.subnet.addr())
    }

    pub(super) fn spans(&self) -> &[Span] {
        &self.usable
    }

    /// Takes an address out that something else needs.
    pub(super) fn reserve(&mut self, address: IpAddr) {
        if self.contains(address) {
            self.usable = without(&self.usable, Span { first: number(address), last: number(address) });
        }
    }
}

pub(super) fn outside(what: &'static str, address: &impl ToString, subnet: IpNet) -> RangeError {
    RangeError::Outside { what, address: address.to_string(), subnet }
}

fn subnet_address(subnet: IpNet, number: u128) -> IpAddr {
    Family::of(subnet.addr()).address(number)
}

/// All addresses of a subnet.
fn whole(subnet: IpNet) -> Span {
    Span { first: number(subnet.network()), last: number(subnet.broadcast()) }
}

/// The addresses of a subnet that a host may have.
fn assignable(subnet: IpNet) -> Span {
    let Span { first, last } = whole(subnet);
    let small = subnet.max_prefix_len() - subnet.prefix_len() <= 1;
    match subnet {
        _ if small => Span { first, last },
        IpNet::V4(_) => Span { first: first + 1, last: last - 1 },
        IpNet::V6(_) => Span { first: first + 1, last },
    }
}

fn default_gateway(subnet: IpNet, assignable: Span) -> Option<IpAddr> {
    (assignable.first < assignable.last).then(|| subnet_address(subnet, assignable.first))
}

/// Ranges that are alternatives for one address of a pod: a pod gets one address from each set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSet(Vec<Range>);

impl RangeSet {
    /// A set of at least one range, all of one family.
    pub fn new(ranges: Vec<Range>) -> Result<Self, RangeError> {
        let first = ranges.first().ok_or(RangeError::NoRange)?;
        match ranges.iter().find(|range| range.family() != first.family()) {
            Some(other) => Err(RangeError::MixedFamilies(first.subnet, other.subnet)),
            None => Ok(Self(ranges)),
        }
    }

    /// The ranges, in the order in which they are used up.
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    pub(super) fn ranges_mut(&mut self) -> &mut [Range] {
        &mut self.0
    }
}
