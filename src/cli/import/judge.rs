//! Which of the addresses are alive. Pure: takes what was read, says what it means.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use super::host_local::Entry;

/// A namespace and the addresses in it.
#[derive(Debug, Clone)]
pub struct Namespace {
    /// A path to it.
    pub path: PathBuf,
    /// Its device and inode.
    pub id: (u64, u64),
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
}

/// What an address is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// A namespace has it: its number in the list.
    Live(usize),
    /// No namespace has it.
    Stale,
    /// No namespace has it yet, and it was taken a moment ago.
    New,
    /// It cannot be told whose it is.
    Clash(String),
}

/// Judges every entry against the namespaces.
pub fn judge(entries: &[Entry], namespaces: &[Namespace]) -> Vec<State> {
    let mut holders: BTreeMap<(&str, &str, bool), Vec<IpAddr>> = BTreeMap::new();
    for entry in entries {
        holders.entry(holder(entry)).or_default().push(entry.address);
    }
    let has = |address: &IpAddr| -> Vec<usize> {
        let all = namespaces.iter().enumerate();
        all.filter(|(_, namespace)| namespace.addresses.contains(address)).map(|(at, _)| at).collect()
    };
    entries
        .iter()
        .map(|entry| match has(&entry.address).as_slice() {
            [] if entry.young => State::New,
            [] => State::Stale,
            [only] => {
                let twice = holders[&holder(entry)].iter().filter(|other| !has(other).is_empty()).count() > 1;
                if twice && entry.ifname.is_some() {
                    State::Clash(format!("container {} has several live addresses", entry.container.as_str()))
                } else {
                    State::Live(*only)
                }
            }
            several => State::Clash(format!("{} namespaces have this address", several.len())),
        })
        .collect()
}

/// Container, interface and family: of these there is one address.
fn holder(entry: &Entry) -> (&str, &str, bool) {
    let ifname = entry.ifname.as_ref().map_or("", |name| name.as_str());
    (entry.container.as_str(), ifname, entry.address.is_ipv4())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test says what it expects by failing

    use super::*;

    fn entry(address: &str, container: &str, young: bool) -> Entry {
        Entry {
            address: address.parse().unwrap(),
            container: container.parse().unwrap(),
            ifname: Some("eth0".parse().unwrap()),
            young,
            path: PathBuf::from(address),
        }
    }

    fn namespace(ino: u64, addresses: &[&str]) -> Namespace {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Namespace { path: PathBuf::from(format!("/run/netns/{ino}")), id: (4, ino), addresses }
    }

    #[test]
    fn live_stale_new_and_clashing_are_told_apart() {
        let entries = [
            entry("10.0.0.2", "live", false),
            entry("fd00::2", "live", false),
            entry("10.0.0.3", "stale", false),
            entry("10.0.0.4", "new", true),
            entry("10.0.0.5", "twice", false),
            entry("10.0.0.6", "double", false),
            entry("10.0.0.7", "double", false),
        ];
        let namespaces = [
            namespace(1, &["10.0.0.2", "fd00::2", "127.0.0.1"]),
            namespace(2, &["10.0.0.5", "10.0.0.6"]),
            namespace(3, &["10.0.0.5", "10.0.0.7"]),
        ];
        let states = judge(&entries, &namespaces);
        assert_eq!(states[..4], [State::Live(0), State::Live(0), State::Stale, State::New]);
        assert_eq!(states[4], State::Clash("2 namespaces have this address".to_owned()));
        assert!(matches!(&states[5], State::Clash(why) if why.contains("several live addresses")));
        assert_eq!(states[5], states[6]);
    }
}
