//! The real datapath against the real kernel. Each test is a node of its own: a thread in a network
//! namespace that ends with it. What the kernel looks like is read with `ip -j`, never through hostcni.
//!
//! Needs root; fails without it.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on fails

#[path = "net/attach.rs"]
mod attach;
#[path = "net/bridge.rs"]
mod bridge;
#[path = "net/delete.rs"]
mod delete;
#[path = "net/inspect.rs"]
mod inspect;
#[path = "net/monitor.rs"]
mod monitor;
#[path = "net/shaping.rs"]
mod shaping;
#[path = "net/support.rs"]
mod support;
#[path = "net/tables.rs"]
mod tables;
