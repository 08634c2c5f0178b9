//! What is measured, and how.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::contender::{ALONE, CHAIN, Contender, Contenders, DELEGATE, OWN, SILENT};
use crate::namespace::Namespace;

/// Rounds of one pod after the other.
const ROUNDS: usize = 40;
/// How many times as many for what differs little.
const CLOSER: usize = 5;
/// Rounds of a burst of all pods.
const BURSTS: usize = 3;

/// What was done: by whom, which verb, how many pods stood, how many calls at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct What {
    pub level: usize,
    pub width: usize,
    pub verb: &'static str,
    pub contender: &'static str,
}

/// The durations of one kind of call.
#[derive(Default)]
pub struct Series {
    /// Each call's.
    pub calls: Vec<Duration>,
    /// Each burst's, from the first call to the last answer.
    pub bursts: Vec<Duration>,
    pub failures: usize,
}

impl Series {
    /// The value that so many of a hundred calls stay below.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.calls.clone();
        sorted.sort_unstable();
        sorted
            .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }

    /// The middle one of the bursts.
    pub fn burst(&self) -> Duration {
        let mut sorted = self.bursts.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }
}

/// All that was measured, in the order of the table.
#[derive(Default)]
pub struct Samples(pub BTreeMap<What, Series>);

impl Samples {
    fn take(&mut self, what: What, answers: Vec<(Duration, bool)>) {
        let series = self.0.entry(what).or_default();
        for (took, succeeded) in answers {
            series.calls.push(took);
            series.failures += usize::from(!succeeded);
        }
    }
}

/// One call after the other: in each round every contender in turn attaches, checks and detaches one pod.
pub fn one_by_one(contenders: &Contenders, pods: &[Namespace], level: usize, samples: &mut Samples) {
    rounds(&measured(contenders, level).collect::<Vec<_>>(), pods, level, samples);
}

/// Those that are compared by a small difference: more rounds, for which the others need not wait.
pub fn closer(contenders: &Contenders, pods: &[Namespace], level: usize, samples: &mut Samples) {
    for pair in [[CHAIN, DELEGATE], [ALONE, SILENT]] {
        let meant: Vec<_> = contenders.all.iter().filter(|one| pair.contains(&one.name)).collect();
        for _ in 0..CLOSER {
            rounds(&meant, pods, level, samples);
        }
    }
}

fn rounds(contenders: &[&Contender], pods: &[Namespace], level: usize, samples: &mut Samples) {
    for round in 0..ROUNDS {
        let pod = &pods[round % pods.len()];
        for contender in contenders {
            let number = u16::try_from(round).expect("few rounds");
            contender.node().inside(|| {
                let mut previous = None;
                for verb in ["ADD", "CHECK", "STATUS", "DEL"] {
                    if !contender.verbs.contains(&verb) {
                        continue;
                    }
                    let began = Instant::now();
                    let result = contender.call(verb, number, pod, previous.as_ref());
                    let took = began.elapsed();
                    let what = What { level, width: 1, verb, contender: contender.name };
                    samples.take(what, vec![(took, told(contender, verb, &result))]);
                    if verb == "ADD" {
                        previous = result.ok();
                    }
                }
            });
        }
    }
}

/// So many at once: every pod is attached, then every pod is detached.
pub fn burst(contenders: &Contenders, pods: &[Namespace], level: usize, width: usize, samples: &mut Samples) {
    for _ in 0..BURSTS {
        for contender in measured(contenders, level).filter(|one| one.is_plugin()) {
            let mut results: Vec<Value> = Vec::new();
            for verb in ["ADD", "CHECK", "DEL"].into_iter().filter(|verb| contender.verbs.contains(verb)) {
                let (took, answers) = all_at_once(contender, verb, pods, width, &results);
                let what = What { level, width, verb, contender: contender.name };
                let told = answers.iter().map(|(took, result)| (*took, told(contender, verb, result)));
                samples.take(what, told.collect());
                samples.0.entry(what).or_default().bursts.push(took);
                if verb == "ADD" {
                    results = answers.into_iter().map(|(_, result)| result.unwrap_or_default()).collect();
                }
            }
        }
    }
}

type Answered = (Duration, Result<Value, String>);

/// The answers in the order of the pods, and how long all took.
fn all_at_once(
    contender: &Contender,
    verb: &'static str,
    pods: &[Namespace],
    width: usize,
    previous: &[Value],
) -> (Duration, Vec<Answered>) {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut answers = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(pod) = pods.get(index) else { return answers };
            let began = Instant::now();
            let number = u16::try_from(index).expect("few pods");
            let result = contender.call(verb, number, pod, previous.get(index));
            answers.push((index, (began.elapsed(), result)));
        }
    };
    contender.node().inside(|| {
        let began = Instant::now();
        let mut answers: Vec<(usize, Answered)> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..width).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("no worker panics")).collect()
        });
        let took = began.elapsed();
        answers.sort_by_key(|(index, _)| *index);
        (took, answers.into_iter().map(|(_, answer)| answer).collect())
    })
}

/// From the start of the server's process to READY, in milliseconds, in its own words: who waits for it also waits
/// for the next look at the socket.
pub fn restart(contenders: &mut Contenders) -> Vec<f64> {
    (0..9)
        .map(|_| {
            let server = contenders.server();
            server.kill();
            server.start_again();
            let log = server.log();
            let told = log.rsplit_once("ready after ").and_then(|(_, rest)| rest.split_once(" ms"));
            told.and_then(|(number, _)| number.parse().ok()).expect("the server says how long it took")
        })
        .collect()
}

/// The server's resident memory in KiB, with all pods attached, standing and measured.
pub fn memory(contenders: &mut Contenders, pods: &[Namespace]) -> (usize, u64) {
    let contender = contenders.all.iter().find(|one| one.name == OWN).expect("it is one of them");
    let _ = all_at_once(contender, "ADD", pods, 8, &[]);
    let server = contenders.server();
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id()));
    let status = status.expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel says so");
    let kib = line.trim().trim_end_matches(" kB").parse().expect("a number");
    (server.attachments().len(), kib)
}

fn measured(contenders: &Contenders, level: usize) -> impl Iterator<Item = &Contender> {
    contenders.all.iter().filter(move |one| one.crowded || one.name == ALONE || level == 1)
}

fn told(contender: &Contender, verb: &str, result: &Result<Value, String>) -> bool {
    if let Err(error) = result {
        eprintln!("{} {verb}: {error}", contender.name);
    }
    result.is_ok()
}
