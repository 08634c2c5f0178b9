//! The destinations that a network's pods cannot reach, as chains of the `inet` table.
//!
//! Every packet that a pod begins a connection with, or goes on with, is judged twice: by where the pod sends it (after
//! connection tracking and before any DNAT, else a host port or a service would hide it), and by where a DNAT of anybody's
//! sends it instead (else a service would lead there). Both are in prerouting: what is for the node itself comes by as
//! well as what goes on to other hosts. Answers of pods pass, so the node's own probes do too.
//!
//! Rules are per network and list entry, never per pod.

use ipnet::IpNet;

use super::elements::Protocol;
use super::ruleset::{NetworkRules, by_family, line, quoted};

/// A destination that pods cannot reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Where it is.
    pub to: BlockTarget,
    /// What of it.
    pub ports: BlockPorts,
}

/// Where something is that pods cannot reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockTarget {
    /// Any address of the node itself.
    Node,
    /// All with a prefix.
    Net(IpNet),
}

/// Which ports of it are blocked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockPorts {
    /// All of every protocol, also of those that have none.
    All,
    /// These and nothing else.
    Only(Vec<PortRange>),
    /// Everything but these.
    AllBut(Vec<PortRange>),
}

/// Ports of one protocol, the last not below the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// The protocol.
    pub protocol: Protocol,
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

/// Without neighbour discovery there is no IPv6 to block anything of; anti-spoofing has its own eye on it.
const NEIGHBOURS: &str = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } return";

/// At once an error for who asks, where a drop would let him wait.
const REFUSE: &str = "counter reject with icmpx admin-prohibited";

/// The chains of all networks that have a list; nothing when none has.
pub(super) fn render(networks: &[NetworkRules], text: &mut String) {
    let mut entries = Vec::new();
    for (index, network) in networks.iter().enumerate().filter(|(_, network)| !network.block.is_empty()) {
        entries.push(format!("{} : goto block_{index}", quoted(&network.bridge)));
        line(text, 1, &format!("chain block_{index} {{"));
        line(text, 2, NEIGHBOURS);
        for rule in rules(&network.block) {
            line(text, 2, &format!("{rule} {REFUSE}"));
        }
        line(text, 1, "}");
    }
    if entries.is_empty() {
        return;
    }
    let own = format!("iifname vmap {{ {} }}", entries.join(", "));
    base(text, "block_written", "mangle", &own);
    base(text, "block_translated", "dstnat + 1", &format!("ct status dnat {own}"));
}

fn base(text: &mut String, name: &str, priority: &str, rule: &str) {
    line(text, 1, &format!("chain {name} {{"));
    line(text, 2, &format!("type filter hook prerouting priority {priority}; policy accept;"));
    line(text, 2, "ct direction reply return");
    line(text, 2, rule);
    line(text, 1, "}");
}

/// What is matched: destinations with the same ports in one rule for each family.
fn rules(list: &[Block]) -> Vec<String> {
    let mut groups: Vec<(&BlockPorts, Vec<BlockTarget>)> = Vec::new();
    for block in list {
        match groups.iter_mut().find(|(ports, _)| **ports == block.ports) {
            Some((_, targets)) => targets.push(block.to),
            None => groups.push((&block.ports, vec![block.to])),
        }
    }
    let mut rules = Vec::new();
    for (ports, targets) in groups {
        let ports = matched(ports);
        let nets: Vec<IpNet> = targets
            .iter()
            .filter_map(|target| if let BlockTarget::Net(net) = target { Some(*net) } else { None })
            .collect();
        rules
            .extend(by_family(&nets).into_iter().map(|(family, set)| format!("{family} daddr {set}{ports}")));
        if targets.contains(&BlockTarget::Node) {
            // Its sockets hear a broadcast, a group that every host is in, and the subnet's own IPv6 address, too.
            rules.push(format!("fib daddr type {{ local, broadcast, anycast, multicast }}{ports}"));
        }
    }
    rules
}

/// The match of the ports. Fragments have been put together by now (`NF_IP_PRI_CONNTRACK_DEFRAG`), so each has them.
fn matched(ports: &BlockPorts) -> String {
    let (not, ranges) = match ports {
        BlockPorts::All => return String::new(),
        BlockPorts::Only(ranges) => ("", ranges),
        BlockPorts::AllBut(ranges) => ("!= ", ranges),
    };
    let text = |PortRange { protocol, first, last }: &PortRange| {
        if first == last { format!("{protocol} . {first}") } else { format!("{protocol} . {first}-{last}") }
    };
    let set = merged(ranges).iter().map(text).collect::<Vec<_>>().join(", ");
    format!(" meta l4proto . th dport {not}{{ {set} }}")
}

/// Without overlaps, which nft refuses.
fn merged(ranges: &[PortRange]) -> Vec<PortRange> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| (range.protocol, range.first));
    let mut merged: Vec<PortRange> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut() {
            Some(before) if before.protocol == range.protocol && range.first <= before.last => {
                before.last = before.last.max(range.last);
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(text: &str) -> Vec<PortRange> {
        let one = |text: &str| {
            let (first, last) = text.split_once('-').unwrap();
            PortRange { protocol: Protocol::Tcp, first: first.parse().unwrap(), last: last.parse().unwrap() }
        };
        text.split(' ').map(one).collect()
    }

    fn net(text: &str, ports: BlockPorts) -> Block {
        Block { to: BlockTarget::Net(text.parse().unwrap()), ports }
    }

    #[test]
    fn ranges_that_overlap_become_one() {
        assert_eq!(
            matched(&BlockPorts::Only(ports("9-9 1-5 3-4 5-7"))),
            " meta l4proto . th dport { tcp . 1-7, tcp . 9 }"
        );
        let udp = PortRange { protocol: Protocol::Udp, first: 2, last: 2 };
        let both = [ports("1-3"), vec![udp]].concat();
        assert_eq!(matched(&BlockPorts::AllBut(both)), " meta l4proto . th dport != { tcp . 1-3, udp . 2 }");
    }

    #[test]
    fn destinations_with_the_same_ports_share_a_rule_of_each_family() {
        let list = [
            net("10.0.0.0/8", BlockPorts::All),
            net("192.0.2.1/32", BlockPorts::Only(ports("1-1"))),
            net("10.1.0.0/16", BlockPorts::All),
            net("fd00::/8", BlockPorts::All),
            Block { to: BlockTarget::Node, ports: BlockPorts::Only(ports("1-1")) },
        ];
        let only = " meta l4proto . th dport { tcp . 1 }";
        assert_eq!(
            rules(&list),
            [
                "ip daddr { 10.0.0.0/8 }".to_owned(),
                "ip6 daddr { fd00::/8 }".to_owned(),
                format!("ip daddr {{ 192.0.2.1/32 }}{only}"),
                format!("fib daddr type {{ local, broadcast, anycast, multicast }}{only}"),
            ]
        );
    }
}
