//! Placeholder of the attachment room.
