//! The watchdog's check: the accept loop answers, and the kernel answers through netlink.
//!
//! Logs nothing: a journal that does not read must not make systemd believe that the network is dead.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::systemd::{notify, watchdog};

use super::accept::Probe;
use super::node::Node;

/// Feeds the watchdog as long as the server lives; also while it starts and drains.
pub async fn run(node: Rc<Node>, probes: mpsc::Sender<Probe>) {
    let Some(interval) = watchdog::interval() else { return };
    let mut tick = tokio::time::interval(interval / 3);
    loop {
        tick.tick().await;
        if healthy(&node, &probes, interval / 3).await {
            notify::watchdog();
        }
    }
}

async fn healthy(node: &Node, probes: &mpsc::Sender<Probe>, bound: Duration) -> bool {
    let check = async {
        let (answer, answered) = oneshot::channel();
        // While the server stops there is no accept loop any more, and that is right.
        let accepts =
            node.stop.is_cancelled() || (probes.send(answer).await.is_ok() && answered.await.is_ok());
        let asked = Instant::now();
        let answers = accepts && node.kernel.ping().await.is_ok();
        if answers {
            node.metrics.threads.probed(asked.elapsed());
        }
        answers
    };
    tokio::time::timeout(bound, check).await.unwrap_or(false)
}
