//! What an index is given, and what all of its runs share.
//!
//! [`IndexEnv`] is the same for every kind of index. An index makes one [`RunEnv`] of it, and gives
//! that to whatever reads or writes its runs.
//!
//! Thread-safe. No lock is held across I/O.

use crate::pins::FreshBlocks;
use crate::read::lookup_counts::LookupCounts;
use crate::table::{PinMemory, PinnedBlocks, TableEnv};
use glintdb_cache::Cache;
use glintdb_core::index::LOOKUP_READS_PLACES;
use glintdb_core::memory::MemoryBudget;
use glintdb_core::sync::atomic::{AtomicU64, Ordering};
use glintdb_core::{DbId, Error, ErrorKind, FileId, FileNumbers, Result, SeqNum};
use glintdb_flash::{ReadQueue, Volume};
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;

/// What every index is given.
#[derive(Clone)]
pub struct IndexEnv {
    /// The volume that has the index's files.
    pub volume: Arc<dyn Volume>,
    /// The cache of blocks that were read and verified.
    pub cache: Arc<Cache>,
    /// The budget that fences, filters, buffers and pinned blocks are charged to.
    pub memory: Arc<MemoryBudget>,
    /// The database that the files belong to.
    pub db: DbId,
    /// Numbers of new files.
    pub numbers: Arc<dyn FileNumbers>,
    /// Expected bytes of a flush. An index corrects the figure as flushes come.
    pub run_bytes: u64,
    /// Tombstones with this sequence number or a greater one are kept, because transactions may
    /// still have to see them.
    pub tombstone_floor: Arc<AtomicU64>,
    /// Reads the input of compactions ahead. `None`: each cursor reads ahead by itself.
    pub reads: Option<Arc<ReadQueue>>,
}

/// What all runs of one index share.
pub struct RunEnv {
    index: IndexEnv,
    tables: Arc<TableEnv>,
    remapping: Arc<TableEnv>,
    pin_memory: Arc<PinMemory>,
    /// Blocks of new tables that wait for their change to be applied.
    pub(crate) fresh: FreshBlocks,
    /// Counts point lookups.
    pub(crate) lookups: LookupCounts,
}

impl IndexEnv {
    /// What the tables of an index share.
    fn tables(&self, remaps: bool) -> Arc<TableEnv> {
        Arc::new(TableEnv {
            volume: Arc::clone(&self.volume),
            cache: Arc::clone(&self.cache),
            memory: Arc::clone(&self.memory),
            db: self.db,
            reads: self.reads.clone(),
            remaps,
        })
    }
}

impl RunEnv {
    /// The shared state of an index without runs.
    pub fn new(index: IndexEnv) -> Arc<RunEnv> {
        Arc::new(RunEnv {
            tables: index.tables(false),
            remapping: index.tables(true),
            pin_memory: PinMemory::new(Arc::clone(&index.memory)),
            fresh: FreshBlocks::default(),
            lookups: LookupCounts::default(),
            index,
        })
    }

    /// What the index was given.
    pub fn index(&self) -> &IndexEnv {
        &self.index
    }

    /// What the index's tables share.
    pub fn tables(&self) -> &Arc<TableEnv> {
        &self.tables
    }

    /// What those tables share whose filters and fences are accounted as
    /// [`MemoryPart::Remap`](glintdb_core::memory::MemoryPart::Remap).
    pub fn remapping_tables(&self) -> &Arc<TableEnv> {
        &self.remapping
    }

    /// The memory of the index's pinned blocks.
    pub fn pin_memory(&self) -> &Arc<PinMemory> {
        &self.pin_memory
    }

    /// Takes the blocks of new tables that were kept to be pinned, by file number.
    pub fn take_fresh_blocks(
        &self,
        numbers: impl IntoIterator<Item = u64>,
    ) -> HashMap<u64, PinnedBlocks> {
        self.fresh.take(numbers)
    }

    /// Counts a point lookup that has read this number of blocks.
    #[inline]
    pub fn count_lookup(&self, reads: u32) {
        self.lookups.count(reads);
    }

    /// Point lookups by the number of blocks that they read. The last place counts those with that
    /// many or more.
    #[must_use]
    pub fn lookups_by_reads(&self) -> [u64; LOOKUP_READS_PLACES] {
        self.lookups.sum()
    }

    /// Tombstones below this sequence number may be dropped where nothing is beneath them.
    pub fn tombstone_floor(&self) -> SeqNum {
        SeqNum(self.index.tombstone_floor.load(Ordering::Acquire))
    }

    /// Removes a file that no manifest names. If that fails, the file is an orphan, which the next
    /// open removes.
    pub fn remove_file(&self, file: FileId) {
        if let Err(error) = self.index.volume.delete(file) {
            debug_assert!(
                matches!(
                    error.kind(),
                    ErrorKind::NotFound
                        | ErrorKind::Io
                        | ErrorKind::Poisoned
                        | ErrorKind::NoSpace
                        | ErrorKind::Unavailable
                        | ErrorKind::Closed
                ),
                "{error}"
            );
        }
    }

    /// Checks that each file, given with its place and length, exists and has the length that the
    /// manifest records.
    ///
    /// # Errors
    /// `Corruption` for the first file that is missing or has another length, I/O errors.
    pub fn check_files<P: Debug>(
        &self,
        files: impl Iterator<Item = (P, FileId, u64)>,
    ) -> Result<()> {
        let volume = &self.index.volume;
        let there: HashSet<FileId> = volume.list()?.into_iter().collect();
        for (place, id, bytes) in files {
            let kind = id.kind.prefix();
            if !there.contains(&id) {
                let what =
                    format!("expected a {kind} of {bytes} bytes at {place:?}, found no such file");
                return Err(Error::corruption(id, 0, what));
            }
            let length = volume.open(id)?.len()?;
            if length != bytes {
                let what = format!("expected a {kind} of {bytes} bytes, found {length}");
                return Err(Error::corruption(id, length.min(bytes), what));
            }
        }
        Ok(())
    }
}
