//! Names are for ever: a running pod's link has the one that an earlier version gave it.

use std::collections::HashSet;

use ipnet::IpNet;
use proptest::prelude::*;

use super::*;
use crate::attachment::names::{self, key_digits};

fn addresses(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn of(network: &str, container: &str, ifname: &str) -> AttachmentKey {
    AttachmentKey {
        network: network.parse().unwrap(),
        container_id: container.parse().unwrap(),
        ifname: ifname.parse().unwrap(),
    }
}

#[test]
fn names_are_the_same_in_every_version() {
    let key = of("openshift-sdn", "0123456789abcdef", "eth0");
    assert_eq!(host_link_name(&key), "hcf2t3mkphhp205");
    assert_eq!(key_digits(&key), "194e9d6c72c9c0b9e944c561a917d366");
    // The published value of FNV-1a 128 for this text.
    assert_eq!(format!("{:032x}", names::hash("foobar")), "343e1662793c64bf6f0d3597ba446f18");
    assert_eq!(
        host_link_alias(&key, &addresses(&["10.128.0.5/23", "fd01::5/64"])),
        "hostcni:openshift-sdn/0123456789abcdef/eth0 10.128.0.5/23 fd01::5/64"
    );
}

#[test]
fn an_alias_gives_back_its_attachment_and_addresses() {
    let leased = addresses(&["10.128.0.5/23", "fd01::5/64"]);
    let key = of("openshift-sdn", &"f".repeat(64), "ü=,#'\"\\");
    assert_eq!(parse_alias(&host_link_alias(&key, &leased)), Some((key.clone(), leased)));
    assert_eq!(parse_alias(&host_link_alias(&key, &[])), Some((key, Vec::new())));
}

#[test]
fn an_alias_that_is_not_ours_names_nothing() {
    for alias in [
        "",
        "hostcni",
        "hostcni:",
        "hostcni:a",
        "hostcni:a/b",
        "hostcni:a/b/",
        "hostcni:a/b/c/d",
        "hostcni:a/b/c ",
        "hostcni:a/b/c 10.0.0.1",
        "hostcni:a/b/c 10.0.0.1/24 x",
        "hostcni:../b/c",
        "Hostcni:a/b/c",
        "uplink of rack 7",
    ] {
        assert_eq!(parse_alias(alias), None, "{alias:?}");
        assert!(!is_short_alias_of(alias, &"a".parse().unwrap()), "{alias:?}");
    }
}

#[test]
fn an_alias_too_long_for_the_kernel_still_says_whose_the_link_is() {
    let leased = addresses(&["10.128.0.5/23", "fd01:1111:2222:3333:4444:5555:6666:7777/64"]);
    let mut short = 0;
    for length in 1..400 {
        let key = of("openshift-sdn", &"c".repeat(length), "eth0");
        let alias = host_link_alias(&key, &leased);
        assert!(alias.len() <= 255, "{length}: {}", alias.len());
        let is_short = is_short_alias_of(&alias, &key.network);
        assert!(!is_short_alias_of(&alias, &"openshift-sdn2".parse().unwrap()));
        let parsed = parse_alias(&alias);
        assert_eq!(parsed, (!is_short).then(|| (key.clone(), leased.clone())), "{length}");
        if is_short {
            short += 1;
            assert!(alias.ends_with(&host_link_name(&key)));
        } else {
            assert_eq!(short, 0, "short from some length on");
        }
    }
    assert!(short > 100, "{short}");
}

#[test]
fn ten_thousand_attachments_have_ten_thousand_names() {
    let (mut links, mut files) = (HashSet::new(), HashSet::new());
    for number in 0..10_000 {
        for ifname in ["eth0", "net1"] {
            let key = of("net", &format!("{number:x}"), ifname);
            links.insert(host_link_name(&key));
            files.insert(key_digits(&key));
        }
    }
    assert_eq!((links.len(), files.len()), (20_000, 20_000));
    // Every place of the name is used: 13 digits of 5 bits, the first of 4.
    for place in 2..15 {
        let digits: HashSet<u8> = links.iter().map(|link| link.as_bytes()[place]).collect();
        assert_eq!(digits.len(), if place == 2 { 16 } else { 32 }, "place {place}");
    }
}

proptest! {
    #[test]
    fn a_link_name_is_one_for_the_kernel(
        network in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,300}",
        container in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,300}",
        ifname in "[a-zA-Z0-9@#=-]{1,15}",
    ) {
        let key = of(&network, &container, &ifname);
        let name = host_link_name(&key);
        prop_assert_eq!(name.len(), 15);
        prop_assert!(name.starts_with("hc"));
        prop_assert!(is_link_name(&name) && is_link_name(&shaper_name(&name)));
        prop_assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        let alias = host_link_alias(&key, &[]);
        prop_assert!(alias.len() <= 255);
        prop_assert!(parse_alias(&alias) == Some((key.clone(), Vec::new())) || is_short_alias_of(&alias, &key.network));
    }

    #[test]
    fn parsing_an_alias_never_panics(alias in "(hostcni:)?\\PC*") {
        let _ = parse_alias(&alias);
    }
}
