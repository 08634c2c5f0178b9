//! A network configuration list, as administrators write it and libcni reads it.

use serde_json::{Map, Value};

use super::{CniVersion, NetworkName};

/// The plugins of a network, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfList {
    /// The text, unchanged.
    pub text: String,
    /// The versions it may be carried out in, the newest first; never empty.
    pub versions: Vec<CniVersion>,
    /// CHECK is to do nothing.
    pub disable_check: bool,
    /// GC is to be asked of no plugin.
    pub disable_gc: bool,
    /// The plugins, at least one.
    pub plugins: Vec<ChainPlugin>,
}

/// One plugin of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ChainPlugin {
    /// The name of its file, `type`.
    pub kind: String,
    /// Its part of the list, unchanged.
    pub conf: Map<String, Value>,
}

impl ChainPlugin {
    /// Whether runtimes may pass it arguments for that capability.
    pub fn takes(&self, capability: &str) -> bool {
        self.conf.get("capabilities").and_then(|all| all.get(capability)) == Some(&Value::Bool(true))
    }
}

impl ConfList {
    /// Reads a list, or the configuration of a single plugin. The error says which key is wrong.
    ///
    /// A list without a name is of the given network; one with another name is refused, since runtimes and
    /// plugins keep what they know of an attachment under that name.
    pub fn parse(text: &str, network: &NetworkName) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        let Value::Object(list) = value else { return Err("not a JSON object".to_owned()) };
        match list.get("name") {
            None => {}
            Some(name) if name == network.as_str() => {}
            Some(name) => {
                return Err(format!("name is {name}: it must be the network's, {network}, or be left out"));
            }
        }
        let plugins = match (list.get("plugins"), list.get("type")) {
            (Some(Value::Array(plugins)), _) => plugins
                .iter()
                .enumerate()
                .map(|(at, plugin)| entry(at, plugin))
                .collect::<Result<Vec<_>, _>>()?,
            (Some(_), _) => return Err("plugins: not a list".to_owned()),
            (None, Some(_)) => vec![entry(0, &Value::Object(list.clone()))?],
            (None, None) => return Err("plugins: not set".to_owned()),
        };
        if plugins.is_empty() {
            return Err("plugins: an empty list".to_owned());
        }
        Ok(Self {
            text: text.to_owned(),
            versions: versions(&list)?,
            disable_check: flag(&list, "disableCheck")?,
            disable_gc: flag(&list, "disableGC")?,
            plugins,
        })
    }

    /// The capabilities that any of the plugins takes arguments for, each once.
    pub fn capabilities(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for plugin in &self.plugins {
            let Some(Value::Object(declared)) = plugin.conf.get("capabilities") else { continue };
            for (name, _) in declared.iter().filter(|(name, _)| plugin.takes(name)) {
                if !all.contains(name) {
                    all.push(name.clone());
                }
            }
        }
        all
    }
}

fn entry(at: usize, plugin: &Value) -> Result<ChainPlugin, String> {
    let wrong = |why: &str| format!("plugins[{at}]{why}");
    let Value::Object(conf) = plugin else { return Err(wrong(": not an object")) };
    let kind = match conf.get("type") {
        Some(Value::String(kind)) => kind,
        Some(_) => return Err(wrong(".type: not a text")),
        None => return Err(wrong(".type: not set")),
    };
    if kind.is_empty() || kind.starts_with('.') || kind.contains(['/', '\0']) {
        return Err(wrong(&format!(
            ".type is {kind:?}: the name of a plugin's file is wanted, without a directory"
        )));
    }
    if kind == "hostcni" {
        return Err(wrong(".type is hostcni, which would call itself for ever"));
    }
    if conf.get("capabilities").is_some_and(|all| !all.is_object()) {
        return Err(wrong(".capabilities: not an object"));
    }
    Ok(ChainPlugin { kind: kind.clone(), conf: conf.clone() })
}

/// `cniVersion` and `cniVersions` together. A list may name versions that are not known here; one known is enough.
fn versions(list: &Map<String, Value>) -> Result<Vec<CniVersion>, String> {
    let mut texts: Vec<&str> = Vec::new();
    match list.get("cniVersion") {
        None => {}
        Some(Value::String(text)) => texts.push(text),
        Some(_) => return Err("cniVersion: not a text".to_owned()),
    }
    match list.get("cniVersions") {
        None => {}
        Some(Value::Array(all)) => {
            for one in all {
                texts.push(one.as_str().ok_or("cniVersions: holds what is not a text")?);
            }
        }
        Some(_) => return Err("cniVersions: not a list".to_owned()),
    }
    if texts.is_empty() {
        return Ok(vec![CniVersion::default()]);
    }
    let mut known: Vec<CniVersion> = texts.iter().filter_map(|text| text.parse().ok()).collect();
    known.sort_unstable();
    known.dedup();
    known.reverse();
    if known.is_empty() {
        return Err(format!(
            "cniVersion {}: supported are {}",
            texts.join(", "),
            super::version::supported()
        ));
    }
    Ok(known)
}

/// A switch; libcni takes the words as well.
fn flag(list: &Map<String, Value>, key: &str) -> Result<bool, String> {
    match list.get(key) {
        None => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(format!("{key}: neither true nor false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfList, String> {
        ConfList::parse(text, &"pods".parse().unwrap())
    }

    #[test]
    fn a_list_keeps_what_the_plugins_are_to_get() {
        let list = parse(
            r#"{"cniVersion":"0.4.0","cniVersions":["1.0.0","9.0.0"],"name":"pods","disableCheck":"true","plugins":[
                {"type":"bridge","mtu":1400,"ipam":{"type":"host-local"}},
                {"type":"portmap","capabilities":{"portMappings":true,"ips":false}},
                {"type":"tuning","capabilities":{"mac":true,"portMappings":true}}]}"#,
        )
        .unwrap();
        assert_eq!(list.versions, [CniVersion::V1_0_0, CniVersion::V0_4_0]);
        assert!(list.disable_check && !list.disable_gc);
        assert_eq!(list.plugins[0].conf["mtu"], 1400);
        assert_eq!(list.capabilities(), ["portMappings", "mac"]);
        assert!(list.plugins[1].takes("portMappings") && !list.plugins[1].takes("ips"));
    }

    #[test]
    fn a_single_plugin_is_a_list_of_one() {
        let list = parse(r#"{"type":"ptp"}"#).unwrap();
        assert_eq!((list.plugins.len(), list.versions), (1, vec![CniVersion::V0_1_0]));
    }

    #[test]
    fn each_kind_of_wrong_names_its_key() {
        for (text, word) in [
            ("", "not JSON"),
            ("[]", "not a JSON object"),
            ("{}", "plugins: not set"),
            (r#"{"plugins":[]}"#, "empty list"),
            (r#"{"plugins":{}}"#, "not a list"),
            (r#"{"plugins":[7]}"#, "plugins[0]"),
            (r#"{"plugins":[{"type":"a"},{}]}"#, "plugins[1].type: not set"),
            (r#"{"plugins":[{"type":"/bin/sh"}]}"#, "plugins[0].type is \"/bin/sh\""),
            (r#"{"plugins":[{"type":"hostcni"}]}"#, "call itself"),
            (r#"{"plugins":[{"type":"a","capabilities":[]}]}"#, "capabilities"),
            (r#"{"name":"other","plugins":[{"type":"a"}]}"#, "name is \"other\""),
            (r#"{"cniVersion":"9.0.0","plugins":[{"type":"a"}]}"#, "supported are 0.1.0"),
            (r#"{"cniVersion":1,"plugins":[{"type":"a"}]}"#, "cniVersion: not a text"),
            (r#"{"disableGC":1,"plugins":[{"type":"a"}]}"#, "disableGC"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
