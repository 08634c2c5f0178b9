//! `hostcni explain`.

use std::fmt::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Instant, SystemTime};

use clap::Args;
use serde_json::json;

use super::{Exit, Socket, client, table};
use crate::datapath::netns;
use crate::explain::{self, Asked, Checked, Explained, Explanation, Form, Known, Look};
use crate::wire::client::{CallError, Client};
use crate::wire::{AttachmentInfo, Invoke};

#[derive(Debug, Args)]
pub struct Arguments {
    /// A pod's name, NAMESPACE/NAME or UID; a container's id; an address; the node's end of a link
    #[arg(value_name = "POD|CONTAINER|ADDRESS|LINK")]
    asked: Asked,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

/// Exits with 1 when nothing is known.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let known = match ask(&arguments.socket) {
        Ok(known) => known,
        Err(error) => {
            eprintln!("hostcni: {error:#}; what follows is from the kernel and the journal alone");
            Known::default()
        }
    };
    let form = if arguments.json { Form::Json } else { Form::Text };
    let told = explain::explain(&arguments.asked, known, form, |it| check(&arguments.socket, it));
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&told)?);
    } else {
        print!("{}", render(&told, SystemTime::now()));
    }
    Ok(if told.attachments.is_empty() && told.story.is_none() { Exit::Failed } else { Exit::Done })
}

fn ask(socket: &Socket) -> anyhow::Result<Known> {
    let (mut client, deadline) = client::connect(socket)?;
    let networks = client.status(deadline)?.networks;
    let ranges = networks.into_iter().flat_map(|network| network.ranges).collect();
    Ok(Known { attachments: Some(client.list_attachments(deadline)?), ranges })
}

/// CHECK, as a runtime would call it.
fn check(socket: &Socket, attachment: &AttachmentInfo) -> Checked {
    let Ok(netns) = netns::open(Path::new(&attachment.netns)) else {
        return Checked::Unknown(format!("its namespace {:?} is not there", attachment.netns));
    };
    let ips: Vec<_> = attachment.addresses.iter().map(|address| json!({"address": address})).collect();
    let config = json!({
        "cniVersion": "1.0.0", "name": attachment.network, "type": "hostcni",
        "prevResult": {"cniVersion": "1.0.0", "ips": ips},
    });
    let call = Invoke {
        command: "CHECK".to_owned(),
        container_id: attachment.container_id.clone(),
        if_name: attachment.if_name.clone(),
        netns: attachment.netns.clone(),
        netns_fd: Some(0),
        config: config.to_string(),
        ..Invoke::default()
    };
    let deadline = Instant::now() + client::PATIENCE;
    let answer = Client::connect(&socket.socket, deadline)
        .map_err(CallError::from)
        .and_then(|mut client| client.invoke(&call, Some(netns.as_fd()), deadline));
    match answer {
        Ok(_) => Checked::AsMade,
        Err(CallError::Cni(error)) if error.details.is_empty() => Checked::Differs(vec![error.msg]),
        Err(CallError::Cni(error)) => Checked::Differs(error.details.lines().map(str::to_owned).collect()),
        Err(error) => Checked::Unknown(error.to_string()),
    }
}

fn render(told: &Explanation, now: SystemTime) -> String {
    let mut text: String = told.attachments.iter().map(|it| attached(it, now)).collect();
    if told.attachments.is_empty() {
        text += "not attached now\n";
    }
    match (&told.story, &told.unread) {
        (Some(story), _) => text += &looked(story),
        (None, None) => text += "the journal knows nothing of it\n",
        (None, Some(why)) => {
            let _ = writeln!(text, "what the journal knows of it cannot be told: {why}");
        }
    }
    if told.earlier > 0 {
        let _ = writeln!(text, "({} earlier containers are not shown)", told.earlier);
    }
    text
}

fn attached(it: &Explained, now: SystemTime) -> String {
    let at = &it.attachment;
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{name:<11}{value}");
        }
    };
    if !at.pod_name.is_empty() {
        row("pod", &format!("{}/{} (uid {})", at.pod_namespace, at.pod_name, at.pod_uid));
    }
    row("container", &at.container_id);
    row("interface", &format!("{} of network {}", at.if_name, at.network));
    row("addresses", &at.addresses.join(", "));
    for range in &it.ranges {
        row("", &format!("from {}: {} of {} used", range.subnet, range.used, range.capacity));
    }
    row("mac", &at.mac);
    row("link", &at.host_link);
    row("namespace", &at.netns);
    row(
        "state",
        &if at.created == 0 {
            at.state.clone()
        } else {
            format!("{} for {}", at.state, table::age(at.created, now))
        },
    );
    match &it.check {
        Checked::AsMade => row("check", "all is as ADD made it"),
        Checked::Unknown(why) => row("check", &format!("not carried out: {why}")),
        Checked::Differs(differences) => {
            for difference in differences {
                row("check", &format!("DIFFERS: {difference}"));
            }
        }
    }
    for element in &it.elements {
        row("nftables", element);
    }
    text.push('\n');
    it.outside.iter().chain(&it.inside).map(looked).fold(text, |text, look| text + &look)
}

/// The command and what it says, as on a terminal.
fn looked(look: &Look) -> String {
    format!("# {}\n{}\n", look.command, look.says.as_str().unwrap_or_default())
}
