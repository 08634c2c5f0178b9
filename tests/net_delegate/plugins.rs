//! A plugin of the tests' own, which does what it is told: well or badly.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::server::Server;

/// Where the distributions put the reference plugins.
const INSTALLED: [&str; 2] = ["/usr/lib/cni", "/usr/libexec/cni"];

/// Keeps a file for each container, as `host-local` does, and writes down how it was called. `mode.COMMAND` beside it
/// says how it behaves.
const SCRIPT: &str = r#"#!/bin/sh
dir=$(dirname "$0"); me=$(basename "$0")
if [ "$CNI_COMMAND" = VERSION ]; then
  cat >/dev/null
  echo "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[$(cat "$dir/versions" 2>/dev/null || echo '"0.4.0","1.0.0","1.1.0"')]}"
  exit 0
fi
cat >"$dir/$me.$CNI_COMMAND.json.$$"; mv "$dir/$me.$CNI_COMMAND.json.$$" "$dir/$me.$CNI_COMMAND.json"
env | grep ^CNI_ >"$dir/$me.$CNI_COMMAND.env"
echo "$me $CNI_COMMAND $CNI_CONTAINERID" >>"$dir/log"
version=$(sed -n 's/.*"cniVersion":"\([0-9.]*\)".*/\1/p' "$dir/$me.$CNI_COMMAND.json")
mkdir -p "$dir/held"
[ "$CNI_COMMAND" = ADD ] && : >"$dir/held/$me-$CNI_CONTAINERID"
case $(cat "$dir/$me.mode.$CNI_COMMAND" 2>/dev/null) in
  hang) sleep 1234 & echo $! >"$dir/child"; wait ;;
  crash) kill -SEGV $$ ;;
  garbage) echo 'it went well' ; exit 0 ;;
  silent) exit 0 ;;
  mute) echo 'panic: at the disco' >&2; exit 2 ;;
  error) echo "{\"cniVersion\":\"$version\",\"code\":51,\"msg\":\"no room\",\"details\":\"at all\"}"; exit 1 ;;
  lie) echo "{\"cniVersion\":\"$version\",\"code\":7,\"msg\":\"it did not go well\"}"; exit 0 ;;
  nonsense) echo '{"ips":[{"address":"somewhere"}]}'; exit 0 ;;
  slow) sleep 2 ;;
  loud) echo 'a word of warning' >&2 ;;
esac
[ "$CNI_COMMAND" = DEL ] && rm -f "$dir/held/$me-$CNI_CONTAINERID"
[ "$CNI_COMMAND" = ADD ] && echo "{\"cniVersion\":\"$version\",\"ips\":[{\"address\":\"10.99.0.5/24\"}],\"$me\":{\"z\":1,\"a\":2}}"
exit 0
"#;

/// A directory with such plugins, and what they keep.
pub struct Plugins {
    pub directory: tempfile::TempDir,
}

impl Plugins {
    /// Plugins of these names.
    pub fn new(names: &[&str]) -> Self {
        let plugins = Self { directory: tempfile::tempdir().expect("a directory can be made") };
        for name in names {
            plugins.install(name);
        }
        plugins
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Puts a plugin there, whole at once.
    pub fn install(&self, name: &str) {
        let new = self.path(&format!(".{name}.new"));
        fs::write(&new, SCRIPT).expect("below a directory of our own");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("it is ours");
        fs::rename(&new, self.path(name)).expect("below a directory of our own");
    }

    /// Takes a plugin away.
    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("it is there");
    }

    /// How a plugin behaves for a command from now on; `""` is well.
    pub fn behave(&self, name: &str, command: &str, mode: &str) {
        let path = self.path(&format!("{name}.mode.{command}"));
        fs::write(path, mode).expect("below a directory of our own");
    }

    /// The calls so far: plugin, command and container.
    pub fn calls(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// The configuration of a plugin's last call for a command.
    #[track_caller]
    pub fn config(&self, name: &str, command: &str) -> Value {
        let text = fs::read_to_string(self.path(&format!("{name}.{command}.json"))).expect("it was called");
        serde_json::from_str(&text).expect("a configuration is JSON")
    }

    /// A variable of a plugin's last call for a command; none when it was empty.
    #[track_caller]
    pub fn variable(&self, name: &str, command: &str, variable: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(&format!("{name}.{command}.env"))).expect("it was called");
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("{variable}=")));
        value.filter(|value| !value.is_empty()).map(str::to_owned)
    }

    /// What the plugins keep: one entry for each plugin and container.
    pub fn held(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("held")).into_iter().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        names.sort();
        names
    }

    /// The addresses that `host-local` keeps below [`Plugins::ipam`].
    pub fn addresses(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("networks/test")).into_iter().flatten();
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
        names.filter(|name| name.starts_with(|c: char| c.is_ascii_digit())).collect()
    }

    /// `host-local` with its files here.
    pub fn ipam(&self, subnet: &str) -> Value {
        json!({"type": "host-local", "dataDir": self.path("networks"),
               "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]})
    }

    /// The keys of a network that calls these plugins, or the installed ones: a list of them, or an object with more.
    pub fn network(&self, version: &str, plugins: &Value, more: &str) -> String {
        let mut list = if plugins.is_array() { json!({"plugins": plugins}) } else { plugins.clone() };
        list["cniVersion"] = version.into();
        list["name"] = "test".into();
        format!(
            "driver = \"delegate\"\n[network.delegate]\nconflist = '''{list}'''\n\
             plugin_dirs = [\"{}\", \"{}\", \"{}\"]\n{more}",
            self.directory.path().display(),
            INSTALLED[0],
            INSTALLED[1],
        )
    }

    /// A server with such a network.
    pub fn server(&self, version: &str, plugins: &Value, more: &str) -> Server {
        Server::with(&self.network(version, plugins, more))
    }
}
