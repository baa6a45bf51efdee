//! What every part of one index shares: its environment, options and counters.
//!
//! Thread-safe: shared immutable state and relaxed counters.

use crate::options::LsmOptions;
use crate::table::{TableConfig, TableEnv};
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{DbId, ErrorKind, FileId, FileNumbers, SeqNum};
use glintdb_flash::{Cache, Volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an index is given.
#[derive(Clone)]
pub struct LsmEnv {
    /// Where its files are.
    pub volume: Arc<dyn Volume>,
    /// Where blocks are kept that were read and verified.
    pub cache: Arc<Cache>,
    /// Budget that fences, filters and buffers are charged to.
    pub memory: Arc<MemoryBudget>,
    /// Database that the files belong to.
    pub db: DbId,
    /// Numbers of new files.
    pub numbers: Arc<dyn FileNumbers>,
    /// Tombstones whose sequence number is this or greater are kept: transactions may still have to see them.
    pub tombstone_floor: Arc<glintdb_core::sync::atomic::AtomicU64>,
}

/// See the module's page.
pub(crate) struct Common {
    pub(crate) env: LsmEnv,
    pub(crate) table_env: Arc<TableEnv>,
    pub(crate) table_config: TableConfig,
    pub(crate) options: LsmOptions,
    pub(crate) counters: Counters,
}

/// Figures since open.
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
    pub(crate) fn new(env: LsmEnv, options: LsmOptions) -> Arc<Common> {
        let table_env = Arc::new(TableEnv {
            volume: Arc::clone(&env.volume),
            cache: Arc::clone(&env.cache),
            memory: Arc::clone(&env.memory),
            db: env.db,
        });
        Arc::new(Common {
            table_config: options.table_config(),
            env,
            table_env,
            options,
            counters: Counters::default(),
        })
    }

    /// Tombstones below this number may go where nothing is beneath them.
    pub(crate) fn tombstone_floor(&self) -> SeqNum {
        SeqNum(self.env.tombstone_floor.load(Ordering::Acquire))
    }

    /// Removes a file that no manifest names. A failure leaves an orphan, which the next open removes.
    pub(crate) fn remove_file(&self, file: FileId) {
        match self.env.volume.delete(file) {
            Ok(()) => {}
            // Already gone, or left to the next open.
            Err(error) => debug_assert!(
                matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::Io | ErrorKind::Poisoned | ErrorKind::NoSpace
                ),
                "{error}"
            ),
        }
    }
}
