//! `hostcni attachments`.

use std::time::SystemTime;

use anyhow::Context;
use clap::Args;

use super::{Exit, Socket, client, table};
use crate::wire::AttachmentInfo;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let (mut client, deadline) = client::connect(&arguments.socket)?;
    let attachments = client.list_attachments(deadline).context(client::NO_ANSWER)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&attachments)?);
    } else {
        print!("{}", render(&attachments, SystemTime::now()));
    }
    Ok(Exit::Done)
}

fn render(attachments: &[AttachmentInfo], now: SystemTime) -> String {
    let header = ["POD", "CONTAINER", "INTERFACE", "ADDRESSES", "HOST LINK", "AGE", "STATE", "NETWORK"];
    let rows: Vec<Vec<String>> = attachments
        .iter()
        .map(|it| {
            let pod = if it.pod_name.is_empty() {
                "-".to_owned()
            } else {
                format!("{}/{}", it.pod_namespace, it.pod_name)
            };
            vec![
                pod,
                it.container_id.chars().take(13).collect(),
                it.if_name.clone(),
                it.addresses.join(","),
                it.host_link.clone(),
                table::age(it.created, now),
                it.state.clone(),
                it.network.clone(),
            ]
        })
        .collect();
    table::render(&header, &rows)
}
