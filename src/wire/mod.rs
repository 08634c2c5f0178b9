//! The Varlink interface `io.hostcni.Node` between plugin, tools and server.
//!
//! Owns the messages, their framing and the passing of descriptors. Varlink is JSON ended by a NUL byte over a
//! stream socket (<https://varlink.org>); a network namespace travels as a descriptor beside its message, named by
//! its index, as systemd's sd-varlink does. Promises that no message grows beyond [`MAX_MESSAGE`], that every
//! descriptor is close-on-exec from the moment it is received, and that old and new versions understand each
//! other: unknown fields are passed over, missing ones defaulted. tokio stays inside `service`.

/// A blocking client.
pub mod client;
/// Parameters and replies.
mod messages;
/// The server's half.
pub mod service;

use serde::Deserialize;

pub use messages::{
    AttachmentInfo, CniErrorParameters, ConfStatus, Invoke, InvokeReply, MonitorEvent, NetworkStatus,
    RangeStatus, StatusReply,
};

/// The interface's name.
pub const INTERFACE: &str = "io.hostcni.Node";
/// The interface's definition.
pub const IDL: &str = include_str!("io.hostcni.Node.varlink");
/// The largest call in bytes, without its NUL.
pub const MAX_MESSAGE: usize = 1 << 20;

/// The interface that every Varlink service has.
const SERVICE_INTERFACE: &str = "org.varlink.service";
const SERVICE_IDL: &str = include_str!("org.varlink.service.varlink");
/// The error that carries a CNI error.
const CNI_ERROR: &str = "io.hostcni.Node.CniError";

/// The parameters of a call or reply, read in a second pass over the message: through a `Value` the text would
/// be held twice, and a hostile one many times over. Missing counts as empty.
#[derive(Deserialize)]
struct Body<T> {
    parameters: Option<T>,
}

#[cfg(test)]
mod tests;
