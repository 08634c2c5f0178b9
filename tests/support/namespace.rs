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
