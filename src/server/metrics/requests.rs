//! The cells of CNI requests, by verb and outcome.

use std::cell::OnceCell;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::cni::Command;

use super::{Histograms, OneLabel};

/// Upper bounds in seconds, up to the bound of an ADD.
const BUCKETS: [f64; 14] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 45.0];

/// The label `verb`. What cannot be decoded, or has no business here, is the last one.
const VERBS: [&str; 6] = ["ADD", "DEL", "CHECK", "STATUS", "GC", "other"];

/// The label `outcome` of a failure: its CNI error code. What a chain's plugins have beside these is the last one.
const CODES: [(u32, &str); 16] = [
    (1, "1"),
    (2, "2"),
    (3, "3"),
    (4, "4"),
    (5, "5"),
    (6, "6"),
    (7, "7"),
    (8, "8"),
    (11, "11"),
    (50, "50"),
    (51, "51"),
    (100, "100"),
    (102, "102"),
    (103, "103"),
    (104, "104"),
    (u32::MAX, "other"),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    verb: &'static str,
    outcome: &'static str,
}

/// What is counted of requests.
#[derive(Debug)]
pub struct Requests {
    durations: Histograms<Labels>,
    /// By verb and outcome, success first. A failure's cell is made when it happens for the first time.
    cells: [[OnceCell<Histogram>; CODES.len() + 1]; VERBS.len()],
    in_flight: [Gauge; VERBS.len()],
}

/// Counts a request as under way until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the request"]
pub struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn index(command: Option<Command>) -> usize {
    match command {
        Some(Command::Add) => 0,
        Some(Command::Del) => 1,
        Some(Command::Check) => 2,
        Some(Command::Status) => 3,
        Some(Command::Gc) => 4,
        Some(Command::Version) | None => VERBS.len() - 1,
    }
}

impl Requests {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let durations: Histograms<Labels> = Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let help = "From the request's arrival to its answer, with the wait for READY";
        registry.register_with_unit("request_duration", help, Unit::Seconds, durations.clone());
        let in_flight = Family::<OneLabel, Gauge>::default();
        registry.register("requests_in_flight", "Requests that wait or are carried out", in_flight.clone());
        let requests = Self {
            durations,
            cells: Default::default(),
            in_flight: VERBS.map(|verb| in_flight.get_or_create_owned(&[("verb", verb)])),
        };
        // There from the beginning, so that a rate begins with the first request and not with the second.
        for verb in 0..VERBS.len() - 1 {
            requests.cell(verb, 0);
        }
        requests
    }

    fn cell(&self, verb: usize, outcome: usize) -> &Histogram {
        self.cells[verb][outcome].get_or_init(|| {
            let outcome = outcome.checked_sub(1).map_or("ok", |code| CODES[code].1);
            self.durations.get_or_create_owned(&Labels { verb: VERBS[verb], outcome })
        })
    }

    /// A request is under way.
    pub fn begin(&self, command: Command) -> InFlight {
        let gauge = self.in_flight[index(Some(command))].clone();
        gauge.inc();
        InFlight(gauge)
    }

    /// A request is answered: with success, or with an error of that code.
    pub fn answered(&self, command: Option<Command>, code: Option<u32>, duration: Duration) {
        let outcome = code.map_or(0, |code| {
            1 + CODES.iter().position(|(known, _)| *known == code).unwrap_or(CODES.len() - 1)
        });
        self.cell(index(command), outcome).observe(duration.as_secs_f64());
    }
}
