//! What all parts of one B+tree index share: the environment of its runs, its options and its
//! figures.
//!
//! Thread-safe: immutable state, relaxed counters, and values behind locks that are held for a look
//! only.

use crate::options::BTreeOptions;
use glintdb_core::sync::Mutex;
use glintdb_flash::DataClass;
use glintdb_runs::write::{Grandparents, OutputConfig};
use glintdb_runs::{IndexEnv, RunEnv};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all parts of one index share.
pub(crate) struct Common {
    pub(crate) env: Arc<RunEnv>,
    /// The options of now. A job keeps those with which it began.
    options: Mutex<Arc<BTreeOptions>>,
    pub(crate) counters: Counters,
    /// Bytes of garbage that the files of the tree may hold.
    pub(crate) garbage_max: AtomicU64,
    /// Bytes that filters and fences of the shelf may take, if the keyspace is reshaped.
    pub(crate) remap_max: AtomicU64,
}

/// Figures since the index was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) settlings: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Common {
    pub(crate) fn new(env: IndexEnv, options: BTreeOptions) -> Arc<Common> {
        let share = env.memory.total_bytes() as u64 / 100 * u64::from(options.reshape_share);
        Arc::new(Common {
            remap_max: AtomicU64::new(share),
            env: RunEnv::new(env),
            options: Mutex::new(Arc::new(options)),
            counters: Counters::default(),
            garbage_max: AtomicU64::new(u64::MAX),
        })
    }

    pub(crate) fn options(&self) -> Arc<BTreeOptions> {
        Arc::clone(&self.options.lock())
    }

    /// How a run of the shelf is written, in tables of this class.
    pub(crate) fn run_output(&self, class: DataClass) -> OutputConfig {
        let options = self.options();
        OutputConfig {
            class,
            tables: options.run_config(),
            table_bytes: options.table_bytes_target,
            pin: false,
            grandparents: Grandparents::default(),
        }
    }

    pub(crate) fn set_options(&self, options: BTreeOptions) {
        *self.options.lock() = Arc::new(options);
    }
}
