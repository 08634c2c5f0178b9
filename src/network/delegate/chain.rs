//! A network configuration list carried out: every verb over its plugins, as the specification has it.
//!
//! Blocks its thread until the last plugin has ended.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::attachment::{Attachment, Delegated};
use crate::cni::{AttachmentKey, ChainPlugin, CniVersion, Command, ConfList, PodIdentity, ValidAttachment};

use super::super::steps::Steps;
use super::call::{self, Call};
use super::failure::{Failure, Why};
use super::notice::{Notice, Tell};

/// A plugin that gets less than this has no chance.
const LEAST: Duration = Duration::from_secs(1);

/// A list, and how its plugins are called.
pub(super) struct Chain {
    pub(super) list: ConfList,
    /// The version that all of them know.
    pub(super) version: CniVersion,
    pub(super) directories: Vec<PathBuf>,
    pub(super) timeout: Duration,
    pub(super) tell: Tell,
}

/// The attachment that the plugins are called for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) key: &'a AttachmentKey,
    pub(super) pod: Option<&'a PodIdentity>,
    pub(super) netns: Option<&'a Path>,
    pub(super) args: &'a str,
    pub(super) runtime: &'a Map<String, Value>,
}

impl<'a> Subject<'a> {
    /// The attachment on record, with the path of its namespace while that is there.
    pub(super) fn of(
        record: &'a Attachment,
        delegated: &'a Delegated,
        netns: Option<&'a Path>,
        runtime: &'a Map<String, Value>,
    ) -> Self {
        Self { key: &record.key, pod: record.pod.as_ref(), netns, args: &delegated.args, runtime }
    }
}

impl Chain {
    /// ADD in order, each plugin with the result of the one before. `proceed` is asked between two plugins;
    /// `result` has the last result also when one of them fails.
    pub(super) fn add(
        &self,
        subject: Subject<'_>,
        until: Instant,
        proceed: impl Fn() -> bool,
        result: &mut String,
    ) -> Result<(), Failure> {
        for plugin in self.list.plugins.iter().take_while(|_| proceed()) {
            let left = until.saturating_duration_since(Instant::now()).max(LEAST);
            let said = self.call(plugin, Command::Add, subject, result, self.timeout.min(left))?;
            *result = said;
        }
        Ok(())
    }

    /// DEL in reverse, all of them, whatever fails on the way.
    pub(super) fn del(&self, subject: Subject<'_>, result: &str) -> Vec<Failure> {
        // libcni knows no result for a DEL before 0.4.0.
        let result = if self.version >= CniVersion::V0_4_0 { result } else { "" };
        let mut failures = Vec::new();
        for plugin in self.list.plugins.iter().rev() {
            failures.extend(self.call(plugin, Command::Del, subject, result, self.timeout).err());
        }
        failures
    }

    /// CHECK in order, up to the first that finds something. Nothing before 0.4.0, which brought it.
    pub(super) fn check(&self, subject: Subject<'_>, result: &str, bound: Duration) -> Result<(), Failure> {
        if self.list.disable_check || !self.version.supports(Command::Check) {
            return Ok(());
        }
        for plugin in &self.list.plugins {
            self.call(plugin, Command::Check, subject, result, self.timeout.min(bound))?;
        }
        Ok(())
    }

    /// STATUS in order, up to the first that is not able. Nothing before 1.1.0, which brought it.
    pub(super) fn status(&self, network: &str, bound: Duration) -> Result<(), Failure> {
        if !self.version.supports(Command::Status) {
            return Ok(());
        }
        for plugin in &self.list.plugins {
            let config = self.config(plugin, network, Map::new());
            self.run(plugin, Command::Status, config, Vec::new(), self.timeout.min(bound), None)?;
        }
        Ok(())
    }

    /// GC for plugins that know it, all of them.
    pub(super) fn gc(&self, network: &str, valid: &[ValidAttachment], bound: Duration) -> Vec<Failure> {
        if self.list.disable_gc || !self.version.supports(Command::Gc) {
            return Vec::new();
        }
        let valid: Vec<Value> = valid
            .iter()
            .map(|it| json!({"containerID": it.container_id.as_str(), "ifname": it.ifname.as_str()}))
            .collect();
        let mut extra = Map::new();
        // Two spellings: the specification's, and the one that plugins of its first months read.
        extra.insert("cni.dev/valid-attachments".to_owned(), json!(valid));
        extra.insert("cni.dev/attachments".to_owned(), json!(valid));
        let mut failures = Vec::new();
        for plugin in &self.list.plugins {
            let config = self.config(plugin, network, extra.clone());
            let called = self.run(plugin, Command::Gc, config, Vec::new(), self.timeout.min(bound), None);
            failures.extend(called.err());
        }
        failures
    }

    fn call(
        &self,
        plugin: &ChainPlugin,
        command: Command,
        subject: Subject<'_>,
        result: &str,
        bound: Duration,
    ) -> Result<String, Failure> {
        let mut extra = Map::new();
        if let Ok(previous) = serde_json::from_str::<Value>(result) {
            extra.insert("prevResult".to_owned(), previous);
        }
        let taken: Map<String, Value> = subject
            .runtime
            .iter()
            .filter(|(capability, _)| plugin.takes(capability))
            .map(|(capability, value)| (capability.clone(), value.clone()))
            .collect();
        if !taken.is_empty() {
            extra.insert("runtimeConfig".to_owned(), Value::Object(taken));
        }
        let config = self.config(plugin, subject.key.network.as_str(), extra);
        let variables = vec![
            ("CNI_CONTAINERID", subject.key.container_id.to_string()),
            ("CNI_IFNAME", subject.key.ifname.to_string()),
            ("CNI_NETNS", subject.netns.map(|path| path.display().to_string()).unwrap_or_default()),
            ("CNI_ARGS", subject.args.to_owned()),
        ];
        self.run(plugin, command, config, variables, bound, Some(subject))
    }

    /// The plugin's part of the list with what libcni puts into it.
    fn config(&self, plugin: &ChainPlugin, network: &str, extra: Map<String, Value>) -> String {
        let mut conf = plugin.conf.clone();
        conf.insert("name".to_owned(), network.into());
        conf.insert("cniVersion".to_owned(), self.version.as_str().into());
        conf.extend(extra);
        Value::Object(conf).to_string()
    }

    fn run(
        &self,
        plugin: &ChainPlugin,
        command: Command,
        config: String,
        variables: Vec<(&'static str, String)>,
        deadline: Duration,
        subject: Option<Subject<'_>>,
    ) -> Result<String, Failure> {
        let (directories, kind) = (&self.directories, plugin.kind.as_str());
        let call = Call { plugin: kind, directories, command, variables, config, deadline };
        let mut steps = subject.map(|subject| Steps::of(command, subject.key));
        let (outcome, stderr) = call.make(self.version);
        if let Some(steps) = &mut steps {
            steps.passed(kind);
        }
        if !stderr.trim().is_empty() {
            (self.tell)(Notice::Said {
                plugin: kind,
                command,
                key: subject.map(|it| it.key),
                pod: subject.and_then(|it| it.pod),
                text: stderr.trim(),
            });
        }
        outcome
    }
}

/// The newest version that the list allows and all its plugins know; every plugin is there.
pub(super) fn reconcile(
    list: &ConfList,
    directories: &[PathBuf],
    deadline: Duration,
) -> Result<CniVersion, Failure> {
    let mut allowed = list.versions.clone();
    for plugin in &list.plugins {
        let knows = versions_of(plugin, directories, deadline)?;
        let before = allowed.clone();
        allowed.retain(|version| knows.iter().any(|known| known == version.as_str()));
        if allowed.is_empty() {
            let allowed = before.iter().map(|version| version.as_str()).collect::<Vec<_>>().join(", ");
            let why = Why::Versions { knows: knows.join(", "), allowed };
            return Err(Failure { plugin: plugin.kind.clone(), command: Command::Version, why });
        }
    }
    Ok(allowed[0])
}

/// What the plugin answers to VERSION.
fn versions_of(
    plugin: &ChainPlugin,
    directories: &[PathBuf],
    deadline: Duration,
) -> Result<Vec<String>, Failure> {
    let dummies = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"];
    let call = Call {
        plugin: &plugin.kind,
        directories,
        command: Command::Version,
        // What libcni sends to plugins that look at them before they look at the command.
        variables: dummies.iter().map(|name| (*name, "dummy".to_owned())).collect(),
        config: json!({"cniVersion": CniVersion::CURRENT.as_str()}).to_string(),
        deadline,
    };
    let (outcome, _) = call.make(CniVersion::CURRENT);
    match outcome {
        // Plugins older than the command itself.
        Err(Failure { why: Why::Reported(error), .. }) if error.msg.contains("unknown CNI_COMMAND") => {
            Ok(vec!["0.1.0".to_owned()])
        }
        Err(failure) => Err(failure),
        Ok(text) => {
            let versions = serde_json::from_str::<Value>(&text)
                .ok()
                .and_then(|answer| serde_json::from_value(answer.get("supportedVersions")?.clone()).ok());
            versions.ok_or_else(|| Failure {
                plugin: plugin.kind.clone(),
                command: Command::Version,
                why: Why::Garbage { code: 0, reason: "no supportedVersions".to_owned(), text },
            })
        }
    }
}

/// The first plugin whose program is not there.
pub(super) fn missing(list: &ConfList, directories: &[PathBuf]) -> Option<Failure> {
    let plugin = list.plugins.iter().find(|plugin| call::find(&plugin.kind, directories).is_none())?;
    let why = Why::Missing(call::joined(directories, ", "));
    Some(Failure { plugin: plugin.kind.clone(), command: Command::Version, why })
}
