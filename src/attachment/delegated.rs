//! What a chain of other plugins was called with: all that their DEL needs, whatever the configuration says by then.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cni::CniVersion;

/// The calls of one attachment's plugins.
///
/// Texts are kept as they were: as values they would lose the order of keys and what this version does not know.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delegated {
    /// The boot in which the ADD began, as the kernel names it.
    pub boot: String,
    /// The network configuration list.
    pub conflist: String,
    /// Where its plugins were found.
    pub plugin_dirs: Vec<PathBuf>,
    /// How long one call may take, in whole seconds.
    pub timeout: u64,
    /// The version that all of them know; none when they could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<CniVersion>,
    /// `CNI_ARGS`.
    pub args: String,
    /// The runtime's capability arguments, a JSON object; empty when there were none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub runtime_config: String,
    /// The result of the last plugin that succeeded, as it gave it; empty before the first.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub result: String,
}

impl Delegated {
    /// How long one call may take; a record that lost it gives what is usual.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(if self.timeout == 0 { 30 } else { self.timeout })
    }
}
