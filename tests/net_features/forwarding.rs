//! With `accept_forward` pods' packets pass where others drop what is forwarded.

use crate::support::namespace::Namespace;
use crate::support::observe::Place;
use crate::support::server::Server;
use crate::support::wait::until;

const WORLD: [&str; 2] = ["198.51.100.2", "2001:db8::2"];
const OFF: &str = r#"subnets = ["10.128.0.0/23", "fd01::/64"]"#;
const ON: &str = "subnets = [\"10.128.0.0/23\", \"fd01::/64\"]\naccept_forward = true";

fn passes(pod: &Namespace) -> [bool; 2] {
    WORLD.map(|world| pod.succeeds(&format!("ping -q -c2 -i0.3 -W2 {world}")))
}

fn restart(server: &mut Server, network: &str) {
    server.configure(network);
    server.kill();
    server.start_again();
}

/// How many rules of hostcni's a line of shell lists.
fn rules(server: &Server, listing: &str) -> usize {
    let listed = server.node.ok(listing);
    listed.lines().filter(|line| line.contains("hostcni: test")).count()
}

fn drops_by(kind: &str) {
    let (ip4, ip6) = (format!("iptables-{kind}"), format!("ip6tables-{kind}"));
    let mut server = Server::with(OFF);
    if !server.node.succeeds(&format!("{ip4} -S")) {
        return println!("skipped: this kernel knows no {ip4}");
    }
    let _world = server.world();
    let pod = Namespace::new();
    server.add("pod", &pod).result();
    assert_eq!(passes(&pod), [true, true]);
    server.node.ok(&format!("{ip4} -P FORWARD DROP; {ip6} -P FORWARD DROP"));
    assert_eq!(passes(&pod), [false, false], "hostcni's own rules do not overrule a drop");

    restart(&mut server, ON);
    assert_eq!(passes(&pod), [true, true], "{}", server.log());
    let listing = format!("{ip4} -S; {ip6} -S");
    assert_eq!(rules(&server, &listing), 4);
    // Again: no rule twice.
    restart(&mut server, ON);
    assert_eq!(rules(&server, &listing), 4);
    // A stopped server leaves them.
    server.kill();
    assert_eq!(passes(&pod), [true, true]);
    server.start_again();

    // Somebody empties the chains.
    server.node.ok(&format!("{ip4} -F FORWARD; {ip6} -F FORWARD"));
    assert_eq!(passes(&pod), [false, false]);
    until("the rules", || rules(&server, &listing) == 4);
    assert_eq!(passes(&pod), [true, true]);

    // Docker comes, and keeps a chain for others.
    server.node.ok(&format!(
        "{ip4} -N DOCKER-USER; {ip4} -A DOCKER-USER -j RETURN; {ip4} -I FORWARD -j DROP; {ip4} -I FORWARD -j DOCKER-USER"
    ));
    until("the rules in Docker's chain", || rules(&server, &format!("{ip4} -S DOCKER-USER")) == 2);
    until("none beside it", || rules(&server, &format!("{ip4} -S FORWARD")) == 0);
    assert_eq!(passes(&pod), [true, true]);

    restart(&mut server, OFF);
    until("no rules", || rules(&server, &listing) == 0);
    assert_eq!(passes(&pod), [false, false]);
    let docker = server.node.ok(&format!("{ip4} -S"));
    assert!(docker.contains("-A FORWARD -j DROP") && docker.contains("-A DOCKER-USER -j RETURN"), "{docker}");
}

#[test]
fn what_iptables_drops_passes_and_no_rule_is_left_without_the_option() {
    drops_by("nft");
}

#[test]
fn what_the_older_iptables_drops_passes_and_no_rule_is_left_without_the_option() {
    drops_by("legacy");
}

#[test]
fn what_an_nftables_chain_drops_passes_and_no_rule_is_left_without_the_option() {
    let mut server = Server::with(OFF);
    let _world = server.world();
    let pod = Namespace::new();
    server.add("pod", &pod).result();
    server.node.ok("nft 'table inet strict { \
           chain forward { type filter hook forward priority filter; policy drop; tcp dport 9 accept; }; \
           chain other { type filter hook forward priority filter; policy accept; }; \
           chain input { type filter hook input priority filter; policy accept; }; }'");
    assert_eq!(passes(&pod), [false, false]);
    let listing = "nft list ruleset";
    for _ in 0..2 {
        restart(&mut server, ON);
        assert_eq!(passes(&pod), [true, true], "{}", server.log());
        assert_eq!(rules(&server, listing), 2, "one for each direction, only where something is dropped");
    }
    server.node.ok("nft flush chain inet strict forward");
    until("the rules", || rules(&server, listing) == 2);
    assert_eq!(passes(&pod), [true, true]);
    restart(&mut server, OFF);
    until("no rules", || rules(&server, listing) == 0);
    assert_eq!(passes(&pod), [false, false]);
}

#[test]
fn a_network_of_one_family_has_no_rules_in_the_chains_of_the_other() {
    let server = Server::with("subnets = [\"fd01::/64\"]\naccept_forward = true");
    let chain = "chain f { type filter hook forward priority filter; policy drop; };";
    server.node.ok(&format!("nft 'table ip four {{ {chain} }}; table ip6 six {{ {chain} }}'"));
    server.node.ok("iptables-nft -P FORWARD DROP; ip6tables-nft -P FORWARD DROP");
    until("the rules", || {
        rules(&server, "nft list table ip6 six") == 2 && rules(&server, "ip6tables-nft -S") == 2
    });
    assert_eq!(rules(&server, "nft list table ip four; iptables-nft -S"), 0);
}

#[test]
fn where_nobody_uses_iptables_no_table_of_its_is_made() {
    let server = Server::with(ON);
    let tables =
        || server.node.ok("nft list tables; cat /proc/net/ip_tables_names /proc/net/ip6_tables_names");
    assert!(!tables().contains("filter"), "{}", tables());
    // The first rule of somebody's: from then on ours are there.
    server.node.ok("iptables-nft -P FORWARD DROP");
    until("the rules", || rules(&server, "iptables-nft -S") == 2);
}
