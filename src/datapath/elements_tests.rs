use super::*;

fn port_map(host: Option<&str>, pod: &str) -> PortMap {
    PortMap {
        protocol: Protocol::Tcp,
        host_address: host.map(|h| h.parse().unwrap()),
        host_port: 80,
        pod_address: pod.parse().unwrap(),
        pod_port: 8080,
    }
}

#[test]
fn a_port_map_chooses_its_map_by_family_and_host_address() {
    let text = |map: PortMap| map.element().map(|e| e.to_string());
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(text(port_map(None, "10.1.0.2")), some("{ tcp . 80 : 10.1.0.2 . 8080 } of portmap4"));
    assert_eq!(
        text(port_map(Some("0.0.0.0"), "10.1.0.2")),
        some("{ tcp . 80 : 10.1.0.2 . 8080 } of portmap4")
    );
    assert_eq!(
        text(port_map(Some("192.0.2.1"), "10.1.0.2")),
        some("{ 192.0.2.1 . tcp . 80 : 10.1.0.2 . 8080 } of portmap4_addr")
    );
    assert_eq!(text(port_map(None, "fd00::2")), some("{ tcp . 80 : fd00::2 . 8080 } of portmap6"));
    assert_eq!(
        text(port_map(Some("2001:db8::1"), "fd00::2")),
        some("{ 2001:db8::1 . tcp . 80 : fd00::2 . 8080 } of portmap6_addr")
    );
    assert_eq!(text(port_map(Some("192.0.2.1"), "fd00::2")), None);
    assert_eq!(text(port_map(Some("::"), "10.1.0.2")), None);
}

#[test]
fn a_pod_costs_one_element_per_address_and_three_for_its_link() {
    let pod = PodPort {
        host_link: "hc0123456789abc".into(),
        mac: [0x0a, 0x58, 10, 1, 0, 2],
        addresses: vec!["10.1.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
    };
    let text: Vec<String> = pod.elements().iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        [
            "{ \"hc0123456789abc\" } of pod_held",
            "{ \"hc0123456789abc\" . 0x0a580a010002 } of pod_mac",
            "{ \"hc0123456789abc\" . 0a:58:0a:01:00:02 . 0xfe8000000000000008580afffe010002 } of pod_ip6",
            "{ \"hc0123456789abc\" . 0a:58:0a:01:00:02 . 10.1.0.2 } of pod_ip4",
            "{ \"hc0123456789abc\" . 0a:58:0a:01:00:02 . 0xfd000000000000000000000000000002 } of pod_ip6",
        ]
    );
    assert_eq!(link_local(pod.mac).to_string(), "fe80::858:aff:fe01:2");
}
