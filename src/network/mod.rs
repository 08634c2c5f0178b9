//! Placeholder of the network room.
