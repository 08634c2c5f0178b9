//! Placeholder of the cli room.
