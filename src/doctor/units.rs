//! hostcni's units, as systemd sees them.

use std::collections::HashMap;
use std::fmt::Write;

use super::Findings;
use super::scene::{Scene, said};

const UNITS: [&str; 3] = ["hostcni.socket", "hostcni.service", "hostcni-boot.service"];

/// Enabled, and active where they are to be.
pub fn check(_: &Scene, found: &mut Findings) {
    for unit in UNITS {
        let Some(shown) = properties(unit) else {
            return found.warning("systemd could not be asked", "run it on the node itself, as root");
        };
        let is = |name: &str| shown.get(name).map_or("", String::as_str);
        if is("LoadState") != "loaded" {
            found.error(
                format!("{unit} is {}", is("LoadState")),
                format!("install hostcni; `systemctl cat {unit}`"),
            );
            continue;
        }
        if is("UnitFileState") != "enabled" {
            let remedy = "systemctl enable hostcni.socket hostcni.service hostcni-boot.service";
            found.warning(
                format!("{unit} is {}: it will not come with the next boot", is("UnitFileState")),
                remedy,
            );
        }
        if unit == "hostcni-boot.service" {
            continue;
        }
        match is("ActiveState") {
            "active" | "reloading" => {}
            state => {
                let mut reason = format!("{unit} is {state}");
                if !matches!(is("Result"), "" | "success") {
                    let _ = write!(reason, ", its last end: {}", is("Result"));
                }
                if !is("StatusText").is_empty() {
                    let _ = write!(reason, ": {}", is("StatusText"));
                }
                found.error(
                    reason,
                    format!("systemctl start {unit}; `systemctl status {unit}` has the reason"),
                );
            }
        }
    }
    ordered(found);
}

/// A runtime that is ordered before hostcni meets no conf at boot.
fn ordered(found: &mut Findings) {
    for runtime in ["crio.service", "containerd.service", "kubelet.service"] {
        let Some(shown) =
            properties(runtime).filter(|shown| shown.get("LoadState").is_some_and(|it| it == "loaded"))
        else {
            continue;
        };
        let after = shown.get("After").map_or("", String::as_str);
        if !after.split(' ').any(|unit| unit == "hostcni.service") {
            let remedy = format!("a drop-in for hostcni.service and hostcni.socket with Before={runtime}");
            found.warning(format!("{runtime} does not start after hostcni.service"), remedy);
        }
    }
}

fn properties(unit: &str) -> Option<HashMap<String, String>> {
    let names = "LoadState,UnitFileState,ActiveState,Result,StatusText,After";
    let text = said("systemctl", &["show", "-p", names, unit])?;
    Some(
        text.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect(),
    )
}
