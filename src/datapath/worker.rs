//! Dedicated threads with a queue: how async callers reach work that blocks.

use std::cell::Cell;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

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

/// The threads with a queue, by what they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    /// The node's own links.
    Links,
    /// Deleting pods' links; its jobs are batches.
    Reaper,
    /// Work in pods' namespaces.
    Namespaces,
    /// nftables and connection tracking.
    Nft,
}

impl Thread {
    /// Every kind of thread.
    pub const ALL: [Self; 4] = [Self::Links, Self::Reaper, Self::Namespaces, Self::Nft];

    /// Its name, as in the threads' own.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Links => "links",
            Self::Reaper => "reaper",
            Self::Namespaces => "netns",
            Self::Nft => "nft",
        }
    }
}

/// On what a job's time was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// Waiting for a thread.
    Waiting,
    /// Being carried out, mostly inside the kernel: waiting for its locks and working.
    Working,
}

/// Is told of every job, on the job's thread, so it must be quick.
pub type Observer = Arc<dyn Fn(Thread, Spent, Duration) + Send + Sync>;

/// The sending half of a queue.
pub(super) struct Sender<J>(mpsc::Sender<(Instant, J)>);

impl<J> Clone for Sender<J> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<J> Sender<J> {
    /// Puts a job into the queue; false when nobody serves it any more.
    pub(super) fn send(&self, job: J) -> bool {
        self.0.send((Instant::now(), job)).is_ok()
    }
}

/// The receiving half of a queue, shared by the threads that serve it; each has a clone of its own.
pub(super) struct Queue<J> {
    jobs: Arc<Mutex<mpsc::Receiver<(Instant, J)>>>,
    thread: Thread,
    observer: Observer,
    /// When this thread began what it does now.
    began: Cell<Option<Instant>>,
}

impl<J> Clone for Queue<J> {
    fn clone(&self) -> Self {
        let (jobs, observer) = (Arc::clone(&self.jobs), Arc::clone(&self.observer));
        Self { jobs, thread: self.thread, observer, began: Cell::new(None) }
    }
}

impl<J> Queue<J> {
    /// The next job; none when every sender is gone. The one before is done then.
    pub(super) fn next(&self) -> Option<J> {
        if let Some(began) = self.began.take() {
            (self.observer)(self.thread, Spent::Working, began.elapsed());
        }
        // A thread that panicked while it held the lock was between two jobs: the queue is whole.
        let receiver = self.jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let job = receiver.recv().ok();
        drop(receiver);
        job.map(|job| self.begin(job))
    }

    /// A job that is there now, to be done together with the one in hand.
    pub(super) fn next_now(&self) -> Option<J> {
        let receiver = self.jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let job = receiver.try_recv().ok();
        drop(receiver);
        job.map(|job| self.begin(job))
    }

    fn begin(&self, (asked, job): (Instant, J)) -> J {
        let now = Instant::now();
        (self.observer)(self.thread, Spent::Waiting, now.saturating_duration_since(asked));
        self.began.set(Some(self.began.get().unwrap_or(now)));
        job
    }
}

/// A queue of jobs for a kind of thread, and the sender to it.
pub(super) fn queue<J>(thread: Thread, observer: &Observer) -> (Sender<J>, Queue<J>) {
    let (sender, receiver) = mpsc::channel();
    let jobs = Arc::new(Mutex::new(receiver));
    (Sender(sender), Queue { jobs, thread, observer: Arc::clone(observer), began: Cell::new(None) })
}

/// Puts a job, made with the place for its answer, into the queue and waits for the answer.
pub(super) async fn ask<J, T>(
    queue: &Sender<J>,
    operation: &'static str,
    object: &str,
    job: impl FnOnce(oneshot::Sender<T>) -> J,
) -> Result<T, KernelError> {
    let (reply, answer) = oneshot::channel();
    let gone = || {
        KernelError::new(Errno::ECANCELED as i32, operation, object).with_text("the thread for it has ended")
    };
    if !queue.send(job(reply)) {
        return Err(gone());
    }
    answer.await.map_err(|_| gone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_time_is_told_as_waiting_and_as_working_a_batchs_work_once() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&told);
        let observer: Observer =
            Arc::new(move |thread, spent, time| notes.lock().unwrap().push((thread, spent, time)));
        let (sender, queue) = queue(Thread::Reaper, &observer);
        let pause = Duration::from_millis(20);
        assert!(sender.send(1) && sender.send(2));
        thread::sleep(pause);
        assert_eq!((queue.next(), queue.next_now(), queue.next_now()), (Some(1), Some(2), None));
        thread::sleep(pause);
        drop(sender);
        assert_eq!(queue.next(), None);
        let told = told.lock().unwrap();
        let kinds: Vec<_> = told.iter().map(|(_, spent, _)| *spent).collect();
        assert_eq!(kinds, [Spent::Waiting, Spent::Waiting, Spent::Working]);
        assert!(told.iter().all(|(thread, _, time)| *thread == Thread::Reaper && *time >= pause), "{told:?}");
    }
}
