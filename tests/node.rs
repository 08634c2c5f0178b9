//! The promises that only a whole node can keep: under its own systemd, with a real container runtime,
//! through stops, crashes, reboots and power cuts. `tests/support/packages node` installs what this needs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // how a test fails

mod support;
mod node {
    pub mod harness;
}

use std::process::ExitCode;

use libtest_mimic::Arguments;
use node::*;

fn main() -> ExitCode {
    support::case::keep_panics();
    let mut arguments = Arguments::from_args();
    // A node is mostly waiting: two at a time, on however few processors.
    arguments.test_threads.get_or_insert(2);
    let cases = cases![harness::a_node_keeps_its_disk_through_a_reboot_and_a_power_cut,];
    libtest_mimic::run(&arguments, cases).exit_code()
}
