//! Compactions: which tables are merged next, the division of the work, the merge, and the tables
//! that it writes.

pub(crate) mod deletions;
pub(crate) mod picker;
pub(crate) mod pieces;
pub(crate) mod shape;
pub(crate) mod task;
