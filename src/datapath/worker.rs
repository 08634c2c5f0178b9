//! Dedicated threads with a queue: how async callers reach work that blocks.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use nix::errno::Errno;
use tokio::sync::oneshot;

use super::KernelError;

/// Enough for netlink messages of a few hundred routes; the default of 2 MiB per thread would count
/// against the server's memory budget where pages get touched.
const STACK: usize = 256 * 1024;

/// Starts a thread. Its name shows in `ps -T` and in crash dumps (at most 15 bytes).
pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), KernelError> {
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK)
        .spawn(body)
        .map(drop)
        .map_err(|error| KernelError::from_io(&error, "start thread", name))
}

/// The receiving half of a queue, shared by the threads that serve it.
pub(super) struct Queue<J>(Arc<Mutex<mpsc::Receiver<J>>>);

impl<J> Clone for Queue<J> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<J> Queue<J> {
    /// The next job; none when every sender is gone.
    pub(super) fn next(&self) -> Option<J> {
        // A thread that panicked while it held the lock was between two jobs: the queue is whole.
        let receiver = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        receiver.recv().ok()
    }

    /// A job that is there now.
    pub(super) fn next_now(&self) -> Option<J> {
        let receiver = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        receiver.try_recv().ok()
    }
}

/// A queue of jobs and the sender to it.
pub(super) fn queue<J>() -> (mpsc::Sender<J>, Queue<J>) {
    let (sender, receiver) = mpsc::channel();
    (sender, Queue(Arc::new(Mutex::new(receiver))))
}

/// Puts a job, made with the place for its answer, into the queue and waits for the answer.
pub(super) async fn ask<J, T>(
    queue: &mpsc::Sender<J>,
    operation: &'static str,
    object: &str,
    job: impl FnOnce(oneshot::Sender<T>) -> J,
) -> Result<T, KernelError> {
    let (reply, answer) = oneshot::channel();
    let gone = || {
        KernelError::new(Errno::ECANCELED as i32, operation, object).with_text("the thread for it has ended")
    };
    queue.send(job(reply)).map_err(|_| gone())?;
    answer.await.map_err(|_| gone())
}
