//! The files: hostcni's configuration, its confs, and those of others.

use std::path::Path;

use serde_json::Value;

use super::Findings;
use super::scene::Scene;
use crate::netconf;

/// hostcni's own configuration is valid.
pub fn configuration(scene: &Scene, found: &mut Findings) {
    if let Err(error) = &scene.settings {
        found.error(error.to_string().trim().replace('\n', "; "), "mend the file; `hostcni config check`");
    }
}

/// Each network's conf is there, is ours, and comes first.
pub fn check(scene: &Scene, found: &mut Findings) {
    for network in scene.status.iter().flat_map(|status| &status.networks).filter(|it| it.lacks.is_empty()) {
        let path = &network.conf.path;
        match network.conf.state.as_str() {
            "ours" => {}
            "absent" => found.error(format!("{path} is not there"), "systemctl restart hostcni"),
            "foreign" => found.error(format!("{path} is another plugin's"), "move it away, or set conf.path"),
            "stale" => {
                found.warning(format!("{path} is not as hostcni renders it now"), "systemctl reload hostcni");
            }
            state => found.error(
                format!("{path} is {state}: {}", network.conf.reason),
                "hostcni conf show; docs/operations.md",
            ),
        }
    }
    for network in scene.networks() {
        let path = &network.conf.path;
        for other in netconf::shadowing(path) {
            let ours = scene.networks().iter().any(|it| it.conf.path == other);
            if !ours {
                let reason =
                    format!("{} comes before {}: runtimes take the first", other.display(), path.display());
                found.error(reason, format!("move {} away", other.display()));
            }
        }
    }
}

/// host-local's files of a network that hostcni serves now.
pub fn left_overs(scene: &Scene, found: &mut Findings) {
    for bridge in scene.networks().iter().filter(|network| network.driver.name() == "bridge") {
        let directory = Path::new("/var/lib/cni/networks").join(bridge.name.as_str());
        let files = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let count = files
            .filter(|file| file.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_hexdigit()))
            .count();
        if count > 0 {
            let reason = format!("host-local has {count} addresses in {}", directory.display());
            found.warning(reason, format!("hostcni import --network {}", bridge.name));
        }
    }
}

/// Multus waits for the file that hostcni places.
pub fn multus(scene: &Scene, found: &mut Findings) {
    let directories: Vec<&Path> =
        scene.networks().iter().filter_map(|network| network.conf.path.parent()).collect();
    let usual = ["/etc/cni/net.d", "/etc/kubernetes/cni/net.d", "/etc/cni/multus/net.d"].map(Path::new);
    for path in usual.into_iter().chain(directories).flat_map(netconf::conf_files) {
        let Some(conf) =
            std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok())
        else {
            continue;
        };
        let plugins = conf["plugins"].as_array().cloned().unwrap_or_else(|| vec![conf.clone()]);
        for plugin in
            plugins.iter().filter(|it| it["type"].as_str().is_some_and(|kind| kind.starts_with("multus")))
        {
            let Some(waits) = plugin["readinessindicatorfile"].as_str() else { continue };
            if !scene.networks().iter().any(|network| network.conf.path == Path::new(waits)) {
                let reason =
                    format!("Multus ({}) waits for {waits}, which hostcni does not place", path.display());
                found.error(reason, "the same path in readinessindicatorfile and in hostcni's conf.path");
            }
        }
    }
}
