//! The part that goes by `iptables`: it alone can write what another `iptables` can read.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::{COMMENT, Direction, Outcome, Rule};
use crate::datapath::spawn;

/// How long `iptables` waits for another that has the lock, in seconds.
const LOCK: &str = "5";
const DEADLINE: Duration = Duration::from_secs(10);

/// The table `filter` of one family and one kind.
#[derive(Debug)]
pub(super) struct Table {
    ipv4: bool,
    legacy: bool,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.programs()[1])
    }
}

/// Those in use. The kernel lists the tables of the older kind; asking `iptables` would make them.
pub(super) fn in_use(ipv4: bool, by_nft: bool) -> Vec<Table> {
    let list = if ipv4 { "/proc/net/ip_tables_names" } else { "/proc/net/ip6_tables_names" };
    let names = std::fs::read_to_string(list).unwrap_or_default();
    let by_legacy = names.lines().any(|name| name == "filter");
    let kinds = [(by_nft, false), (by_legacy, true)];
    kinds.into_iter().filter(|(used, _)| *used).map(|(_, legacy)| Table { ipv4, legacy }).collect()
}

impl Table {
    /// The program by the name that tells its kind, and by the one that every distribution has.
    fn programs(&self) -> [&'static str; 2] {
        match (self.ipv4, self.legacy) {
            (true, false) => ["iptables-nft", "iptables"],
            (true, true) => ["iptables-legacy", "iptables"],
            (false, false) => ["ip6tables-nft", "ip6tables"],
            (false, true) => ["ip6tables-legacy", "ip6tables"],
        }
    }

    pub(super) fn ensure(&self, wanted: &BTreeSet<Rule>, outcome: &mut Outcome) {
        if let Err(why) = self.try_ensure(wanted, outcome) {
            outcome.failed(self, &why);
        }
    }

    fn try_ensure(&self, wanted: &BTreeSet<Rule>, outcome: &mut Outcome) -> Result<(), String> {
        let forward = self.run(&["-S", "FORWARD"])?;
        let by_docker = forward.lines().any(|line| line == "-A FORWARD -j DOCKER-USER");
        let chain = if by_docker { "DOCKER-USER" } else { "FORWARD" };
        let mut present = rules_of(&forward, "FORWARD");
        if by_docker {
            present.extend(rules_of(&self.run(&["-S", "DOCKER-USER"])?, "DOCKER-USER"));
        }
        for rule in wanted.iter().filter(|rule| !present.contains(&(chain, (*rule).clone()))) {
            self.run(&arguments("-I", chain, rule).each_ref().map(String::as_str))?;
            outcome.changed("a rule", rule, &format!("{self} {chain}"));
        }
        for (stands, rule) in
            present.iter().filter(|(stands, rule)| *stands != chain || !wanted.contains(rule))
        {
            self.run(&arguments("-D", stands, rule).each_ref().map(String::as_str))?;
            outcome.changed("no rule any more", rule, &format!("{self} {stands}"));
        }
        Ok(())
    }

    /// What it prints, or why it does not.
    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let all = [&["-w", LOCK][..], arguments].concat();
        for program in self.programs() {
            match spawn::run(program, &all, "", DEADLINE) {
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error.to_string()),
                Ok(output) if output.success() => return Ok(output.stdout),
                Ok(output) => return Err(format!("{}{}", output.stderr.trim(), self.hint())),
            }
        }
        Err(format!("its rules are in force, and the program is not there: install {}", self.programs()[1]))
    }

    /// It opens a raw socket to reach the kernel, which the service's sandbox does not let it.
    fn hint(&self) -> &'static str {
        if self.legacy {
            "; in the service it needs the drop-in /usr/share/doc/hostcni/examples/iptables-legacy.conf"
        } else {
            ""
        }
    }
}

fn arguments(verb: &str, chain: &str, rule: &Rule) -> [String; 10] {
    let direction = match rule.direction {
        Direction::From => "-i",
        Direction::To => "-o",
    };
    let words =
        [verb, chain, direction, &rule.bridge, "-m", "comment", "--comment", &rule.comment, "-j", "ACCEPT"];
    words.map(str::to_owned)
}

/// Our rules among those that `iptables -S` lists:
/// `-A FORWARD -i hostcni0 -m comment --comment "hostcni: pods" -j ACCEPT`.
fn rules_of(listed: &str, chain: &'static str) -> Vec<(&'static str, Rule)> {
    let rule = |line: &str| {
        let rest = line.strip_prefix(&format!("-A {chain} "))?;
        let (link, rest) = rest.split_once(" -m comment --comment \"")?;
        let comment = rest.strip_suffix("\" -j ACCEPT").filter(|comment| comment.starts_with(COMMENT))?;
        let (direction, bridge) = match link.split_once(' ')? {
            ("-i", bridge) => (Direction::From, bridge),
            ("-o", bridge) => (Direction::To, bridge),
            _ => return None,
        };
        Some((chain, Rule { comment: comment.to_owned(), direction, bridge: bridge.to_owned() }))
    };
    listed.lines().filter_map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rules_of_ours_are_taken_for_ours() {
        let listed = "-P FORWARD DROP\n-A FORWARD -j DOCKER-USER\n-A FORWARD -i hostcni0 -j ACCEPT\n\
                      -A FORWARD -i hostcni0 -m comment --comment \"hostcni is mine\" -j ACCEPT\n\
                      -A FORWARD -i hostcni0 -m comment --comment \"hostcni: pods\" -j DROP\n\
                      -A FORWARD -s 10.0.0.0/8 -i hostcni0 -m comment --comment \"hostcni: pods\" -j ACCEPT\n\
                      -A FORWARD -o hostcni0 -m comment --comment \"hostcni: pods\" -j ACCEPT\n";
        let (comment, bridge) = ("hostcni: pods".to_owned(), "hostcni0".to_owned());
        let rule = Rule { comment, direction: Direction::To, bridge };
        assert_eq!(rules_of(listed, "FORWARD"), [("FORWARD", rule)]);
    }
}
