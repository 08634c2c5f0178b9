//! One connection: its calls one after the other, each answered within its bound.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::settings;
use crate::systemd::journal;
use crate::wire::service::{Call, Connection, ReceiveError};

use super::invoke;
use super::node::Node;

/// What a peer has for a call when every place is taken. Plugins need a few milliseconds, and try again.
const MOMENT: Duration = Duration::from_millis(500);

/// Serves a connection until its peer goes, says nothing for too long, or the server stops.
pub async fn run(node: &Rc<Node>, mut connection: Connection) {
    if connection.peer_uid() != Some(0) {
        tracing::warn!(
            uid = connection.peer_uid(),
            pid = connection.peer_pid(),
            "refusing a peer that is not root"
        );
        return;
    }
    loop {
        let call = tokio::select! {
            () = node.stop.cancelled() => return,
            call = next_call(node, &mut connection) => call,
        };
        let call = match call {
            Some(Ok(call)) => call,
            Some(Err(error)) => {
                tracing::debug!(%error, pid = connection.peer_pid(), "connection ends");
                return;
            }
            None => return,
        };
        if let Err(error) = answer(node, &mut connection, call).await {
            tracing::debug!(%error, "the peer did not take its answer");
            return;
        }
    }
}

/// The peer's next call, unless it takes too long over it: no longer than a moment when others wait for a place.
async fn next_call(node: &Node, connection: &mut Connection) -> Option<Result<Call, ReceiveError>> {
    let end = Instant::now() + node.settings().limits.idle_timeout;
    let mut call = std::pin::pin!(connection.receive());
    loop {
        let until = end.min(Instant::now() + MOMENT);
        match tokio::time::timeout_at(until, &mut call).await {
            Ok(call) => return Some(call),
            Err(_) if node.crowded.get() || Instant::now() >= end => return None,
            Err(_) => {}
        }
    }
}

async fn answer(node: &Rc<Node>, connection: &mut Connection, call: Call) -> std::io::Result<()> {
    match call {
        Call::Invoke(call, netns) => {
            let caller = CancellationToken::new();
            let mut work = std::pin::pin!(invoke::carry_out(node, call, netns, caller.clone()));
            // The work always runs to its end; it is told when nobody waits for it any more.
            let answer = tokio::select! {
                answer = &mut work => answer,
                () = connection.gone() => {
                    caller.cancel();
                    work.await
                }
            };
            let invoke::Answer { reply, attached } = answer;
            // A server that stops before it is ready leaves the request to the next one.
            let Some(reply) = reply else { return Err(std::io::Error::other("stopped before it was ready")) };
            let sent = connection.reply_invoke(reply.as_ref()).await;
            if sent.is_err()
                && let Some(attached) = attached
            {
                invoke::roll_back(node, attached).await;
            }
            sent
        }
        Call::Status => connection.reply_status(&node.status()).await,
        Call::ListAttachments => connection.reply_attachments(&node.attachments()).await,
        Call::WaitReady { timeout } => {
            let ready = tokio::select! {
                ready = node.readiness.ready_within(timeout) => ready,
                () = connection.gone() => return Ok(()),
            };
            connection.reply_wait_ready(ready).await
        }
        Call::LogFilter(wanted) => {
            let taken = match wanted.as_deref() {
                None => true,
                Some("") => {
                    journal::set_filter(&node.settings().log.filter);
                    true
                }
                Some(filter) => settings::check_log_filter(filter).is_ok() && journal::filter_by(filter),
            };
            connection.reply_log_filter(taken.then(journal::filter).as_deref()).await
        }
        Call::Monitor => monitor(node, connection).await,
    }
}

/// Sends events until the peer goes or the server stops.
async fn monitor(node: &Rc<Node>, connection: &mut Connection) -> std::io::Result<()> {
    use tokio::sync::broadcast::error::RecvError;
    let mut events = node.events.subscribe();
    loop {
        let event = tokio::select! {
            () = node.stop.cancelled() => return Ok(()),
            () = connection.gone() => return Ok(()),
            event = events.recv() => event,
        };
        match event {
            Ok(event) => connection.reply_event(&event, true).await?,
            Err(RecvError::Lagged(lost)) => {
                tracing::debug!(lost, "a monitor was too slow");
            }
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}
