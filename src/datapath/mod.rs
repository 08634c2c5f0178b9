//! The kernel: the only place with netlink, network namespaces, nftables, sysctls and the starting of
//! processes.
//!
//! It takes and gives plain structs and knows no word of the CNI specification. A netlink request does its
//! work inside `sendmsg()` (deleting a link holds it for some 20 ms), so everything runs on a few dedicated
//! threads with synchronous sockets; [`Kernel`] is the async handle to them. The threads live in the network
//! namespace of the thread that called [`Kernel::start`].
//!
//! It touches only what it is told to by name or index, never logs above debug, and every error carries the
//! errno, the operation, the object and the kernel's own words ([`KernelError`]).

mod antispoof;
mod attach;
mod batch;
mod block;
mod bridge;
mod elements;
mod error;
mod inspect;
mod ipv6;
mod kernel;
mod links;
mod message;
mod monitor;
mod namespace_jobs;
mod nfnl;
mod nft_jobs;
mod parse;
mod reaper;
mod shaping;
mod socket;
mod tc;
mod types;
mod worker;

/// Forgetting stale UDP flows.
pub mod conntrack;
/// Rules in other people's chains.
pub mod forward;
/// Network namespaces: opening, telling apart, entering and coming back.
pub mod netns;
/// nftables as a whole: applying, updating, watching.
pub mod nft;
/// The ruleset as a text, and what it is made from.
pub mod ruleset;
/// Starting of processes.
pub mod spawn;
/// Settings below `/proc/sys/net`.
pub mod sysctl;

pub use batch::{ElementBatch, Refusal, RefusalKind, UpdateError};
pub use block::{Block, BlockPorts, BlockTarget, PortRange};
pub use elements::{Element, PodPort, PortMap, Protocol, Set, TABLE, TableFamily, link_local};
pub use error::{KernelError, Result};
pub use kernel::Kernel;
pub use ruleset::{AntiSpoofing, DEFAULT_MARK, Loopback6, NetworkRules, Ruleset};
pub use shaping::{Bucket, Limit, Shaped, Shaping};
pub use types::{
    AttachError, BridgeReport, BridgeSpec, Change, Interest, Link, LinkView, PodLink, PodLinkSpec, PodRoute,
    PodView,
};
pub use worker::{Observer, Spent, Thread};
