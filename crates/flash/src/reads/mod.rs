//! Many reads at once: which reads a batch needs, the reads that are in flight, the queues of the
//! operating system, and reads ahead of compactions.

pub(crate) mod ahead;
pub(crate) mod flight;
pub(crate) mod plan;
pub(crate) mod queue;
