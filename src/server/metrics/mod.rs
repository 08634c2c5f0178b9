//! What the server counts and measures, and how it is read.
//!
//! Owns every metric's name, labels and cell, and the listener on which they are read. Promises that a request finds
//! its cells ready (an index: no look-up, nothing made), and that readers, however many and however slow, keep no
//! request waiting. What others know already (leases, the spool, readiness) is asked for when somebody reads.

mod facts;
mod http;
mod listen;
mod requests;
mod threads;

pub use listen::start;

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::network::Reconciled;

use facts::Facts;
use requests::Requests;
use threads::Threads;

/// A label and its value, both known when this was compiled.
type OneLabel = [(&'static str, &'static str); 1];
/// Histograms, and what each of them begins as.
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;
/// None, for a family whose one cell is there only once it has something to say.
type NoLabels = [(&'static str, &'static str); 0];
/// A gauge of seconds, or of a count that an IPv6 subnet makes large.
type Float = Gauge<f64, AtomicU64>;

/// What was repaired, in the words of the label `object`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// A conf was put back.
    Conf,
    /// A bridge, an address, a route or a sysctl.
    Node,
    /// The nftables tables.
    Nftables,
}

/// In the order of [`Repair`].
const REPAIRS: [&str; 3] = ["conf", "node", "nftables"];

/// In which text the metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' own, 0.0.4, for readers that know no other.
    Prometheus,
}

/// Every metric of the server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Of CNI requests.
    pub requests: Requests,
    /// Of the kernel's threads.
    pub threads: Threads,
    repairs: [Counter; REPAIRS.len()],
    reconciled: Family<OneLabel, Gauge>,
    /// ADDs that were undone, since nobody was there any more to take the result.
    pub rolled_back: Counter,
    /// Leases that are free again because their link vanished without a DEL.
    pub reclaimed: Counter,
    replays: [Counter; 2],
    time_to_ready: Family<NoLabels, Float>,
    restarts: Family<NoLabels, Counter>,
    facts: Facts,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("hostcni");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The server's build", build);
        let start = Float::default();
        start.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        let help = "When the server's process began, since the epoch";
        registry.register_with_unit("start_time", help, Unit::Seconds, start);

        let requests = Requests::new(&mut registry);
        let threads = Threads::new(&mut registry);
        let repairs = Family::<OneLabel, Counter>::default();
        registry.register("repairs", "What others removed or changed and is back", repairs.clone());
        let replays = Family::<OneLabel, Counter>::default();
        registry.register("spool_replays", "Spooled DELs that were tried", replays.clone());
        let metrics = Self {
            requests,
            threads,
            repairs: REPAIRS.map(|object| repairs.get_or_create_owned(&[("object", object)])),
            reconciled: Family::default(),
            rolled_back: Counter::default(),
            reclaimed: Counter::default(),
            replays: ["ok", "failed"].map(|outcome| replays.get_or_create_owned(&[("outcome", outcome)])),
            time_to_ready: Family::default(),
            restarts: Family::default(),
            facts: Facts::new(&mut registry),
            registry: Registry::default(),
        };
        let help = "What the start found when it matched attachments with the kernel";
        registry.register("reconciled", help, metrics.reconciled.clone());
        let help = "ADDs that were undone because nobody took their result";
        registry.register("adds_rolled_back", help, metrics.rolled_back.clone());
        let help = "Leases freed because their link vanished without a DEL";
        registry.register("leases_reclaimed", help, metrics.reclaimed.clone());
        let help = "From the start to READY";
        registry.register_with_unit("time_to_ready", help, Unit::Seconds, metrics.time_to_ready.clone());
        let help = "Starts by systemd itself since somebody last started the service";
        registry.register("service_restarts", help, metrics.restarts.clone());
        Self { registry, ..metrics }
    }
}

impl Metrics {
    /// Something that others removed or changed is back.
    pub fn repaired(&self, what: Repair) {
        self.repairs[what as usize].inc();
    }

    /// What the start found.
    pub fn reconciled(&self, found: &Reconciled) {
        let all = [
            ("kept", found.kept),
            ("rebuilt", found.rebuilt),
            ("freed", found.freed),
            ("undone", found.undone),
            ("orphaned", found.orphans),
            ("failed", found.failures.len()),
        ];
        for (result, count) in all {
            self.reconciled.get_or_create(&[("result", result)]).set(facts::count(count));
        }
    }

    /// A spooled DEL was tried.
    pub fn replayed(&self, done: bool) {
        self.replays[usize::from(!done)].inc();
    }

    /// The server is ready.
    pub fn ready_after(&self, duration: Duration) {
        self.time_to_ready.get_or_create(&[]).set(duration.as_secs_f64());
    }

    /// How often systemd started the service again by itself.
    pub fn restarted(&self, times: u32) {
        self.restarts.get_or_create(&[]).inc_by(u64::from(times));
    }

    /// All of it as a text.
    fn write(&self, format: Format) -> String {
        let mut out = String::with_capacity(32 << 10);
        let written = match format {
            Format::OpenMetrics => text::encode(&mut out, &self.registry),
            Format::Prometheus => prometheus_text::encode(&mut out, &self.registry),
        };
        // A String takes everything, and no label of ours refuses to be written.
        if let Err(error) = written {
            tracing::debug!(%error, "cannot write the metrics");
        }
        out
    }
}

#[cfg(test)]
mod tests;
