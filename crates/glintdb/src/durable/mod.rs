//! What survives the process: the manifest and its file numbers, opening and recovery, checkpoints,
//! and the early end of a log segment.

pub(crate) mod checkpoint;
pub(crate) mod directory;
pub(crate) mod manifest;
pub(crate) mod numbers;
pub(crate) mod recovery;
pub(crate) mod seal;
