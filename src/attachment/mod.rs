//! Attachments on disk: the record, its states, and the DELs that wait for a server.
//!
//! Owns the files below `/run/hostcni/attachments` (one per attachment, tmpfs: they live as long as the kernel
//! objects they describe), below `/var/lib/hostcni/delegated` (for what outlives a boot, durable, in files that are
//! used again) and below the spool (one per DEL that met no server, durable), their format, and the names of the
//! kernel links that belong to attachments. Promises: a record is there whole or not at all; no file, whatever is
//! in it, stops a start: what cannot be read is set aside and reported; no record is ever taken for another
//! attachment's. Touches no kernel object and writes no log; uses std, nix and serde only, since the plugin
//! process uses it too.

mod delegated;
mod directory;
mod names;
mod record;
mod slots;
mod spool;
mod store;
mod time;

pub use delegated::Delegated;
pub use names::{
    host_link_alias, host_link_name, host_link_of_shaper, is_link_name, is_short_alias_of, parse_alias,
    shaper_name,
};
pub use record::{Attachment, NetnsId, State};
pub use slots::Slots;
pub use spool::{LoadedSpool, MAX_ENTRIES, MAX_ENTRY, Spool, SpoolError, SpooledDel};
pub use store::{Loaded, Store, StoreError};

#[cfg(test)]
mod tests;
