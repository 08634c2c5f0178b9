//! Placeholder of the settings room.
