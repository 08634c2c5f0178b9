//! Promises about being told of changes.

use hostcni::datapath::{Change, Interest};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::support::{BRIDGE, Node, Pod, ip, on_a_node};

/// All about these links, and the end of each whose name begins with `hc`.
fn interest(links: &[&str]) -> Interest {
    let links = links.iter().map(|link| (*link).to_owned()).collect();
    Interest { links, ends: Some(|name| name.starts_with("hc")) }
}

/// The changes up to and with the first that fits.
fn until(node: &Node, watch: &mut UnboundedReceiver<Change>, fits: impl Fn(&Change) -> bool) -> Vec<Change> {
    node.run(async {
        let mut seen = Vec::new();
        loop {
            let change = watch.recv().await.unwrap();
            let done = fits(&change);
            seen.push(change);
            if done {
                return seen;
            }
        }
    })
}

fn is_removal(change: &Change, of: &str) -> bool {
    matches!(change, Change::LinkRemoved { name, .. } if name == of)
}

#[test]
fn a_link_that_comes_is_told_with_its_alias_and_one_that_goes_with_its_pod_is_told() {
    on_a_node(|node| {
        node.bridge();
        let mut watch = node.kernel.watch(interest(&["hcpod7"])).unwrap();
        let pod = Pod::new();
        let made = node.attach(&pod, 7);
        until(node, &mut watch, |change| {
            matches!(change, Change::LinkChanged { link, .. }
                if link.index == made.host_index && link.alias.as_deref() == Some("hostcni:net/container7/eth0"))
        });
        drop(pod);
        let seen = until(node, &mut watch, |change| is_removal(change, "hcpod7"));
        assert!(matches!(seen.last(), Some(Change::LinkRemoved { index, .. }) if *index == made.host_index));
    });
}

#[test]
fn a_port_that_leaves_the_bridge_is_changed_and_not_removed() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        node.attach(&pod, 7);
        let mut watch = node.kernel.watch(interest(&["hcpod7", "last"])).unwrap();
        ip("link set hcpod7 nomaster");
        ip("link add last type bridge");
        let seen = until(
            node,
            &mut watch,
            |change| matches!(change, Change::LinkChanged { link, .. } if link.name == "last"),
        );
        assert!(!seen.iter().any(|change| is_removal(change, "hcpod7")), "{seen:?}");
        assert!(
            seen.iter().any(|change| {
                matches!(change, Change::LinkChanged { link, .. } if link.name == "hcpod7" && link.master.is_none())
            }),
            "{seen:?}"
        );
    });
}

#[test]
fn an_address_that_somebody_takes_from_the_bridge_is_told() {
    on_a_node(|node| {
        node.bridge();
        let mut watch = node.kernel.watch(interest(&[BRIDGE])).unwrap();
        for address in ["10.128.0.1/23", "fd01::1/64"] {
            ip(&format!("address delete {address} dev {BRIDGE}"));
            until(
                node,
                &mut watch,
                |change| matches!(change, Change::AddressRemoved { address: gone, .. } if gone.to_string() == address),
            );
        }
        ip(&format!("link delete {BRIDGE}"));
        until(node, &mut watch, |change| is_removal(change, BRIDGE));
    });
}

#[test]
fn every_watcher_is_told_and_one_that_left_disturbs_nobody() {
    on_a_node(|node| {
        let mut watches =
            [node.kernel.watch(interest(&["one"])).unwrap(), node.kernel.watch(interest(&["one"])).unwrap()];
        drop(node.kernel.watch(interest(&["one"])).unwrap());
        ip("link add one type bridge");
        for watch in &mut watches {
            until(
                node,
                watch,
                |change| matches!(change, Change::LinkChanged { link, .. } if link.name == "one"),
            );
        }
    });
}

#[test]
fn nobody_is_told_of_what_others_do_with_their_links() {
    on_a_node(|node| {
        node.bridge();
        let mut watch = node.kernel.watch(interest(&[BRIDGE])).unwrap();
        let mut tables = node.kernel.watch(Interest::default()).unwrap();
        let pod = Pod::new();
        let made = node.attach(&pod, 7);
        ip("link add other type bridge");
        ip("address add 10.1.0.1/24 dev other");
        ip("address delete 10.1.0.1/24 dev other");
        ip("link delete other");
        drop(pod);
        let seen = until(node, &mut watch, |change| is_removal(change, "hcpod7"));
        let of_the_bridge =
            |change: &Change| matches!(change, Change::LinkChanged { name, .. } if name == BRIDGE);
        let ours = |change: &Change| of_the_bridge(change) || is_removal(change, "hcpod7");
        assert!(seen.iter().all(ours), "{seen:?}");
        assert!(matches!(seen.last(), Some(Change::LinkRemoved { index, .. }) if *index == made.host_index));
        ip(&format!("link delete {BRIDGE}"));
        until(node, &mut watch, |change| is_removal(change, BRIDGE));
        assert!(tables.try_recv().is_err(), "links do not concern it");
    });
}
