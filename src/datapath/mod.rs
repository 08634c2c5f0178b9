//! The kernel: the only netlink, namespaces, nftables, sysctls, starting of processes and `unsafe`.

mod error;
mod nfnl;

/// Starting of processes.
pub mod spawn;
/// Settings below `/proc/sys/net`.
pub mod sysctl;

pub use error::{KernelError, Result};
