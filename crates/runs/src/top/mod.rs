//! The runs at the top of an index, newest first: level 0 of an LSM tree, the shelf of a B+tree.
//!
//! New runs come on top. A relocation comes beneath the runs that are flushed after it has begun.
//! Compactions take the oldest runs away.

mod places;
mod relocation;
mod scans;

pub use places::Places;
pub use relocation::{Relocatable, RunRelocation};
pub use scans::Scans;
