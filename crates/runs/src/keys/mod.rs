//! Ranges of keys, and the range tombstones over them.

pub(crate) mod range;
pub(crate) mod tombstones;

pub use range::{KeyRange, compare_ends, hull_of};
pub use tombstones::{TombstoneSet, range_of};
