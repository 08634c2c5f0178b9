//! Addresses as numbers, and inclusive spans of them. Both families are 128 bit wide here; a range never
//! mixes them, so numbers of one range compare as addresses do.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The two address families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The address of a number that came from an address of this family.
    pub(super) fn address(self, number: u128) -> IpAddr {
        match self {
            // A number of this family has no higher bits.
            Self::V4 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX))),
            Self::V6 => IpAddr::V6(Ipv6Addr::from_bits(number)),
        }
    }
}

/// The address as a number.
pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// All addresses from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u128,
    pub(super) last: u128,
}

impl Span {
    /// How many addresses; the whole of IPv6, which no range can have, counts as one less.
    pub(super) fn len(self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    pub(super) fn contains(self, number: u128) -> bool {
        (self.first..=self.last).contains(&number)
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// What is left of `spans` (sorted, disjoint) without `hole`.
pub(super) fn without(spans: &[Span], hole: Span) -> Vec<Span> {
    let mut left = Vec::with_capacity(spans.len() + 1);
    for span in spans {
        if !span.overlaps(hole) {
            left.push(*span);
            continue;
        }
        if span.first < hole.first {
            left.push(Span { first: span.first, last: hole.first - 1 });
        }
        if hole.last < span.last {
            left.push(Span { first: hole.last + 1, last: span.last });
        }
    }
    left
}

/// What of `spans` is also in `other`.
pub(super) fn within(spans: &[Span], other: Span) -> Vec<Span> {
    let both = |span: &Span| Span { first: span.first.max(other.first), last: span.last.min(other.last) };
    spans.iter().filter(|span| span.overlaps(other)).map(both).collect()
}

/// Whether one of `spans` (sorted, disjoint) has the number.
pub(super) fn has(spans: &[Span], number: u128) -> bool {
    let after = spans.partition_point(|span| span.first <= number);
    after.checked_sub(1).is_some_and(|at| spans[at].contains(number))
}
