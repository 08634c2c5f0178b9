//! The server's way to the journal: a bounded queue and one thread that writes.
//!
//! tracing-journald sends on a blocking socket: with a journald that does not read, the sender stands still.
//! On the runtime's thread that would starve the watchdog, the server would be killed and the node's network
//! with it. So events are put into a queue that never blocks; what does not fit is counted, and the count is
//! reported when the journal reads again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tracing::Subscriber;
use tracing::span::Attributes;
use tracing_subscriber::layer::SubscriberExt;

use super::event::Event;
use super::record::{Record, Sink};

/// Entries that wait while the journal is slow; at a kilobyte each a few megabytes at the very worst.
const CAPACITY: usize = 4096;

/// How long the end of the process waits for entries to be written.
const FLUSH_BOUND: Duration = Duration::from_millis(500);

/// All entries of this process that did not fit.
static LOST: AtomicU64 = AtomicU64::new(0);

/// How many entries of this process were lost because the journal did not take them as fast as they came.
pub fn entries_lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

enum Item {
    Entry(Record),
    /// Answered when everything put in before is written.
    Flush(SyncSender<()>),
}

/// The queue's near end.
pub(super) struct Queue {
    sender: SyncSender<Item>,
    lost: Arc<AtomicU64>,
}

impl Sink for Queue {
    fn put(&self, record: Record) {
        if self.sender.try_send(Item::Entry(record)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
impl Queue {
    /// The count of entries that did not fit and were not reported yet.
    pub(super) fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }
}

/// Writes out what is queued when dropped, for at most half a second.
pub(super) struct Flusher(SyncSender<Item>);

impl Drop for Flusher {
    fn drop(&mut self) {
        let deadline = Instant::now() + FLUSH_BOUND;
        let (done, written) = sync_channel(1);
        let mut item = Item::Flush(done);
        // A full queue may be one that is just being emptied.
        while let Err(std::sync::mpsc::TrySendError::Full(back)) = self.0.try_send(item) {
            if Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
            item = back;
        }
        let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Starts the journal's thread. Fails where there is no journald, or no thread to be had.
pub(super) fn start(identifier: &str) -> std::io::Result<(Queue, Flusher)> {
    let writer = tracing_subscriber::registry().with(
        tracing_journald::layer()?
            // With a prefix MESSAGE_ID becomes F_MESSAGE_ID, and the catalog is dead.
            .with_field_prefix(None)
            .with_syslog_identifier(identifier.to_owned())
            // LOG_DAEMON, as for every service.
            .with_custom_fields([("SYSLOG_FACILITY", "3")])
            .with_priority_mappings(tracing_journald::PriorityMappings {
                // The default calls every INFO a notice, and so makes it bold.
                info: tracing_journald::Priority::Informational,
                debug: tracing_journald::Priority::Debug,
                ..tracing_journald::PriorityMappings::new()
            }),
    );
    let (sender, receiver) = sync_channel(CAPACITY);
    let lost = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&lost);
    std::thread::Builder::new()
        .name("journal".to_owned())
        .stack_size(256 << 10)
        .spawn(move || write(&receiver, &writer, &counter))?;
    Ok((Queue { sender: sender.clone(), lost }, Flusher(sender)))
}

fn write(receiver: &Receiver<Item>, writer: &impl Subscriber, lost: &AtomicU64) {
    for item in receiver {
        match item {
            Item::Entry(record) => {
                replay(&record, writer);
                // By the queue like every event; when that is full again, the new count includes this one.
                let count = lost.swap(0, Ordering::Relaxed);
                if count > 0 {
                    super::emit(&Event::EntriesLost { count });
                }
            }
            Item::Flush(done) => drop(done.try_send(())),
        }
    }
}

/// Lets the journal's layer see the event as if it happened on this thread. `writer` is called directly and
/// is nobody's default subscriber, so it does not change which events are enabled.
fn replay(record: &Record, writer: &impl Subscriber) {
    let mut spans = Vec::with_capacity(record.spans.len());
    for span in &record.spans {
        let values = span.as_values();
        let values = span.metadata.fields().value_set_all(&values);
        let id = writer.new_span(&Attributes::new_root(span.metadata, &values));
        writer.enter(&id);
        spans.push(id);
    }
    let values = record.event.as_values();
    let values = record.event.metadata.fields().value_set_all(&values);
    writer.event(&tracing::Event::new(record.event.metadata, &values));
    for id in spans.into_iter().rev() {
        writer.exit(&id);
        writer.try_close(id);
    }
}
