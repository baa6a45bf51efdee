//! Space on the medium: the account of garbage, dead segments, the reserve for a full disk with its
//! priorities, and value GC, which gives space back.

pub(crate) mod account;
pub(crate) mod gc;
mod hidden;
pub(crate) mod priority;
pub(crate) mod reserve;
pub(crate) mod segment_reclaim;
pub(crate) mod survey;
pub(crate) mod value_gc;

use crate::shared::Shared;
use crate::write::sequencer::Sequencer;
use gc::Gc;
use glintdb_core::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::Arc;

/// Accounts for the database's space, and decides which operation may have more.
///
/// Its locks are the one of [`Gc`], which is taken last of all, and the manifest's, under which it
/// chooses dead segments.
pub(crate) struct DiskSpace {
    shared: Arc<Shared>,
    sequencer: Arc<Sequencer>,
    gc: Gc,
    /// Number of compactions in the job queue.
    queued_compactions: Arc<AtomicUsize>,
    /// Number of compactions on callers' threads, of rounds of value GC, and of passes over values.
    called_compactions: Arc<AtomicUsize>,
    /// Whether a flush waits for the space that compactions have.
    flush_starves: AtomicBool,
}

impl DiskSpace {
    pub(crate) fn new(shared: &Arc<Shared>, sequencer: &Arc<Sequencer>) -> Self {
        DiskSpace {
            shared: Arc::clone(shared),
            sequencer: Arc::clone(sequencer),
            gc: Gc::default(),
            queued_compactions: Arc::default(),
            called_compactions: Arc::default(),
            flush_starves: AtomicBool::new(false),
        }
    }

    /// Returns the state of value GC.
    pub(crate) fn gc(&self) -> &Gc {
        &self.gc
    }
}
