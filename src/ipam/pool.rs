//! The leases of one network.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::cni::AttachmentKey;

use super::candidates::Candidates;
use super::range::{Range, RangeSet};
use super::span::{Family, Span, number};

mod selection;

pub use selection::{Selection, SelectionError};

/// Why a pool cannot be made of its sets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Without a set no pod gets an address.
    #[error("no address range is configured")]
    NoSet,
    /// Two ranges share an address, so that two pods could.
    #[error("the ranges of subnets {0} and {1} overlap: give each pool addresses of its own")]
    Overlap(IpNet, IpNet),
    /// A range lost its last address to the gateway of another.
    #[error("subnet {0} has no address for a pod: all are reserved or excluded")]
    Empty(IpNet),
}

/// Why no address was leased. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// Every address of a set is leased.
    #[error("no free address is left in {}", subnets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Exhausted {
        /// The number of the set.
        set: usize,
        /// The set's subnets.
        subnets: Vec<IpNet>,
    },
    /// Another attachment, or another lease of the same one, has the requested address.
    #[error("address {address} is leased to {owner}")]
    Taken {
        /// The requested address.
        address: IpAddr,
        /// Who has it.
        owner: AttachmentKey,
    },
    /// The requested address is in no range, or reserved or excluded there.
    #[error("address {0} cannot be leased: it is outside the configured ranges, reserved or excluded")]
    NotUsable(IpAddr),
    /// The requested address is in none of the requested ranges.
    #[error("address {0} is in none of the requested ranges, or reserved or excluded there")]
    NotSelected(IpAddr),
    /// Every address of a requested set is leased.
    #[error("no free address is left in the requested range {0}")]
    SelectionExhausted(String),
    /// A set gives one address only.
    #[error("addresses {0} and {1} come from the same set of ranges, which gives one only")]
    SameSet(IpAddr, IpAddr),
    /// The owner has leases already; they have to be released first.
    #[error("{0} has leases already")]
    Holds(AttachmentKey),
}

/// Addresses of a record that others have. Everything else of the record was restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|(address, owner)| format!("address {address} is leased to {owner}")).collect::<Vec<_>>().join(", "))]
pub struct RestoreError(pub Vec<(IpAddr, AttachmentKey)>);

/// One address of one attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: IpAddr,
    /// The prefix length of its subnet; all bits for an address of no configured subnet.
    pub prefix_len: u8,
    /// The gateway of its subnet.
    pub gateway: Option<IpAddr>,
    /// The number of its set; `usize::MAX` ([`Lease::FOREIGN`]) for an address outside every range.
    pub set: usize,
}

impl Lease {
    /// The set of addresses that are in no range (any more): held until released, then never given.
    pub const FOREIGN: usize = usize::MAX;
}

/// How full a range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeUsage {
    /// The range's subnet.
    pub subnet: IpNet,
    /// How many addresses may be leased.
    pub capacity: u128,
    /// How many are.
    pub used: u128,
    /// How many are not.
    pub free: u128,
}

/// A range, what it can give, and what it gave.
#[derive(Debug)]
struct Part {
    range: Range,
    capacity: u128,
    used: u128,
    /// Its spans among its set's, from and to.
    spans: (usize, usize),
}

#[derive(Debug)]
struct Set {
    family: Family,
    parts: Vec<Part>,
    candidates: Candidates,
}

impl Set {
    fn new(set: &RangeSet) -> Self {
        let mut spans: Vec<Span> = Vec::new();
        let mut parts = Vec::new();
        for range in set.ranges() {
            let first = spans.len();
            spans.extend_from_slice(range.spans());
            let capacity = range.usable();
            parts.push(Part { range: range.clone(), capacity, used: 0, spans: (first, spans.len()) });
        }
        Self { family: parts[0].range.family(), parts, candidates: Candidates::new(spans) }
    }

    fn is_full(&self) -> bool {
        self.parts.iter().all(|part| part.used >= part.capacity)
    }

    fn part_of(&mut self, address: IpAddr) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.range.contains(address))
    }
}

/// The leases of one network: who has which address, and which one is given next.
#[derive(Debug)]
pub struct Pool {
    sets: Vec<Set>,
    owners: HashMap<IpAddr, Arc<AttachmentKey>>,
    leases: HashMap<Arc<AttachmentKey>, Vec<Lease>>,
}

impl Pool {
    /// An empty pool. No two ranges may share an address; a range's gateway is never given from another.
    pub fn new(mut sets: Vec<RangeSet>) -> Result<Self, PoolError> {
        if sets.is_empty() {
            return Err(PoolError::NoSet);
        }
        let gateways: Vec<IpAddr> =
            sets.iter().flat_map(RangeSet::ranges).filter_map(Range::gateway).collect();
        for range in sets.iter_mut().flat_map(RangeSet::ranges_mut) {
            for gateway in &gateways {
                range.reserve(*gateway);
            }
            if range.spans().is_empty() {
                return Err(PoolError::Empty(range.subnet()));
            }
        }
        refuse_overlaps(&sets)?;
        let sets = sets.iter().map(Set::new).collect();
        Ok(Self { sets, owners: HashMap::new(), leases: HashMap::new() })
    }

    /// Leases one address of each set to the owner, all or none. Requested addresses are given from the sets
    /// they belong to, or nothing is.
    pub fn allocate(
        &mut self,
        owner: &AttachmentKey,
        requested: &[IpAddr],
    ) -> Result<Vec<Lease>, AllocateError> {
        if self.leases.contains_key(owner) {
            return Err(AllocateError::Holds(owner.clone()));
        }
        let set_of = |address| self.set_of(address).ok_or(AllocateError::NotUsable(address));
        let wanted = self.wanted(requested, self.sets.len(), set_of)?;
        // Nothing below fails: each set without a wanted address has a free one.
        for (number, set) in self.sets.iter().enumerate() {
            if wanted[number].is_none() && set.is_full() {
                let subnets = set.parts.iter().map(|part| part.range.subnet()).collect();
                return Err(AllocateError::Exhausted { set: number, subnets });
            }
        }
        let owner = Arc::new(owner.clone());
        let mut leases = Vec::with_capacity(self.sets.len());
        for (index, wanted) in wanted.into_iter().enumerate() {
            let set = &mut self.sets[index];
            let (family, owners) = (set.family, &self.owners);
            let address = wanted.or_else(|| {
                let free = set.candidates.take(|number| owners.contains_key(&family.address(number)));
                free.map(|number| family.address(number))
            });
            debug_assert!(address.is_some(), "a set that is not full has an address");
            leases.extend(address.map(|address| self.hold(&owner, address)));
        }
        self.leases.insert(owner, leases.clone());
        Ok(leases)
    }

    /// The requested address of each of so many sets; `set_of` says which set an address is from.
    fn wanted(
        &self,
        requested: &[IpAddr],
        sets: usize,
        set_of: impl Fn(IpAddr) -> Result<usize, AllocateError>,
    ) -> Result<Vec<Option<IpAddr>>, AllocateError> {
        let mut wanted = vec![None; sets];
        for &address in requested {
            let set = set_of(address)?;
            if let Some(owner) = self.owner(address) {
                return Err(AllocateError::Taken { address, owner: owner.clone() });
            }
            match wanted[set].replace(address) {
                Some(other) if other != address => return Err(AllocateError::SameSet(other, address)),
                _ => {}
            }
        }
        Ok(wanted)
    }

    /// Gives the owner back what it had before a restart. Addresses outside every range are held too, so
    /// that a later configuration cannot give them away while their pod lives. What another owner has stays
    /// there; everything else is held, and the error names the rest.
    pub fn restore(&mut self, owner: &AttachmentKey, addresses: &[IpAddr]) -> Result<(), RestoreError> {
        let mut taken = Vec::new();
        let key = self
            .leases
            .get_key_value(owner)
            .map_or_else(|| Arc::new(owner.clone()), |(key, _)| Arc::clone(key));
        for &address in addresses {
            match self.owner(address) {
                None => {
                    let lease = self.hold(&key, address);
                    self.leases.entry(Arc::clone(&key)).or_default().push(lease);
                }
                Some(holder) if holder == owner => {}
                Some(holder) => taken.push((address, holder.clone())),
            }
        }
        if taken.is_empty() { Ok(()) } else { Err(RestoreError(taken)) }
    }

    /// Goes on after these addresses, the last ones given before a restart, so that what was free then
    /// rests on. Addresses of no configured subnet are passed over.
    pub fn rest_after(&mut self, last: &[IpAddr]) {
        for &address in last {
            for set in self.sets.iter_mut().filter(|set| set.family == Family::of(address)) {
                let within = |part: &&Part| (part.range.start()..=part.range.end()).contains(&address);
                if let Some((first, end)) = set.parts.iter().find(within).map(|part| part.spans) {
                    set.candidates.continue_after(number(address), first, end);
                }
            }
        }
    }

    /// Frees everything the owner holds, and says what that was. Nothing, when it holds nothing.
    pub fn release(&mut self, owner: &AttachmentKey) -> Vec<IpAddr> {
        let leases = self.leases.remove(owner).unwrap_or_default();
        for lease in &leases {
            self.owners.remove(&lease.address);
            if let Some(set) = self.sets.get_mut(lease.set) {
                set.candidates.rest(number(lease.address));
                if let Some(part) = set.part_of(lease.address) {
                    part.used -= 1;
                }
            }
        }
        leases.into_iter().map(|lease| lease.address).collect()
    }

    /// Who has the address.
    pub fn owner(&self, address: IpAddr) -> Option<&AttachmentKey> {
        self.owners.get(&address).map(AsRef::as_ref)
    }

    /// What the owner has.
    pub fn leases_of(&self, owner: &AttachmentKey) -> &[Lease] {
        self.leases.get(owner).map_or(&[], Vec::as_slice)
    }

    /// How full each range is, set by set. Addresses outside every range are not counted.
    pub fn usage(&self) -> Vec<RangeUsage> {
        let parts = self.sets.iter().flat_map(|set| &set.parts);
        parts
            .map(|part| RangeUsage {
                subnet: part.range.subnet(),
                capacity: part.capacity,
                used: part.used,
                free: part.capacity - part.used,
            })
            .collect()
    }

    /// The first set that has no free address.
    pub fn exhausted(&self) -> Option<usize> {
        self.sets.iter().position(Set::is_full)
    }

    fn set_of(&self, address: IpAddr) -> Option<usize> {
        self.sets.iter().position(|set| set.parts.iter().any(|part| part.range.contains(address)))
    }

    /// Records that the owner has the address, which nobody has.
    fn hold(&mut self, owner: &Arc<AttachmentKey>, address: IpAddr) -> Lease {
        self.owners.insert(address, Arc::clone(owner));
        for (index, set) in self.sets.iter_mut().enumerate() {
            let Some(part) = set.part_of(address) else { continue };
            part.used += 1;
            let (subnet, gateway) = (part.range.subnet(), part.range.gateway());
            set.candidates.claim(number(address));
            return Lease { address, prefix_len: subnet.prefix_len(), gateway, set: index };
        }
        // A pod of an earlier configuration: of a subnet that is gone, or now excluded or the gateway.
        let ranges = self.sets.iter().flat_map(|set| &set.parts).map(|part| &part.range);
        let subnet = ranges.map(Range::subnet).find(|subnet| subnet.contains(&address));
        let all_bits = IpNet::from(address).prefix_len();
        let prefix_len = subnet.map_or(all_bits, |subnet| subnet.prefix_len());
        Lease { address, prefix_len, gateway: None, set: Lease::FOREIGN }
    }

    /// Addresses looked at since the pool was made.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.sets.iter().map(|set| set.candidates.steps).sum()
    }

    /// Entries kept in memory for addresses that nobody has.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.sets.iter().map(|set| set.candidates.kept()).sum()
    }
}

fn refuse_overlaps(sets: &[RangeSet]) -> Result<(), PoolError> {
    let ranges: Vec<&Range> = sets.iter().flat_map(RangeSet::ranges).collect();
    for (index, one) in ranges.iter().enumerate() {
        for other in &ranges[index + 1..] {
            let shared = |span: &Span| other.spans().iter().any(|it| it.overlaps(*span));
            if one.family() == other.family() && one.spans().iter().any(shared) {
                return Err(PoolError::Overlap(one.subnet(), other.subnet()));
            }
        }
    }
    Ok(())
}
