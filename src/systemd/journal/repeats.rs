//! One trouble, one story: an entry that comes again and again is told a few times, then counted.
//!
//! Entries of an attachment are never held back, since each is part of a pod's story.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often an entry is told within [`WINDOW`] before the next ones are counted only.
pub(super) const MOST: u32 = 5;
/// After this long a count is told.
pub(super) const WINDOW: Duration = Duration::from_secs(30);
/// More different troubles than this at once are not looked after: all of them are told.
const KEPT: usize = 256;

/// What makes two entries the same: the kind, and the words.
type Key = (&'static str, String);

#[derive(Debug)]
struct Told {
    since: Instant,
    times: u32,
    held_back: u64,
}

/// What was told lately.
#[derive(Debug, Default)]
pub(super) struct Repeats(HashMap<Key, Told>);

/// An entry that was held back so many times.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeldBack {
    /// The kind of event.
    pub(super) id: &'static str,
    /// Its words.
    pub(super) message: String,
    /// How often.
    pub(super) count: u64,
}

impl Repeats {
    /// Whether this entry is to be told now.
    pub(super) fn tell(&mut self, id: &'static str, message: &str, now: Instant) -> bool {
        let key = (id, message.to_owned());
        if let Some(told) = self.0.get_mut(&key) {
            told.times += 1;
            if told.times > MOST {
                told.held_back += 1;
                return false;
            }
        } else if self.0.len() < KEPT {
            self.0.insert(key, Told { since: now, times: 1, held_back: 0 });
        }
        true
    }

    /// What was held back and is due; at the end of the process all of it.
    pub(super) fn due(&mut self, now: Instant, end: bool) -> Vec<HeldBack> {
        let mut due = Vec::new();
        self.0.retain(|(id, message), told| {
            if !end && now.duration_since(told.since) < WINDOW {
                return true;
            }
            if told.held_back > 0 {
                due.push(HeldBack { id, message: message.clone(), count: told.held_back });
            }
            false
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_few_are_told_and_then_a_count() {
        let (mut repeats, begin) = (Repeats::default(), Instant::now());
        let told = (0..100).filter(|_| repeats.tell("id", "the disk is full", begin)).count();
        assert_eq!(told, MOST as usize);
        assert_eq!(repeats.due(begin, false), []);
        assert!(repeats.tell("id", "something else", begin));
        let count = 100 - u64::from(MOST);
        let expected = HeldBack { id: "id", message: "the disk is full".into(), count };
        assert_eq!(repeats.due(begin + WINDOW, false), [expected]);
        // A new window, a new story.
        assert!(repeats.tell("id", "the disk is full", begin + WINDOW));
        assert_eq!(repeats.due(begin + 2 * WINDOW, true), []);
    }

    #[test]
    fn the_end_of_the_process_tells_what_is_left() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        for _ in 0..=MOST {
            repeats.tell("id", "text", now);
        }
        assert_eq!(repeats.due(now, true).len(), 1);
        assert_eq!(repeats.due(now, true), []);
    }

    #[test]
    fn it_remembers_no_more_than_it_may() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        for number in 0..10 * KEPT {
            assert!(repeats.tell("id", &number.to_string(), now));
        }
        assert_eq!(repeats.0.len(), KEPT);
    }
}
