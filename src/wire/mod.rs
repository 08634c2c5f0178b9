//! Placeholder of the wire room.
