//! Other firewalls of the node: what hostcni does so that they let pods' packets pass.

use std::rc::Rc;

use futures_util::future::join;

use crate::settings::Settings;

use super::forward::Forward;
use super::node::Node;
use super::zones::Zones;

/// Those that hostcni knows how to speak with.
pub struct Firewalls {
    forward: Forward,
    /// None for a server in development: the machine's firewalld is not its business.
    zones: Option<Zones>,
}

impl Firewalls {
    /// As the configuration wants it; nothing is touched yet.
    pub fn new(settings: &Settings, in_service: bool) -> Self {
        Self { forward: Forward::new(settings), zones: in_service.then(|| Zones::new(settings)) }
    }

    /// Before the server is ready.
    pub async fn at_start(&self, node: &Rc<Node>) {
        let zones = async {
            if let Some(zones) = &self.zones {
                zones.at_start(node).await;
            }
        };
        // Side by side: whoever hangs, the start is not held up for longer than by one of them.
        join(self.forward.at_start(node), zones).await;
    }

    /// Until the server stops.
    pub async fn run(self: Rc<Self>, node: Rc<Node>) {
        let zones = async {
            if let Some(zones) = &self.zones {
                zones.run(&node).await;
            }
        };
        join(self.forward.run(&node), zones).await;
    }
}
