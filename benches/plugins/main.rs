//! Whole plugin invocations, as a runtime makes them: hostcni against the reference plugins and against the bare
//! kernel, in one run and interleaved, so that a busy machine is busy for all of them.
//!
//! Prints a table and the budgets of the design with what was found; writes both into `docs/performance.md` and the
//! plot beside it when asked with `--write`. Ends with status 1 when a call has failed.

mod chain;
mod contender;
mod direct;
mod journal;
mod measure;
mod plot;
mod report;

#[path = "../../tests/support/cni.rs"]
#[allow(dead_code)]
mod cni;
#[path = "../../tests/support/namespace.rs"]
#[allow(dead_code)]
mod namespace;
#[path = "../../tests/support/observe.rs"]
#[allow(dead_code)]
mod observe;
#[path = "../../tests/support/server.rs"]
#[allow(dead_code)]
mod server;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use contender::Contenders;
use measure::{Samples, burst, closer, memory, one_by_one, restart};
use namespace::Namespace;

/// A Linux bridge has at most 1023 ports; the last hundred are those that come and go.
const LEVELS: [usize; 3] = [1, 100, 900];
/// Pods that are measured: one by one each of them several times, in a burst all at once.
const PODS: usize = 100;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let write = arguments.iter().any(|argument| argument == "--write");
    let only = arguments.iter().skip_while(|argument| *argument != "--only").nth(1);
    let _journal = journal::Journal::new();
    let pods: Vec<Namespace> = (0..PODS).map(|_| Namespace::new()).collect();
    let mut contenders = Contenders::new();
    if let Some(only) = only {
        return some(&mut contenders, only, &pods);
    }
    let mut samples = Samples::default();
    let mut standing: Vec<Namespace> = Vec::new();
    let mut ready = Vec::new();
    for level in LEVELS {
        if level == LEVELS[2] {
            contenders.stand(&mut standing, 500);
            ready = restart(&mut contenders);
        }
        contenders.stand(&mut standing, level);
        eprintln!("{level} pods stand");
        one_by_one(&contenders, &pods, level, &mut samples);
        if level == LEVELS[0] {
            closer(&contenders, &pods, level, &mut samples);
        }
        for width in [8, 32] {
            burst(&contenders, &pods, level, width, &mut samples);
        }
    }
    let report = report::Report::new(&samples, &ready, memory(&mut contenders, &pods));
    println!("{report}");
    if write {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        report.write(&docs.join("performance.md"));
        fs::write(docs.join("performance.svg"), plot::svg(&samples)).expect("the docs can be written");
    }
    if samples.0.values().all(|series| series.failures == 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A look at a few, to see what a change does.
fn some(contenders: &mut Contenders, only: &str, pods: &[Namespace]) -> ExitCode {
    contenders.all.retain(|contender| only.split(',').any(|word| contender.name.contains(word)));
    let mut samples = Samples::default();
    for _ in 0..5 {
        one_by_one(contenders, pods, LEVELS[0], &mut samples);
    }
    burst(contenders, pods, LEVELS[0], 32, &mut samples);
    println!("{}", report::table(&samples));
    ExitCode::SUCCESS
}
