//! Single promises of ranges and pools; whole lives of pools are in `model_tests`.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::*;
use crate::cni::AttachmentKey;

pub(in crate::ipam) fn key(number: usize) -> AttachmentKey {
    AttachmentKey {
        network: "net".parse().unwrap(),
        container_id: format!("c{number}").parse().unwrap(),
        ifname: "eth0".parse().unwrap(),
    }
}

pub(in crate::ipam) fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

pub(in crate::ipam) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn whole(subnet: &str) -> Range {
    Range::new(net(subnet), None, None, None, &[]).unwrap()
}

fn pool(subnets: &[&str]) -> Pool {
    Pool::new(subnets.iter().map(|subnet| RangeSet::new(vec![whole(subnet)]).unwrap()).collect()).unwrap()
}

/// Allocates for owners 0, 1, … until the pool is full.
fn fill(pool: &mut Pool) -> Vec<String> {
    let mut given = Vec::new();
    while let Ok(leases) = pool.allocate(&key(given.len()), &[]) {
        given.push(leases.iter().map(|lease| lease.address.to_string()).collect::<Vec<_>>().join(" "));
    }
    given
}

#[test]
fn a_tiny_subnet_gives_what_its_rfc_allows() {
    let cases: [(&str, Option<&str>, &[&str]); 8] = [
        ("10.0.0.0/29", Some("10.0.0.1"), &["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]),
        ("10.0.0.0/30", Some("10.0.0.1"), &["10.0.0.2"]),
        ("10.0.0.0/31", Some("10.0.0.0"), &["10.0.0.1"]),
        ("10.0.0.7/32", None, &["10.0.0.7"]),
        ("fd00::/126", Some("fd00::1"), &["fd00::2", "fd00::3"]),
        ("fd00::/127", Some("fd00::"), &["fd00::1"]),
        ("fd00::7/128", None, &["fd00::7"]),
        ("255.255.255.252/30", Some("255.255.255.253"), &["255.255.255.254"]),
    ];
    for (subnet, gateway, addresses) in cases {
        let range = whole(subnet);
        assert_eq!(range.gateway(), gateway.map(ip), "{subnet}");
        assert_eq!(range.usable(), addresses.len() as u128, "{subnet}");
        let mut pool = pool(&[subnet]);
        assert_eq!(fill(&mut pool), addresses, "{subnet}");
        assert_eq!(pool.exhausted(), Some(0), "{subnet}");
        let last = addresses.len() - 1;
        assert_eq!(pool.release(&key(last)), [ip(addresses[last])], "{subnet}");
        assert_eq!(pool.exhausted(), None, "{subnet}");
        assert_eq!(pool.allocate(&key(99), &[]).unwrap()[0].address, ip(addresses[last]), "{subnet}");
    }
}

#[test]
fn a_whole_family_is_a_range_like_any_other() {
    for (subnet, usable, first) in [
        ("0.0.0.0/0", (1 << 32) - 3, "0.0.0.2"),
        ("10.0.0.0/8", (1 << 24) - 3, "10.0.0.2"),
        ("fd00::/64", (1 << 64) - 2, "fd00::2"),
        ("::/1", (1 << 127) - 2, "::2"),
        ("::/0", u128::MAX - 1, "::2"),
    ] {
        let mut pool = pool(&[subnet]);
        assert_eq!(pool.usage()[0].capacity, usable, "{subnet}");
        assert_eq!(pool.allocate(&key(0), &[]).unwrap()[0].address, ip(first), "{subnet}");
        assert_eq!(pool.usage()[0].free, usable - 1, "{subnet}");
    }
}

#[test]
fn the_end_of_the_number_space_is_no_cliff() {
    for (subnet, last) in [
        ("255.255.255.0/24", "255.255.255.254"),
        ("ffff:ffff:ffff:ffff::/64", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ] {
        let mut pool = pool(&[subnet]);
        pool.allocate(&key(0), &[ip(last)]).unwrap();
        pool.rest_after(&[ip(last)]);
        let next = pool.allocate(&key(1), &[]).unwrap()[0].address;
        assert!(next < ip(last), "{subnet}: the lap begins again at its start, not at {next}");
    }
}

#[test]
fn a_huge_subnet_takes_no_memory_for_years_of_pods() {
    for subnet in ["fd00::/64", "0.0.0.0/0", "::/0"] {
        let mut pool = pool(&[subnet]);
        for number in 0..100_000 {
            pool.allocate(&key(number), &[]).unwrap();
            pool.release(&key(number));
        }
        assert!(pool.kept() < 10_000, "{subnet}: {} entries", pool.kept());
        assert_eq!(pool.usage()[0].used, 0);
    }
}

#[test]
fn requests_for_one_address_again_and_again_take_no_memory() {
    let mut pool = pool(&["10.0.0.0/16"]);
    for _ in 0..10_000 {
        pool.allocate(&key(0), &[ip("10.0.9.9")]).unwrap();
        pool.release(&key(0));
    }
    assert!(pool.kept() < 100, "{} entries", pool.kept());
    assert!(pool.steps() < 20_000, "{} steps", pool.steps());
}

#[test]
fn at_99_percent_an_allocation_still_takes_a_constant_number_of_steps() {
    let mut pool = pool(&["10.0.0.0/16"]);
    let full = usize::try_from(pool.usage()[0].capacity).unwrap() * 99 / 100;
    for number in 0..full {
        pool.allocate(&key(number), &[]).unwrap();
    }
    let before = pool.steps();
    for turn in 0..50_000 {
        // Pods of any age end, in an order that has nothing to do with their addresses.
        let leaver = key(turn * 7919 % full);
        pool.release(&leaver);
        pool.allocate(&leaver, &[]).unwrap();
    }
    let steps = pool.steps() - before;
    assert!(steps < 2 * 50_000, "{steps} steps for 50000 allocations");
}

#[test]
fn after_a_restart_each_restored_lease_costs_one_step_once() {
    let mut pool = pool(&["10.0.0.0/16"]);
    let capacity = usize::try_from(pool.usage()[0].capacity).unwrap();
    let full = capacity * 99 / 100;
    for number in 0..full {
        let address = u32::from_be_bytes([10, 0, 0, 2]) + u32::try_from(number).unwrap();
        pool.restore(&key(number), &[IpAddr::V4(address.into())]).unwrap();
    }
    pool.rest_after(&[ip("10.0.200.200")]);
    for number in full..capacity {
        pool.allocate(&key(number), &[]).unwrap();
    }
    assert!(pool.allocate(&key(capacity), &[]).is_err());
    for turn in 0..50_000 {
        pool.release(&key(turn % full));
        pool.allocate(&key(turn % full), &[]).unwrap();
    }
    assert!(pool.steps() < (capacity + 2 * 50_000) as u64, "{} steps", pool.steps());
}

#[test]
fn an_address_rests_until_all_others_were_given() {
    let mut pool = pool(&["10.0.0.0/24"]);
    let mut last_use = std::collections::HashMap::new();
    for turn in 0..2000_usize {
        let address = pool.allocate(&key(turn), &[]).unwrap()[0].address;
        pool.release(&key(turn));
        if let Some(before) = last_use.insert(address, turn) {
            assert_eq!(turn - before, 253, "{address}");
        }
    }
}

#[test]
fn after_a_restart_allocation_goes_on_after_the_last_address_given() {
    let mut pool = pool(&["10.0.0.0/29", "fd00::/125"]);
    pool.restore(&key(100), &[ip("10.0.0.5"), ip("fd00::3")]).unwrap();
    pool.rest_after(&[ip("10.0.0.4"), ip("fd00::7"), ip("192.0.2.1"), ip("10.0.0.200")]);
    let given = fill(&mut pool);
    assert_eq!(given[0], "10.0.0.6 fd00::2");
    assert_eq!(given[1..3], ["10.0.0.2 fd00::4", "10.0.0.3 fd00::5"]);
}

#[test]
fn rest_after_takes_an_address_that_is_now_excluded_or_the_last_of_its_range() {
    let range = |start: &str, end: &str, excludes: &[IpNet]| {
        Range::new(net("10.0.0.0/24"), Some(ip(start)), Some(ip(end)), None, excludes).unwrap()
    };
    let set = RangeSet::new(vec![
        range("10.0.0.10", "10.0.0.19", &[net("10.0.0.14/31")]),
        range("10.0.0.30", "10.0.0.31", &[]),
    ])
    .unwrap();
    for (last, next) in [
        ("10.0.0.13", "10.0.0.16"),
        ("10.0.0.14", "10.0.0.16"),
        ("10.0.0.15", "10.0.0.16"),
        ("10.0.0.19", "10.0.0.30"),
        ("10.0.0.30", "10.0.0.31"),
        ("10.0.0.31", "10.0.0.10"),
        ("10.0.0.99", "10.0.0.10"),
    ] {
        let mut pool = Pool::new(vec![set.clone()]).unwrap();
        pool.rest_after(&[ip(last)]);
        let given = fill(&mut pool);
        assert_eq!(given[0], next, "after {last}");
        assert_eq!(given.iter().collect::<HashSet<_>>().len(), 10, "after {last}: all others too");
    }
}

#[test]
fn dual_stack_is_all_or_nothing() {
    let mut pool = pool(&["10.0.0.0/24", "fd00::/126"]);
    assert_eq!(fill(&mut pool), ["10.0.0.2 fd00::2", "10.0.0.3 fd00::3"]);
    let error = pool.allocate(&key(7), &[]).unwrap_err();
    assert_eq!(error, AllocateError::Exhausted { set: 1, subnets: vec![net("fd00::/126")] });
    assert_eq!(pool.exhausted(), Some(1));
    assert_eq!(pool.usage()[0].used, 2, "no IPv4 address is kept for a pod that got no IPv6 one");
    assert!(pool.leases_of(&key(7)).is_empty());
}

#[test]
fn a_lease_says_what_the_pod_needs() {
    let mut pool = pool(&["10.128.0.0/23", "fd01:0:0:1::/64"]);
    let leases = pool.allocate(&key(0), &[]).unwrap();
    let lease = |address, prefix_len, gateway, set| Lease {
        address: ip(address),
        prefix_len,
        gateway: Some(ip(gateway)),
        set,
    };
    assert_eq!(
        leases,
        [lease("10.128.0.2", 23, "10.128.0.1", 0), lease("fd01:0:0:1::2", 64, "fd01:0:0:1::1", 1)]
    );
    assert_eq!(pool.leases_of(&key(0)), leases);
    assert_eq!(pool.owner(ip("10.128.0.2")), Some(&key(0)));
    assert_eq!(pool.owner(ip("10.128.0.3")), None);
}

#[test]
fn a_requested_address_is_given_or_nothing_is() {
    let mut pool = pool(&["10.0.0.0/24", "fd00::/64"]);
    let given = pool.allocate(&key(0), &[ip("10.0.0.77")]).unwrap();
    assert_eq!((given[0].address, given[1].address), (ip("10.0.0.77"), ip("fd00::2")));
    let given = pool.allocate(&key(1), &[ip("fd00::abcd"), ip("10.0.0.78"), ip("10.0.0.78")]).unwrap();
    assert_eq!((given[0].address, given[1].address), (ip("10.0.0.78"), ip("fd00::abcd")));

    let refused: [(&[&str], AllocateError); 7] = [
        (&["10.0.0.77"], AllocateError::Taken { address: ip("10.0.0.77"), owner: key(0) }),
        (&["10.0.1.1"], AllocateError::NotUsable(ip("10.0.1.1"))),
        (&["10.0.0.1"], AllocateError::NotUsable(ip("10.0.0.1"))),
        (&["10.0.0.0"], AllocateError::NotUsable(ip("10.0.0.0"))),
        (&["10.0.0.255"], AllocateError::NotUsable(ip("10.0.0.255"))),
        (&["fd00::"], AllocateError::NotUsable(ip("fd00::"))),
        (&["10.0.0.9", "10.0.0.10"], AllocateError::SameSet(ip("10.0.0.9"), ip("10.0.0.10"))),
    ];
    for (requested, error) in refused {
        let requested: Vec<IpAddr> = requested.iter().map(|address| ip(address)).collect();
        assert_eq!(pool.allocate(&key(2), &requested).unwrap_err(), error);
        assert!(pool.leases_of(&key(2)).is_empty());
    }
    assert_eq!(pool.usage()[0].used, 2);
}

#[test]
fn a_requested_address_works_in_a_full_pool_only_when_it_is_free() {
    let mut pool = pool(&["10.0.0.0/29"]);
    fill(&mut pool);
    pool.release(&key(1));
    pool.release(&key(3));
    assert_eq!(pool.allocate(&key(9), &[ip("10.0.0.5")]).unwrap()[0].address, ip("10.0.0.5"));
    assert_eq!(pool.allocate(&key(10), &[]).unwrap()[0].address, ip("10.0.0.3"));
    assert!(matches!(pool.allocate(&key(11), &[]), Err(AllocateError::Exhausted { .. })));
}

#[test]
fn an_owner_is_given_addresses_once() {
    let mut pool = pool(&["10.0.0.0/24"]);
    pool.allocate(&key(0), &[]).unwrap();
    assert_eq!(pool.allocate(&key(0), &[]).unwrap_err(), AllocateError::Holds(key(0)));
    assert_eq!(pool.release(&key(0)).len(), 1);
    assert_eq!(pool.release(&key(0)), Vec::<IpAddr>::new());
}

#[test]
fn addresses_of_an_earlier_configuration_are_held_and_released() {
    let range =
        Range::new(net("10.0.0.0/24"), None, None, Some(ip("10.0.0.254")), &[net("10.0.0.64/26")]).unwrap();
    let mut pool = Pool::new(vec![RangeSet::new(vec![range]).unwrap()]).unwrap();
    let old = ["192.0.2.9", "10.0.0.70", "10.0.0.254", "fd00::5"].map(ip);
    pool.restore(&key(0), &old).unwrap();
    pool.restore(&key(0), &old).unwrap();
    assert_eq!(pool.usage()[0].used, 0);
    for address in old {
        assert_eq!(pool.owner(address), Some(&key(0)));
    }
    let leases = pool.leases_of(&key(0));
    assert_eq!(leases.iter().map(|lease| lease.prefix_len).collect::<Vec<_>>(), [32, 24, 24, 128]);
    assert!(leases.iter().all(|lease| lease.set == Lease::FOREIGN));
    assert_eq!(pool.release(&key(0)), old);
    assert!(fill(&mut pool).iter().all(|given| !old.contains(&ip(given))));
}

#[test]
fn restoring_two_records_with_one_address_keeps_the_first_and_names_both() {
    let mut pool = pool(&["10.0.0.0/24", "fd00::/64"]);
    pool.restore(&key(0), &[ip("10.0.0.9"), ip("fd00::9")]).unwrap();
    let error = pool.restore(&key(1), &[ip("10.0.0.9"), ip("fd00::a")]).unwrap_err();
    assert_eq!(error, RestoreError(vec![(ip("10.0.0.9"), key(0))]));
    assert_eq!(error.to_string(), "address 10.0.0.9 is leased to net/c0/eth0");
    assert_eq!(pool.owner(ip("fd00::a")), Some(&key(1)), "what its pod uses is not given to a third");
    pool.release(&key(1));
    assert_eq!(pool.owner(ip("10.0.0.9")), Some(&key(0)));
}

#[test]
fn a_range_that_makes_no_sense_is_refused_by_name() {
    let make = |subnet, start: Option<&str>, end: Option<&str>, gateway: Option<&str>, exclude: &[&str]| {
        let excludes: Vec<IpNet> = exclude.iter().map(|text| net(text)).collect();
        Range::new(net(subnet), start.map(ip), end.map(ip), gateway.map(ip), &excludes)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        make("10.0.0.0/24", Some("10.0.1.1"), None, None, &[]),
        "range start 10.0.1.1 is outside subnet 10.0.0.0/24"
    );
    assert_eq!(
        make("10.0.0.0/24", None, Some("fd00::1"), None, &[]),
        "range end fd00::1 is outside subnet 10.0.0.0/24"
    );
    assert_eq!(
        make("10.0.0.0/24", None, None, Some("10.1.0.1"), &[]),
        "gateway 10.1.0.1 is outside subnet 10.0.0.0/24"
    );
    assert_eq!(
        make("10.0.0.0/24", None, None, None, &["10.0.1.0/24"]),
        "exclude 10.0.1.0/24 is outside subnet 10.0.0.0/24"
    );
    assert_eq!(
        make("10.0.0.0/24", Some("10.0.0.9"), Some("10.0.0.8"), None, &[]),
        "range end 10.0.0.8 comes before range start 10.0.0.9"
    );
    for exclude in ["10.0.0.0/24", "10.0.0.0/8", "0.0.0.0/0"] {
        assert!(
            make("10.0.0.0/24", None, None, None, &[exclude])
                .starts_with("subnet 10.0.0.0/24 has no address")
        );
    }
    assert!(
        make("10.0.0.0/32", None, None, Some("10.0.0.0"), &[])
            .starts_with("subnet 10.0.0.0/32 has no address")
    );
    assert_eq!(RangeSet::new(Vec::new()).unwrap_err(), RangeError::NoRange);
    let mixed = RangeSet::new(vec![whole("10.0.0.0/24"), whole("fd00::/64")]).unwrap_err();
    assert_eq!(mixed, RangeError::MixedFamilies(net("10.0.0.0/24"), net("fd00::/64")));
}

#[test]
fn host_bits_of_a_subnet_do_not_matter() {
    assert_eq!(whole("10.0.0.77/24"), whole("10.0.0.0/24"));
}

#[test]
fn ranges_that_share_an_address_are_refused_and_neighbours_are_not() {
    let part = |subnet: &str, start: &str, end: &str| {
        RangeSet::new(vec![Range::new(net(subnet), Some(ip(start)), Some(ip(end)), None, &[]).unwrap()])
            .unwrap()
    };
    let low = part("10.0.0.0/24", "10.0.0.10", "10.0.0.20");
    let high = part("10.0.0.0/24", "10.0.0.21", "10.0.0.30");
    assert!(Pool::new(vec![low.clone(), high.clone()]).is_ok());
    assert_eq!(
        Pool::new(vec![low.clone(), part("10.0.0.0/16", "10.0.0.20", "10.0.0.20")]).unwrap_err(),
        PoolError::Overlap(net("10.0.0.0/24"), net("10.0.0.0/16"))
    );
    assert_eq!(Pool::new(Vec::new()).unwrap_err(), PoolError::NoSet);
}

#[test]
fn the_gateway_of_one_range_is_not_given_from_another() {
    let range = |start: &str, end: &str, gateway: &str| {
        Range::new(net("10.0.0.0/24"), Some(ip(start)), Some(ip(end)), Some(ip(gateway)), &[]).unwrap()
    };
    let set = RangeSet::new(vec![
        range("10.0.0.10", "10.0.0.12", "10.0.0.1"),
        range("10.0.0.20", "10.0.0.21", "10.0.0.11"),
    ]);
    let mut pool = Pool::new(vec![set.unwrap()]).unwrap();
    assert_eq!(pool.usage()[0].capacity, 2);
    assert_eq!(fill(&mut pool), ["10.0.0.10", "10.0.0.12", "10.0.0.20", "10.0.0.21"]);
}

#[test]
fn usage_is_told_by_range() {
    let set = RangeSet::new(vec![whole("10.0.0.0/30"), whole("10.0.1.0/29")]).unwrap();
    let mut pool = Pool::new(vec![set]).unwrap();
    pool.allocate(&key(0), &[]).unwrap();
    pool.allocate(&key(1), &[]).unwrap();
    let usage =
        |subnet, capacity, used| RangeUsage { subnet: net(subnet), capacity, used, free: capacity - used };
    assert_eq!(pool.usage(), [usage("10.0.0.0/30", 1, 1), usage("10.0.1.0/29", 5, 1)]);
    assert_eq!(pool.exhausted(), None);
}
