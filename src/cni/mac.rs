//! Ethernet addresses.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A unicast Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr([u8; 6]);

/// The first two octets of every address we make: locally administered, unicast; what openshift-sdn and
/// OVN-Kubernetes use.
const PREFIX: [u8; 2] = [0x0a, 0x58];

impl MacAddr {
    /// From octets.
    pub const fn new(octets: [u8; 6]) -> Self {
        Self(octets)
    }

    /// The octets.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// The address of the pod that has this IPv4 address: given again, it meets no stale ARP entry.
    pub const fn from_ipv4(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        Self([PREFIX[0], PREFIX[1], a, b, c, d])
    }

    /// The address of a pod that has only an IPv6 address: four octets of a hash over all of it.
    pub fn from_ipv6(address: Ipv6Addr) -> Self {
        // FNV-1a, 32 bits: spreads neighbouring addresses, and is the same in every build.
        let hash = address
            .octets()
            .iter()
            .fold(0x811c_9dc5_u32, |hash, octet| (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193));
        let [a, b, c, d] = hash.to_be_bytes();
        Self([PREFIX[0], PREFIX[1], a, b, c, d])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid MAC address {text:?}: six pairs of hexadecimal digits are expected");
        let mut octets = [0; 6];
        let mut parts = text.split([':', '-']);
        for octet in &mut octets {
            let part = parts.next().filter(|part| part.len() == 2 && part.is_ascii()).ok_or_else(wrong)?;
            // `from_str_radix` takes a sign.
            let part = part.strip_prefix('+').map_or(part, |_| "");
            *octet = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        if octets[0] & 1 == 1 || octets == [0; 6] {
            return Err(format!("invalid MAC address {text:?}: an interface needs a unicast address"));
        }
        Ok(Self(octets))
    }
}

impl TryFrom<String> for MacAddr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> Self {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_follows_the_ip_address() {
        assert_eq!(MacAddr::from_ipv4(Ipv4Addr::new(10, 128, 0, 5)).to_string(), "0a:58:0a:80:00:05");
        assert_ne!(
            MacAddr::from_ipv6("fd01::2".parse().unwrap()),
            MacAddr::from_ipv6("fd01::3".parse().unwrap())
        );
    }

    #[test]
    fn only_unicast_addresses_of_six_octets_are_taken() {
        assert!("02:00:00:00:00:01".parse::<MacAddr>().is_ok());
        for bad in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "01:00:00:00:00:00",
            "zz:00:00:00:00:00",
            "+2:00:00:00:00:01",
            "00:00:00:00:00:00",
        ] {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad:?}");
        }
    }
}
