//! Promises about nftables as the handle gives them; what the rules do is tested with the rules.

use std::process::Command;

use hostcni::datapath::{
    Change, ElementBatch, Interest, NetworkRules, PortMap, Protocol, Ruleset, TableFamily, conntrack::Stale,
};

use crate::support::{BRIDGE, Node, ip, on_a_node};

fn ruleset() -> Ruleset {
    Ruleset {
        networks: vec![NetworkRules {
            bridge: BRIDGE.into(),
            subnets: vec!["10.128.0.0/23".parse().unwrap()],
            masquerade: true,
            no_masquerade: Vec::new(),
            forwarding: true,
            anti_spoofing: true,
            block: Vec::new(),
        }],
        ..Ruleset::default()
    }
}

fn port_map(pod: &str) -> PortMap {
    PortMap {
        protocol: Protocol::Tcp,
        host_address: None,
        host_port: 8080,
        pod_address: pod.parse().unwrap(),
        pod_port: 80,
    }
}

fn nft(arguments: &str) -> String {
    let output = Command::new("nft").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "nft {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn apply(node: &Node) {
    node.run(node.kernel.apply_ruleset(ruleset().render())).unwrap();
}

#[test]
fn rules_and_elements_are_there_and_a_host_port_has_one_holder() {
    on_a_node(|node| {
        assert_eq!(node.run(node.kernel.table_present(TableFamily::Inet)), Ok(false));
        apply(node);
        assert_eq!(node.run(node.kernel.table_present(TableFamily::Inet)), Ok(true));
        let map = port_map("10.128.0.7");
        let mut batch = ElementBatch::new();
        batch.add(map.element().unwrap());
        node.run(node.kernel.update_elements(batch)).unwrap();
        assert!(nft("list table inet hostcni").contains("10.128.0.7"));
        let mut conflict = ElementBatch::new();
        conflict.add(port_map("10.128.0.8").element().unwrap());
        let error = node.run(node.kernel.update_elements(conflict)).unwrap_err();
        assert!(error.conflict().is_some(), "{error}");
        let holder = node.run(node.kernel.holder(map.clone())).unwrap();
        assert_eq!(holder, Some(("10.128.0.7".parse().unwrap(), 80)));
        node.run(node.kernel.flush_flows(vec![map], Stale::AfterDelete)).unwrap();
        let error = node.run(node.kernel.apply_ruleset("nonsense".into())).unwrap_err();
        assert!(error.to_string().contains("syntax error"), "{error}");
        node.run(node.kernel.has_bridge_tables()).unwrap();
    });
}

#[test]
fn what_others_do_to_the_table_is_told_and_what_we_do_is_not() {
    on_a_node(|node| {
        let intact = || node.run(node.kernel.table_intact()).unwrap();
        assert!(!intact());
        let mut watch = node.kernel.watch(Interest { links: vec!["last".to_owned()], ends: None }).unwrap();
        apply(node);
        let mut batch = ElementBatch::new();
        batch.add(port_map("10.128.0.7").element().unwrap());
        node.run(node.kernel.update_elements(batch)).unwrap();
        nft("add table inet foreign");
        ip("link add last type bridge");
        node.run(async {
            loop {
                match watch.recv().await.unwrap() {
                    Change::LinkChanged { name, .. } if name == "last" => break,
                    Change::Rules | Change::Resync => panic!("our own work was told"),
                    _ => {}
                }
            }
        });
        assert!(intact());
        for change in ["flush ruleset", "add chain inet hostcni other"] {
            nft(change);
            node.run(async { while watch.recv().await.unwrap() != Change::Rules {} });
            assert!(!intact(), "after {change}");
            apply(node);
            assert!(intact(), "applied after {change}");
        }
    });
}
