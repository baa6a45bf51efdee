//! Commits: admission, a number and a place in the log, memtables, visibility.

pub(crate) mod admission;
pub(crate) mod backpressure;
pub(crate) mod commit;
pub(crate) mod conflicts;
pub(crate) mod number;
pub(crate) mod operations;
pub(crate) mod pay_debts;
pub(crate) mod pipeline;
pub(crate) mod seal;
pub(crate) mod sequencer;
pub(crate) mod shares;

use crate::shared::Shared;
use crate::space::DiskSpace;
use sequencer::Sequencer;
use std::sync::Arc;

/// Commits: of single operations, batches, groups of batches and transactions.
///
/// It holds no lock of its own. A commit takes those of the [`Sequencer`], for its number, and of
/// the log and the pipeline, one after the other.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    sequencer: Arc<Sequencer>,
    space: Arc<DiskSpace>,
}

impl Writer {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        sequencer: &Arc<Sequencer>,
        space: &Arc<DiskSpace>,
    ) -> Self {
        Writer {
            shared: Arc::clone(shared),
            sequencer: Arc::clone(sequencer),
            space: Arc::clone(space),
        }
    }
}
