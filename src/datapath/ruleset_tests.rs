use super::*;
use crate::datapath::elements::Protocol;

fn network(bridge: &str, subnets: &[&str], no_masquerade: &[&str]) -> NetworkRules {
    let nets = |nets: &[&str]| nets.iter().map(|net| net.parse().unwrap()).collect();
    NetworkRules {
        bridge: bridge.into(),
        subnets: nets(subnets),
        masquerade: true,
        no_masquerade: nets(no_masquerade),
        forwarding: true,
        anti_spoofing: true,
        block: Vec::new(),
    }
}

fn port_map(port: u16, pod: &str) -> PortMap {
    let pod_address = pod.parse().unwrap();
    PortMap { protocol: Protocol::Udp, host_address: None, host_port: port, pod_address, pod_port: 53 }
}

#[test]
fn a_ruleset_without_networks_is_whole_and_small() {
    let text = Ruleset::default().render();
    assert!(
        text.starts_with("add table inet hostcni\ndelete table inet hostcni\ntable inet hostcni {\n"),
        "{text}"
    );
    assert!(!text.contains("bridge") && !text.contains("{  }"), "{text}");
    assert_eq!(text.matches('{').count(), text.matches('}').count());
}

#[test]
fn a_pod_adds_elements_and_no_rules() {
    let mut ruleset = Ruleset { networks: vec![network("br0", &["10.1.0.0/24"], &[])], ..Ruleset::default() };
    let before = ruleset.render().lines().count();
    ruleset.port_maps = (1..=1000).map(|port| port_map(port, "10.1.0.2")).collect();
    assert_eq!(ruleset.render().lines().count(), before + 1);
}

#[test]
fn overlapping_prefixes_are_merged_and_host_bits_cut() {
    let ruleset = Ruleset {
        networks: vec![network("br0", &["10.1.0.1/24"], &["10.0.0.0/8", "10.2.0.0/16", "fd00::1/48"])],
        ..Ruleset::default()
    };
    let text = ruleset.render();
    assert!(text.contains("ip daddr { 10.0.0.0/8 } return"), "{text}");
    assert!(text.contains("ip6 daddr { fd00::/48 } return"), "{text}");
    assert!(text.contains("ip saddr { 10.1.0.0/24 } jump masquerade_0"), "{text}");
}

#[test]
fn what_the_rules_need_beside_themselves_is_told_by_family() {
    let mut ruleset = Ruleset { networks: vec![network("br0", &["10.1.0.0/24"], &[])], ..Ruleset::default() };
    let names = |ruleset: &Ruleset| ruleset.sysctls().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(&ruleset), ["ipv4/ip_forward", "ipv4/conf/br0/route_localnet"]);
    assert_eq!(ruleset.loopback6(), []);
    ruleset.networks = vec![network("br1", &["fd00::/64"], &[])];
    assert_eq!(names(&ruleset), ["ipv6/conf/all/forwarding"]);
    assert_eq!(ruleset.loopback6(), [Loopback6 { bridge: "br1".into(), priority: 2048 }]);
    ruleset.networks[0].forwarding = false;
    assert_eq!(names(&ruleset), [""; 0]);
}

#[test]
fn anti_spoofing_off_removes_the_table_and_unsupported_never_names_it() {
    let networks = vec![network("br0", &["10.1.0.0/24"], &[])];
    let mut ruleset = Ruleset { networks, anti_spoofing: AntiSpoofing::Off, ..Ruleset::default() };
    assert!(ruleset.render().ends_with("add table bridge hostcni\ndelete table bridge hostcni\n"));
    ruleset.anti_spoofing = AntiSpoofing::Unsupported;
    assert!(!ruleset.render().contains("table bridge"));
    ruleset.anti_spoofing = AntiSpoofing::On;
    assert!(ruleset.render().contains("table bridge hostcni {"));
}

#[test]
fn a_name_cannot_become_a_pattern_or_end_its_quotes() {
    assert_eq!(quoted("br*\"; drop"), "\"br\\*; drop\"");
}
