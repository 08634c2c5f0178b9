//! Rules of hostcni's in other people's chains: an accept in a table of its own does not overrule their drop.
//!
//! Where iptables' table `filter` is in use, of either kind, its chain FORWARD (or DOCKER-USER, which Docker keeps for
//! others) gets them by `iptables`; any other nftables chain of the forward hook whose policy is drop gets them by `nft`.
//! Ours are known by their comment, `hostcni: NETWORK`, so that those that nobody wants any more are found without a
//! record. Only chains and tables that are there are touched: none is made. Blocks: `iptables` waits for its lock.

mod native;
mod xtables;

use std::collections::BTreeSet;
use std::fmt;

/// What the comments of our rules begin with.
const COMMENT: &str = "hostcni: ";
/// nftables takes 127 bytes, and a network's name has no bound.
const LONGEST_NAME: usize = 100;

/// A network whose packets are to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded {
    /// Its name.
    pub network: String,
    /// Its bridge.
    pub bridge: String,
    /// Whether it has IPv4 addresses.
    pub ipv4: bool,
    /// Whether it has IPv6 addresses.
    pub ipv6: bool,
}

/// What was done, and what could not be.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Rules that were added or taken away, in words.
    pub changes: Vec<String>,
    /// In words that say what to do.
    pub failures: Vec<String>,
}

/// Whether packets come from the bridge or go to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    From,
    To,
}

/// One rule, wherever it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    comment: String,
    direction: Direction,
    bridge: String,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::From => "from",
            Direction::To => "to",
        };
        write!(f, "accept what is forwarded {direction} {}", self.bridge)
    }
}

/// The rules of those networks.
fn rules<'a>(networks: impl Iterator<Item = &'a Forwarded>) -> BTreeSet<Rule> {
    let both = |network: &Forwarded| {
        let name: String = network.network.chars().take(LONGEST_NAME).collect();
        [Direction::From, Direction::To].map(|direction| Rule {
            comment: format!("{COMMENT}{name}"),
            direction,
            bridge: network.bridge.clone(),
        })
    };
    networks.flat_map(both).collect()
}

/// Makes those networks' packets be accepted, and no others by a rule of ours.
pub fn ensure(networks: &[Forwarded]) -> Outcome {
    let mut outcome = Outcome::default();
    let chains = match native::chains() {
        Ok(chains) => chains,
        Err(error) => {
            outcome.failures.push(error.to_string());
            return outcome;
        }
    };
    for (ipv4, family) in [(true, "ip"), (false, "ip6")] {
        let wanted = rules(networks.iter().filter(|it| it.meets(family)));
        let by_nft = chains.iter().any(|chain| chain.family == family && chain.is_of_iptables());
        for table in xtables::in_use(ipv4, by_nft) {
            table.ensure(&wanted, &mut outcome);
        }
    }
    for chain in chains.iter().filter(|chain| !chain.is_of_iptables()) {
        let wanted = rules(networks.iter().filter(|it| chain.drops && it.meets(&chain.family)));
        chain.ensure(&wanted, &mut outcome);
    }
    outcome
}

impl Forwarded {
    /// Whether its packets come by chains of tables of that family.
    fn meets(&self, family: &str) -> bool {
        match family {
            "ip" => self.ipv4,
            "ip6" => self.ipv6,
            _ => true,
        }
    }
}

impl Outcome {
    fn changed(&mut self, what: &str, rule: &Rule, chain: &impl fmt::Display) {
        self.changes.push(format!("{what} in {chain}: {rule}"));
    }

    fn failed(&mut self, chain: &impl fmt::Display, why: &impl fmt::Display) {
        self.failures.push(format!("{chain}: {why}"));
    }
}
