//! hostcni's own configuration: from files to settings that can be relied on.
//!
//! Three stages, each with a file: a *fragment* is what one file says, everything optional; the *input* is all
//! files merged key by key over the defaults, each value with its origin (file and line); [`Settings`] are validated,
//! with nothing left to doubt. [`load`] goes through all of them and tells every problem it meets, not the first.
//!
//! Owns: which files count, the options, their kinds and defaults, the wording of configuration errors. Promises:
//! never panics and never blocks, whatever is in the files or at their paths. Must not touch anything that runs.

mod decode;
mod delegate;
mod duration;
mod files;
mod firewall;
mod fragment;
mod input;
mod model;
mod prefix;
mod problem;
mod ranges;
mod show;
mod validate;
mod value;

#[cfg(test)]
mod tests;

pub use duration::parse_duration;
pub use input::Entry;
pub use model::{
    BlockPorts, BlockSettings, BlockTarget, BridgeSettings, ConfSettings, DelegateSettings, DriverSettings,
    ForeignPolicy, Limits, LogSettings, NetworkSettings, Paths, PortRange, ReadySettings, RestartPolicy,
    Settings,
};
pub use problem::{Origin, Problem, SettingsError};

use std::path::{Path, PathBuf};

/// Whether a log filter is one that the configuration would take, or why not.
pub fn check_log_filter(text: &str) -> Result<(), String> {
    text.parse::<value::Filter>().map(drop)
}

/// A configuration that can be used.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// Where each value comes from.
    pub origins: Origins,
    /// The files that were read, the least important first.
    pub files: Vec<PathBuf>,
}

/// The configuration of the system under `root` (`/` for this one), or all that is wrong with it.
pub fn load(root: &Path) -> Result<Loaded, SettingsError> {
    let merged = merge(root)?;
    Ok(Loaded { settings: merged.validate()?, origins: merged.origins(), files: merged.files })
}

/// A configuration whose files are right each by itself; whether they are together, [`Merged::validate`] says.
#[derive(Debug)]
pub struct Merged {
    input: input::Input,
    /// The files that were read, the least important first.
    pub files: Vec<PathBuf>,
}

/// Reads and merges the files under `root`.
pub fn merge(root: &Path) -> Result<Merged, SettingsError> {
    let mut problems = Vec::new();
    let sources = files::read_all(root, &mut problems);
    let files = sources.iter().map(|source| source.path.clone()).collect();
    let fragments =
        sources.into_iter().map(|source| (decode::decode(&source, &mut problems), source)).collect();
    let input = input::Input::merge(fragments, &mut problems);
    if problems.is_empty() { Ok(Merged { input, files }) } else { Err(SettingsError::new(problems)) }
}

impl Merged {
    /// The settings, if the values go together.
    pub fn validate(&self) -> Result<Settings, SettingsError> {
        validate::settings(&self.input)
    }

    /// Every option with its value and where that comes from.
    pub fn origins(&self) -> Origins {
        Origins { entries: self.input.entries() }
    }
}

/// Every option with its value and where that comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Origins {
    entries: Vec<Entry>,
}

impl Origins {
    /// All options, in the order of the documentation; those of a network once for each network.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Where an option's value comes from, by its full key: `network.openshift-sdn.conf.path`.
    pub fn of(&self, full_key: &str) -> Option<&Origin> {
        self.entries.iter().find(|entry| entry.full_key() == full_key).map(|entry| &entry.origin)
    }

    /// The options whose key is `prefix` or lies below it (`network.conf`, `network.openshift-sdn`), or, when there
    /// are none, the key that was perhaps meant.
    pub fn below(&self, prefix: &str) -> Result<Self, Option<String>> {
        let below =
            |key: &str| key.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let entries: Vec<Entry> = self
            .entries
            .iter()
            .filter(|entry| below(&entry.key()) || below(&entry.full_key()))
            .cloned()
            .collect();
        if entries.is_empty() {
            let known: Vec<String> =
                self.entries.iter().flat_map(|entry| [entry.key(), entry.section.clone()]).collect();
            return Err(problem::nearest(prefix, known.iter().map(String::as_str)).map(str::to_owned));
        }
        Ok(Self { entries })
    }

    /// The options as a configuration file that says the same, each with its origin as a comment.
    pub fn to_toml(&self) -> String {
        show::toml(&self.entries)
    }

    /// The options as JSON: a list of objects with `key`, `network`, `value`, `origin`, `file`, `line`.
    pub fn to_json(&self) -> serde_json::Value {
        show::json(&self.entries)
    }
}
