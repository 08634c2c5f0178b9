//! Why a plugin of a chain did not do what it was called for.

use std::time::Duration;

use crate::cni::{self, Command, ErrorCode};
use crate::datapath::KernelError;

/// A plugin could not be run to the end; the specification leaves codes from 100 on to the plugin.
const PLUGIN_FAILED: u32 = 105;

/// What became of a call of a plugin that failed.
#[derive(Debug, thiserror::Error)]
#[error("plugin {plugin}, {command}: {why}")]
pub struct Failure {
    /// The plugin's `type`.
    pub plugin: String,
    /// What it was called for.
    pub command: Command,
    /// What went wrong.
    pub why: Why,
}

/// What went wrong with a call.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// There is no such file.
    #[error("there is no such program in {0}: install it, or correct network.delegate.plugin_dirs")]
    Missing(String),
    /// The program could not be started.
    #[error("{0}")]
    NotStarted(KernelError),
    /// It did not end, and was killed with all that it had started.
    #[error("no end within {} s, killed with its process group: see its own log, or raise network.delegate.timeout", .0.as_secs_f32())]
    Hung(Duration),
    /// It died.
    #[error("ended by signal {signal}{}", said(.stderr))]
    Signal {
        /// The signal.
        signal: i32,
        /// Its last words.
        stderr: String,
    },
    /// It said nothing where an answer is due.
    #[error("exit code {code} and no output{}", said(.stderr))]
    Silent {
        /// The exit code.
        code: i32,
        /// Its last words.
        stderr: String,
    },
    /// It said what is no answer.
    #[error("exit code {code} and what is no answer ({reason}): {text:?}")]
    Garbage {
        /// The exit code.
        code: i32,
        /// What is wrong with it.
        reason: String,
        /// The beginning of it.
        text: String,
    },
    /// It reported an error as the specification has it.
    #[error("{} (its code {}){}", .0.msg, .0.code.as_u32(), details(.0))]
    Reported(cni::Error),
    /// It does not know any version that the list allows.
    #[error(
        "knows the versions {knows}, and the list allows {allowed}: correct cniVersion, or install another plugin"
    )]
    Versions {
        /// What the plugin knows.
        knows: String,
        /// What the list and the plugins before it allow.
        allowed: String,
    },
}

impl Failure {
    /// The CNI error code: the plugin's own where it gave one.
    pub fn code(&self) -> ErrorCode {
        match &self.why {
            Why::Reported(error) => error.code,
            Why::Hung(_) => ErrorCode::TryAgainLater,
            Why::Versions { .. } => ErrorCode::IncompatibleVersion,
            _ => ErrorCode::Other(PLUGIN_FAILED),
        }
    }
}

/// The last line on standard error, where a plugin that panics says why.
fn said(stderr: &str) -> String {
    stderr
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .map_or_else(String::new, |line| format!("; its last words: {:?}", beginning(line)))
}

fn details(error: &cni::Error) -> String {
    if error.details.is_empty() { String::new() } else { format!("; {}", error.details) }
}

/// As much of a text as an error message can hold.
pub(super) fn beginning(text: &str) -> String {
    const MOST: usize = 200;
    let text = text.trim();
    if text.chars().count() <= MOST {
        text.to_owned()
    } else {
        text.chars().take(MOST).chain(['…']).collect()
    }
}
