//! State that survives the process: the manifest and its file numbers, opening and recovery, the
//! catalog of keyspaces, checkpoints, and closing.

pub(crate) mod catalog;
pub(crate) mod checkpoint;
pub(crate) mod close;
pub(crate) mod directory;
pub(crate) mod manifest;
pub(crate) mod numbers;
pub(crate) mod open;
mod orphans;
mod replay;

use crate::background::Background;
use crate::shared::Shared;
use crate::space::DiskSpace;
use crate::write::Writer;
use crate::write::sequencer::Sequencer;
use std::sync::Arc;

/// Changes the state in the manifest: creates and drops keyspaces, makes checkpoints, and closes
/// the database.
///
/// **Lock order**: that of [`Background`]: its flush lock, then the manifest's, then the
/// sequencer's.
pub(crate) struct Durable {
    shared: Arc<Shared>,
    sequencer: Arc<Sequencer>,
    space: Arc<DiskSpace>,
    writer: Arc<Writer>,
    background: Arc<Background>,
}

impl Durable {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        sequencer: &Arc<Sequencer>,
        space: &Arc<DiskSpace>,
        writer: &Arc<Writer>,
        background: &Arc<Background>,
    ) -> Self {
        Durable {
            shared: Arc::clone(shared),
            sequencer: Arc::clone(sequencer),
            space: Arc::clone(space),
            writer: Arc::clone(writer),
            background: Arc::clone(background),
        }
    }
}
