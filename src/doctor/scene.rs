//! What the checks look at, asked for once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::datapath::spawn;
use crate::settings::{BridgeSettings, NetworkSettings, Settings, SettingsError};
use crate::wire::{AttachmentInfo, StatusReply};

/// A tool that takes longer says nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// The node as it is now.
#[derive(Debug)]
pub struct Scene {
    /// hostcni's configuration, or what is wrong with it.
    pub settings: Result<Settings, SettingsError>,
    /// What the server says of itself, or why it says nothing.
    pub status: Result<StatusReply, String>,
    /// Its attachments.
    pub attachments: Vec<AttachmentInfo>,
}

impl Scene {
    /// The networks as configured; none when the configuration is wrong.
    pub fn networks(&self) -> &[NetworkSettings] {
        self.settings.as_ref().map_or(&[], |settings| &settings.networks)
    }

    /// Those with a bridge of hostcni's own.
    pub fn bridges(&self) -> impl Iterator<Item = &BridgeSettings> {
        self.networks().iter().filter_map(NetworkSettings::bridge)
    }
}

/// What a tool prints; none when it is not there or fails.
pub fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = spawn::run(program, arguments, "", PATIENCE).ok()?;
    output.success().then_some(output.stdout)
}

/// The same as JSON.
pub fn json(program: &str, arguments: &[&str]) -> Option<Value> {
    serde_json::from_str(&said(program, arguments)?).ok()
}

/// The files of a directory with one of these endings, sorted.
pub fn files(directory: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known)))
        .collect();
    paths.sort();
    paths
}
