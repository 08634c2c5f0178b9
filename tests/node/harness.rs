//! The test node itself holds what the other cases build on.

use crate::support::node::Node;
use crate::support::observe::{Place, links};

pub fn a_node_keeps_its_disk_through_a_reboot_and_a_power_cut(node: &mut Node) {
    node.write("/var/lib/mark", "here");
    node.boot();
    assert!(links(node).contains(&"uplink".to_owned()), "the node has a way to the world");
    node.ok("ping -c1 -W5 198.51.100.1 && ping -c1 -W5 2001:db8:ffff::1 && touch /run/of-this-boot");
    node.reboot();
    node.ok("test ! -e /run/of-this-boot && test -e /var/lib/mark && touch /var/lib/second && sync");
    node.cut_power();
    assert!(node.has("/var/lib/second"));
    node.boot();
    node.ok("test ! -e /run/of-this-boot && test -e /var/lib/second");
}
