//! What the database is in memory: generations and versions of it, the catalog of keyspaces, range
//! tombstones, and the division of the memory budget.

pub(crate) mod catalog;
pub(crate) mod memory;
pub(crate) mod range_tombstones;
pub(crate) mod transactions;
pub(crate) mod version;
pub(crate) mod versions;
