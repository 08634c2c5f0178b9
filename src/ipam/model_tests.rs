//! Pools against a model that is slow and obvious.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::cni::{AttachmentKey, IpRange};

const OWNERS: usize = 12;

fn key(number: usize) -> AttachmentKey {
    AttachmentKey {
        network: "net".parse().unwrap(),
        container_id: format!("c{number}").parse().unwrap(),
        ifname: "eth0".parse().unwrap(),
    }
}

/// What a range is made of.
#[derive(Debug, Clone)]
struct Recipe {
    subnet: IpNet,
    start: Option<IpAddr>,
    end: Option<IpAddr>,
    gateway: Option<IpAddr>,
    excludes: Vec<IpNet>,
}

impl Recipe {
    fn make(&self) -> Result<Range, RangeError> {
        Range::new(self.subnet, self.start, self.end, self.gateway, &self.excludes)
    }

    /// Every address of the subnet.
    fn addresses(&self) -> Vec<IpAddr> {
        match self.subnet {
            IpNet::V4(subnet) => {
                let (first, last) = (subnet.network().to_bits(), subnet.broadcast().to_bits());
                (first..=last).map(|bits| IpAddr::V4(bits.into())).collect()
            }
            IpNet::V6(subnet) => {
                let (first, last) = (subnet.network().to_bits(), subnet.broadcast().to_bits());
                (first..=last).map(|bits| IpAddr::V6(bits.into())).collect()
            }
        }
    }

    /// The addresses that pods may get, found one by one.
    fn usable(&self) -> Vec<IpAddr> {
        let all = self.addresses();
        let (first, last) = (all[0], all[all.len() - 1]);
        let assignable = |address: &IpAddr| {
            all.len() <= 2 || (*address != first && (address.is_ipv6() || *address != last))
        };
        let gateway = self.gateway.or_else(|| {
            let mut candidates = all.iter().copied().filter(assignable);
            if all.len() == 1 { None } else { candidates.next() }
        });
        all.iter()
            .copied()
            .filter(assignable)
            .filter(|address| Some(*address) != gateway)
            .filter(|address| self.start.is_none_or(|start| start <= *address))
            .filter(|address| self.end.is_none_or(|end| *address <= end))
            .filter(|address| !self.excludes.iter().any(|exclude| exclude.contains(address)))
            .collect()
    }
}

/// A range of at most 64 addresses in its own corner of the family's space.
fn recipe(corner: u8, v6: bool) -> impl Strategy<Value = Recipe> {
    let optional = || proptest::option::of(any::<Index>());
    let excludes = proptest::collection::vec((any::<Index>(), 0_u8..=6), 0..4);
    (0_u8..=6, optional(), optional(), optional(), excludes).prop_map(
        move |(bits, start, end, gateway, excludes)| {
            let subnet: IpNet = if v6 {
                format!("fd00::{corner}:0/{}", 128 - bits)
            } else {
                format!("10.{corner}.0.0/{}", 32 - bits)
            }
            .parse()
            .unwrap();
            let bare = Recipe { subnet, start: None, end: None, gateway: None, excludes: Vec::new() };
            let all = bare.addresses();
            let pick = |index: Index| all[index.index(all.len())];
            let exclude = |(index, bits): (Index, u8)| {
                let length =
                    subnet.max_prefix_len() - bits.min(subnet.max_prefix_len() - subnet.prefix_len());
                IpNet::new(pick(index), length).unwrap().trunc()
            };
            Recipe {
                start: start.map(pick),
                end: end.map(pick),
                gateway: gateway.map(pick),
                excludes: excludes.into_iter().map(exclude).collect(),
                ..bare
            }
        },
    )
}

/// One or two sets of one or two ranges each.
fn recipes() -> impl Strategy<Value = Vec<Vec<Recipe>>> {
    let usable = |recipes: Vec<Recipe>| {
        let usable: Vec<Recipe> = recipes.into_iter().filter(|recipe| recipe.make().is_ok()).collect();
        (!usable.is_empty()).then_some(usable)
    };
    let set = move |v6| (recipe(1, v6), recipe(2, v6)).prop_map(|(one, other)| vec![one, other]);
    let v4 = set(false).prop_filter_map("a usable range", usable);
    let v6 = proptest::option::of(set(true).prop_filter_map("a usable range", usable));
    (v4, v6).prop_map(|(v4, v6)| std::iter::once(v4).chain(v6).collect())
}

#[derive(Debug, Clone)]
enum Call {
    Allocate { owner: usize, requested: Vec<Index> },
    AllocateFrom { owner: usize, range: Index, start: Index, end: Index },
    Release { owner: usize },
    Restore { owner: usize, addresses: Vec<Index> },
    RestAfter { last: Index },
}

fn call() -> impl Strategy<Value = Call> {
    let owner = 0..OWNERS;
    let some = |most| proptest::collection::vec(any::<Index>(), 0..=most);
    prop_oneof![
        6 => owner.clone().prop_map(|owner| Call::Allocate { owner, requested: Vec::new() }),
        2 => (owner.clone(), some(3)).prop_map(|(owner, requested)| Call::Allocate { owner, requested }),
        2 => (owner.clone(), any::<[Index; 3]>())
            .prop_map(|(owner, [range, start, end])| Call::AllocateFrom { owner, range, start, end }),
        6 => owner.clone().prop_map(|owner| Call::Release { owner }),
        1 => (owner, some(3)).prop_map(|(owner, addresses)| Call::Restore { owner, addresses }),
        1 => any::<Index>().prop_map(|last| Call::RestAfter { last }),
    ]
}

/// A pool as one would write it with no thought of speed.
struct Model {
    /// The usable addresses of each set in the order of the lap, which begins anew at each `rest_after`.
    sets: Vec<Vec<IpAddr>>,
    owners: BTreeMap<IpAddr, usize>,
    /// Released addresses, least recently released first.
    resting: Vec<IpAddr>,
}

impl Model {
    fn held(&self, owner: usize) -> BTreeSet<IpAddr> {
        self.owners.iter().filter(|(_, it)| **it == owner).map(|(address, _)| *address).collect()
    }

    fn is_free(&self, address: IpAddr) -> bool {
        !self.owners.contains_key(&address)
    }

    /// The free address of the set that has rested longest: one never given, else the first released.
    fn next(&self, set: usize) -> Option<IpAddr> {
        let set = &self.sets[set];
        let fresh = set.iter().copied().find(|it| self.is_free(*it) && !self.resting.contains(it));
        fresh.or_else(|| self.resting.iter().copied().find(|it| set.contains(it)))
    }

    fn allocate(&mut self, owner: usize, requested: &[IpAddr]) -> Option<Vec<IpAddr>> {
        if !self.held(owner).is_empty() {
            return None;
        }
        let requested: BTreeSet<IpAddr> = requested.iter().copied().collect();
        let usable = |address: &IpAddr| self.sets.iter().any(|set| set.contains(address));
        if !requested.iter().all(|address| usable(address) && self.is_free(*address)) {
            return None;
        }
        let mut given = Vec::new();
        for (number, set) in self.sets.iter().enumerate() {
            let mine: Vec<IpAddr> = requested.iter().copied().filter(|it| set.contains(it)).collect();
            match mine[..] {
                [] => given.push(self.next(number)?),
                [address] => given.push(address),
                _ => return None,
            }
        }
        for address in &given {
            self.hold(*address, owner);
        }
        Some(given)
    }

    /// The addresses of which one may be given to who asks for a range: all that never rested, else the one that
    /// rests longest; none where none is usable and free.
    fn best_within(&self, range: std::ops::RangeInclusive<IpAddr>) -> Vec<IpAddr> {
        let usable = self.sets.iter().flatten().copied();
        let free: Vec<IpAddr> = usable.filter(|it| range.contains(it) && self.is_free(*it)).collect();
        let fresh: Vec<IpAddr> = free.iter().copied().filter(|it| !self.resting.contains(it)).collect();
        let rested = || self.resting.iter().copied().find(|it| free.contains(it)).into_iter().collect();
        if fresh.is_empty() { rested() } else { fresh }
    }

    fn hold(&mut self, address: IpAddr, owner: usize) {
        self.resting.retain(|it| *it != address);
        self.owners.insert(address, owner);
    }

    fn release(&mut self, owner: usize, in_order: &[IpAddr]) {
        for address in in_order {
            assert_eq!(self.owners.remove(address), Some(owner));
            if self.sets.iter().any(|set| set.contains(address)) {
                self.resting.push(*address);
            }
        }
    }

    fn rest_after(&mut self, last: IpAddr, order: &[Vec<IpAddr>]) {
        for (set, order) in self.sets.iter_mut().zip(order) {
            if let Some(at) = order.iter().position(|it| *it == last) {
                *set = order[at + 1..].iter().chain(&order[..=at]).copied().collect();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_range_has_exactly_the_addresses_that_the_rules_leave(recipe in recipe(1, false), other in recipe(1, true)) {
        for recipe in [recipe, other] {
            let expected = recipe.usable();
            match recipe.make() {
                Ok(range) => {
                    let found: Vec<IpAddr> =
                        recipe.addresses().into_iter().filter(|address| range.contains(*address)).collect();
                    prop_assert_eq!(&found, &expected);
                    prop_assert_eq!(range.usable(), expected.len() as u128);
                    prop_assert!(range.gateway().is_none_or(|gateway| range.subnet().contains(&gateway)));
                }
                Err(RangeError::Backwards { start, end }) => prop_assert!(start > end),
                Err(error) => prop_assert!(expected.is_empty(), "{}", error),
            }
        }
    }

    #[test]
    fn whatever_is_called_a_pool_does_what_the_model_does(
        recipes in recipes(),
        calls in proptest::collection::vec(call(), 1..200),
    ) {
        let sets = recipes.iter().map(|set| RangeSet::new(set.iter().map(|it| it.make().unwrap()).collect()).unwrap());
        let mut pool = Pool::new(sets.collect()).unwrap();
        let order: Vec<Vec<IpAddr>> = recipes.iter().map(|set| set.iter().flat_map(Recipe::usable).collect()).collect();
        let mut model = Model { sets: order.clone(), owners: BTreeMap::new(), resting: Vec::new() };
        // Also what is reserved, excluded, and of no subnet at all.
        let mut universe: Vec<IpAddr> = recipes.iter().flatten().flat_map(Recipe::addresses).collect();
        universe.extend(["192.0.2.1".parse::<IpAddr>().unwrap(), "2001:db8::1".parse().unwrap()]);
        let pick = |index: &Index| universe[index.index(universe.len())];

        for call in calls {
            match call {
                Call::Allocate { owner, requested } => {
                    let requested: Vec<IpAddr> = requested.iter().map(pick).collect();
                    let given = pool.allocate(&key(owner), &requested).ok();
                    let given = given.map(|leases| leases.iter().map(|lease| lease.address).collect::<Vec<_>>());
                    prop_assert_eq!(given, model.allocate(owner, &requested));
                }
                Call::AllocateFrom { owner, range, start, end } => {
                    let recipes: Vec<&Recipe> = recipes.iter().flatten().collect();
                    let recipe = recipes[range.index(recipes.len())];
                    let all = recipe.addresses();
                    let (start, end) = (all[start.index(all.len())], all[end.index(all.len())]);
                    let (start, end) = (start.min(end), start.max(end));
                    let asked = IpRange {
                        subnet: recipe.subnet, range_start: Some(start), range_end: Some(end), gateway: None,
                    };
                    let usable = order.iter().flatten().any(|it| (start..=end).contains(it));
                    let selection = pool.select(&[vec![asked]]);
                    prop_assert_eq!(selection.is_ok(), usable);
                    let Ok(selection) = selection else { continue };
                    let best = if model.held(owner).is_empty() { model.best_within(start..=end) } else { Vec::new() };
                    match pool.allocate_from(&key(owner), &[], &selection) {
                        Ok(leases) => {
                            prop_assert_eq!(leases.len(), 1);
                            prop_assert!(best.contains(&leases[0].address), "{:?} of {:?}", leases, best);
                            prop_assert!(selection.is_met_by(&[leases[0].address]));
                            model.hold(leases[0].address, owner);
                        }
                        Err(_) => prop_assert!(best.is_empty(), "{:?} was free", best),
                    }
                }
                Call::Release { owner } => {
                    let freed = pool.release(&key(owner));
                    prop_assert_eq!(freed.iter().copied().collect::<BTreeSet<_>>(), model.held(owner));
                    model.release(owner, &freed);
                }
                Call::Restore { owner, addresses } => {
                    let addresses: Vec<IpAddr> = addresses.iter().map(pick).collect();
                    let done = pool.restore(&key(owner), &addresses);
                    let taken = addresses.iter().any(|it| model.owners.get(it).is_some_and(|other| *other != owner));
                    prop_assert_eq!(done.is_err(), taken);
                    for address in addresses {
                        if model.is_free(address) {
                            model.hold(address, owner);
                        }
                    }
                }
                Call::RestAfter { last } => {
                    let usable: Vec<IpAddr> = order.iter().flatten().copied().collect();
                    let last = usable[last.index(usable.len())];
                    pool.rest_after(&[last]);
                    model.rest_after(last, &order);
                }
            }
            // One owner per address, and each side of the books says the same.
            for address in &universe {
                let owner = model.owners.get(address).map(|owner| key(*owner));
                prop_assert_eq!(pool.owner(*address), owner.as_ref());
            }
            for owner in 0..OWNERS {
                let leases = pool.leases_of(&key(owner));
                prop_assert_eq!(leases.len(), model.held(owner).len());
                for lease in leases.iter().filter(|lease| lease.set != Lease::FOREIGN) {
                    prop_assert!(order[lease.set].contains(&lease.address));
                }
            }
            let used: u128 = pool.usage().iter().map(|range| range.used).sum();
            let expected = order.iter().flatten().filter(|address| !model.is_free(**address)).count();
            prop_assert_eq!(used, expected as u128);
            let full = order.iter().position(|set| set.iter().all(|address| !model.is_free(*address)));
            prop_assert_eq!(pool.exhausted(), full);
            prop_assert!(pool.usage().iter().all(|range| range.used + range.free == range.capacity));
        }
    }
}
