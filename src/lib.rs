//! hostcni: a node's pod network as an ordinary systemd service.
//!
//! One binary is the CNI plugin, the CNI server and the tools around them. Each room below owns one
//! concern; `docs/architecture.md` says which may use which, and `tests/architecture.rs` holds it.

#![deny(unsafe_code)]
// Not in Cargo.toml: the tests' own code says what it expects.
#![warn(clippy::unwrap_used, clippy::expect_used)]

/// Fault injection points.
#[macro_use]
pub mod failpoint;

/// Attachments on disk: records, store, spool.
pub mod attachment;
/// The command line.
pub mod cli;
/// The CNI specification as types: requests, configurations, results, errors.
pub mod cni;
/// The kernel: netlink, namespaces, nftables, sysctls, processes.
#[allow(unsafe_code)]
pub mod datapath;
/// What keeps pods from their network, as far as the node can tell.
pub mod doctor;
/// All that the node knows of one pod.
pub mod explain;
/// Address ranges and leases.
pub mod ipam;
/// The CNI network configuration file that the runtimes read.
pub mod netconf;
/// What ADD, DEL, CHECK, GC and STATUS mean.
pub mod network;
/// The CNI plugin that the runtimes start.
pub mod plugin;
/// Accepting, sessions, readiness, health, drain, reload.
pub mod server;
/// hostcni's own configuration, from files to validated settings.
pub mod settings;
/// systemd's interfaces: activation, notify, watchdog, jobs, journal.
#[allow(unsafe_code)]
pub mod systemd;
/// The Varlink interface between plugin and server.
pub mod wire;
