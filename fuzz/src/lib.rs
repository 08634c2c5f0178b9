//! What each fuzz target does with its bytes. `tests/corpus.rs` runs the same functions over the corpus.

mod targets;

pub use targets::{attachment, conf, plugin, settings, spool, wire};
