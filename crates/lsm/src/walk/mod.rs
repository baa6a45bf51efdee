//! Lookups and cursors over many tables: the tables of a level as one, levels merged into one
//! order.

pub(crate) mod concat;
pub(crate) mod cursor;
pub(crate) mod lookup;
pub(crate) mod merge;
