//! The merged configuration for people (TOML with origins as comments) and for programs (JSON).

use super::input::Entry;
use super::problem::{Origin, printable};
use std::fmt::Write as _;

/// A valid file that says the same as what was merged. An option that is not set stands there as a comment.
pub(super) fn toml(entries: &[Entry]) -> String {
    let mut text = String::new();
    let mut table: Option<(&str, Option<&str>)> = None;
    let mut network: Option<&str> = None;
    for entry in entries {
        let here = (entry.section.as_str(), entry.network.as_deref());
        if table != Some(here) {
            if let Some(name) = here.1.filter(|name| network != Some(*name)) {
                separate(&mut text);
                text.push_str("[[network]]\n");
                // A selection without its name would be of no network.
                if entry.option != "name" || entry.section != "network" {
                    line(&mut text, &format!("name = {}", toml::Value::from(name)), "");
                }
                network = here.1;
            }
            if entry.section != "network" {
                separate(&mut text);
                let _ = writeln!(text, "[{}]", entry.section);
            }
            table = Some(here);
        }
        let origin = printable(&entry.origin.to_string());
        match &entry.value {
            Some(toml::Value::Array(list)) if list.iter().any(toml::Value::is_table) => {
                line(&mut text, &format!("{} = [", entry.option), &origin);
                text.extend(list.iter().map(|item| format!("    {item},\n")));
                text.push_str("]\n");
            }
            Some(value) => line(&mut text, &format!("{} = {value}", entry.option), &origin),
            None => line(&mut text, &format!("# {} is not set", entry.option), &origin),
        }
    }
    text
}

fn separate(text: &mut String) {
    if !text.is_empty() {
        text.push('\n');
    }
}

fn line(text: &mut String, assignment: &str, origin: &str) {
    // Writing to a String cannot fail.
    let _ = if origin.is_empty() {
        writeln!(text, "{assignment}")
    } else {
        writeln!(text, "{assignment:<COMMENT$} # {origin}")
    };
}

/// The column at which the comments begin, unless a value is longer.
const COMMENT: usize = 40;

pub(super) fn json(entries: &[Entry]) -> serde_json::Value {
    let object = |entry: &Entry| {
        let (file, line) = match &entry.origin {
            Origin::Default => (None, None),
            Origin::File { path, line } => (Some(path.display().to_string()), Some(*line)),
        };
        serde_json::json!({
            "key": entry.key(),
            "network": entry.network,
            "value": entry.value,
            "origin": if file.is_some() { "file" } else { "default" },
            "file": file,
            "line": line,
        })
    };
    entries.iter().map(object).collect()
}
