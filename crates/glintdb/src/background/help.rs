//! Whoever waits, helps: a thread that would sleep until a compaction, a flush or a sync is through takes some of the work meanwhile.
//!
//! First it begins to read what compactions will want ([`ReadQueue`]) and does not wait for it; when nothing is left to begin, it takes short steps of merges, and has
//! more pieces of them given out where none waits: where there are more cores than background threads. It goes its way as soon as its own wait is over: a step is about a quarter of a millisecond, and all it leaves behind is back in the queue. Where
//! there is nothing to do, or as many threads as there are cores work already, it sleeps as it would have.
//!
//! Thread safety: any thread that holds no lock and no numbered commit that is not visible.

use crate::engine::Engine;
use glintdb_core::sync::atomic::{AtomicUsize, Ordering};
use glintdb_flash::{ReadQueue, Reader};
use std::sync::atomic::AtomicU64;

/// Entries of a step on a thread that waits for something else.
pub(crate) const STEP_ENTRIES: u32 = 2048;
/// Entries of a step on a thread that waits for a sync, which takes some 100 µs.
const STEP_ENTRIES_OF_SYNC: u32 = 256;

/// Threads that come to divided work, at most.
const GUESTS_MAX: usize = 3;

/// Who helps now, and what came of it.
pub(crate) struct Helping {
    /// Whether anybody helps: asked for, and there are background threads to be helped.
    wanted: bool,
    /// Threads that may work at once, background threads among them.
    threads: usize,
    /// Whether there are more of them than background threads: else a merge that waits has a thread of its own that comes for it, and to race with it gains nothing.
    merges: bool,
    helpers: AtomicUsize,
    pub(crate) steps: AtomicU64,
    pub(crate) time_us: AtomicU64,
}

impl Helping {
    pub(crate) fn new(wanted: bool, background_threads: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // With one core there are still waits for the medium to be filled.
        let threads = cores.max(2);
        Helping {
            wanted: wanted && background_threads > 0,
            threads,
            merges: background_threads < threads,
            helpers: AtomicUsize::new(0),
            steps: AtomicU64::new(0),
            time_us: AtomicU64::new(0),
        }
    }

    /// Threads that may come to work that is divided, beside the one that has it.
    pub(crate) fn guests(&self) -> usize {
        match self.wanted {
            true => (self.threads - 1).min(GUESTS_MAX),
            false => 0,
        }
    }

    /// Jobs to be given out beyond one for each background thread.
    pub(crate) fn more_jobs(&self) -> usize {
        self.helpers.load(Ordering::Relaxed).min(self.threads)
    }
}

impl Engine {
    /// Helps until `over` says that the wait is, or there is nothing to do.
    pub(crate) fn help_while(&self, over: impl Fn() -> bool) {
        if !self.helping.wanted || over() {
            return;
        }
        if !self.helping.merges {
            while !over() && self.help_reading() {}
            return;
        }
        let helpers = &self.helping.helpers;
        helpers.fetch_add(1, Ordering::Relaxed);
        let mut asked = false;
        while !over() && !self.closing() {
            if self.help_once(STEP_ENTRIES) {
                continue;
            }
            if asked {
                break;
            }
            // One more piece for each helper.
            asked = true;
            self.schedule();
        }
        helpers.fetch_sub(1, Ordering::Relaxed);
    }

    /// As [`help_while`](Self::help_while), of a thread whose commit is being synced by another: one thing, and nothing new is given out. `false`: there is nothing to do.
    pub(crate) fn help_while_synced(&self) -> bool {
        self.helping.wanted && self.help_once(STEP_ENTRIES_OF_SYNC)
    }

    /// Begins to read what compactions will want, and takes no step: for who waits for a flush, which a merge would keep from the processor and the medium. `false`: there is nothing to begin.
    pub(crate) fn help_reading(&self) -> bool {
        let begins = |reads: &ReadQueue| reads.begin(Reader::Helper) > 0;
        self.helping.wanted && self.reads.as_deref().is_some_and(begins)
    }

    fn help_once(&self, budget: u32) -> bool {
        if self.help_reading() {
            return true;
        }
        let helping = &self.helping;
        let start = self.clock.monotonic();
        if !helping.merges || !self.jobs.help_briefly(self, budget, helping.threads) {
            return false;
        }
        let time = self.clock.monotonic().saturating_sub(start);
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        helping.steps.fetch_add(1, Ordering::Relaxed);
        helping.time_us.fetch_add(time_us, Ordering::Relaxed);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
