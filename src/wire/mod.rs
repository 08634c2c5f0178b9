//! The Varlink interface `io.hostcni.Node` between plugin, tools and server.
//!
//! Owns the messages, their framing and the passing of descriptors. Varlink is JSON ended by a NUL byte over a
//! stream socket (<https://varlink.org>); a network namespace travels as a descriptor beside its message, named by
//! its index, as systemd's sd-varlink does. Promises that no message grows beyond [`MAX_MESSAGE`], that every
//! descriptor is close-on-exec from the moment it is received, and that old and new versions understand each
//! other: unknown fields are passed over, missing ones defaulted. tokio stays inside `service`.

pub mod client;
mod messages;
pub mod service;

pub use messages::{
    AttachmentInfo, CniErrorParameters, ConfStatus, Invoke, InvokeReply, MonitorEvent, NetworkStatus,
    RangeStatus, StatusReply,
};

/// The interface's name.
pub const INTERFACE: &str = "io.hostcni.Node";
/// The interface's definition.
pub const IDL: &str = include_str!("io.hostcni.Node.varlink");
/// The largest message in bytes, without its NUL.
pub const MAX_MESSAGE: usize = 1 << 20;
