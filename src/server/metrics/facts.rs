//! What others know, asked for when somebody reads.

use std::sync::atomic::Ordering;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::server::Phase;
use crate::server::invoke::lacking;
use crate::server::node::Node;
use crate::systemd::journal;

use super::Float;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNetwork {
    network: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRange {
    network: String,
    subnet: String,
}

/// The cells for them. Networks and ranges change only with a restart, so none becomes stale.
#[derive(Debug, Default)]
pub(super) struct Facts {
    ready: Gauge,
    connections: Gauge,
    spooled: Gauge,
    entries_lost: Counter,
    attachments: Family<OfNetwork, Gauge>,
    deleting: Family<OfNetwork, Gauge>,
    able: Family<OfNetwork, Gauge>,
    used: Family<OfRange, Float>,
    free: Family<OfRange, Float>,
}

impl Facts {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let facts = Self::default();
        registry.register("ready", "Whether requests are carried out", facts.ready.clone());
        registry.register("connections", "Open connections of CNI plugins", facts.connections.clone());
        registry.register("spooled_dels", "DELs that wait on disk", facts.spooled.clone());
        let help = "Entries that the journal did not take as fast as they came";
        registry.register("journal_entries_lost", help, facts.entries_lost.clone());
        registry.register("attachments", "Attachments", facts.attachments.clone());
        let help = "Attachments that are being deleted or could not be yet";
        registry.register("attachments_deleting", help, facts.deleting.clone());
        let help = "Whether STATUS would answer without an error of the server's own";
        registry.register("network_able", help, facts.able.clone());
        registry.register("leases_used", "Addresses that are leased", facts.used.clone());
        registry.register("leases_free", "Addresses that are not leased", facts.free.clone());
        facts
    }

    /// Fills the cells.
    pub(super) fn read(&self, node: &Node) {
        let ready = node.readiness.phase() == Phase::Ready;
        self.ready.set(i64::from(ready));
        self.connections.set(count(node.connections.get()));
        self.spooled.set(count(node.spool.len()));
        // The journal counts for itself; this is only where it is read.
        self.entries_lost.inner().store(journal::entries_lost(), Ordering::Relaxed);
        for (name, report) in node.networks.reports() {
            let able = ready && report.unable.is_none() && lacking(node, &name).is_none();
            let of = OfNetwork { network: name.to_string() };
            self.able.get_or_create(&of).set(i64::from(able));
            self.attachments.get_or_create(&of).set(count(report.attachments));
            self.deleting.get_or_create(&of).set(count(report.deleting));
            for range in &report.ranges {
                let of = OfRange { network: name.to_string(), subnet: range.subnet.to_string() };
                self.used.get_or_create(&of).set(float(range.used));
                self.free.get_or_create(&of).set(float(range.free));
            }
        }
    }
}

#[cfg(test)]
impl Facts {
    /// A network and a range.
    pub(super) fn example(&self) {
        let network = || "net".to_owned();
        self.able.get_or_create(&OfNetwork { network: network() }).set(1);
        self.attachments.get_or_create(&OfNetwork { network: network() }).set(2);
        self.deleting.get_or_create(&OfNetwork { network: network() }).set(0);
        let of = OfRange { network: network(), subnet: "10.128.0.0/23".to_owned() };
        self.used.get_or_create(&of).set(float(2));
        self.free.get_or_create(&of).set(float(507));
    }
}

/// As a gauge counts.
pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[allow(clippy::cast_precision_loss)] // beyond 2^53 free addresses nobody counts single ones
fn float(number: u128) -> f64 {
    number as f64
}
