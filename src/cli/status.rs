//! `hostcni status`.

use std::fmt::Write;
use std::time::SystemTime;

use anyhow::Context;
use clap::Args;

use super::{Exit, Socket, client, table};
use crate::wire::{ConfStatus, StatusReply};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

/// Exits with 3 when the server answers that it is not ready.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let (mut client, deadline) = client::connect(&arguments.socket)?;
    let status = client.status(deadline).context(client::NO_ANSWER)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        print!("{}", render(&status, &arguments.socket, SystemTime::now()));
    }
    Ok(if status.ready { Exit::Done } else { Exit::NotReady })
}

fn render(status: &StatusReply, socket: &Socket, now: SystemTime) -> String {
    let mut lines = vec![
        ("State", state(status, now)),
        ("Server", format!("hostcni {}, PID {}", status.version, status.pid)),
        ("Socket", socket_words(socket, status.connections)),
        ("Spooled DELs", status.spooled.to_string()),
    ];
    if !status.last_error.is_empty() {
        lines.push(("Last error", status.last_error.clone()));
    }
    for network in &status.networks {
        let unable = if network.able || !status.ready {
            String::new()
        } else {
            format!(", unable to add: {}", network.reason)
        };
        let made_of = format!("{} {}", network.driver, network.bridge);
        lines.push(("Network", format!("{} ({}){unable}", network.name, made_of.trim_end())));
        if !network.lacks.is_empty() {
            lines.push(("  Waits for", network.lacks.clone()));
        }
        lines.push(("  Conf", format!("{} ({})", network.conf.path, conf_words(&network.conf))));
        lines.push(("  Attachments", network.attachments.to_string()));
    }
    let mut text = String::new();
    for (name, value) in &lines {
        let _ = writeln!(text, "{name:<14}{value}");
    }
    let rows: Vec<Vec<String>> = status
        .networks
        .iter()
        .flat_map(|network| network.ranges.iter().map(move |range| (network, range)))
        .map(|(network, range)| {
            let count =
                |value: u64| if value == u64::MAX { "2^64 or more".to_owned() } else { value.to_string() };
            vec![network.name.clone(), range.subnet.clone(), count(range.used), count(range.free)]
        })
        .collect();
    text.push('\n');
    text.push_str(&table::render(&["NETWORK", "SUBNET", "USED", "FREE"], &rows));
    text
}

/// The socket, and who is connected; one of them is this very command.
fn socket_words(socket: &Socket, connections: u64) -> String {
    let plural = if connections == 1 { "" } else { "s" };
    format!("{} ({connections} connection{plural})", socket.socket.display())
}

fn state(status: &StatusReply, now: SystemTime) -> String {
    let since = table::age(status.since, now);
    if status.ready || status.step.is_empty() {
        format!("{} (for {since})", status.state)
    } else {
        format!("{}: {} (for {since})", status.state, status.step)
    }
}

/// What the conf's state means.
fn conf_words(conf: &ConfStatus) -> String {
    match conf.state.as_str() {
        "absent" => "absent".to_owned(),
        "ours" => "present, as rendered".to_owned(),
        "stale" => "present, but not as the configuration has it".to_owned(),
        "foreign" => format!("present, but not hostcni's: {}; it is left alone", conf.reason),
        "unusable" => format!("cannot be placed: {}", conf.reason),
        "contested" => format!("contested: {}", conf.reason),
        other => other.to_owned(),
    }
}
