//! The CNI specification as types.
//!
//! Owns the words of the specification 1.1.0 and its earlier versions: requests in, results and errors out.
//! Everything that can be wrong is found here, once, at the edge. No I/O, no clock, no log.

mod args;
mod conf;
mod conflist;
mod convert;
mod environment;
mod error;
mod key;
mod mac;
mod names;
mod request;
mod result;
mod runtime_config;
mod trace;
mod version;

pub use args::{CniArgs, PodIdentity};
pub use conf::{Bounds, HostKeys, MAX_CONFIG, PluginConf, ValidAttachment};
pub use conflist::{ChainPlugin, ConfList};
pub use environment::{Command, Environment, VARIABLES, Variable};
pub use error::{Error, ErrorCode};
pub use key::AttachmentKey;
pub use mac::MacAddr;
pub use names::{ContainerId, IfName, NameError, NetworkName};
pub use request::{Request, version_reply};
pub use result::{AddResult, Dns, Interface, IpConfig, Route};
pub use runtime_config::{Bandwidth, IpRange, PortMapping, Protocol, RuntimeConfig};
pub use trace::TraceParent;
pub use version::CniVersion;
