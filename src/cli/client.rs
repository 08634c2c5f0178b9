//! Asking the server, for the verbs that do.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::Socket;
use crate::wire::client::Client;

/// A person waits at most this long for an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the server.
pub fn connect(socket: &Socket) -> anyhow::Result<(Client, Instant)> {
    let deadline = Instant::now() + PATIENCE;
    let client = Client::connect(&socket.socket, deadline).with_context(|| {
        format!(
            "cannot reach the server at {}: is hostcni.socket up? (`systemctl status hostcni.socket`)",
            socket.socket.display()
        )
    })?;
    Ok((client, deadline))
}

/// The words for an answer that did not come.
pub const NO_ANSWER: &str =
    "the server took the connection but did not answer: see `systemctl status hostcni`";
