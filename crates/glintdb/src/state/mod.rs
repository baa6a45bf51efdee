//! What the database is in memory: generations and versions of it, range tombstones, gaps,
//! running transactions, the error of its background jobs, and the division of the memory budget.

pub(crate) mod background_error;
pub(crate) mod gaps;
pub(crate) mod looks;
pub(crate) mod memory;
pub(crate) mod range_tombstones;
pub(crate) mod scattered;
pub(crate) mod transactions;
pub(crate) mod version;
pub(crate) mod versions;
