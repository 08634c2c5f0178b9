//! Rules of others that stop pods' packets.

use serde_json::Value;

use super::Findings;
use super::scene::{Scene, json, said};
use crate::settings::BridgeSettings;

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
        let family = text(chain, "family");
        for bridge in scene.bridges().filter(|bridge| comes_by(bridge, family)) {
            if !rules.iter().any(|rule| rule.contains(&format!("\"{}\"", bridge.bridge))) {
                let remedy = if family == "bridge" {
                    "accept what goes from pod to pod there: `meta ibrname` and the bridge's name"
                } else if bridge.accept_forward {
                    "accept_forward is on: `journalctl -u hostcni` tells why the rules cannot be made"
                } else {
                    "set accept_forward = true for the network, and `systemctl restart hostcni`"
                };
                found.error(
                    format!("{name} drops what is forwarded, and does not know {}", bridge.bridge),
                    remedy,
                );
            }
        }
    }
}

/// Whether packets of the bridge's pods come by a chain of that family of tables.
fn comes_by(bridge: &BridgeSettings, family: &str) -> bool {
    match family {
        "ip" => bridge.has_family(true),
        "ip6" => bridge.has_family(false),
        _ => true,
    }
}

/// firewalld drops what comes from a bridge that is in no zone.
pub fn firewalld(scene: &Scene, found: &mut Findings) {
    if said("firewall-cmd", &["--state"]).is_none_or(|state| state.trim() != "running") {
        return;
    }
    for bridge in scene.bridges() {
        let name = &bridge.bridge;
        let zone = said("firewall-cmd", &[&format!("--get-zone-of-interface={name}")]).unwrap_or_default();
        let (reason, remedy) = match (&bridge.firewalld_zone, zone.trim()) {
            (Some(wanted), zone) if wanted == zone => continue,
            (Some(wanted), _) => (
                format!("firewalld runs, and {name} is not in its zone {wanted}"),
                "`journalctl -u hostcni` has the reason; then `systemctl restart hostcni`".to_owned(),
            ),
            (None, "") => (
                format!("firewalld runs, and {name} is in none of its zones"),
                format!(
                    "leave firewalld_zone out, or firewall-cmd --permanent --zone=trusted --add-interface={name}"
                ),
            ),
            (None, _) => continue,
        };
        found.error(reason, remedy);
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
