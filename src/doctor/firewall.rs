//! Rules of others that stop pods' packets.

use serde_json::Value;

use super::Findings;
use super::scene::{Scene, json, said};

/// No chain of the forward hook drops what it does not know, unless it knows our bridges.
pub fn check(scene: &Scene, found: &mut Findings) {
    let Some(ruleset) = json("nft", &["-j", "list", "ruleset"]) else {
        return found.warning("`nft` says nothing", "install nftables, and run this as root");
    };
    let objects = ruleset["nftables"].as_array().cloned().unwrap_or_default();
    let chains = objects.iter().filter_map(|object| object.get("chain"));
    for chain in chains.filter(|chain| chain["hook"] == "forward" && chain["policy"] == "drop") {
        let is_of = |rule: &&Value| rule["family"] == chain["family"] && rule["table"] == chain["table"];
        let rules: Vec<String> = objects
            .iter()
            .filter_map(|object| object.get("rule"))
            .filter(is_of)
            .map(Value::to_string)
            .collect();
        let name = format!(
            "chain {} of table {} {}",
            text(chain, "name"),
            text(chain, "family"),
            text(chain, "table")
        );
        for bridge in scene.bridges() {
            if !rules.iter().any(|rule| rule.contains(&format!("\"{}\"", bridge.bridge))) {
                let remedy = if text(chain, "table") == "filter" {
                    format!(
                        "iptables -I FORWARD -i {0} -j ACCEPT; iptables -I FORWARD -o {0} -j ACCEPT (ip6tables for IPv6)",
                        bridge.bridge
                    )
                } else {
                    format!("accept iifname and oifname \"{}\" there", bridge.bridge)
                };
                found.error(
                    format!("{name} drops what is forwarded, and does not know {}", bridge.bridge),
                    remedy,
                );
            }
        }
    }
}

/// firewalld drops what comes from a bridge that is in no zone.
pub fn firewalld(scene: &Scene, found: &mut Findings) {
    if said("firewall-cmd", &["--state"]).is_none_or(|state| state.trim() != "running") {
        return;
    }
    for bridge in scene.bridges() {
        let zone = said("firewall-cmd", &[&format!("--get-zone-of-interface={}", bridge.bridge)]);
        if zone.as_deref().map(str::trim) != Some("trusted") {
            let remedy = format!(
                "firewall-cmd --permanent --zone=trusted --add-interface={} && firewall-cmd --reload",
                bridge.bridge
            );
            found.error(format!("firewalld runs, and {} is not in its trusted zone", bridge.bridge), remedy);
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
