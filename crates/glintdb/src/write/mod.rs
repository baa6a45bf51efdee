//! The way of a commit: admission, its number and place in the log, memtables, visibility.

pub(crate) mod admission;
pub(crate) mod backpressure;
pub(crate) mod commit;
pub(crate) mod conflicts;
pub(crate) mod operations;
pub(crate) mod pipeline;
pub(crate) mod sequencer;
