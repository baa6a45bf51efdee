//! What all parts of one LSM index share: the environment of its runs, its options and its figures.
//!
//! Thread-safe: immutable state, relaxed counters, and the options behind a lock that is held for a
//! look only.

use crate::compaction::shape::Shape;
use crate::options::LsmOptions;
use crate::pinning::Pins;
use glintdb_core::sync::Mutex;
use glintdb_runs::{IndexEnv, RunEnv};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all parts of one index share.
pub(crate) struct Common {
    pub(crate) env: Arc<RunEnv>,
    /// The options of now. A job keeps those with which it began.
    options: Mutex<Arc<LsmOptions>>,
    pub(crate) counters: Counters,
    pub(crate) pins: Pins,
    /// Mean bytes of the last flushes.
    run_bytes: AtomicU64,
}

/// The mean of flushes never falls below this part of the expected bytes, so that a few tiny
/// flushes do not change the shape of the tree.
const RUN_SHARE_MIN: u64 = 16;

/// Figures since the index was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) compactions: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Common {
    pub(crate) fn new(env: IndexEnv, options: LsmOptions) -> Arc<Common> {
        let run_bytes = AtomicU64::new(env.run_bytes);
        let env = RunEnv::new(env);
        Arc::new(Common {
            pins: Pins::new(&env, options.pinned_levels),
            env,
            options: Mutex::new(Arc::new(options)),
            counters: Counters::default(),
            run_bytes,
        })
    }

    pub(crate) fn options(&self) -> Arc<LsmOptions> {
        Arc::clone(&self.options.lock())
    }

    pub(crate) fn set_options(&self, options: LsmOptions) {
        *self.options.lock() = Arc::new(options);
    }

    /// Notes the bytes of a flush: `mean = (3 * mean + bytes) / 4`.
    pub(crate) fn note_run(&self, bytes: u64) {
        let old = self.run_bytes.load(Ordering::Relaxed);
        let new = (old.saturating_mul(3).saturating_add(bytes)) / 4;
        let least = self.env.index().run_bytes / RUN_SHARE_MIN;
        self.run_bytes.store(new.max(least), Ordering::Relaxed);
    }

    /// What decides how large levels should be.
    pub(crate) fn shape(&self, options: &LsmOptions) -> Shape {
        Shape::new(options, self.run_bytes.load(Ordering::Relaxed))
    }
}
