//! A network's address ranges: from the simple or the long form to the sets that addresses are taken from, with every
//! contradiction told at its line.

use super::fragment::{List, NetworkInput, RangeFragment, Table};
use super::input::Located;
use super::prefix;
use super::problem::{Origin, Problem};
use super::value::{Address, Exclude, Subnet};
use crate::ipam::{Range, RangeSet};
use ipnet::IpNet;
use std::net::IpAddr;
use toml::Spanned;

/// Ranges of one network.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    all: Vec<Placed>,
}

/// One range and its place.
#[derive(Debug)]
struct Placed {
    range: Range,
    set: SetKey,
    key: &'static str,
    origin: Origin,
}

/// Which set a range belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SetKey {
    /// Not said, so one for each family.
    OfIpv4,
    /// The same.
    OfIpv6,
    /// What `set =` says.
    Numbered(u32),
}

impl SetKey {
    fn of_family(net: IpNet) -> Self {
        match net {
            IpNet::V4(_) => Self::OfIpv4,
            IpNet::V6(_) => Self::OfIpv6,
        }
    }
}

impl Ranges {
    /// The ranges that are right; the others are problems.
    pub(super) fn build(input: &NetworkInput, problems: &mut Vec<Problem>) -> Self {
        let (subnets, long) = (&input.subnets, &input.range);
        let message = match (subnets.get().is_empty(), long.get().is_empty()) {
            (false, false) => Some(format!(
                "set together with [[network.range]] ({}): use one of them, or empty this one with []",
                long.origin()
            )),
            (true, true) => Some(
                "no address for any pod: set subnets = [\"10.128.0.0/23\"], or a [[network.range]]".into(),
            ),
            _ => None,
        };
        problems.extend(message.map(|message| subnets.problem("network.subnets", message)));
        let mut all = Vec::new();
        all.extend(subnets.get().iter().filter_map(|subnet| simple(subnets, subnet, problems)));
        for entry in long.get() {
            match Entry::new(long, entry).build() {
                Ok(placed) => all.push(placed),
                Err(found) => problems.extend(found),
            }
        }
        for (index, later) in all.iter().enumerate() {
            let against = all[..index].iter().find_map(|earlier| contradiction(earlier, later));
            problems.extend(against.map(|message| later.problem(message)));
        }
        Self { all }
    }

    /// The sets, in the order in which they are first named. A set that mixes families has been told of.
    pub(super) fn sets(&self) -> Vec<RangeSet> {
        let mut sets: Vec<(SetKey, Vec<Range>)> = Vec::new();
        for placed in &self.all {
            match sets.iter_mut().find(|(key, _)| *key == placed.set) {
                Some((_, ranges)) => ranges.push(placed.range.clone()),
                None => sets.push((placed.set, vec![placed.range.clone()])),
            }
        }
        sets.into_iter().filter_map(|(_, ranges)| RangeSet::new(ranges).ok()).collect()
    }

    pub(super) fn subnets(&self) -> Vec<IpNet> {
        self.all.iter().map(|placed| placed.range.subnet()).collect()
    }

    /// Where a subnet of these overlaps one of another network.
    pub(super) fn shared_with(&self, other: &Self, other_network: &str) -> Vec<Problem> {
        let clash = |own: &Placed| {
            let overlaps = |it: &&Placed| prefix::overlap(&it.range.subnet(), &own.range.subnet());
            let it = other.all.iter().find(overlaps)?;
            Some(own.problem(format!(
                "overlaps {} of network {other_network} ({})",
                it.range.subnet(),
                it.origin
            )))
        };
        self.all.iter().filter_map(clash).collect()
    }
}

impl Placed {
    /// What is wrong with this range beside another.
    fn problem(&self, message: String) -> Problem {
        let value = Some(format!("\"{}\"", self.range.subnet()));
        Problem { key: self.key.into(), value, ..Problem::at(self.origin.clone(), message) }
    }
}

fn simple(
    list: &Located<List<Subnet>>,
    subnet: &Spanned<Subnet>,
    problems: &mut Vec<Problem>,
) -> Option<Placed> {
    const KEY: &str = "network.subnets";
    let Subnet(net) = *subnet.get_ref();
    let made = Range::new(net, None, None, None, &[])
        .map_err(|error| problems.push(list.problem_in(subnet, KEY, error.to_string())));
    Some(Placed { range: made.ok()?, set: SetKey::of_family(net), key: KEY, origin: list.origin_in(subnet) })
}

/// A `[[network.range]]`.
struct Entry<'a> {
    list: &'a Located<List<Table<RangeFragment>>>,
    origin: Origin,
    fragment: &'a RangeFragment,
}

impl<'a> Entry<'a> {
    fn new(list: &'a Located<List<Table<RangeFragment>>>, entry: &'a Spanned<Table<RangeFragment>>) -> Self {
        Self { list, origin: list.origin_in(entry), fragment: &entry.get_ref().0 }
    }

    fn build(&self) -> Result<Placed, Vec<Problem>> {
        const KEY: &str = "network.range.subnet";
        let Some(subnet) = &self.fragment.subnet else {
            let missing = "not set: every range needs its subnet, such as subnet = \"10.128.0.0/23\"";
            return Err(vec![Problem { key: KEY.into(), ..Problem::at(self.origin.clone(), missing) }]);
        };
        let Subnet(net) = *subnet.get_ref();
        let outside = self.outside(net);
        if !outside.is_empty() {
            return Err(outside);
        }
        let address = |part: &Option<Spanned<Address>>| part.as_ref().map(|part| part.get_ref().0);
        let (start, end) = (address(&self.fragment.range_start), address(&self.fragment.range_end));
        let excludes: Vec<IpNet> = self.fragment.exclude.iter().map(|it| it.get_ref().0).collect();
        match Range::new(net, start, end, address(&self.fragment.gateway), &excludes) {
            Ok(range) => Ok(Placed {
                range,
                set: self
                    .fragment
                    .set
                    .as_ref()
                    .map_or(SetKey::of_family(net), |it| SetKey::Numbered(it.get_ref().0)),
                key: KEY,
                origin: self.list.origin_in(subnet),
            }),
            Err(error) => Err(vec![self.list.problem_in(subnet, KEY, error.to_string())]),
        }
    }

    /// The addresses that are not where they must be in `net`.
    fn outside(&self, net: IpNet) -> Vec<Problem> {
        let mut found = Vec::new();
        let addresses = [
            ("network.range.range_start", &self.fragment.range_start),
            ("network.range.range_end", &self.fragment.range_end),
            ("network.range.gateway", &self.fragment.gateway),
        ];
        for (key, part) in addresses.into_iter().filter_map(|(key, part)| Some((key, part.as_ref()?))) {
            let Address(address) = *part.get_ref();
            if !net.contains(&address) {
                found.push(self.list.problem_in(part, key, format!("not in the range's subnet {net}")));
            } else if key.ends_with("gateway") && !is_host(net, address) {
                let message = format!("no host can have this address of {net}: it stands for the subnet");
                found.push(self.list.problem_in(part, key, message));
            }
        }
        for exclude in &self.fragment.exclude {
            let Exclude(excluded) = *exclude.get_ref();
            if !net.contains(&excluded) {
                let message = format!("not in the range's subnet {net}");
                found.push(self.list.problem_in(exclude, "network.range.exclude", message));
            }
        }
        found
    }
}

/// Can a host of `net` have this address of it? Not those of the subnet itself, except in the smallest (RFC 3021,
/// RFC 6164).
fn is_host(net: IpNet, address: IpAddr) -> bool {
    if net.prefix_len() + 1 >= net.max_prefix_len() {
        return true;
    }
    address != net.network() && (net.addr().is_ipv6() || address != net.broadcast())
}

/// Why two ranges of one network cannot stand side by side.
fn contradiction(a: &Placed, b: &Placed) -> Option<String> {
    let (x, y) = (&a.range, &b.range);
    if a.set == b.set && x.subnet().addr().is_ipv4() != y.subnet().addr().is_ipv4() {
        return Some(format!(
            "in one set with {} ({}), which is of the other family: a set gives a pod one address",
            x.subnet(),
            a.origin
        ));
    }
    if x.subnet() != y.subnet() {
        let overlap = prefix::overlap(&x.subnet(), &y.subnet());
        return overlap.then(|| format!("overlaps the subnet {} ({})", x.subnet(), a.origin));
    }
    if x.start() <= y.end() && y.start() <= x.end() {
        return Some(format!(
            "has addresses of the range {} to {} ({}) too: an address can be in one range only",
            x.start(),
            x.end(),
            a.origin
        ));
    }
    match (x.gateway(), y.gateway()) {
        (Some(earlier), Some(later)) if earlier != later => Some(format!(
            "its gateway {later} is not the one that the same subnet has before ({}): {earlier}",
            a.origin
        )),
        _ => None,
    }
}
