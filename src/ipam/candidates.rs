//! Which address of a set is given next.
//!
//! One lap over all addresses gives the fresh ones; what is released waits in a queue and is given again
//! when the lap is over, least recently released first. So each address rests as long as any other does not
//! need it, and nothing is ever searched: the lap passes each leased address once, the queue holds each
//! resting one once.

use std::collections::{HashMap, VecDeque};

use super::span::Span;

/// More resting addresses than this are not kept: the oldest is given again although fresh ones are left.
/// It bounds the memory that a huge subnet could take after years of pods.
const MAX_RESTING: usize = 4096;

/// What gives the addresses of one set.
#[derive(Debug)]
pub(super) struct Candidates {
    spans: Vec<Span>,
    /// The next address of the lap, and its span.
    next: (usize, u128),
    /// How many addresses the lap still has to visit.
    unvisited: u128,
    /// Released addresses with the number of their release.
    resting: HashMap<u128, u64>,
    /// The order of the releases. An entry whose number is not the one in `resting` is void.
    queue: VecDeque<(u128, u64)>,
    releases: u64,
    /// Addresses looked at; the tests hold the promise of constant time by it.
    #[cfg(test)]
    pub(super) steps: u64,
}

impl Candidates {
    /// All addresses of the spans, none given yet. There is at least one span.
    pub(super) fn new(spans: Vec<Span>) -> Self {
        let mut new = Self {
            next: (0, 0),
            unvisited: 0,
            spans,
            resting: HashMap::new(),
            queue: VecDeque::new(),
            releases: 0,
            #[cfg(test)]
            steps: 0,
        };
        new.start_lap(0, None);
        new
    }

    /// Starts a new lap at the given span, or at an address of it.
    fn start_lap(&mut self, span: usize, number: Option<u128>) {
        self.next = (span, number.unwrap_or(self.spans[span].first));
        self.unvisited = self.spans.iter().map(|span| span.len()).fold(0, u128::saturating_add);
    }

    /// The lap goes on after this address, as if it had been given last. The address need not be usable any
    /// more, but belongs to the range whose spans are `first..end` of this set's.
    pub(super) fn continue_after(&mut self, number: u128, first: usize, end: usize) {
        let range = &self.spans[first..end];
        let at = first + range.partition_point(|span| span.last <= number);
        let span = at % self.spans.len();
        let from = if at == span && at < end {
            number.saturating_add(1).max(self.spans[span].first)
        } else {
            self.spans[span].first
        };
        self.start_lap(span, Some(from));
    }

    /// Takes the next address. `None` when all are taken, as `is_leased` says.
    pub(super) fn take(&mut self, is_leased: impl Fn(u128) -> bool) -> Option<u128> {
        if self.resting.len() > MAX_RESTING {
            return self.take_rested();
        }
        self.take_fresh(is_leased).or_else(|| self.take_rested())
    }

    fn take_fresh(&mut self, is_leased: impl Fn(u128) -> bool) -> Option<u128> {
        while self.unvisited > 0 {
            self.step();
            let (_, number) = self.next;
            self.advance();
            if !is_leased(number) && !self.resting.contains_key(&number) {
                return Some(number);
            }
        }
        None
    }

    fn take_rested(&mut self) -> Option<u128> {
        while let Some((number, release)) = self.queue.pop_front() {
            self.step();
            if self.resting.get(&number) == Some(&release) {
                self.resting.remove(&number);
                return Some(number);
            }
        }
        None
    }

    fn advance(&mut self) {
        self.unvisited -= 1;
        let (span, number) = self.next;
        self.next = if number < self.spans[span].last {
            (span, number + 1)
        } else {
            let span = (span + 1) % self.spans.len();
            (span, self.spans[span].first)
        };
    }

    /// The address among `spans`, of this set's own, that is best given next: one that does not rest, in the order
    /// of the lap, else the one that rests longest. `None` when all are leased, as `is_leased` says. It is not taken
    /// yet: [`Candidates::claim`] does that.
    pub(super) fn find(&self, spans: &[Span], is_leased: impl Fn(u128) -> bool) -> Option<u128> {
        let (_, next) = self.next;
        let ahead = spans.iter().map(|span| span.first.max(next)..=span.last);
        let behind = spans.iter().map(|span| span.first..=span.last);
        let rests = |number: &u128| self.resting.contains_key(number);
        let fresh = ahead.chain(behind).flatten().find(|number| !is_leased(*number) && !rests(number));
        let chosen = |number: &u128| spans.iter().any(|span| span.contains(*number));
        let longest = || self.resting.iter().filter(|(number, _)| chosen(number)).min_by_key(|(_, at)| **at);
        fresh.or_else(|| longest().map(|(number, _)| *number))
    }

    /// The address was given by request: it does not wait to be given.
    pub(super) fn claim(&mut self, number: u128) {
        self.resting.remove(&number);
    }

    /// The address is free from now on, and is given last.
    pub(super) fn rest(&mut self, number: u128) {
        self.releases += 1;
        self.resting.insert(number, self.releases);
        self.queue.push_back((number, self.releases));
        // Void entries never outnumber the others for long: this costs one step for each claim.
        if self.queue.len() > 2 * self.resting.len() + 16 {
            let resting = &self.resting;
            #[cfg(test)]
            {
                self.steps += self.queue.len() as u64;
            }
            self.queue.retain(|(number, release)| resting.get(number) == Some(release));
        }
    }

    #[cfg_attr(not(test), allow(clippy::unused_self))] // counts in tests only
    fn step(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }

    /// How many entries are kept in memory.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.queue.len().max(self.resting.len())
    }
}
