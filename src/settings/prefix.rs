//! What makes a subnet usable for pods, by itself and beside another.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

/// An address and prefix length without host bits.
pub(super) fn strict(text: &str) -> Result<IpNet, String> {
    let net: IpNet = text.parse().map_err(|_| match text.split_once('/') {
        Some(_) => "not an address and a prefix length".to_owned(),
        None => "no prefix length: write `address/length`".to_owned(),
    })?;
    if net.trunc() != net {
        return Err(format!(
            "has bits set after the prefix; the subnet of this address is \"{}\"",
            net.trunc()
        ));
    }
    Ok(net)
}

/// `net`, if pods can live in it.
pub(super) fn pod_subnet(net: IpNet) -> Result<IpNet, String> {
    // Two addresses are the least: the gateway's and one pod's (RFC 3021 for /31, RFC 6164 for /127).
    if net.prefix_len() == net.max_prefix_len() {
        return Err("a single address: too small to hold a pod beside its gateway".into());
    }
    match SPECIAL.iter().find(|(special, _)| overlap(special, &net)) {
        Some((special, what)) => Err(format!("overlaps {special}, {what}: pods cannot use it")),
        None => Ok(net),
    }
}

/// Do two prefixes have an address in common?
pub(super) fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// Addresses that are never a pod's. 169.254.0.0/16 and 240.0.0.0/4 are left out: people do use them for pods.
const SPECIAL: [(IpNet, &str); 8] = [
    (v4([0, 0, 0, 0], 8), "addresses of \"this\" network"),
    (v4([127, 0, 0, 0], 8), "the loopback addresses"),
    (v4([224, 0, 0, 0], 4), "the multicast addresses"),
    (v4([255, 255, 255, 255], 32), "the broadcast address"),
    (v6([0, 0, 0], 32), "the unspecified, loopback and IPv4-mapped addresses"),
    (v6([0x64, 0xff9b, 0], 47), "the IPv4 translation addresses"),
    (v6([0xfe80, 0, 0], 10), "the link-local addresses"),
    (v6([0xff00, 0, 0], 8), "the multicast addresses"),
];

const fn v4(octets: [u8; 4], length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]), length))
}

const fn v6(head: [u16; 3], length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(head[0], head[1], head[2], 0, 0, 0, 0, 0), length))
}
