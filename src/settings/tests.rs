//! Tests of the room; those that are files in, text out are in `tests/trees/`.
