//! The plugin's process and the wire: against the server's half as a peer, against peers that misbehave, and the
//! server's half against a foreign client. Needs neither root nor namespaces.

mod support;

#[path = "wire/peer.rs"]
mod peer;

#[path = "wire/client.rs"]
mod client;
#[path = "wire/delivery.rs"]
mod delivery;
#[path = "wire/plugin.rs"]
mod plugin;
#[path = "wire/varlink.rs"]
mod varlink;
