//! The content of the conf.
//!
//! It carries all that the plugin needs (socket, spool, bounds), so the plugin reads nothing else. Rendering is
//! a pure function of the settings: the same settings give the same bytes, which is how a stale conf is told.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::marker::{MARKER, MARKER_TEXT};
use crate::cni::{Bounds, CniVersion};
use crate::settings::{DriverSettings, NetworkSettings, Settings};

/// The capabilities that runtimes may pass arguments for. Only what the network carries out: a runtime believes
/// that what it passes is done.
fn capabilities(driver: &DriverSettings) -> Vec<String> {
    match driver {
        DriverSettings::Bridge(_) => {
            ["portMappings", "bandwidth", "ips", "ipRanges", "mac", "dns"].map(str::to_owned).to_vec()
        }
        DriverSettings::Delegate(delegate) => delegate.list.capabilities(),
    }
}

/// The conf of `network`: one plugin for a path that ends in `.conf`, else a list.
pub fn render(network: &NetworkSettings, settings: &Settings) -> Vec<u8> {
    let version = network.conf.cni_version;
    let paths = &settings.paths;
    let plugin = plugin(capabilities(&network.driver), &paths.socket, &paths.spool_dir, &settings.bounds);
    let mut conf = Map::new();
    conf.insert("cniVersion".to_owned(), json!(version.to_string()));
    let single = network.conf.path.extension().is_some_and(|ending| ending == "conf");
    if single {
        conf.insert("name".to_owned(), json!(network.name.as_str()));
        conf.insert(MARKER.to_owned(), json!(MARKER_TEXT));
        conf.extend(plugin);
    } else {
        // New runtimes take the newest they know of these, and with 1.1 use STATUS and GC; old ones do not
        // know the key. It has no effect in a single plugin's configuration.
        let versions: Vec<String> = CniVersion::ALL
            .iter()
            .filter(|known| **known >= CniVersion::V0_4_0)
            .map(ToString::to_string)
            .collect();
        conf.insert("cniVersions".to_owned(), json!(versions));
        conf.insert("name".to_owned(), json!(network.name.as_str()));
        conf.insert(MARKER.to_owned(), json!(MARKER_TEXT));
        conf.insert("plugins".to_owned(), json!([plugin]));
    }
    let mut text = format!("{:#}", Value::Object(conf)).into_bytes();
    text.push(b'\n');
    text
}

fn plugin(capabilities: Vec<String>, socket: &Path, spool: &Path, bounds: &Bounds) -> Map<String, Value> {
    let capabilities: Map<String, Value> =
        capabilities.into_iter().map(|capability| (capability, json!(true))).collect();
    let mut plugin = Map::new();
    plugin.insert("type".to_owned(), json!("hostcni"));
    plugin.insert("capabilities".to_owned(), Value::Object(capabilities));
    plugin.insert("socket".to_owned(), json!(socket));
    plugin.insert("spool".to_owned(), json!(spool));
    plugin.insert(
        "bounds".to_owned(),
        json!({
            "add": seconds(bounds.add),
            "del": seconds(bounds.del),
            "check": seconds(bounds.check),
            "status": seconds(bounds.status),
            "gc": seconds(bounds.gc),
        }),
    );
    plugin
}

/// Whole seconds, as the settings have them; never 0, which would mean no time at all.
fn seconds(bound: Duration) -> u64 {
    bound.as_secs().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::PluginConf;

    fn rendered(path: &str) -> (Vec<u8>, Value) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("etc/hostcni")).unwrap();
        let text = format!("[[network]]\nname = \"pods\"\nconf.path = \"{path}\"\n");
        std::fs::write(root.path().join("etc/hostcni/config.toml"), text).unwrap();
        let settings = crate::settings::load(root.path()).unwrap().settings;
        let content = render(&settings.networks[0], &settings);
        let value = serde_json::from_slice(&content).unwrap();
        (content, value)
    }

    #[test]
    fn a_conf_is_one_plugin_that_our_own_plugin_reads() {
        let (content, value) = rendered("/etc/cni/net.d/80-pods.conf");
        assert_eq!(super::super::marker::check(&content), Ok(()));
        assert_eq!(value["type"], "hostcni");
        for capability in ["portMappings", "bandwidth", "ips", "ipRanges", "mac"] {
            assert_eq!(value["capabilities"][capability], true, "{capability}");
        }
        let conf = PluginConf::parse(std::str::from_utf8(&content).unwrap()).unwrap();
        assert_eq!(conf.name.as_str(), "pods");
        assert_eq!(conf.host.socket, Path::new("/run/hostcni/cni.sock"));
        assert_eq!(conf.host.spool, Path::new("/var/lib/hostcni/spool"));
        assert_eq!(conf.host.bounds, Bounds::default());
    }

    #[test]
    fn a_conflist_offers_new_runtimes_a_newer_version() {
        let (content, value) = rendered("/etc/cni/net.d/80-pods.conflist");
        assert_eq!(super::super::marker::check(&content), Ok(()));
        assert_eq!(value["cniVersion"], "1.0.0");
        assert_eq!(value["cniVersions"], json!(["0.4.0", "1.0.0", "1.1.0"]));
        assert_eq!(value["plugins"][0]["type"], "hostcni");
        assert!(value["plugins"][0].get("name").is_none(), "libcni gives it the list's");
    }

    #[test]
    fn the_same_settings_render_to_the_same_bytes() {
        assert_eq!(rendered("/a/b.conf").0, rendered("/a/b.conf").0);
        assert!(
            rendered("/a/b.conf").0.starts_with(b"{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"pods\",\n")
        );
    }
}
