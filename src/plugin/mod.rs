//! Placeholder of the plugin room.
