//! The CNI plugin that runtimes start.
//!
//! A thin client: reads environment and standard input, opens the namespace, asks the server, prints the answer.
//! Promises that no call outlasts its bound, that a DEL is delivered or written down, and that whatever is
//! printed is what the specification wants. No thread, no async runtime, no configuration file but the one on
//! standard input.

mod deliver;
mod input;

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use crate::cni::{self, Command, Environment, Error, ErrorCode, Request, version_reply};

/// Answers the runtime: a result or an error object on standard output.
pub fn main() -> ExitCode {
    let started = Instant::now();
    std::panic::set_hook(Box::new(|info| {
        let error = Error::new(ErrorCode::Other(999), format!("a bug in hostcni's plugin: {info}"));
        print(&error.to_json(cni::CniVersion::CURRENT));
        std::process::exit(1);
    }));
    let mut config = String::new();
    match answer(started, &mut config) {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            print(&error.to_json(Request::version_of(&config)));
            ExitCode::FAILURE
        }
    }
}

fn answer(started: Instant, config: &mut String) -> Result<String, Error> {
    let environment = Environment::parse(|name| std::env::var(name).ok())?;
    // Until the configuration is read the bounds are the defaults.
    let patience = cni::Bounds::default().for_command(environment.command);
    *config = input::read(started + patience)?;
    if environment.command == Command::Version {
        return Ok(version_reply(config));
    }
    let request = Request::from_parts(environment, config.clone())?;
    deliver::deliver(&request, started + request.conf.host.bounds.for_command(request.command))
}

/// Prints, if there is something to print; a runtime that does not listen is past caring.
fn print(text: &str) {
    if !text.is_empty() {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }
}
