//! Names made of an attachment's key: files, kernel links and their aliases. They outlive processes and
//! versions: a change here makes an upgrade lose what runs.

use ipnet::IpNet;

use crate::cni::{AttachmentKey, NetworkName};

/// What every alias of ours begins with.
const ALIAS_PREFIX: &str = "hostcni:";
/// Follows the prefix where the alias holds hashes instead of names. No network name begins so.
const SHORT: char = '#';
/// IFALIASZ is 256, with room for a NUL in some readers.
const MAX_ALIAS: usize = 255;

/// FNV-1a, 128 bit: the same on every machine and in every version, unlike std's hashers.
pub(super) fn hash(text: &str) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    text.bytes().fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// 64 of its bits, each depending on all (the finalizer of `MurmurHash3`).
fn hash64(text: &str) -> u64 {
    let wide = hash(text);
    #[allow(clippy::cast_possible_truncation)] // both halves are taken
    let mut bits = (wide >> 64) as u64 ^ wide as u64;
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ (bits >> 33)
}

/// The key's hash as file names have it: 32 hexadecimal digits.
pub(super) fn key_digits(key: &AttachmentKey) -> String {
    // Neither a network's nor a container's name contains a slash: different keys are different texts.
    format!("{:032x}", hash(&key.to_string()))
}

/// Whether a text has the shape of [`key_digits`].
pub(super) fn is_key_digits(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of the node's end of an attachment's link: `hc` and a hash of the key, 15 bytes.
pub fn host_link_name(key: &AttachmentKey) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let bits = hash64(&key.to_string());
    let digit = |place: u32| char::from(DIGITS[usize::try_from(bits >> (5 * place) & 31).unwrap_or(0)]);
    "hc".chars().chain((0..13).rev().map(digit)).collect()
}

/// The name of the ifb that limits what the pod sends: the host end's hash behind `hi`.
pub fn shaper_name(host_link: &str) -> String {
    format!("hi{}", host_link.strip_prefix("hc").unwrap_or(host_link))
}

/// The host end whose ifb has that name, if it is one's.
pub fn host_link_of_shaper(name: &str) -> Option<String> {
    name.strip_prefix("hi").filter(|digits| digits.len() == 13).map(|digits| format!("hc{digits}"))
}

/// Whether a link of that name may be the node's end of an attachment's link, or its ifb.
pub fn is_link_name(name: &str) -> bool {
    name.len() == 15 && (name.starts_with("hc") || name.starts_with("hi"))
}

/// The alias of that link, at most 255 bytes: `hostcni:network/container/interface address/length …`.
///
/// A key too long for it leaves hashes only, [`is_short_alias_of`]: such a link is found by its name.
pub fn host_link_alias(key: &AttachmentKey, addresses: &[IpNet]) -> String {
    let mut alias = format!("{ALIAS_PREFIX}{key}");
    for address in addresses {
        alias.push(' ');
        alias.push_str(&address.to_string());
    }
    if alias.len() <= MAX_ALIAS {
        return alias;
    }
    format!("{}{}", short_prefix(&key.network), host_link_name(key))
}

fn short_prefix(network: &NetworkName) -> String {
    format!("{ALIAS_PREFIX}{SHORT}{:016x}/", hash64(network.as_str()))
}

/// The attachment and the addresses that an alias names. `None` for one that is not ours, or short.
pub fn parse_alias(alias: &str) -> Option<(AttachmentKey, Vec<IpNet>)> {
    let mut words = alias.strip_prefix(ALIAS_PREFIX)?.split(' ');
    let mut names = words.next()?.splitn(3, '/');
    let key = AttachmentKey {
        network: names.next()?.parse().ok()?,
        container_id: names.next()?.parse().ok()?,
        ifname: names.next()?.parse().ok()?,
    };
    let addresses = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    Some((key, addresses))
}

/// Whether the alias is ours and of this network, but too short to name its attachment. With no record to
/// go with it, such a link belongs to nobody.
pub fn is_short_alias_of(alias: &str, network: &NetworkName) -> bool {
    alias.starts_with(&short_prefix(network))
}
