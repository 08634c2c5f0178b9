//! Every verb through the real plugin and a real server, in network namespaces, without systemd.

mod support;
#[path = "net_requests"]
mod requests {
    pub mod attaching;
    pub mod check;
    pub mod flows;
    pub mod leases;
    pub mod many;
    pub mod others;
    pub mod races;
    pub mod versions;
}

use support::observe::Place;

fn ping(place: &impl Place, address: &str) -> bool {
    place.succeeds(&format!("ping -c 1 -W 5 {address}"))
}
