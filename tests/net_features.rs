//! What a pod's network can and cannot do, as the pod and the world see it, through the real plugin and server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // how a test fails

mod support;
#[path = "net_features"]
mod features {
    pub mod bandwidth;
    pub mod blocking;
    pub mod forwarding;
    pub mod ipv6;
    pub mod mtu;
    pub mod networks;
    pub mod ranges;
    pub mod refused;
    pub mod spoofing;
}
