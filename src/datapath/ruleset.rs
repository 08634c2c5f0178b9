//! hostcni's whole firewall as one text for `nft -f -`: tables, chains, maps and the elements of all pods.
//!
//! Promises that the text replaces the tables in one transaction (add, so that the delete cannot fail;
//! delete; define), that rules are per network and never per pod, and that nothing outside the tables named
//! `hostcni` is touched. Pure: `nft` applies it, [`Ruleset::sysctls`] says what the rules need besides.
//!
//! How a host port reaches a pod, by where the client is:
//!
//! | client | hook | what it takes |
//! | --- | --- | --- |
//! | another host, another network's pod | prerouting | DNAT; the answer comes back through the bridge |
//! | a process on the node, by one of its addresses | output | DNAT |
//! | the same, by 127.0.0.1 | output | DNAT, `route_localnet` on the bridge, masquerade of the loopback source |
//! | the same, by ::1 | output | DNAT, masquerade, and what [`Ruleset::loopback6`] says |
//! | a pod of the same bridge, also the very pod | prerouting | DNAT and masquerade, else the answer would go to the client by itself, past the NAT; the mark carries that from one hook to the other |
//!
//! With br_netfilter on (`net.bridge.bridge-nf-call-iptables=1`, as Kubernetes nodes have it) the last case
//! stays inside the bridge: to reach the very pod, its port needs hairpin mode, and to reach another one
//! neither port may be isolated.

use std::fmt::Write;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

pub use super::antispoof::AntiSpoofing;
use super::block::{self, Block};
use super::elements::{Element, PodPort, PortMap, Set, TABLE};

/// The bit of the packet mark that tells postrouting to masquerade a connection to a host port. Only the
/// first packet of such a connection between pods of one bridge has it. The same as the reference
/// `portmap` plugin's, which means the same by it; not Kubernetes' (0x4000, 0x8000).
pub const DEFAULT_MARK: u32 = 0x2000;

/// A network as the rules see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkRules {
    /// The bridge's name.
    pub bridge: String,
    /// The subnets of the pods, of either family.
    pub subnets: Vec<IpNet>,
    /// Whether pods get the node's address when they speak to the world.
    pub masquerade: bool,
    /// Destinations they keep their own address to, beside the network's own subnets.
    pub no_masquerade: Vec<IpNet>,
    /// Whether other networks and other hosts are reached: asks for IP forwarding.
    pub forwarding: bool,
    /// Whether pods are held to their own addresses.
    pub anti_spoofing: bool,
    /// What they cannot reach.
    pub block: Vec<Block>,
}

/// Everything the rules are made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    /// The networks served.
    pub networks: Vec<NetworkRules>,
    /// The host ports of all live pods.
    pub port_maps: Vec<PortMap>,
    /// The links of all live pods.
    pub pods: Vec<PodPort>,
    /// Whether pods are held to their own addresses, where their network wants it.
    pub anti_spoofing: AntiSpoofing,
    /// One bit, see [`DEFAULT_MARK`].
    pub mark: u32,
}

impl Default for Ruleset {
    fn default() -> Self {
        Self {
            networks: Vec::new(),
            port_maps: Vec::new(),
            pods: Vec::new(),
            anti_spoofing: AntiSpoofing::Unsupported,
            mark: DEFAULT_MARK,
        }
    }
}

/// The route that lets answers to ::1 in from a bridge. See [`Ruleset::loopback6`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loopback6 {
    /// The route's link.
    pub bridge: String,
    /// The route's priority: behind the kernel's own `local ::1 dev lo` (0), which stays the one in use.
    pub priority: u32,
}

impl Ruleset {
    /// The text.
    pub fn render(&self) -> String {
        let mut text = String::with_capacity(4096 + 64 * self.port_maps.len() + 256 * self.pods.len());
        self.render_inet(&mut text);
        self.anti_spoofing.render(self, &mut text);
        text
    }

    /// The settings below `/proc/sys/net` that the rules need, with their values.
    ///
    /// `route_localnet` lets a packet with a loopback address leave by the bridge and its answer come in; the
    /// table drops what a pod sends to or from 127.0.0.0/8 by itself (CVE-2020-8558). With IPv6 forwarding on,
    /// the kernel takes router advertisements only on links with `accept_ra=2`: an uplink that lives by
    /// them has to have that first.
    pub fn sysctls(&self) -> Vec<(String, &'static str)> {
        let mut settings = Vec::new();
        let has = |ipv4: bool| {
            let of = move |net: &IpNet| net.addr().is_ipv4() == ipv4;
            self.networks.iter().any(|n| n.forwarding && n.subnets.iter().any(of))
        };
        if has(true) {
            settings.push(("ipv4/ip_forward".to_owned(), "1"));
        }
        if has(false) {
            settings.push(("ipv6/conf/all/forwarding".to_owned(), "1"));
        }
        for network in &self.networks {
            if network.subnets.iter().any(|net| net.addr().is_ipv4()) {
                settings.push((format!("ipv4/conf/{}/route_localnet", network.bridge), "1"));
            }
        }
        settings
    }

    /// The routes (table `local`, type `local`, destination ::1/128) by which host ports answer on ::1.
    ///
    /// IPv6 has no `route_localnet`. A connection from ::1 does leave by the bridge after DNAT and
    /// masquerade. Its answer's destination is made ::1 again in prerouting, and the route lookup that follows
    /// is strict about the link for loopback addresses (`rt6_need_strict`): it finds nothing, unless
    /// there is a local route for ::1 on that very bridge. Safe: `ip6_rcv_core` drops what arrives with
    /// a loopback address from outside before any hook. For the same reason it **cannot** work with
    /// `net.bridge.bridge-nf-call-ip6tables=1`: the bridge then runs prerouting first, and the answer comes
    /// to `ip6_rcv_core` with ::1 in it.
    pub fn loopback6(&self) -> Vec<Loopback6> {
        let ipv6 = |network: &&NetworkRules| network.subnets.iter().any(|net| net.addr().is_ipv6());
        let route = |network: &NetworkRules| Loopback6 { bridge: network.bridge.clone(), priority: 2048 };
        self.networks.iter().filter(ipv6).map(route).collect()
    }

    fn render_inet(&self, text: &mut String) {
        begin_table(text, "inet");
        let elements: Vec<Element> = self.port_maps.iter().filter_map(PortMap::element).collect();
        for set in Set::INET {
            render_set(text, set, &elements);
        }
        if !self.networks.is_empty() {
            self.render_loopback_guard(text);
        }
        block::render(&self.networks, text);
        self.render_port_maps(text);
        self.render_postrouting(text);
        text.push_str("}\n");
    }

    /// Before connection tracking, so that answers, whose address is still the bridge's, pass.
    fn render_loopback_guard(&self, text: &mut String) {
        let bridges = self.bridges();
        line(text, 1, "chain loopback_guard {");
        line(text, 2, "type filter hook prerouting priority raw; policy accept;");
        line(text, 2, &format!("iifname {bridges} ip daddr 127.0.0.0/8 drop"));
        line(text, 2, &format!("iifname {bridges} ip saddr 127.0.0.0/8 drop"));
        line(text, 1, "}");
    }

    fn render_port_maps(&self, text: &mut String) {
        line(text, 1, "chain portmap {");
        line(text, 2, "dnat ip to ip daddr . meta l4proto . th dport map @portmap4_addr");
        line(text, 2, "meta nfproto ipv4 dnat ip to meta l4proto . th dport map @portmap4");
        line(text, 2, "dnat ip6 to ip6 daddr . meta l4proto . th dport map @portmap6_addr");
        line(text, 2, "meta nfproto ipv6 dnat ip6 to meta l4proto . th dport map @portmap6");
        line(text, 1, "}");
        // A lookup that finds something ends the chain with the mark set; else it is taken back.
        line(text, 1, "chain portmap_from_pod {");
        line(text, 2, &format!("meta mark set meta mark or {:#x}", self.mark));
        line(text, 2, "jump portmap");
        line(text, 2, &format!("meta mark set meta mark and {:#x}", !self.mark));
        line(text, 2, "return");
        line(text, 1, "}");
        line(text, 1, "chain prerouting {");
        line(text, 2, "type nat hook prerouting priority dstnat; policy accept;");
        line(text, 2, "meta l4proto != { tcp, udp, sctp } return");
        line(text, 2, "fib daddr type != local return");
        for network in &self.networks {
            for (family, nets) in by_family(&network.subnets) {
                line(text, 2, &format!("{family} saddr {nets} goto portmap_from_pod"));
            }
        }
        line(text, 2, "goto portmap");
        line(text, 1, "}");
        // `dstnat` is no name here to nft 1.0.6.
        line(text, 1, "chain output {");
        line(text, 2, "type nat hook output priority -100; policy accept;");
        line(text, 2, "meta l4proto != { tcp, udp, sctp } return");
        line(text, 2, "fib daddr type local goto portmap");
        line(text, 1, "}");
    }

    /// `fully-random`: without it two connections that take the same port at the same time lose a packet
    /// (insert_failed), seen with DNS everywhere in Kubernetes, whose own rules have it too.
    fn render_postrouting(&self, text: &mut String) {
        for (index, network) in self.networks.iter().enumerate().filter(|(_, network)| network.masquerade) {
            line(text, 1, &format!("chain masquerade_{index} {{"));
            line(text, 2, &format!("oifname {} return", quoted(&network.bridge)));
            let kept: Vec<IpNet> = network.subnets.iter().chain(&network.no_masquerade).copied().collect();
            for (family, nets) in by_family(&kept) {
                line(text, 2, &format!("{family} daddr {nets} return"));
            }
            line(text, 2, "ip daddr { 224.0.0.0/4, 255.255.255.255 } return");
            line(text, 2, "ip6 daddr ff00::/8 return");
            line(text, 2, "fib daddr type { broadcast, multicast } return");
            line(text, 2, "masquerade fully-random");
            line(text, 1, "}");
        }
        line(text, 1, "chain masquerade_portmap {");
        line(text, 2, "ip saddr 127.0.0.0/8 masquerade fully-random");
        line(text, 2, "ip6 saddr ::1 masquerade fully-random");
        line(text, 2, &format!("meta mark and {0:#x} == {0:#x} masquerade fully-random", self.mark));
        line(text, 1, "}");
        line(text, 1, "chain postrouting {");
        line(text, 2, "type nat hook postrouting priority srcnat; policy accept;");
        if !self.networks.is_empty() {
            line(text, 2, &format!("oifname {} ct status dnat jump masquerade_portmap", self.bridges()));
        }
        for (index, network) in self.networks.iter().enumerate().filter(|(_, network)| network.masquerade) {
            for (family, nets) in by_family(&network.subnets) {
                line(text, 2, &format!("{family} saddr {nets} jump masquerade_{index}"));
            }
        }
        line(text, 1, "}");
    }

    fn bridges(&self) -> String {
        names(self.networks.iter().map(|network| network.bridge.as_str()))
    }
}

/// Add, delete, define: the delete needs the table to be there, and takes all that is in it.
pub(super) fn begin_table(text: &mut String, family: &str) {
    remove_table(text, family);
    let _ = writeln!(text, "table {family} {TABLE} {{");
}

pub(super) fn remove_table(text: &mut String, family: &str) {
    let _ = writeln!(text, "add table {family} {TABLE}\ndelete table {family} {TABLE}");
}

/// A set with those of `elements` that are its own; the same one twice is one.
pub(super) fn render_set(text: &mut String, set: Set, elements: &[Element]) {
    let (kind, definition) = set.definition();
    line(text, 1, &format!("{kind} {} {{", set.name()));
    line(text, 2, definition);
    let mut own: Vec<String> = elements.iter().filter(|e| e.set() == set).map(Element::text).collect();
    own.sort_unstable();
    own.dedup();
    if !own.is_empty() {
        line(text, 2, &format!("elements = {{ {} }}", own.join(", ")));
    }
    line(text, 1, "}");
}

pub(super) fn line(text: &mut String, depth: usize, words: &str) {
    (0..depth).for_each(|_| text.push('\t'));
    text.push_str(words);
    text.push('\n');
}

/// An anonymous set of interface names.
pub(super) fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(quoted).collect();
    format!("{{ {} }}", names.join(", "))
}

/// A name in quotes. A trailing asterisk would mean any name that starts so; a quote cannot be written.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "").replace('*', "\\*"))
}

/// The prefixes of each family as an anonymous set, overlaps merged (nft refuses them).
pub(super) fn by_family(nets: &[IpNet]) -> Vec<(&'static str, String)> {
    let ipv4: Vec<Ipv4Net> = nets
        .iter()
        .filter_map(|net| if let IpNet::V4(net) = net { Some(net.trunc()) } else { None })
        .collect();
    let ipv6: Vec<Ipv6Net> = nets
        .iter()
        .filter_map(|net| if let IpNet::V6(net) = net { Some(net.trunc()) } else { None })
        .collect();
    let set = |nets: Vec<String>| (!nets.is_empty()).then(|| format!("{{ {} }}", nets.join(", ")));
    let ipv4 = set(Ipv4Net::aggregate(&ipv4).iter().map(ToString::to_string).collect());
    let ipv6 = set(Ipv6Net::aggregate(&ipv6).iter().map(ToString::to_string).collect());
    [("ip", ipv4), ("ip6", ipv6)].into_iter().filter_map(|(family, set)| Some((family, set?))).collect()
}

#[cfg(test)]
#[path = "ruleset_tests.rs"]
mod tests;
