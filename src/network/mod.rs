//! What ADD, DEL, CHECK, GC and STATUS mean.
//!
//! Owns the order of requests for one attachment, the drivers behind the networks, and the choice of CNI
//! error codes. Promises that a failed ADD leaves nothing, that a DEL goes through all its steps, and that
//! an address is leased exactly as long as its attachment exists. Touches the kernel only through
//! `datapath`, the disk only through `attachment`; knows nothing of sockets or of the wire.

mod add;
mod block;
mod bridge;
mod check;
mod delegate;
mod driver;
mod error;
mod identity;
mod networks;
mod bandwidth;
mod ports;
mod queue;
mod reconcile;
mod steps;
mod table;
mod take_down;

pub use bridge::Bridge;
pub use check::Difference;
pub use delegate::{Delegate, Failure, Kept, Notice, Tell, Why};
pub use driver::{
    AddRequest, Added, Answer, CheckRequest, DelRequest, Driver, Fate, Only, Reconciled, Report,
};
pub use error::Error;
pub use networks::{Networks, Outcome, ReplayedDel};
pub use queue::{KeyedQueue, Turn};
pub use table::Table;
