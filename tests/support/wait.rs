//! Waiting for what is to come. Deadlines are generous, since the machine may be slow; the pauses between
//! looks are short, since a test may be quick.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes that works.
pub const LONG: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(20);

/// What `look` finds once it finds something.
///
/// # Panics
/// When the deadline has passed; the message says what was waited for.
#[track_caller]
pub fn until_some<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < deadline, "waited {deadline:?} in vain for: {what}");
        thread::sleep(PAUSE);
    }
}

/// Waits until `look` says yes, at most [`LONG`].
///
/// # Panics
/// When the deadline has passed.
#[track_caller]
pub fn until(what: &str, look: impl FnMut() -> bool) {
    within(LONG, what, look);
}

/// Waits until `look` says yes, and says how long that took.
///
/// # Panics
/// When the deadline has passed.
#[track_caller]
pub fn within(deadline: Duration, what: &str, mut look: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    until_some(what, deadline, || look().then_some(()));
    began.elapsed()
}
