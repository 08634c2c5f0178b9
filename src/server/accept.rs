//! The accept loop: never ends on an error, never takes more connections than it may.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::wire::service::{Connection, Listener};

use super::node::Node;
use super::session;

/// The pauses after failed accepts (EMFILE, ENFILE, ENOMEM pass only with time).
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Descriptors that the server's own work may need at once: netlink, files, namespaces, children, the journal, readers of
/// the metrics.
const OWN_DESCRIPTORS: u64 = 45;
/// A connection, the namespace that came with it, and the socket opened inside.
const EACH: u64 = 3;

/// Asks the accept loop for a sign of life.
pub type Probe = oneshot::Sender<()>;

/// Accepts until the server stops; what is not accepted by then waits for the next server.
pub async fn run(node: Rc<Node>, mut listener: Listener, mut probes: mpsc::Receiver<Probe>) {
    let permits = std::sync::Arc::new(Semaphore::new(most(node.settings().limits.max_connections)));
    let mut pause = FIRST_PAUSE;
    loop {
        node.crowded.set(permits.available_permits() == 0);
        let accepted = tokio::select! {
            biased;
            () = node.stop.cancelled() => return,
            Some(probe) = probes.recv() => {
                let _ = probe.send(());
                continue;
            }
            accepted = next(&permits, &mut listener) => accepted,
        };
        match accepted {
            Ok((connection, permit)) => {
                pause = FIRST_PAUSE;
                let node = Rc::clone(&node);
                let sessions = node.sessions.clone();
                sessions.spawn_local(async move {
                    node.connections.set(node.connections.get() + 1);
                    session::run(&node, connection).await;
                    node.connections.set(node.connections.get() - 1);
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "accept failed, trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// As many connections as wanted, and not so many that the server itself finds no descriptor any more: who is too
/// many waits in the socket, where it costs nothing.
fn most(wanted: usize) -> usize {
    let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current else {
        return wanted;
    };
    let possible = usize::try_from(limit.saturating_sub(OWN_DESCRIPTORS) / EACH).unwrap_or(wanted).max(1);
    if possible < wanted {
        tracing::warn!(
            limit,
            "the limit of descriptors allows {possible} connections, not {wanted}: see LimitNOFILE="
        );
    }
    wanted.min(possible)
}

/// The permit comes before the accept, so that whoever is too many waits in the socket.
async fn next(
    permits: &std::sync::Arc<Semaphore>,
    listener: &mut Listener,
) -> std::io::Result<(Connection, tokio::sync::OwnedSemaphorePermit)> {
    let permit = std::sync::Arc::clone(permits).acquire_owned().await.map_err(std::io::Error::other)?;
    Ok((listener.accept().await?, permit))
}
