//! `hostcni monitor`: live events, across restarts of the server.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;

use super::{Exit, Socket, client};
use crate::wire::MonitorEvent;
use crate::wire::client::Client;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

/// The pause before a server that went away is asked again.
const PAUSE: Duration = Duration::from_millis(500);

pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    // The first connection must work: a wrong path is told at once.
    client::connect(&arguments.socket)?;
    loop {
        let connected = Client::connect(&arguments.socket.socket, Instant::now() + client::PATIENCE);
        if let Ok(client) = connected
            && let Ok(events) = client.monitor()
        {
            for event in events.map_while(Result::ok) {
                let line = if arguments.json { serde_json::to_string(&event)? } else { line(&event) };
                if writeln!(std::io::stdout(), "{line}").is_err() {
                    return Ok(Exit::Done);
                }
            }
        }
        std::thread::park_timeout(PAUSE);
    }
}

fn line(event: &MonitorEvent) -> String {
    let seconds = event.at / 1_000_000 % 86_400;
    let clock = format!("{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fields = event.fields.iter().filter(|(_, value)| !value.is_empty());
    let fields: Vec<String> = fields.map(|(name, value)| format!("{name}={value}")).collect();
    format!("{clock} {} {}", event.kind, fields.join(" ")).trim_end().to_owned()
}
