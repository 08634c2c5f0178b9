//! Placeholder of the cni room.
