//! The text of one file → a fragment, with every problem in it and not only the first.
//!
//! serde stops at the first error. So what it complains about is noted, taken out of the document, and the rest is
//! decoded again, until it passes: the errors come from the types alone, and a person corrects a file once. What is
//! left out cannot do harm, since a file with a problem is never used.

use super::files::Source;
use super::fragment::Fragment;
use super::input::Input;
use super::problem::{Problem, nearest, shortened};
use serde::Deserialize as _;
use std::ops::Range;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Problems told of one file; whoever has more has the wrong file.
const MAX_PROBLEMS: usize = 50;

/// What the file says; problems are added to `problems`.
pub(super) fn decode(source: &Arc<Source>, problems: &mut Vec<Problem>) -> Fragment {
    let (mut document, errors) = DeTable::parse_recoverable(&source.text);
    if !errors.is_empty() {
        syntax(source, &errors, problems);
        return Fragment::default();
    }
    for _ in 0..MAX_PROBLEMS {
        let error = match Fragment::deserialize(toml::Deserializer::from(document.clone())) {
            Ok(fragment) => return fragment,
            Err(error) => error,
        };
        let found = error.span().and_then(|span| take_out(document.get_mut(), &span));
        let given_up = found.is_none();
        problems.push(describe(source, &error, found));
        if given_up {
            return Fragment::default();
        }
    }
    problems.push(Problem::at(source.origin(source.text.len()), "more problems, not shown"));
    Fragment::default()
}

/// Errors of TOML itself, one for each line: the later ones of a line are mostly echoes of the first.
fn syntax(source: &Source, errors: &[toml::de::Error], problems: &mut Vec<Problem>) {
    let mut last = None;
    for error in errors.iter().take(MAX_PROBLEMS) {
        let origin = source.origin(error.span().map_or(0, |span| span.start));
        if last.as_ref() != Some(&origin) {
            problems.push(Problem::at(
                origin.clone(),
                format!("not valid TOML: {}", lines_joined(error.message())),
            ));
        }
        last = Some(origin);
    }
}

/// What was taken out of a document.
struct Found {
    /// `network.conf.path`.
    key: String,
    /// Where key and value stand.
    key_span: Range<usize>,
    value_span: Range<usize>,
    /// Is it the key that is wrong?
    is_key: bool,
    /// A table's text is too much to show.
    is_table: bool,
}

/// Takes the key or the value that stands at `span` out of the table.
fn take_out(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<Found> {
    for (key, value) in table.iter_mut() {
        let name = key.get_ref().to_string();
        let is_key = key.span() == *span;
        let inside = if is_key { None } else { take_out_of_value(value, span) };
        if let Some(mut found) = inside {
            if found.key.is_empty() {
                found.key_span = key.span();
                found.key = name;
            } else {
                found.key = format!("{name}.{}", found.key);
            }
            return Some(found);
        }
        if is_key || value.span() == *span {
            let found = Found {
                key: name.clone(),
                key_span: key.span(),
                value_span: value.span(),
                is_key,
                is_table: holds_table(value.get_ref()),
            };
            table.remove(name.as_str());
            return Some(found);
        }
    }
    None
}

fn holds_table(value: &DeValue<'_>) -> bool {
    value.is_table()
        || value.as_array().is_some_and(|array| array.iter().any(|item| item.get_ref().is_table()))
}

fn take_out_of_value(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<Found> {
    match value.get_mut() {
        DeValue::Table(table) => take_out(table, span),
        DeValue::Array(array) => {
            if let Some(found) = array.iter_mut().find_map(|item| take_out_of_value(item, span)) {
                return Some(found);
            }
            let at = array.iter().position(|item| item.span() == *span)?;
            let is_table = holds_table(array[at].get_ref());
            *array =
                array.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, item)| item.clone()).collect();
            let key_span = span.clone();
            Some(Found { key: String::new(), key_span, value_span: span.clone(), is_key: false, is_table })
        }
        _ => None,
    }
}

/// serde's words, with file, line, key and value, and the nearest right word.
fn describe(source: &Source, error: &toml::de::Error, found: Option<Found>) -> Problem {
    let origin = source.origin(error.span().map_or(0, |span| span.start));
    let Some(found) = found else {
        return Problem::at(origin, lines_joined(error.message()));
    };
    // A value that is a table of its own lines has no place that a person would look at; its key has.
    let origin = if found.is_table && !found.is_key { source.origin(found.key_span.start) } else { origin };
    let value = source.text.get(found.value_span).filter(|_| !found.is_table).map(shortened);
    let message = if found.is_key {
        unknown_key(&found.key, error.message())
    } else if found.is_table && found.key == "network" {
        "networks are a list: write `[[network]]`, with two brackets".to_owned()
    } else {
        wrong_value(value.as_deref().unwrap_or_default(), error.message())
    };
    Problem { key: found.key, value, ..Problem::at(origin, message) }
}

/// "unknown field `brdge`, expected one of `name`, `bridge`" → what the key was meant to be, or where it belongs.
fn unknown_key(key: &str, message: &str) -> String {
    let word = key.rsplit('.').next().unwrap_or_default();
    let here = expected(message);
    if let Some(near) = nearest(word, here.iter().copied()) {
        return format!("unknown key; did you mean `{near}`? Keys here: {}", here.join(", "));
    }
    let place =
        belongs(word).map_or_else(String::new, |place| format!(" here; it belongs where `{place}` is"));
    format!("unknown key{place}. Keys here: {}", here.join(", "))
}

/// Where an option or a table of this name does belong.
fn belongs(word: &str) -> Option<String> {
    let options = Input::merge(Vec::new(), &mut Vec::new()).entries();
    let tables = options.iter().map(|option| option.section.clone());
    let all: Vec<String> = options.iter().map(super::input::Entry::key).chain(tables).collect();
    all.into_iter().find(|key| key.rsplit_once('.').is_some_and(|(_, name)| name == word))
}

/// "unknown variant `kep`, expected `keep` or `remove`" → with the nearest of them. Of the other messages only the
/// words are changed: serde's for those of TOML.
fn wrong_value(value: &str, message: &str) -> String {
    let message = lines_joined(message);
    let Some(rest) = message.strip_prefix("unknown variant ") else {
        return message
            .replacen("invalid type: sequence", "invalid type: list", 1)
            .replacen("invalid type: map", "invalid type: table", 1)
            .replacen("expected a sequence", "expected a list in brackets, [\"…\", \"…\"]", 1)
            .replacen("expected a boolean", "expected true or false", 1)
            .replacen("expected a string", "expected text in quotes", 1);
    };
    let allowed = expected(rest);
    let word = value.trim_matches(['"', '\'']);
    // The nearest number is not what was meant.
    let near = word.contains(char::is_alphabetic).then(|| nearest(word, allowed.iter().copied())).flatten();
    let hint = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
    let allowed = allowed.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
    format!("allowed: {allowed}{hint}")
}

/// The words in backticks after serde's "expected".
fn expected(message: &str) -> Vec<&str> {
    let list = message.rsplit_once("expected").map_or("", |(_, list)| list);
    list.split('`').skip(1).step_by(2).collect()
}

fn lines_joined(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
