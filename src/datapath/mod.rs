//! The kernel: the only netlink, namespaces, nftables, sysctls, starting of processes and `unsafe`.

mod error;

pub use error::{KernelError, Result};
