//! How long netlink requests wait for their thread, and how long they take in the kernel.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::datapath::{Observer, Spent, Thread};

use super::{Histograms, OneLabel};

/// Upper bounds in seconds: an element of nftables takes some microseconds, the deletion of a link some 20 ms, and the
/// watchdog loses patience after seconds.
const BUCKETS: [f64; 12] = [0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0];

/// What is measured of the kernel's threads. Shared by these and the server's own.
#[derive(Debug)]
pub struct Threads {
    /// By thread, in the order of [`Thread::ALL`]: waiting, working.
    cells: Arc<[[Histogram; 2]; Thread::ALL.len()]>,
    probes: Histogram,
}

impl Threads {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let family = || -> Histograms<OneLabel> { Family::new_with_constructor(|| Histogram::new(BUCKETS)) };
        let (waits, works) = (family(), family());
        let help = "How long requests to the kernel wait for their thread";
        registry.register_with_unit("netlink_wait", help, Unit::Seconds, waits.clone());
        let help = "How long requests to the kernel take, with the wait for its locks";
        registry.register_with_unit("netlink_work", help, Unit::Seconds, works.clone());
        let probes = Histogram::new(BUCKETS);
        let help = "How long the smallest request that takes the RTNL lock takes";
        registry.register_with_unit("rtnl_probe", help, Unit::Seconds, probes.clone());
        let of = |thread: Thread| {
            [&waits, &works].map(|family| family.get_or_create_owned(&[("thread", thread.as_str())]))
        };
        Self { cells: Arc::new(Thread::ALL.map(of)), probes }
    }

    /// What the kernel's threads are to tell.
    pub fn observer(&self) -> Observer {
        let cells = Arc::clone(&self.cells);
        Arc::new(move |thread, spent, time| {
            let spent = match spent {
                Spent::Waiting => 0,
                Spent::Working => 1,
            };
            cells[thread as usize][spent].observe(time.as_secs_f64());
        })
    }

    /// The watchdog has asked the kernel for one link.
    pub fn probed(&self, time: Duration) {
        self.probes.observe(time.as_secs_f64());
    }
}
