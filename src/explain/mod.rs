//! `hostcni explain`: all that the node knows of one pod, also of one that is gone.
//!
//! Owns the finding of what is meant and the looking. It asks the server for attachments and CHECK, the kernel through the
//! tools that people use (`ip`, `tc`, `nft`), whose words are shown as they are, and the journal. Nothing is changed.

mod asked;
mod elements;
mod journal;
mod kernel;

pub use asked::Asked;

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::datapath::spawn;
use crate::wire::{AttachmentInfo, RangeStatus};

/// How long a tool may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What CHECK of an attachment says: nothing differs, these things do, or why it was not asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Checked {
    /// All is as ADD made it.
    AsMade,
    /// One line each.
    Differs(Vec<String>),
    /// No answer.
    Unknown(String),
}

/// A tool's words: text, or JSON where it was asked for that.
#[derive(Debug, Serialize)]
pub struct Look {
    /// What to type to see it again.
    pub command: String,
    /// What it says.
    pub says: Value,
}

/// Whether tools are asked for text or for JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// An attachment that is there.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// What the server has on record; less, from the link's alias, when it does not answer.
    pub attachment: AttachmentInfo,
    /// What CHECK says.
    pub check: Checked,
    /// The ranges that its addresses are from.
    pub ranges: Vec<RangeStatus>,
    /// The node's end of its link.
    pub outside: Vec<Look>,
    /// What is in its namespace.
    pub inside: Vec<Look>,
    /// What nftables knows of it.
    pub elements: Vec<String>,
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// The attachments that are there now.
    pub attachments: Vec<Explained>,
    /// How many earlier containers the journal knows beyond those of the story.
    pub earlier: usize,
    /// Its story from the journal; none when the journal knows nothing.
    pub story: Option<Look>,
    /// Why the journal may know more than it tells.
    pub unread: Option<String>,
}

/// What the server says before the looking begins.
#[derive(Debug, Default)]
pub struct Known {
    /// Every attachment; none from the server when it does not answer.
    pub attachments: Option<Vec<AttachmentInfo>>,
    /// The ranges of all networks.
    pub ranges: Vec<RangeStatus>,
}

/// Looks for what was asked for.
pub fn explain(
    asked: &Asked,
    known: Known,
    form: Form,
    mut check: impl FnMut(&AttachmentInfo) -> Checked,
) -> Explanation {
    let all = known.attachments.unwrap_or_else(kernel::attachments);
    let meant: Vec<AttachmentInfo> = all.into_iter().filter(|it| asked.means(it)).collect();
    let (story, earlier) = journal::story(asked, &meant, form);
    let attachments = meant.into_iter().map(|attachment| Explained {
        check: check(&attachment),
        ranges: known.ranges.iter().filter(|range| is_from(range, &attachment)).cloned().collect(),
        outside: kernel::outside(&attachment, form),
        inside: kernel::inside(&attachment, form),
        elements: elements::of(&attachment),
        attachment,
    });
    let unread = if story.is_none() { journal::unread() } else { None };
    Explanation { attachments: attachments.collect(), earlier, story, unread }
}

fn is_from(range: &RangeStatus, attachment: &AttachmentInfo) -> bool {
    let subnet = range.subnet.parse::<ipnet::IpNet>();
    let mut addresses = attachment.addresses.iter().filter_map(|it| it.parse::<ipnet::IpNet>().ok());
    subnet.is_ok_and(|subnet| addresses.any(|address| subnet.contains(&address.addr())))
}

impl Look {
    /// Runs a tool; what goes wrong is what it says.
    fn at(words: &[&str], form: Form) -> Self {
        let (program, arguments) =
            words.split_first().map_or(("", words), |(program, rest)| (*program, rest));
        let said = match spawn::run(program, arguments, "", PATIENCE) {
            Ok(output) if output.success() => output.stdout,
            Ok(output) => return Self { command: words.join(" "), says: Value::String(output.stderr) },
            Err(error) => return Self { command: words.join(" "), says: Value::String(error.to_string()) },
        };
        let says = match form {
            Form::Text => Value::String(said),
            // `ip` prints an array, `journalctl` one object a line.
            Form::Json => match serde_json::from_str(&said) {
                Ok(Value::Array(all)) => Value::Array(all),
                _ => said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect(),
            },
        };
        Self { command: words.join(" "), says }
    }
}
