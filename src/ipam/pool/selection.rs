//! Addresses from ranges that a request names: what of them the pool can give, and the giving.
//!
//! Owns what the capability `ipRanges` means: each requested set gives one address, out of what the configuration
//! leaves usable of its ranges. The subnet, and so prefix length and gateway, stay the configured ones. Promises that
//! a request that contradicts itself or the configuration is an error, and that nothing is leased then.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::cni::{AttachmentKey, IpRange};

use super::super::range::{RangeError, outside};
use super::super::span::{Family, Span, has, number, within};
use super::{AllocateError, Lease, Part, Pool};

/// Why requested ranges cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// A range or a set makes no sense by itself.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// A subnet with bits behind its prefix.
    #[error("{subnet} has bits set after the prefix; the subnet of this address is {}", subnet.trunc())]
    HostBits {
        /// As asked for.
        subnet: IpNet,
    },
    /// A range is not part of any subnet of the network, behind whose bridge alone it would be reached.
    #[error(
        "range {range} lies outside the network's subnets {}",
        subnets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Outside {
        /// The range as asked for.
        range: String,
        /// The network's subnets.
        subnets: Vec<IpNet>,
    },
    /// The gateway is the bridge's own address and no pod's choice.
    #[error(
        "range {range} asks for gateway {asked}, and that of {subnet} is {}",
        has.map_or_else(|| "none".to_owned(), |has| has.to_string())
    )]
    Gateway {
        /// The range as asked for.
        range: String,
        /// The gateway asked for.
        asked: IpAddr,
        /// The configured subnet.
        subnet: IpNet,
        /// Its gateway.
        has: Option<IpAddr>,
    },
    /// Two ranges share an address.
    #[error("ranges {0} and {1} overlap")]
    Overlap(String, String),
    /// The configuration leaves no address of a range.
    #[error(
        "range {0} has no address for a pod: all are reserved, excluded or outside the configured ranges"
    )]
    Empty(String),
}

/// Requested ranges that the pool which made this can give addresses from.
#[derive(Debug)]
pub struct Selection(Vec<Chosen>);

/// One requested set.
#[derive(Debug)]
struct Chosen {
    places: Vec<Place>,
    /// The ranges as asked for.
    text: String,
}

/// What a configured range has of a requested one.
#[derive(Debug)]
struct Place {
    set: usize,
    family: Family,
    spans: Vec<Span>,
}

impl Chosen {
    fn contains(&self, address: IpAddr) -> bool {
        let family = Family::of(address);
        self.places.iter().any(|place| place.family == family && has(&place.spans, number(address)))
    }
}

impl Selection {
    /// Whether the addresses are one of each requested set, and no other.
    pub fn is_met_by(&self, addresses: &[IpAddr]) -> bool {
        let given = |chosen: &Chosen| addresses.iter().any(|address| chosen.contains(*address));
        addresses.len() == self.0.len() && self.0.iter().all(given)
    }
}

impl Pool {
    /// What this pool has of the requested sets.
    pub fn select(&self, sets: &[Vec<IpRange>]) -> Result<Selection, SelectionError> {
        refuse_overlaps(&sets.concat())?;
        Ok(Selection(sets.iter().map(|set| self.choose(set)).collect::<Result<_, _>>()?))
    }

    fn choose(&self, set: &[IpRange]) -> Result<Chosen, SelectionError> {
        let first = set.first().ok_or(RangeError::NoRange)?.subnet;
        if let Some(other) = set.iter().find(|it| it.subnet.addr().is_ipv4() != first.addr().is_ipv4()) {
            return Err(RangeError::MixedFamilies(first, other.subnet).into());
        }
        let mut places = Vec::new();
        for range in set {
            places.extend(self.places(range)?);
        }
        let text = set.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Ok(Chosen { places, text })
    }

    /// Where the addresses of a requested range are; at least one place.
    fn places(&self, range: &IpRange) -> Result<Vec<Place>, SelectionError> {
        let asked = span(range)?;
        let configured = self.sets.iter().enumerate();
        let within_subnet: Vec<(usize, &Part)> = configured
            .flat_map(|(set, it)| it.parts.iter().map(move |part| (set, part)))
            .filter(|(_, part)| part.range.subnet().contains(&range.subnet))
            .collect();
        let Some((_, first)) = within_subnet.first() else {
            let mut subnets: Vec<IpNet> = self.usage().iter().map(|usage| usage.subnet).collect();
            subnets.dedup();
            return Err(SelectionError::Outside { range: range.to_string(), subnets });
        };
        // Ranges of one subnet have one gateway.
        let (subnet, has) = (first.range.subnet(), first.range.gateway());
        if let Some(asked) = range.gateway.filter(|asked| Some(*asked) != has) {
            return Err(SelectionError::Gateway { range: range.to_string(), asked, subnet, has });
        }
        let place = |(set, part): (usize, &Part)| {
            let spans = within(part.range.spans(), asked);
            (!spans.is_empty()).then_some(Place { set, family: part.range.family(), spans })
        };
        let places: Vec<Place> = within_subnet.into_iter().filter_map(place).collect();
        if places.is_empty() { Err(SelectionError::Empty(range.to_string())) } else { Ok(places) }
    }

    /// Leases one address of each requested set to the owner, all or none. Requested addresses are given from the
    /// sets they belong to, or nothing is.
    ///
    /// Unlike [`Pool::allocate`] this looks through the range, at each address that is leased or rests at most twice.
    pub fn allocate_from(
        &mut self,
        owner: &AttachmentKey,
        requested: &[IpAddr],
        selection: &Selection,
    ) -> Result<Vec<Lease>, AllocateError> {
        if self.leases.contains_key(owner) {
            return Err(AllocateError::Holds(owner.clone()));
        }
        let set_of = |address| {
            let set = selection.0.iter().position(|chosen| chosen.contains(address));
            set.ok_or(AllocateError::NotSelected(address))
        };
        let wanted = self.wanted(requested, selection.0.len(), set_of)?;
        let address = |(chosen, wanted): (&Chosen, Option<IpAddr>)| {
            let free = || chosen.places.iter().find_map(|place| self.free_at(place));
            wanted.or_else(free).ok_or_else(|| AllocateError::SelectionExhausted(chosen.text.clone()))
        };
        let addresses: Vec<IpAddr> = selection.0.iter().zip(wanted).map(address).collect::<Result<_, _>>()?;
        let owner = Arc::new(owner.clone());
        let leases: Vec<Lease> = addresses.into_iter().map(|address| self.hold(&owner, address)).collect();
        self.leases.insert(owner, leases.clone());
        Ok(leases)
    }

    fn free_at(&self, place: &Place) -> Option<IpAddr> {
        let is_leased = |number| self.owners.contains_key(&place.family.address(number));
        let free = self.sets.get(place.set)?.candidates.find(&place.spans, is_leased)?;
        Some(place.family.address(free))
    }
}

/// All addresses of a requested range. Also the first and last of its subnet, which is no subnet to the pod.
fn span(range: &IpRange) -> Result<Span, SelectionError> {
    let subnet = range.subnet;
    if subnet != subnet.trunc() {
        return Err(SelectionError::HostBits { subnet });
    }
    for (what, address) in [("range start", range.range_start), ("range end", range.range_end)] {
        if let Some(address) = address.filter(|address| !subnet.contains(address)) {
            return Err(outside(what, &address, subnet).into());
        }
    }
    let start = range.range_start.unwrap_or_else(|| subnet.network());
    let end = range.range_end.unwrap_or_else(|| subnet.broadcast());
    if start > end {
        return Err(RangeError::Backwards { start, end }.into());
    }
    Ok(Span { first: number(start), last: number(end) })
}

fn refuse_overlaps(ranges: &[IpRange]) -> Result<(), SelectionError> {
    for (index, one) in ranges.iter().enumerate() {
        for other in &ranges[index + 1..] {
            let same_family = one.subnet.addr().is_ipv4() == other.subnet.addr().is_ipv4();
            if same_family && span(one)?.overlaps(span(other)?) {
                return Err(SelectionError::Overlap(one.to_string(), other.to_string()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
