//! Deleting links, many at the price of one.
//!
//! Deleting a link waits for a grace period of the kernel (some 20 ms), and deleting a whole group of links
//! waits little longer. So requests that arrive while a deletion is in flight are gathered, and then all
//! deleted as one group ("group commit"). Each request is answered only when its link is gone.
//!
//! Only veths and ifbs that were asked for are ever put into a group, each batch has a number of its own from a range
//! of ours, and a number that any link bears already is never used. A link that cannot be put into the group
//! fails alone; if the group as a whole is refused, its links get their old group back and go one by one.

use std::collections::BTreeSet;

use tokio::sync::oneshot;

use super::socket::Socket;
use super::worker::{self, Queue};
use super::{KernelError, Link, message, parse};

/// The group numbers of the reaper: "hc" in ASCII, then anything.
const FIRST_GROUP: u32 = 0x6863_0000;
const GROUPS: u32 = 0x1_0000;
/// So many numbers are chosen per look at the links that are there.
const GROUPS_PER_LOOK: usize = 64;
/// Links per batch: the kernel holds its lock all the while.
const PER_BATCH: usize = 512;

/// A request to delete the link of that name; the answer is whether there was one. Nobody waits for it
/// without a reply.
pub(super) struct Delete {
    pub(super) name: String,
    pub(super) reply: Option<oneshot::Sender<Result<bool, KernelError>>>,
}

impl Delete {
    fn answer(self, result: Result<bool, KernelError>) {
        if let Some(reply) = self.reply {
            // Whoever asked may be gone; the link is, too.
            let _ = reply.send(result);
        }
    }
}

/// Starts the reaper's thread. What comes in one is deleted together.
pub(super) fn start(queue: Queue<Vec<Delete>>) -> Result<(), KernelError> {
    let socket = Socket::open()?;
    worker::spawn("hc-reaper", move || Reaper { socket, groups: Groups::default() }.run(&queue))
}

struct Reaper {
    socket: Socket,
    groups: Groups,
}

impl Reaper {
    fn run(mut self, queue: &Queue<Vec<Delete>>) {
        while let Some(mut batch) = queue.next() {
            while batch.len() < PER_BATCH {
                let Some(next) = queue.next_now() else { break };
                batch.extend(next);
            }
            self.delete(batch);
        }
    }

    fn delete(&mut self, batch: Vec<Delete>) {
        let lookups = batch.iter().map(|delete| message::link_by_name(&delete.name)).collect();
        let found = match self.socket.batch(lookups) {
            Ok(found) => found,
            Err(error) => return batch.into_iter().for_each(|delete| delete.answer(Err(error.clone()))),
        };
        let mut doomed: Vec<(Delete, Link)> = Vec::new();
        for (delete, outcome) in batch.into_iter().zip(found) {
            match outcome.map(|answers| answers.first().and_then(|answer| parse::link(answer))) {
                Ok(Some((_, link))) => doomed.push((delete, link)),
                Ok(None) => delete.answer(Ok(false)),
                Err(error) if error.is_missing() => delete.answer(Ok(false)),
                Err(error) => delete.answer(Err(error)),
            }
        }
        let (group, single): (Vec<_>, Vec<_>) =
            doomed.into_iter().partition(|(_, link)| matches!(link.kind.as_deref(), Some("veth" | "ifb")));
        self.delete_group(group);
        self.delete_singly(single);
    }

    fn delete_group(&mut self, doomed: Vec<(Delete, Link)>) {
        // The same link asked for twice is one link.
        if doomed.iter().map(|(_, link)| link.index).collect::<BTreeSet<_>>().len() < 2 {
            return self.delete_singly(doomed);
        }
        let Ok(group) = self.groups.next(&mut self.socket) else { return self.delete_singly(doomed) };
        let moves =
            doomed.iter().map(|(_, link)| message::set_group(link.index, &link.name, group)).collect();
        let Ok(moved) = self.socket.batch(moves) else {
            self.restore_groups(&doomed);
            return self.delete_singly(doomed);
        };
        let mut members = Vec::with_capacity(doomed.len());
        for ((delete, link), outcome) in doomed.into_iter().zip(moved) {
            match outcome {
                Ok(_) => members.push((delete, link)),
                Err(error) if error.is_missing() => delete.answer(Ok(true)),
                Err(error) => delete.answer(Err(error)),
            }
        }
        if self.socket.one(message::delete_group(group)).is_ok() {
            for (delete, _) in members {
                delete.answer(Ok(true));
            }
        } else {
            self.restore_groups(&members);
            self.delete_singly(members);
        }
    }

    /// No link that stays may stay in a group that is to be deleted.
    fn restore_groups(&mut self, links: &[(Delete, Link)]) {
        let moves = links.iter().map(|(_, link)| message::set_group(link.index, &link.name, link.group));
        // One that cannot be moved back is deleted by index next, and its number is never used again
        // while it is there.
        let _ = self.socket.batch(moves.collect());
    }

    fn delete_singly(&mut self, doomed: Vec<(Delete, Link)>) {
        for (delete, link) in doomed {
            let result = match self.socket.one(message::delete_link(link.index, &link.name)) {
                Ok(_) => Ok(true),
                // It went by itself since it was looked up (its pod's namespace ended).
                Err(error) if error.is_missing() => Ok(true),
                Err(error) => Err(error),
            };
            delete.answer(result);
        }
    }
}

/// Group numbers of our range that no link bears.
#[derive(Default)]
struct Groups {
    free: Vec<u32>,
    next: u32,
}

impl Groups {
    fn next(&mut self, socket: &mut Socket) -> Result<u32, KernelError> {
        if self.free.is_empty() {
            let links = socket.dump(message::all_links())?;
            let used: BTreeSet<u32> =
                links.iter().filter_map(|answer| parse::link(answer)).map(|(_, link)| link.group).collect();
            self.refill(&used);
        }
        self.free.pop().ok_or_else(|| {
            KernelError::message("choose", "a link group", "every number of the range is in use by some link")
        })
    }

    fn refill(&mut self, used: &BTreeSet<u32>) {
        for _ in 0..GROUPS {
            if self.free.len() >= GROUPS_PER_LOOK {
                break;
            }
            let number = FIRST_GROUP + self.next;
            self.next = (self.next + 1) % GROUPS;
            if !used.contains(&number) {
                self.free.push(number);
            }
        }
        self.free.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_number_that_a_link_bears_is_never_chosen() {
        let mut groups = Groups::default();
        let used = BTreeSet::from([FIRST_GROUP, FIRST_GROUP + 2, 0, 7]);
        groups.refill(&used);
        assert_eq!(groups.free.len(), 64);
        assert_eq!(groups.free.pop(), Some(FIRST_GROUP + 1));
        assert_eq!(groups.free.pop(), Some(FIRST_GROUP + 3));
        groups.free.clear();
        groups.next = GROUPS - 1;
        groups.refill(&used);
        assert_eq!(groups.free.pop(), Some(FIRST_GROUP + GROUPS - 1));
        assert_eq!(groups.free.pop(), Some(FIRST_GROUP + 1), "the numbers start over");
    }

    #[test]
    fn a_range_that_is_all_taken_gives_no_number() {
        let mut groups = Groups::default();
        groups.refill(&(FIRST_GROUP..FIRST_GROUP + GROUPS).collect());
        assert!(groups.free.is_empty());
    }
}
