//! Space on the medium: value GC, dead segments, the reserve for a full disk and which operation
//! may use it, and what a flushed database gives back.

pub(crate) mod priority;
pub(crate) mod reserve;
pub(crate) mod segment_reclaim;
pub(crate) mod trim;
pub(crate) mod value_gc;
