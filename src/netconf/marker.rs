//! Whose file it is. Ours carries a key that says so; everything else is somebody else's.

use serde_json::Value;

/// The key on the top level of every conf hostcni writes. Whoever copies our conf into a file of his own (as
/// Multus does with its delegates) nests it deeper, so his file stays his.
pub(super) const MARKER: &str = "io.hostcni.managed";

/// What the key says to whoever opens the file.
pub(super) const MARKER_TEXT: &str =
    "written by hostcni and removed when it stops; changes belong into /etc/hostcni/config.toml";

/// Larger files are not ours.
pub(super) const MAX_SIZE: usize = 1 << 20;

/// `Ok` when the content is ours, else what speaks against it.
pub(super) fn check(content: &[u8]) -> Result<(), String> {
    if content.is_empty() {
        return Err("it is empty".to_owned());
    }
    let value: Value = serde_json::from_slice(content).map_err(|_| "it is not JSON".to_owned())?;
    if value.get(MARKER).is_some_and(Value::is_string) {
        return Ok(());
    }
    let plugin = value.get("plugins").and_then(|plugins| plugins.get(0)).unwrap_or(&value);
    match plugin.get("type").and_then(Value::as_str) {
        Some("hostcni") => Err(format!("its plugin type is hostcni, but it lacks the key {MARKER}")),
        Some(kind) => Err(format!("its plugin type is {}", kind.escape_debug())),
        None => Err(format!("it lacks the key {MARKER}")),
    }
}

/// Whether it is a configuration of another plugin, complete: somebody means it.
pub(super) fn is_others(content: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<Value>(content) else { return false };
    let plugins = value.get("plugins").and_then(Value::as_array).cloned().unwrap_or_else(|| vec![value]);
    plugins.iter().any(|plugin| plugin.get("type").is_some_and(|kind| kind != "hostcni"))
}

/// A file whose content a power cut took: nothing, or zeros only.
pub(super) fn is_blank(content: &[u8]) -> bool {
    content.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marker_on_the_top_level_makes_it_ours() {
        assert_eq!(check(br#"{"io.hostcni.managed": "x", "type": "hostcni"}"#), Ok(()));
        assert_eq!(check(br#"{"type": "calico"}"#), Err("its plugin type is calico".to_owned()));
        assert_eq!(
            check(br#"{"plugins": [{"type": "flannel"}]}"#),
            Err("its plugin type is flannel".to_owned())
        );
        assert!(check(br#"{"type": "multus", "delegates": [{"io.hostcni.managed": "x"}]}"#).is_err());
        assert!(check(br#"{"type": "hostcni"}"#).unwrap_err().contains("lacks the key"));
        for foreign in [&b""[..], b"{", b"[]", b"null", b"\xff", br#"{"io.hostcni.managed": true}"#] {
            assert!(check(foreign).is_err());
        }
    }

    #[test]
    fn what_no_other_plugin_could_use_is_nobodys() {
        assert!(is_others(br#"{"type": "calico"}"#));
        assert!(is_others(br#"{"plugins": [{"type": "hostcni"}, {"type": "portmap"}]}"#));
        for nobodys in
            [&b""[..], b"{\"type\": \"cal", b"[]", b"{}", br#"{"type": "hostcni", "name": "mine"}"#]
        {
            assert!(!is_others(nobodys));
        }
    }

    #[test]
    fn blank_is_nothing_or_zeros() {
        assert!(is_blank(b"") && is_blank(&[0; 9]) && !is_blank(b" "));
    }
}
