//! `hostcni wait-ready`.

use std::time::{Duration, Instant};

use clap::Args;

use super::{Exit, Socket};
use crate::wire::client::Client;

#[derive(Debug, Args)]
pub struct Arguments {
    /// How long to wait, for example 45s, 500ms or 2m
    #[arg(long, value_name = "DURATION", default_value = "45s", value_parser = crate::settings::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    socket: Socket,
}

/// The pause before a socket that is not there yet is tried again.
const PAUSE: Duration = Duration::from_millis(200);

pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let deadline = Instant::now() + arguments.timeout;
    loop {
        match ask(arguments, deadline) {
            Ok(true) => return Ok(Exit::Done),
            // The server did not become ready, or went away while it was asked.
            Ok(false) | Err(_) if Instant::now() + PAUSE < deadline => std::thread::park_timeout(PAUSE),
            Ok(false) => {
                eprintln!("hostcni: not ready: see `hostcni status`");
                return Ok(Exit::NotReady);
            }
            Err(error) => {
                eprintln!("hostcni: not ready: {error}");
                return Ok(Exit::NotReady);
            }
        }
    }
}

fn ask(arguments: &Arguments, deadline: Instant) -> anyhow::Result<bool> {
    let mut client = Client::connect(&arguments.socket.socket, deadline)?;
    Ok(client.wait_ready(deadline.saturating_duration_since(Instant::now()), deadline)?)
}
