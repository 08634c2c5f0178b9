//! The bridge table that holds pods to their own addresses, as openshift-sdn's flows did.
//!
//! Promises that a pod's frame passes only with the hardware address, IP address, ARP sender and ND target
//! given to that pod's link, and that a pod sends no router advertisement, no redirect and no other
//! ethertype (VLAN tags, which would slip past all of it). Judges only frames that come in by a link in the set
//! of those that are held; a pod is in it before its link is there. Switching it off removes the table.

use super::elements::{Element, PodPort, Set};
use super::ruleset::{Ruleset, begin_table, line, remove_table, render_set};

/// Whether pods are held to their own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AntiSpoofing {
    /// They are.
    On,
    /// They are not; a table from before is removed.
    Off,
    /// They are not, and the kernel is not asked about bridge tables: one without them would refuse the
    /// whole text.
    #[default]
    Unsupported,
}

impl AntiSpoofing {
    pub(super) fn render(self, ruleset: &Ruleset, text: &mut String) {
        match self {
            Self::Unsupported => {}
            Self::On if ruleset.networks.iter().any(|network| network.anti_spoofing) => render(ruleset, text),
            Self::On | Self::Off => remove_table(text, "bridge"),
        }
    }
}

fn render(ruleset: &Ruleset, text: &mut String) {
    begin_table(text, "bridge");
    let elements: Vec<Element> = ruleset.pods.iter().flat_map(PodPort::elements).collect();
    for set in Set::BRIDGE {
        render_set(text, set, &elements);
    }
    // Not by the bridge's name: `meta ibrname` is a module of its own, which not every kernel has.
    let enter = format!("iifname @{} goto from_pod", Set::PodHeld.name());
    let base = ["type filter hook prerouting priority -300; policy accept;", &enter];
    chain(
        text,
        "from_pod",
        &["ether type vmap { ip : goto from_ip, arp : goto from_arp, ip6 : goto from_ip6 }", "drop"],
    );
    chain(text, "from_ip", &["iifname . ether saddr . ip saddr @pod_ip4 accept", "drop"]);
    chain(text, "from_arp", FROM_ARP);
    chain(text, "from_ip6", FROM_IP6);
    chain(text, "from_nd", FROM_ND);
    chain(text, "prerouting", &base);
    text.push_str("}\n");
}

/// The frame's own source must match too: some stacks learn from it. 0.0.0.0: probes (RFC 5227).
const FROM_ARP: &[&str] = &[
    "iifname . @ll,48,48 != @pod_mac drop",
    "iifname . arp saddr ether . arp saddr ip @pod_ip4 accept",
    "arp saddr ip 0.0.0.0 iifname . ether saddr . arp daddr ip @pod_ip4 accept",
    "drop",
];

/// `@nh,64,128` is the source address. `::` before there is an address: MLD reports, router solicitations.
const FROM_IP6: &[&str] = &[
    "icmpv6 type { nd-router-advert, nd-redirect } drop",
    "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } goto from_nd",
    "iifname . ether saddr . @nh,64,128 @pod_ip6 accept",
    "ip6 saddr :: icmpv6 type { nd-router-solicit, mld2-listener-report, mld-listener-report } iifname . @ll,48,48 @pod_mac accept",
    "drop",
];

/// `@th,64,128` is the target. A probe from `::` is about the pod's own address (else it could keep others
/// from theirs). What else is said must have no option, or one and the first (`@th,192,16`): its own
/// link-layer address (`@th,208,48`). `ip6 length` counts all behind the fixed header.
const FROM_ND: &[&str] = &[
    "icmpv6 type nd-neighbor-advert iifname . ether saddr . @th,64,128 != @pod_ip6 drop",
    "ip6 saddr :: icmpv6 type nd-neighbor-solicit iifname . ether saddr . @th,64,128 @pod_ip6 accept",
    "iifname . ether saddr . @nh,64,128 != @pod_ip6 drop",
    "ip6 length 24 accept",
    "ip6 length 32 @th,192,16 { 0x0101, 0x0201 } iifname . @th,208,48 @pod_mac accept",
    "drop",
];

fn chain(text: &mut String, name: &str, rules: &[&str]) {
    line(text, 1, &format!("chain {name} {{"));
    for rule in rules {
        line(text, 2, rule);
    }
    line(text, 1, "}");
}
