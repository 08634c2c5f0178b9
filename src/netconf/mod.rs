//! Placeholder of the netconf room.
