//! A throw-away network namespace on the machine that runs the tests.

use std::path::PathBuf;
use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};

use super::observe::Place;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A named network namespace; it goes, with all in it, when this is dropped.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A new one, with `lo` up and nothing else.
    ///
    /// # Panics
    /// Where one cannot be made: that takes root.
    #[track_caller]
    pub fn new() -> Self {
        let name = format!("hostcni-test-{}-{}", id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let output = Command::new("ip").args(["netns", "add", &name]).output().expect("`ip` is there");
        assert!(output.status.success(), "a network namespace takes root: {}", super::observe::both(&output));
        let namespace = Self { name };
        namespace.ok("ip link set lo up");
        namespace
    }

    /// What a runtime passes as `CNI_NETNS`.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// Runs the closure on a thread inside; sockets made there belong to the namespace for good.
    ///
    /// # Panics
    /// When the closure does.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            let netns = std::fs::File::open(self.path()).expect("it is there as long as this");
            nix::sched::setns(netns, nix::sched::CloneFlags::CLONE_NEWNET).expect("root may enter it");
            work()
        };
        let ended = std::thread::scope(|scope| scope.spawn(enter).join());
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Its name, for `ip -n`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Place for Namespace {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}
