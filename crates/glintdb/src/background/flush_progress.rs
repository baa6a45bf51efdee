//! Reports the progress of a flush, by which writers are slowed, and lets the log spill meanwhile.
//!
//! Thread safety: a report belongs to the thread that flushes.

use crate::background::Background;
use std::cell::Cell;

/// Entries between two progress reports of a flush: about a millisecond.
pub(crate) const PROGRESS_ENTRIES: usize = 2048;

/// Reports the progress of a flush to
/// [`FlushDebt`](crate::write::backpressure::flush_debt::FlushDebt). A drop without
/// [`through`](Self::through) means that the flush was given up.
pub(crate) struct FlushProgress<'a> {
    background: &'a Background,
    entries: Cell<usize>,
    /// Number of entries of the flush; 0 if no writer is slowed for it.
    of: usize,
    through: Cell<bool>,
}

impl FlushProgress<'_> {
    /// Reports that `entries` more entries are written.
    pub(crate) fn add(&self, entries: usize) {
        if self.of > 0 {
            self.entries.set(self.entries.get() + entries);
            let debt = &self.background.shared.backpressure.flush;
            debt.progress(self.entries.get(), self.of);
            self.background.sequencer.update_flush_debt();
            self.background.spill_if_urgent();
        }
    }

    /// Reports that the flush has taken effect.
    pub(crate) fn through(&self) {
        self.through.set(true);
    }
}

impl Drop for FlushProgress<'_> {
    fn drop(&mut self) {
        self.background
            .shared
            .backpressure
            .flush
            .end(self.through.get());
    }
}

impl Background {
    /// Begins to report the progress of a flush of `entries` and `bytes`.
    pub(crate) fn flush_progress(&self, entries: usize, bytes: u64) -> FlushProgress<'_> {
        let mut of = 0;
        if self.shared.options.background_threads > 0 {
            of = entries;
            if self.shared.options.experiments.pace_writers {
                self.shared.backpressure.flush.begin(bytes);
            }
        }
        FlushProgress {
            background: self,
            entries: Cell::new(0),
            of,
            through: Cell::new(false),
        }
    }
}
