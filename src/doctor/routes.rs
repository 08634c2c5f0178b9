//! The node's routes against the networks'.

use ipnet::IpNet;
use serde_json::Value;

use super::Findings;
use super::scene::{Scene, json};

/// No route of somebody else's leads to a pod's subnet.
pub fn check(scene: &Scene, found: &mut Findings) {
    let bridges: Vec<&str> = scene.bridges().map(|bridge| bridge.bridge.as_str()).collect();
    for route in routes() {
        let Some(dst) = prefix(&route).filter(|dst| dst.prefix_len() > 0) else { continue };
        let device = route["dev"].as_str().unwrap_or_default();
        if bridges.contains(&device) || device == "lo" {
            continue;
        }
        for bridge in scene.bridges() {
            for range in bridge.ranges.iter().flat_map(crate::ipam::RangeSet::ranges) {
                let subnet = range.subnet();
                // A shorter prefix is only a way to where nothing nearer is.
                if subnet.trunc() == dst || (subnet.contains(&dst) && dst.prefix_len() > subnet.prefix_len())
                {
                    let reason = format!(
                        "{dst} goes to {device}, and is part of {} on {}",
                        subnet.trunc(),
                        bridge.bridge
                    );
                    found.error(
                        reason,
                        "another subnet in the configuration, or take that route away: ip route",
                    );
                }
            }
        }
    }
}

/// Pods' packets fit through the uplink.
pub fn mtu(scene: &Scene, found: &mut Findings) {
    let Some(device) = routes()
        .iter()
        .find(|it| it["dst"] == "default")
        .and_then(|it| it["dev"].as_str().map(str::to_owned))
    else {
        return;
    };
    let Some(links) = json("ip", &["-j", "link", "show", "dev", &device]) else { return };
    let Some(uplink) = links[0]["mtu"].as_u64() else { return };
    for network in scene.status.iter().flat_map(|status| &status.networks).filter(|it| it.mtu > 0) {
        if u64::from(network.mtu) > uplink {
            let reason =
                format!("network {} has MTU {}, the uplink {device} {uplink}", network.name, network.mtu);
            found.warning(reason, "set network.mtu, or leave it out and `systemctl restart hostcni`");
        }
    }
}

fn routes() -> Vec<Value> {
    ["-4", "-6"]
        .iter()
        .filter_map(|family| json("ip", &["-j", family, "route", "show"]))
        .flat_map(|list| list.as_array().cloned().unwrap_or_default())
        .collect()
}

fn prefix(route: &Value) -> Option<IpNet> {
    let dst = route["dst"].as_str()?;
    dst.parse().ok().or_else(|| dst.parse::<std::net::IpAddr>().ok().map(IpNet::from))
}
