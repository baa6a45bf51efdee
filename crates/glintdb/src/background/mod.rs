//! Jobs of background threads: the queue, and flushes, compactions and the log's jobs in it.
//!
//! `install` is how a change of an index becomes durable and then visible, whichever job made it.

pub(crate) mod compaction;
pub(crate) mod flush;
pub(crate) mod help;
pub(crate) mod install;
pub(crate) mod log_jobs;
pub(crate) mod queue;
