//! `firewalld_zone`: the bridges in their zones of firewalld, whenever that starts or is reloaded.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::settings::{NetworkSettings, Settings};
use crate::systemd::firewalld::{self, Told, ZonedLink};
use crate::systemd::journal::{self, Event, Firewall};

use super::node::Node;

/// What a start waits for firewalld; the rest goes on meanwhile.
const START: Duration = Duration::from_secs(2);

/// The bridges that have a zone, and what is heard of them.
pub struct Zones {
    links: Vec<ZonedLink>,
    told: RefCell<Option<UnboundedReceiver<Told>>>,
}

impl Zones {
    /// As the configuration wants it; nobody is asked yet.
    pub fn new(settings: &Settings) -> Self {
        let zoned = |network: &NetworkSettings| {
            let bridge = network.bridge()?;
            Some(ZonedLink { link: bridge.bridge.clone(), zone: bridge.firewalld_zone.clone()? })
        };
        Self { links: settings.networks.iter().filter_map(zoned).collect(), told: RefCell::default() }
    }

    /// Before the server is ready: the first pod's packets shall pass. No reason to fail, nor to wait for long.
    pub async fn at_start(&self, node: &Rc<Node>) {
        if self.links.is_empty() {
            return;
        }
        let (sender, mut told) = mpsc::unbounded_channel();
        if let Err(error) = firewalld::keep(self.links.clone(), move |it| sender.send(it).is_ok()) {
            return node.failed(&format!("firewalld_zone: {error}"));
        }
        let done = async {
            while let Some(told) = told.recv().await {
                if told == Told::Done {
                    return;
                }
                tell(node, &told);
            }
        };
        let _ = tokio::time::timeout(START, done).await;
        *self.told.borrow_mut() = Some(told);
    }

    /// Tells what happens to them until the server stops.
    pub async fn run(&self, node: &Rc<Node>) {
        if !node.readiness.ready_within(Duration::MAX).await {
            return;
        }
        let Some(mut receiver) = self.told.take() else { return };
        loop {
            tokio::select! {
                () = node.stop.cancelled() => return,
                told = receiver.recv() => match told {
                    Some(told) => tell(node, &told),
                    None => return,
                },
            }
        }
    }
}

fn tell(node: &Rc<Node>, told: &Told) {
    match told {
        Told::Taken(ZonedLink { link: bridge, zone }) => {
            journal::emit(&Event::Firewall(Firewall::ZoneTaken { bridge, zone }));
        }
        Told::Refused(ZonedLink { link: bridge, zone }, why) => {
            journal::emit(&Event::Firewall(Firewall::ZoneRefused { bridge, zone, why }));
            node.failed(&format!("firewalld: {bridge} is not in its zone {zone}: {why}"));
        }
        Told::Done => {}
    }
}
