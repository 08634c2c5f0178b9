//! hostcni: a node's pod network as an ordinary systemd service.
//!
//! One binary is the CNI plugin, the CNI server and the tools around them. Each room below owns one
//! concern; `docs/architecture.md` says which may use which, and `tests/architecture.rs` holds it.

#![deny(unsafe_code)]

/// Fault injection points.
#[macro_use]
pub mod failpoint;

/// The CNI specification as types: requests, configurations, results, errors.
pub mod cni;
/// Address ranges and leases.
pub mod ipam;
/// hostcni's own configuration, from files to validated settings.
pub mod settings;
/// The CNI network configuration file that the runtimes read.
pub mod netconf;
/// The Varlink interface between plugin and server.
pub mod wire;
/// The CNI plugin that the runtimes start.
pub mod plugin;
/// Attachments on disk: records, store, spool.
pub mod attachment;
/// The kernel: netlink, namespaces, nftables, sysctls, processes.
#[allow(unsafe_code)]
pub mod datapath;
/// What ADD, DEL, CHECK, GC and STATUS mean.
pub mod network;
/// Accepting, sessions, readiness, health, drain, reload.
pub mod server;
/// systemd's interfaces: activation, notify, watchdog, jobs, journal.
#[allow(unsafe_code)]
pub mod systemd;
/// The command line.
pub mod cli;
