//! `hostcni log-level`: what the running server logs, without a restart.

use anyhow::Context;
use clap::Args;

use super::{Exit, Socket, client};
use crate::settings;

#[derive(Debug, Args)]
pub struct Arguments {
    /// The new filter, in RUST_LOG's syntax (`debug`, `info,hostcni=debug`); without it the filter in force is shown
    #[arg(value_name = "FILTER", conflicts_with = "reset")]
    filter: Option<String>,
    /// Go back to the configuration's filter
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    socket: Socket,
}

/// Shows the filter, or changes it until the server is restarted or reloaded.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    if let Some(filter) = &arguments.filter {
        settings::check_log_filter(filter).map_err(anyhow::Error::msg)?;
    }
    let (mut client, deadline) = client::connect(&arguments.socket)?;
    // An empty filter is the configuration's.
    let wanted = if arguments.reset { Some("") } else { arguments.filter.as_deref() };
    println!("{}", client.log_filter(wanted, deadline).context(client::NO_ANSWER)?);
    Ok(Exit::Done)
}
