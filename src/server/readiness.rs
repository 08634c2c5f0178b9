//! Where the server stands between its start and its end, and who waits for it.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use crate::systemd::notify;

/// The phases of a server's life; the nodes of `docs/lifecycle.dot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Working through its readiness steps.
    Starting,
    /// Carrying out requests.
    Ready,
    /// Finishing what is in flight.
    Stopping,
}

impl Phase {
    /// The word for people and for the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
        }
    }
}

/// The server's phase, its current step, and the waiting for it.
#[derive(Debug)]
pub struct Readiness {
    phase: watch::Sender<Phase>,
    step: RefCell<String>,
    since: RefCell<SystemTime>,
}

/// How much longer systemd should wait for a start whose step takes its time.
const STEP_EXTENSION: Duration = Duration::from_secs(30);

impl Default for Readiness {
    fn default() -> Self {
        Self {
            phase: watch::Sender::new(Phase::Starting),
            step: RefCell::default(),
            since: RefCell::new(SystemTime::now()),
        }
    }
}

impl Readiness {
    /// The phase now.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// The step that the start is at, or the last one.
    pub fn step(&self) -> String {
        self.step.borrow().clone()
    }

    /// Since when the phase lasts.
    pub fn since(&self) -> SystemTime {
        *self.since.borrow()
    }

    /// The start has reached a step: shown by `systemctl status`, and given time.
    pub fn at(&self, step: &str) {
        step.clone_into(&mut self.step.borrow_mut());
        notify::extend_start(STEP_EXTENSION);
        notify::status(&format!("starting: {step}"));
    }

    /// Enters a phase. `Stopping` is the last one.
    pub fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|current| {
            let change = *current != phase && *current != Phase::Stopping;
            if change {
                *current = phase;
                *self.since.borrow_mut() = SystemTime::now();
            }
            change
        });
    }

    /// Waits until the server is ready; `false` when it stops before, or not within `bound`.
    pub async fn ready_within(&self, bound: Duration) -> bool {
        let mut phase = self.phase.subscribe();
        let wait = phase.wait_for(|phase| *phase != Phase::Starting);
        match tokio::time::timeout(bound, wait).await {
            Ok(Ok(phase)) => *phase == Phase::Ready,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    #[test]
    fn a_request_that_waits_for_the_start_goes_on_when_the_server_is_ready() {
        run(async {
            let readiness = Readiness::default();
            let (ready, ()) = tokio::join!(readiness.ready_within(Duration::from_secs(60)), async {
                tokio::task::yield_now().await;
                readiness.enter(Phase::Ready);
            });
            assert!(ready);
        });
    }

    #[test]
    fn a_stopping_server_never_becomes_ready_again() {
        let readiness = Readiness::default();
        readiness.enter(Phase::Stopping);
        readiness.enter(Phase::Ready);
        assert_eq!(readiness.phase(), Phase::Stopping);
        assert!(!run(readiness.ready_within(Duration::from_secs(60))));
    }

    #[test]
    fn waiting_ends_with_its_bound() {
        assert!(!run(Readiness::default().ready_within(Duration::from_millis(10))));
    }
}
