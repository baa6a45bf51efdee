//! Space on the medium: the account of garbage, dead segments, the reserve for a full disk and
//! which operation may use it; and value GC, which gives space back.

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

/// Knows how the database's space is used and decides which operation may have more.
///
/// Its locks are the one of [`Gc`], which is taken last of all, and the manifest's, under which it
/// chooses dead segments.
pub(crate) struct DiskSpace {
    shared: Arc<Shared>,
    sequencer: Arc<Sequencer>,
    gc: Gc,
    /// Compactions in the job queue.
    queued_compactions: Arc<AtomicUsize>,
    /// Compactions, rounds of value GC and passes over values on threads that called for them.
    called_compactions: Arc<AtomicUsize>,
    /// A flush waits for the space that compactions have.
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

    /// What value GC knows.
    pub(crate) fn gc(&self) -> &Gc {
        &self.gc
    }
}
