//! The kernel: the only netlink, namespaces, nftables, sysctls, starting of processes and `unsafe`.

mod antispoof;
mod batch;
/// Forgetting stale UDP flows.
pub mod conntrack;
mod elements;
mod error;
mod nfnl;
/// nftables as a whole: applying, updating, watching.
pub mod nft;
/// The ruleset as a text, and what it is made from.
pub mod ruleset;
/// Starting of processes.
pub mod spawn;
/// Settings below `/proc/sys/net`.
pub mod sysctl;

pub use batch::{ElementBatch, Refusal, RefusalKind, UpdateError};
pub use elements::{Element, PodPort, PortMap, Protocol, Set, TABLE, TableFamily, link_local};
pub use error::{KernelError, Result};
pub use ruleset::{AntiSpoofing, DEFAULT_MARK, Loopback6, NetworkRules, Ruleset};
