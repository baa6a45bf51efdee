//! What every part of one index shares: its environment, options and counters.
//!
//! Thread-safe: shared immutable state and relaxed counters.

use crate::compaction::shape::Shape;
use crate::options::LsmOptions;
use crate::pinning::Pins;
use crate::table::TableEnv;
use glintdb_cache::{Cache, STRIPES, stripe_of_thread};
use glintdb_core::index::LOOKUP_READS_PLACES;
use glintdb_core::memory::MemoryBudget;
use glintdb_core::sync::Mutex;
use glintdb_core::{DbId, ErrorKind, FileId, FileNumbers, Padded, SeqNum};
use glintdb_flash::{ReadQueue, Volume};
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
    /// What a flush is expected to bring, in bytes, until flushes have shown it.
    pub run_bytes: u64,
    /// Tombstones whose sequence number is this or greater are kept: transactions may still have to see them.
    pub tombstone_floor: Arc<glintdb_core::sync::atomic::AtomicU64>,
    /// Where compactions have their input read ahead; `None`: each cursor does so for itself.
    pub reads: Option<Arc<ReadQueue>>,
}

/// See the module's page.
pub(crate) struct Common {
    pub(crate) env: LsmEnv,
    pub(crate) table_env: Arc<TableEnv>,
    /// Those of now; whoever works for a while keeps the ones it began with.
    options: Mutex<Arc<LsmOptions>>,
    pub(crate) counters: Counters,
    pub(crate) pins: Pins,
    run_bytes: AtomicU64,
}

/// A run counts for at least this part of what was expected: a few flushes of next to nothing do not change the shape of the tree.
const RUN_SHARE_MIN: u64 = 16;

/// Figures since open.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) compactions: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
    pub(crate) lookups: Lookups,
}

/// Point lookups by the number of blocks they read from the medium; the last place counts those with as many or more.
#[derive(Default)]
pub(crate) struct Lookups([Padded<[AtomicU64; LOOKUP_READS_PLACES]>; STRIPES]);

impl Lookups {
    /// Counts a lookup.
    #[inline]
    pub(crate) fn count(&self, reads: u32) {
        let place = (reads as usize).min(LOOKUP_READS_PLACES - 1);
        count(&self.0[stripe_of_thread() % STRIPES][place], 1);
    }

    /// All of them.
    pub(crate) fn sum(&self) -> [u64; LOOKUP_READS_PLACES] {
        let mut sum = [0; LOOKUP_READS_PLACES];
        for stripe in &self.0 {
            for (sum, counter) in sum.iter_mut().zip(&stripe.0) {
                *sum += counter.load(Ordering::Relaxed);
            }
        }
        sum
    }
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
            reads: env.reads.clone(),
        });
        Arc::new(Common {
            pins: Pins::new(&env.memory, options.pinned_levels),
            run_bytes: AtomicU64::new(env.run_bytes),
            env,
            table_env,
            options: Mutex::new(Arc::new(options)),
            counters: Counters::default(),
        })
    }

    pub(crate) fn options(&self) -> Arc<LsmOptions> {
        Arc::clone(&self.options.lock())
    }

    pub(crate) fn set_options(&self, options: LsmOptions) {
        *self.options.lock() = Arc::new(options);
    }

    /// Takes note of what a flush brought: the mean of the last few counts.
    pub(crate) fn note_run(&self, bytes: u64) {
        let old = self.run_bytes.load(Ordering::Relaxed);
        let new = (old.saturating_mul(3).saturating_add(bytes)) / 4;
        let least = self.env.run_bytes / RUN_SHARE_MIN;
        self.run_bytes.store(new.max(least), Ordering::Relaxed);
    }

    /// What decides how large levels should be.
    pub(crate) fn shape(&self, options: &LsmOptions) -> Shape {
        Shape::new(options, self.run_bytes.load(Ordering::Relaxed))
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
                    ErrorKind::NotFound
                        | ErrorKind::Io
                        | ErrorKind::Poisoned
                        | ErrorKind::NoSpace
                        | ErrorKind::Closed
                ),
                "{error}"
            ),
        }
    }
}
