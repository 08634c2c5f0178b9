//! The driver for other CNI plugins: the reference plugins, and plugins that misbehave.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // how a test fails

mod support;

#[path = "net_delegate/chains.rs"]
mod chains;
#[path = "net_delegate/plugins.rs"]
mod plugins;
#[path = "net_delegate/faults.rs"]
mod faults;
#[path = "net_delegate/import.rs"]
mod import;
#[path = "net_delegate/lossless.rs"]
mod lossless;
#[path = "net_delegate/misbehaving.rs"]
mod misbehaving;
