//! Placeholder of the datapath room.
