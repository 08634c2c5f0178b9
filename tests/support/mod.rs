//! What the tests stand on: whole nodes, network namespaces, a runtime's client, and eyes that look at the
//! kernel and systemd and never through hostcni.

#![allow(dead_code)] // each test target uses its part

pub mod case;
pub mod cni;
pub mod cri;
pub mod namespace;
pub mod node;
pub mod observe;
pub mod server;
pub mod wait;
