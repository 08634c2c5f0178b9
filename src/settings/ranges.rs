//! A network's address ranges: from the simple or the long form to the sets that addresses are taken from, with every
//! contradiction told at its line.

use super::fragment::{List, NetworkInput, RangeFragment, Table};
use super::input::Located;
use super::prefix;
use super::problem::{Origin, Problem};
use super::value::Subnet;
use crate::ipam::{Range, RangeSet};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use toml::Spanned;

/// Ranges of one network.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    pub(super) all: Vec<Placed>,
}

/// One range and its place.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) subnet: IpNet,
    pub(super) gateway: IpAddr,
    pub(super) origin: Origin,
    first: IpAddr,
    last: IpAddr,
    set: SetKey,
    range: Range,
}

/// Which set a range belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SetKey {
    /// Not said: one for each family.
    Family {
        v6: bool,
    },
    Numbered(u32),
}

impl Ranges {
    /// The ranges that are right; the others are problems.
    pub(super) fn build(input: &NetworkInput, problems: &mut Vec<Problem>) -> Self {
        let (subnets, long) = (&input.subnets, &input.range);
        let mut ranges = Self::default();
        if !subnets.get().is_empty() && !long.get().is_empty() {
            problems.push(subnets.problem(
                "network.subnets",
                format!(
                    "set together with [[network.range]] ({}): use one, or empty the other with []",
                    long.origin()
                ),
            ));
        }
        if subnets.get().is_empty() && long.get().is_empty() {
            problems.push(subnets.problem(
                "network.subnets",
                "no address for any pod: set subnets = [\"10.128.0.0/23\"] or a [[network.range]]",
            ));
        }
        for subnet in subnets.get() {
            ranges.add_simple(subnets, subnet, problems);
        }
        for (number, entry) in long.get().iter().enumerate() {
            ranges.add_long(long, number, entry, problems);
        }
        ranges.check(problems);
        ranges
    }

    fn add_simple(
        &mut self,
        list: &Located<List<Subnet>>,
        subnet: &Spanned<Subnet>,
        problems: &mut Vec<Problem>,
    ) {
        let Subnet(net) = *subnet.get_ref();
        match Range::new(net, None, None, None, Vec::new()) {
            Ok(range) => self.all.push(Placed {
                subnet: net,
                gateway: first_host(&net),
                origin: list.origin_in(subnet),
                first: net.network(),
                last: net.broadcast(),
                set: SetKey::Family { v6: net.addr().is_ipv6() },
                range,
            }),
            Err(error) => problems.push(list.problem_in(subnet, "network.subnets", error.to_string())),
        }
    }

    fn add_long(
        &mut self,
        list: &Located<List<Table<RangeFragment>>>,
        number: usize,
        entry: &Spanned<Table<RangeFragment>>,
        problems: &mut Vec<Problem>,
    ) {
        let Table(fragment) = entry.get_ref();
        let Some(subnet) = &fragment.subnet else {
            let missing = "not set: every range needs its subnet, such as subnet = \"10.128.0.0/23\"";
            problems.push(Problem {
                key: "network.range.subnet".into(),
                ..Problem::at(list.origin_in(entry), missing)
            });
            return;
        };
        let Subnet(net) = *subnet.get_ref();
        let before = problems.len();
        let mut inside = |option: &str, value: Option<(IpAddr, Problem)>| {
            if let Some((address, problem)) = value {
                if !net.contains(&address) {
                    let message = format!("not in the range's subnet {net}");
                    problems.push(Problem { key: format!("network.range.{option}"), message, ..problem });
                }
            }
        };
        let told = |part: &Option<Spanned<super::value::Address>>| {
            part.as_ref().map(|part| (part.get_ref().0, list.problem_in(part, "", "")))
        };
        inside("range_start", told(&fragment.range_start));
        inside("range_end", told(&fragment.range_end));
        inside("gateway", told(&fragment.gateway));
        for exclude in &fragment.exclude {
            inside("exclude", Some((exclude.get_ref().0.network(), list.problem_in(exclude, "", ""))));
        }
        if problems.len() > before {
            return;
        }
        let address =
            |part: &Option<Spanned<super::value::Address>>| part.as_ref().map(|part| part.get_ref().0);
        let (start, end, gateway) =
            (address(&fragment.range_start), address(&fragment.range_end), address(&fragment.gateway));
        let excludes = fragment.exclude.iter().map(|exclude| exclude.get_ref().0).collect();
        match Range::new(net, start, end, gateway, excludes) {
            Ok(range) => self.all.push(Placed {
                subnet: net,
                gateway: gateway.unwrap_or_else(|| first_host(&net)),
                origin: list.origin_in(subnet),
                first: start.unwrap_or(net.network()),
                last: end.unwrap_or(net.broadcast()),
                set: match &fragment.set {
                    Some(set) => SetKey::Numbered(set.get_ref().0),
                    None => SetKey::Family { v6: net.addr().is_ipv6() },
                },
                range,
            }),
            Err(error) => problems.push(range_problem(list, number, subnet, &error)),
        }
    }

    /// What concerns two ranges of the network.
    fn check(&self, problems: &mut Vec<Problem>) {
        for (index, range) in self.all.iter().enumerate() {
            for earlier in &self.all[..index] {
                if let Some(message) = contradiction(earlier, range) {
                    let value = Some(format!("\"{}\"", range.subnet));
                    let key = "network.range".to_owned();
                    problems.push(Problem { key, value, ..Problem::at(range.origin.clone(), message) });
                }
            }
        }
    }

    /// The sets, in the order in which they are first named.
    pub(super) fn sets(&self) -> Vec<RangeSet> {
        let mut sets: Vec<(SetKey, Vec<Range>)> = Vec::new();
        for placed in &self.all {
            match sets.iter_mut().find(|(key, _)| *key == placed.set) {
                Some((_, ranges)) => ranges.push(placed.range.clone()),
                None => sets.push((placed.set, vec![placed.range.clone()])),
            }
        }
        sets.into_iter().map(|(_, ranges)| RangeSet(ranges)).collect()
    }

    /// The subnets, each once.
    pub(super) fn subnets(&self) -> Vec<IpNet> {
        let mut subnets: Vec<IpNet> = Vec::new();
        for placed in &self.all {
            if !subnets.contains(&placed.subnet) {
                subnets.push(placed.subnet);
            }
        }
        subnets
    }

    /// The gateway of each subnet with the subnet's prefix length, each once.
    pub(super) fn gateways(&self) -> Vec<IpNet> {
        let mut gateways: Vec<IpNet> = Vec::new();
        for placed in &self.all {
            // A prefix length that a subnet has is one that its addresses can have.
            if let Ok(gateway) = IpNet::new(placed.gateway, placed.subnet.prefix_len()) {
                if !gateways.contains(&gateway) {
                    gateways.push(gateway);
                }
            }
        }
        gateways
    }
}

fn range_problem(
    list: &Located<List<Table<RangeFragment>>>,
    number: usize,
    subnet: &Spanned<Subnet>,
    error: &impl std::fmt::Display,
) -> Problem {
    list.problem_in(subnet, "network.range.subnet", format!("range {}: {error}", number + 1))
}

/// Why two ranges of one network cannot stand side by side.
fn contradiction(a: &Placed, b: &Placed) -> Option<String> {
    if a.set == b.set && a.subnet.addr().is_ipv4() != b.subnet.addr().is_ipv4() {
        return Some(format!(
            "in one set with {} ({}), which is of the other family: a set gives one address",
            a.subnet, a.origin
        ));
    }
    if a.subnet != b.subnet {
        let overlap = prefix::overlap(&a.subnet, &b.subnet);
        return overlap.then(|| format!("overlaps the subnet {} ({})", a.subnet, a.origin));
    }
    if a.first <= b.last && b.first <= a.last {
        return Some(format!(
            "has addresses of the range {} to {} ({}) as well: an address can be in one range only",
            a.first, a.last, a.origin
        ));
    }
    if a.gateway != b.gateway {
        return Some(format!(
            "its gateway {} is not that of the same subnet before ({}: {})",
            b.gateway, a.origin, a.gateway
        ));
    }
    None
}

/// The first address after the subnet's own, which is the gateway's by default.
fn first_host(net: &IpNet) -> IpAddr {
    match net.network() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits().saturating_add(1)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits().saturating_add(1)).into(),
    }
}
