//! The server: accepting, sessions, readiness, health, drain, reload.
//!
//! One thread runs everything here; netlink has its own threads behind `datapath`. Promises that a request
//! is answered, or its connection closed, within its bound whatever state the server is in, and that READY
//! is said only when requests can be carried out. The states are those of `docs/lifecycle.dot`.

mod accept;
mod behind;
mod firewalls;
mod forward;
mod guard;
mod health;
mod invoke;
mod maintain;
mod metrics;
mod node;
mod notices;
mod readiness;
mod reload;
mod session;
mod start;
mod zones;

pub use readiness::{Phase, Readiness};
pub use start::{Options, ServeError, serve};
