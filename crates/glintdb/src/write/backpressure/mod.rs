//! What slows writers while the engine catches up: a rate for each kind of debt, and the waits that
//! follow from it.

pub(crate) mod compaction_debt;
pub(crate) mod flush_debt;
pub(crate) mod rate_limiter;
pub(crate) mod waits;
