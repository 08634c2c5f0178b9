//! Placeholder of the ipam room.
