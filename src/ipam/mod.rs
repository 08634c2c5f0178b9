//! Address ranges and leases.
//!
//! Owns which address belongs to which attachment, and which one is given next. Promises: no address has two
//! owners, whatever the order of calls; a release frees exactly what its owner held; an address rests as long
//! as others are free; giving and freeing take constant time on average at any fill (but for a pod that names a range,
//! which is looked through), and memory grows with leases, never with the size of a range. Touches nothing outside: no files, no clock, no log.

mod candidates;
mod pool;
mod range;
mod span;

pub use pool::{AllocateError, Lease, Pool, PoolError, RangeUsage, RestoreError, Selection, SelectionError};
pub use range::{Range, RangeError, RangeSet};

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
