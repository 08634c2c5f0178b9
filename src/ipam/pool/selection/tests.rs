use super::*;
use crate::ipam::tests::{ip, key, net};
use crate::ipam::{Range, RangeSet};

/// `10.0.0.0/24`, `10.0.0.0/24 10.0.0.5` and `10.0.0.0/24 10.0.0.5 10.0.0.9`.
fn range(text: &str) -> IpRange {
    let mut words = text.split(' ');
    IpRange {
        subnet: net(words.next().unwrap()),
        range_start: words.next().map(ip),
        range_end: words.next().map(ip),
        gateway: None,
    }
}

fn sets(texts: &[&[&str]]) -> Vec<Vec<IpRange>> {
    texts.iter().map(|set| set.iter().map(|text| range(text)).collect()).collect()
}

/// 10.0.0.2 to .20 without .8 to .11, and fd00::/64.
fn pool() -> Pool {
    let v4 =
        Range::new(net("10.0.0.0/24"), None, Some(ip("10.0.0.20")), None, &[net("10.0.0.8/30")]).unwrap();
    let v6 = Range::new(net("fd00::/64"), None, None, None, &[]).unwrap();
    Pool::new(vec![RangeSet::new(vec![v4]).unwrap(), RangeSet::new(vec![v6]).unwrap()]).unwrap()
}

/// The addresses that owners 0, 1, … get until there is none.
fn fill(pool: &mut Pool, asked: &[&[&str]]) -> Vec<String> {
    let selection = pool.select(&sets(asked)).unwrap();
    let mut given = Vec::new();
    while let Ok(leases) = pool.allocate_from(&key(given.len()), &[], &selection) {
        given.push(leases.iter().map(|lease| lease.address.to_string()).collect::<Vec<_>>().join(" "));
    }
    given
}

#[test]
fn a_pod_gets_one_address_of_each_requested_set_and_of_no_other() {
    for (asked, given) in [
        (
            &[&["10.0.0.0/24 10.0.0.6 10.0.0.13"][..]][..],
            &["10.0.0.6", "10.0.0.7", "10.0.0.12", "10.0.0.13"][..],
        ),
        // Where the requested subnet is smaller, its first and last address are a pod's like any other.
        (&[&["10.0.0.4/31"]], &["10.0.0.4", "10.0.0.5"]),
        // Gateway and network address stay out.
        (&[&["10.0.0.0/30"]], &["10.0.0.2", "10.0.0.3"]),
        (&[&["10.0.0.18/31", "10.0.0.2/32"]], &["10.0.0.18", "10.0.0.19", "10.0.0.2"]),
        (&[&["10.0.0.2/31"], &["10.0.0.4/31"]], &["10.0.0.2 10.0.0.4", "10.0.0.3 10.0.0.5"]),
        (&[&["fd00::10/127"], &["10.0.0.16/29"]], &["fd00::10 10.0.0.16", "fd00::11 10.0.0.17"]),
    ] {
        assert_eq!(fill(&mut pool(), asked), given, "{asked:?}");
    }
}

#[test]
fn a_lease_is_as_the_configuration_has_it() {
    let mut pool = pool();
    let selection = pool.select(&sets(&[&["10.0.0.16/30"]])).unwrap();
    let lease = pool.allocate_from(&key(0), &[], &selection).unwrap();
    let expected = Lease { address: ip("10.0.0.16"), prefix_len: 24, gateway: Some(ip("10.0.0.1")), set: 0 };
    assert_eq!(lease, [expected]);
    assert_eq!((pool.usage()[0].used, pool.owner(ip("10.0.0.16"))), (1, Some(&key(0))));
    assert!(selection.is_met_by(&[ip("10.0.0.16")]) && selection.is_met_by(&[ip("10.0.0.19")]));
    assert!(!selection.is_met_by(&[ip("10.0.0.15")]) && !selection.is_met_by(&[]));
    assert!(!selection.is_met_by(&[ip("10.0.0.16"), ip("fd00::2")]));
    assert_eq!(pool.allocate_from(&key(0), &[], &selection), Err(AllocateError::Holds(key(0))));
    assert_eq!(pool.release(&key(0)), [ip("10.0.0.16")]);
    assert_eq!(pool.usage()[0].used, 0);
}

#[test]
fn an_address_of_a_range_rests_too() {
    let mut pool = pool();
    let selection = pool.select(&sets(&[&["10.0.0.12/30"]])).unwrap();
    let mut given = Vec::new();
    for turn in 0..8 {
        given.extend(pool.allocate_from(&key(turn), &[], &selection).unwrap());
        pool.release(&key(turn));
    }
    let last: Vec<u8> = given
        .iter()
        .map(|lease| lease.address.to_string().rsplit('.').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(last, [12, 13, 14, 15, 12, 13, 14, 15]);
    // What rests there is given last by the network, too.
    let others: Vec<IpAddr> =
        (10..21).map(|owner| pool.allocate(&key(owner), &[]).unwrap()[0].address).collect();
    assert!(!others.iter().any(|it| (ip("10.0.0.12")..=ip("10.0.0.15")).contains(it)), "{others:?}");
    assert_eq!(pool.allocate(&key(30), &[]).unwrap()[0].address, ip("10.0.0.12"));
}

#[test]
fn requested_addresses_come_from_the_requested_ranges() {
    let mut pool = pool();
    let selection = pool.select(&sets(&[&["10.0.0.2/31"], &["10.0.0.4/30", "10.0.0.8/29"]])).unwrap();
    let mut ask = |owner: usize, addresses: &[&str]| {
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| ip(address)).collect();
        let leases = pool.allocate_from(&key(owner), &addresses, &selection)?;
        Ok(leases.iter().map(|lease| lease.address.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(ask(0, &["10.0.0.6"]).unwrap(), ["10.0.0.2", "10.0.0.6"]);
    for outside in ["10.0.0.16", "fd00::5", "192.0.2.1", "10.0.0.9"] {
        assert_eq!(ask(1, &[outside]), Err(AllocateError::NotSelected(ip(outside))));
    }
    let taken = AllocateError::Taken { address: ip("10.0.0.6"), owner: key(0) };
    assert_eq!(ask(1, &["10.0.0.6"]), Err(taken));
    assert_eq!(
        ask(1, &["10.0.0.5", "10.0.0.12"]),
        Err(AllocateError::SameSet(ip("10.0.0.5"), ip("10.0.0.12")))
    );
    assert_eq!(ask(1, &["10.0.0.3", "10.0.0.12"]).unwrap(), ["10.0.0.3", "10.0.0.12"]);
}

#[test]
fn a_full_range_is_told_and_no_other_set_is_touched() {
    let mut pool = pool();
    let asked = sets(&[&["fd00::/64"], &["10.0.0.0/24 10.0.0.2 10.0.0.3"]]);
    let selection = pool.select(&asked).unwrap();
    for owner in 0..2 {
        pool.allocate_from(&key(owner), &[], &selection).unwrap();
    }
    let full = pool.allocate_from(&key(2), &[], &selection).unwrap_err();
    assert_eq!(
        full.to_string(),
        "no free address is left in the requested range 10.0.0.0/24 (10.0.0.2 to 10.0.0.3)"
    );
    assert_eq!((pool.usage()[0].used, pool.usage()[1].used), (2, 2));
    assert!(pool.allocate(&key(2), &[]).is_ok(), "the network has others");
}

#[test]
fn a_range_of_a_subnet_in_several_parts_is_given_from_all_of_them() {
    let part = |start: &str, end: &str| {
        RangeSet::new(vec![
            Range::new(net("10.0.0.0/24"), Some(ip(start)), Some(ip(end)), None, &[]).unwrap(),
        ])
    };
    let mut pool =
        Pool::new(vec![part("10.0.0.10", "10.0.0.11").unwrap(), part("10.0.0.20", "10.0.0.21").unwrap()])
            .unwrap();
    assert_eq!(fill(&mut pool, &[&["10.0.0.0/24 10.0.0.11 10.0.0.20"]]), ["10.0.0.11", "10.0.0.20"]);
}

#[test]
fn what_contradicts_itself_or_the_configuration_is_an_error() {
    let gateway = |address: &str| IpRange { gateway: Some(ip(address)), ..range("10.0.0.0/24") };
    assert!(pool().select(&[vec![gateway("10.0.0.1")]]).is_ok());
    for (asked, said) in [
        (vec![vec![]], "a set of ranges has no range"),
        (
            sets(&[&["192.0.2.0/24"]]),
            "range 192.0.2.0/24 lies outside the network's subnets 10.0.0.0/24, fd00::/64",
        ),
        (
            sets(&[&["10.0.0.0/16 10.0.0.5 10.0.0.9"]]),
            "range 10.0.0.0/16 (10.0.0.5 to 10.0.0.9) lies outside the network's subnets 10.0.0.0/24, fd00::/64",
        ),
        (
            vec![vec![gateway("10.0.0.254")]],
            "range 10.0.0.0/24 asks for gateway 10.0.0.254, and that of 10.0.0.0/24 is 10.0.0.1",
        ),
        (sets(&[&["10.0.0.0/25"], &["10.0.0.64/26"]]), "ranges 10.0.0.0/25 and 10.0.0.64/26 overlap"),
        (sets(&[&["10.0.0.2/31", "10.0.0.3/32"]]), "ranges 10.0.0.2/31 and 10.0.0.3/32 overlap"),
        (
            sets(&[&["10.0.0.0/24", "fd00::/64"]]),
            "subnets 10.0.0.0/24 and fd00::/64 are in one set, but not of one address family: give each family a \
             set of its own",
        ),
        (
            sets(&[&["10.0.0.7/24"]]),
            "10.0.0.7/24 has bits set after the prefix; the subnet of this address is 10.0.0.0/24",
        ),
        (sets(&[&["10.0.0.0/24 10.0.1.5"]]), "range start 10.0.1.5 is outside subnet 10.0.0.0/24"),
        (sets(&[&["10.0.0.0/24 10.0.0.5 10.0.1.5"]]), "range end 10.0.1.5 is outside subnet 10.0.0.0/24"),
        (sets(&[&["10.0.0.0/24 10.0.0.9 10.0.0.5"]]), "range end 10.0.0.5 comes before range start 10.0.0.9"),
        (
            sets(&[&["10.0.0.8/30"]]),
            "range 10.0.0.8/30 has no address for a pod: all are reserved, excluded or outside the configured ranges",
        ),
        (
            sets(&[&["10.0.0.0/31"]]),
            "range 10.0.0.0/31 has no address for a pod: all are reserved, excluded or outside the configured ranges",
        ),
    ] {
        assert_eq!(pool().select(&asked).unwrap_err().to_string(), said);
    }
}
