//! Promises about the bridge, and about what the node's links tell.

use crate::support::{BRIDGE, Pod, bridge_spec, ip, on_a_node};

fn addresses() -> Vec<String> {
    let shown = ip(&format!("address show dev {BRIDGE}"));
    let mut found: Vec<String> = shown[0]["addr_info"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|address| address["scope"] != "link")
        .map(|address| format!("{}/{}", address["local"].as_str().unwrap(), address["prefixlen"]))
        .collect();
    found.sort();
    found
}

fn is_up() -> bool {
    ip(&format!("link show dev {BRIDGE}"))[0]["flags"].as_array().unwrap().contains(&"UP".into())
}

#[test]
fn a_bridge_is_made_with_its_mac_and_addresses_and_a_second_time_nothing_changes() {
    on_a_node(|node| {
        let report = node.run(node.kernel.ensure_bridge(&bridge_spec())).unwrap();
        assert!(report.created);
        assert_eq!(report.changes, [""; 0]);
        let link = &ip(&format!("link show dev {BRIDGE}"))[0];
        assert_eq!(link["address"], "0a:58:0a:80:00:01");
        assert_eq!(link["mtu"], 1450);
        assert_eq!(link["linkinfo"]["info_kind"], "bridge");
        assert_eq!(link["ifindex"], report.index);
        assert!(is_up());
        assert_eq!(addresses(), ["10.128.0.1/23", "fd01::1/64"]);
        let tentative = ip(&format!("-6 address show dev {BRIDGE} tentative scope global"));
        assert!(!tentative.to_string().contains("fd01::1"), "{tentative}");
        let again = node.run(node.kernel.ensure_bridge(&bridge_spec())).unwrap();
        assert_eq!((again.created, again.changes.len(), again.index), (false, 0, report.index));
    });
}

#[test]
fn a_bridge_that_is_there_is_adopted_and_repaired_and_keeps_what_else_it_has() {
    on_a_node(|node| {
        ip(&format!("link add {BRIDGE} address 02:00:00:00:00:99 type bridge"));
        ip(&format!("address add 192.0.2.1/24 dev {BRIDGE}"));
        ip(&format!("address add 10.128.0.1/23 dev {BRIDGE}"));
        let report = node.run(node.kernel.ensure_bridge(&bridge_spec())).unwrap();
        assert!(!report.created);
        let changes = report.changes.join(", ");
        for change in ["MAC address set", "MTU set from 1500 to 1450", "set up", "address fd01::1/64 added"] {
            assert!(changes.contains(change), "{change} is not in: {changes}");
        }
        assert!(!changes.contains("10.128.0.1"), "{changes}");
        assert_eq!(report.other_addresses, ["192.0.2.1/24".parse().unwrap()]);
        assert!(is_up());
        assert_eq!(addresses(), ["10.128.0.1/23", "192.0.2.1/24", "fd01::1/64"]);
    });
}

#[test]
fn a_link_of_that_name_that_is_no_bridge_is_refused_and_left_alone() {
    on_a_node(|node| {
        ip(&format!("link add {BRIDGE} address 02:00:00:00:00:99 type veth peer name other"));
        let error = node.run(node.kernel.ensure_bridge(&bridge_spec())).unwrap_err();
        assert!(error.is_exists());
        assert!(error.to_string().contains("it is a veth"), "{error}");
        assert_eq!(ip(&format!("link show dev {BRIDGE}"))[0]["address"], "02:00:00:00:00:99");
        assert_eq!(addresses(), [""; 0]);
    });
}

#[test]
fn mac_and_mtu_of_the_bridge_do_not_follow_its_ports() {
    on_a_node(|node| {
        node.bridge();
        ip("link add port0 address 02:00:00:00:00:02 mtu 1300 type veth peer name other");
        ip(&format!("link set port0 master {BRIDGE}"));
        let look = || {
            let link = ip(&format!("link show dev {BRIDGE}"));
            (link[0]["address"].clone(), link[0]["mtu"].clone())
        };
        let expected = ("0a:58:0a:80:00:01".into(), 1450.into());
        assert_eq!(look(), expected);
        ip("link delete port0");
        assert_eq!(look(), expected);
    });
}

#[test]
fn ipv6_switched_off_is_told_where_ipv6_is_asked_for_and_only_there() {
    on_a_node(|node| {
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        let error = node.run(node.kernel.ensure_bridge(&bridge_spec())).unwrap_err();
        assert!(error.to_string().contains("net.ipv6.conf.default.disable_ipv6 = 1"), "{error}");
        assert!(!crate::support::links().contains(&BRIDGE.to_owned()), "nothing is made for nothing");
        let mut spec = bridge_spec();
        spec.addresses.pop();
        node.run(node.kernel.ensure_bridge(&spec)).unwrap();
        assert_eq!(addresses(), ["10.128.0.1/23"]);
        let error = node.run(node.kernel.ensure_bridge(&bridge_spec())).unwrap_err();
        assert!(error.to_string().contains("net.ipv6.conf.hostcni0.disable_ipv6 = 1"), "{error}");
    });
}

#[test]
fn the_uplink_is_the_one_of_the_best_default_route_ipv4_first() {
    on_a_node(|node| {
        let uplink = || node.run(node.kernel.uplink_mtu()).unwrap();
        assert_eq!(uplink(), None);
        for (name, mtu) in [("up4", 1400), ("worse4", 1300), ("up6", 1500)] {
            ip(&format!("link add {name} mtu {mtu} type bridge"));
            ip(&format!("link set {name} up"));
        }
        ip("-6 address add fd02::1/64 dev up6 nodad");
        ip("-6 route add default via fd02::2 dev up6");
        assert_eq!(uplink(), Some(("up6".into(), 1500)));
        ip("address add 192.0.2.1/24 dev up4");
        ip("address add 198.51.100.1/24 dev worse4");
        ip("route add default via 198.51.100.2 dev worse4 metric 200");
        ip("route add default via 192.0.2.2 dev up4 metric 100");
        assert_eq!(uplink(), Some(("up4".into(), 1400)));
        ip("route delete default dev up4");
        ip("route delete default dev worse4");
        ip("route add unreachable default metric 5");
        ip("route add default nexthop via 198.51.100.2 dev worse4 nexthop via 192.0.2.2 dev up4");
        assert_eq!(uplink(), Some(("worse4".into(), 1300)), "of several hops, the first");
    });
}

#[test]
fn the_nodes_links_are_told_with_what_identifies_them() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        let made = node.attach(&pod, 7);
        let links = node.run(node.kernel.links()).unwrap();
        assert_eq!(links.len(), 3);
        let bridge = links.iter().find(|link| link.name == BRIDGE).unwrap();
        let link = links.iter().find(|link| link.name == "hcpod7").unwrap();
        assert_eq!(bridge.kind.as_deref(), Some("bridge"));
        assert_eq!(link.kind.as_deref(), Some("veth"));
        assert_eq!(link.alias.as_deref(), Some("hostcni:net/container7/eth0"));
        assert_eq!(link.master, Some(bridge.index));
        assert_eq!((link.index, link.mac), (made.host_index, Some(made.host_mac)));
        assert_eq!(link.peer_index, Some(made.pod_index));
        assert!(link.peer_netnsid.is_some());
        assert_eq!((link.hairpin, link.isolated), (Some(true), Some(false)));
        assert!(link.up && link.mtu == 1450 && link.group == 0);
        assert_eq!(node.run(node.kernel.link("hcpod7")).unwrap().as_ref(), Some(link));
        assert_eq!(node.run(node.kernel.link("hcpod8")).unwrap(), None);
        node.run(node.kernel.ping()).unwrap();
    });
}

#[test]
fn a_pods_link_goes_back_under_its_bridge() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        node.attach(&pod, 7);
        ip(&format!("link delete {BRIDGE}"));
        node.bridge();
        let bridge = node.run(node.kernel.link(BRIDGE)).unwrap().unwrap().index;
        ip("link set hcpod7 down");
        node.run(node.kernel.enslave("hcpod7", BRIDGE, true, true)).unwrap();
        let link = &ip("link show dev hcpod7")[0];
        assert_eq!(link["master"], BRIDGE);
        assert_eq!(link["linkinfo"]["info_slave_data"]["hairpin"], true);
        assert_eq!(link["linkinfo"]["info_slave_data"]["isolated"], true);
        assert!(link["flags"].as_array().unwrap().contains(&"UP".into()));
        assert_eq!(link["ifalias"], "hostcni:net/container7/eth0");
        let seen = node.run(node.kernel.link("hcpod7")).unwrap().unwrap();
        assert_eq!(seen.master, Some(bridge));
        assert!(node.run(node.kernel.link_exists("hcpod7")).unwrap());
        let error = node.run(node.kernel.enslave("hcpod8", BRIDGE, true, true)).unwrap_err();
        assert!(error.is_missing());
    });
}

#[test]
fn the_local_route_for_host_ports_on_the_loopback_is_made_once() {
    on_a_node(|node| {
        node.bridge();
        let route = hostcni::datapath::Loopback6 { bridge: BRIDGE.into(), priority: 2048 };
        assert_eq!(node.run(node.kernel.ensure_loopback6(route.clone())), Ok(true));
        assert_eq!(node.run(node.kernel.ensure_loopback6(route)), Ok(false));
        let shown = ip(&format!("-6 route show table local ::1/128 dev {BRIDGE}"));
        assert_eq!((&shown[0]["type"], &shown[0]["metric"]), (&"local".into(), &2048.into()));
    });
}

#[test]
fn sysctls_are_set_on_the_node_and_each_failure_is_told() {
    on_a_node(|node| {
        let settings = [("ipv4/ip_forward", "1"), ("ipv4/nowhere", "1"), ("ipv6/conf/all/forwarding", "1")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let (changes, errors) = node.run(node.kernel.ensure_sysctls(settings)).unwrap();
        assert_eq!((changes.len(), errors.len()), (2, 1), "{changes:?} {errors:?}");
        assert_eq!(crate::support::sysctl("ipv4/ip_forward"), "1");
        assert_eq!(crate::support::sysctl("ipv6/conf/all/forwarding"), "1");
    });
}
