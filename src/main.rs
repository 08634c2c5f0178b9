//! hostcni: picks the personality and hands over.

fn main() {}
