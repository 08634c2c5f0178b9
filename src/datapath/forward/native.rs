//! The part that goes by `nft`: chains of the forward hook that no `iptables` made.

use std::collections::BTreeSet;
use std::fmt;
use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;

use super::{COMMENT, Direction, Outcome, Rule};
use crate::datapath::elements::TABLE;
use crate::datapath::error::{KernelError, Result};
use crate::datapath::ruleset::quoted;
use crate::datapath::spawn;

const DEADLINE: Duration = Duration::from_secs(10);

/// A base chain of the forward hook in somebody else's table.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) family: String,
    table: String,
    name: String,
    /// Whether what no rule accepts is dropped.
    pub(super) drops: bool,
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nftables chain {} {} {}", self.family, self.table, self.name)
    }
}

/// All of them.
pub(super) fn chains() -> Result<Vec<Chain>> {
    let all = nft(&["-j", "list", "chains"], "", "list")?;
    let text = |chain: &Value, key: &str| chain[key].as_str().unwrap_or_default().to_owned();
    let chain = |object: &Value| {
        let chain = object.get("chain").filter(|it| it["hook"] == "forward" && it["type"] == "filter")?;
        let (family, table) = (text(chain, "family"), text(chain, "table"));
        let counts = ["ip", "ip6", "inet"].contains(&family.as_str()) && table != TABLE;
        counts.then(|| Chain { family, table, name: text(chain, "name"), drops: chain["policy"] == "drop" })
    };
    Ok(objects(&all).iter().filter_map(chain).collect())
}

impl Chain {
    /// Whether it is `iptables`' own, and to be changed by `iptables` only.
    pub(super) fn is_of_iptables(&self) -> bool {
        self.family != "inet" && self.table == "filter" && self.name == "FORWARD"
    }

    /// Makes these be the rules of ours in it, in one transaction.
    pub(super) fn ensure(&self, wanted: &BTreeSet<Rule>, outcome: &mut Outcome) {
        let address = [self.family.as_str(), &self.table, &self.name];
        let present = match nft(&[&["-j", "list", "chain"][..], &address].concat(), "", "list") {
            Ok(listed) => objects(&listed).iter().filter_map(ours).collect::<Vec<_>>(),
            Err(error) => return outcome.failed(self, &error),
        };
        let chain = address.join(" ");
        let (mut text, mut changes) = (String::new(), Vec::new());
        for rule in wanted.iter().filter(|rule| !present.iter().any(|(_, it)| it == *rule)) {
            let key = match rule.direction {
                Direction::From => "iifname",
                Direction::To => "oifname",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "insert rule {chain} {key} {} counter accept comment {}",
                quoted(&rule.bridge),
                quoted(&rule.comment)
            );
            changes.push(("a rule", rule));
        }
        for (handle, rule) in present.iter().filter(|(_, rule)| !wanted.contains(rule)) {
            let _ = writeln!(text, "delete rule {chain} handle {handle}");
            changes.push(("no rule any more", rule));
        }
        if text.is_empty() {
            return;
        }
        match nft(&["-f", "-"], &text, "change") {
            Ok(_) => changes.into_iter().for_each(|(what, rule)| outcome.changed(what, rule, self)),
            Err(error) => outcome.failed(self, &error),
        }
    }
}

/// A rule of ours with its handle.
fn ours(object: &Value) -> Option<(u64, Rule)> {
    let rule = object.get("rule")?;
    let comment = rule["comment"].as_str().filter(|comment| comment.starts_with(COMMENT))?;
    let matched = &rule["expr"][0]["match"];
    let direction = match matched["left"]["meta"]["key"].as_str()? {
        "iifname" => Direction::From,
        "oifname" => Direction::To,
        _ => return None,
    };
    let bridge = matched["right"].as_str()?.to_owned();
    Some((rule["handle"].as_u64()?, Rule { comment: comment.to_owned(), direction, bridge }))
}

fn objects(listed: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(listed).unwrap_or_default();
    all["nftables"].as_array().cloned().unwrap_or_default()
}

fn nft(arguments: &[&str], text: &str, operation: &'static str) -> Result<String> {
    let output = spawn::run("nft", arguments, text, DEADLINE)?;
    if output.success() {
        return Ok(output.stdout);
    }
    Err(KernelError::message(operation, "chains of the forward hook", output.stderr.trim().to_owned()))
}
