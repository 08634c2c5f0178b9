//! The CNI network configuration file that container runtimes read ("the conf").
//!
//! Owns its content, its placing and removing, whose it is, and the watch over its directory. Promises that
//! the conf appears complete and by one rename, that a file of somebody else is never touched, and that the
//! directory is never removed. Knows nothing of the server: whoever calls [`place`] has made sure that it is
//! ready.

/// Opening directories safely.
mod directory;
/// A file that was found.
mod found;
/// What was placed.
mod ledger;
/// Whose file it is.
mod marker;
/// Placing and removing.
mod place;
/// The content.
mod render;
/// Which file a runtime takes first.
mod shadow;
/// The complete file under a hidden name.
mod temporary;
/// Noticing changes.
mod watch;

pub use directory::DirectoryError;
pub use ledger::{Entry, Ledger};
pub use place::{
    Ownership, PlaceError, Placed, RemoveError, Removed, describe, inspect, place, remove, remove_all,
    restore,
};
pub use render::render;
pub use shadow::{conf_files, shadowing};
pub use watch::Watch;

#[cfg(test)]
mod tests;
