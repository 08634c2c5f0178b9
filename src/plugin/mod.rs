//! The CNI plugin that runtimes start.
//!
//! A thin client: reads environment and standard input, opens the namespace, asks the server, prints the answer.
//! Promises that no call outlasts its bound, that a DEL is delivered or written down, and that whatever is
//! printed is what the specification wants. No thread, no async runtime, no configuration file but the one on
//! standard input.

mod deliver;
mod input;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::cni::{Bounds, CniVersion, Command, Environment, Error, ErrorCode, Request, version_reply};

/// A runtime whose environment is wrong already: how long its configuration is waited for, which only tells the
/// version of the error. A person at a terminal shall not wait long.
const GLANCE: Duration = Duration::from_millis(500);

/// The version in which errors are printed, once the configuration is read; for a panic as well.
static VERSION: OnceLock<CniVersion> = OnceLock::new();

/// Answers the runtime: a result or an error object on standard output.
pub fn main() -> ExitCode {
    let started = Instant::now();
    std::panic::set_hook(Box::new(|info| {
        fail(Error::new(ErrorCode::Other(999), format!("a bug in hostcni's plugin: {info}")));
        // Whether panics unwind or abort: the runtime shall see an ordinary failure.
        std::process::exit(1);
    }));
    match answer(started) {
        // A runtime that did not get its result has not succeeded.
        Ok(text) => print(&text).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
        Err(error) => {
            fail(error);
            ExitCode::FAILURE
        }
    }
}

fn answer(started: Instant) -> Result<String, Error> {
    let environment = Environment::parse(variable);
    // Until the configuration is read the bounds are the defaults.
    let patience = |environment: &Environment| Bounds::default().for_command(environment.command);
    let config = input::read(started + environment.as_ref().map_or(GLANCE, patience));
    if let Ok(config) = &config {
        let _ = VERSION.set(Request::version_of(config));
    }
    let environment = environment?;
    let config = config?;
    if environment.command == Command::Version {
        return Ok(version_reply(&config));
    }
    let request = Request::from_parts(environment, config)?;
    let bound = request.conf.host.bounds.for_command(request.command);
    deliver::deliver(&request, started + bound)
}

/// A variable of the environment. What is not UTF-8 fails its check, rather than count as missing.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Prints the error; a runtime that does not listen is past caring.
fn fail(mut error: Error) {
    if std::env::var_os("CNI_COMMAND").is_some_and(|command| command == Command::Del.as_str()) {
        error.msg = unmistakable(&error.msg);
        error.details = unmistakable(&error.details);
    }
    let _ = print(&error.to_json(VERSION.get().copied().unwrap_or(CniVersion::CURRENT)));
}

/// Prints, if there is something to print.
fn print(text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Runtimes take some words in the error of a DEL for success, wherever they stand, and so forget the attachment.
/// go-cni: "not found"; go-cni and Multus: "no such file or directory".
const MISTAKABLE: &[(&str, &str)] =
    &[("not found", "missing"), ("no such file or directory", "it does not exist")];

/// The text in words that no runtime takes for success.
fn unmistakable(text: &str) -> String {
    let mut text = text.to_owned();
    for (words, instead) in MISTAKABLE {
        while let Some(at) = text.to_ascii_lowercase().find(words) {
            text.replace_range(at..at + words.len(), instead);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_of_a_del_reads_like_success() {
        assert_eq!(
            unmistakable("open /x: No such file or directory (os error 2)"),
            "open /x: it does not exist (os error 2)"
        );
        assert_eq!(unmistakable("Not Found, not found: née"), "missing, missing: née");
        // What is put in makes no new one.
        assert_eq!(unmistakable("not not foundfound"), "not missingfound");
        assert_eq!(unmistakable("the pool is exhausted"), "the pool is exhausted");
    }
}
