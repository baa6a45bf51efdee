//! Resident runs: flushes that are held in memory instead of being written, as long as the log holds what is in them (`PinMode::LogBacked`).
//!
//! A sealed generation becomes, for each keyspace, a run of an index that is only in memory: the tables are those of the LSM index, their key blocks pinned, their files [`files::Files`]. It stands
//! between the memtables and the keyspace's own index. Later all of them, with the generation that is flushed then, are merged and written as one run: oldest first and whole, for all keyspaces at once.
//!
//! Thread safety: [`Resident`] is immutable; holding and persisting is done under the engine's `flush_lock`.
//!
//! Invariants:
//! 1. Resident runs hold the commits from the flush point to the oldest generation, without a gap: the flush point moves when, and only when, all of them are persisted. So a crash loses none, and to
//!    everything that looks at indexes (value GC, relocation, compactions, liveness, `verify`, checkpoints) they are memtables: not there yet.
//! 2. They hold only visible commits, one entry a key.
//! 3. What they take, and what they keep of the log, stays within [`Engine::may_hold`].

mod files;
#[cfg(test)]
mod tests;

use crate::Result;
use crate::background::flush::MemtableRun;
use crate::engine::Engine;
use crate::options::{Options, PinMode};
use crate::state::version::{Generation, KeyspaceState, Version};
use files::Files;
use glintdb_core::index::{Index, IndexView, SortedRun};
use glintdb_core::memory::MemoryBudget;
use glintdb_core::sync::atomic::AtomicU64;
use glintdb_core::{DbId, FileNumbers, KeyspaceId, RangeTombstone};
use glintdb_flash::Cache;
use glintdb_lsm::{Lsm, LsmEnv, LsmOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A lookup visits each of them.
const RUNS_MAX: u32 = 8;
/// The cache of an index whose blocks are all pinned.
const CACHE_BYTES: usize = 16 << 10;

/// The memory of a keyspace's resident runs, from the first one held to the last one read.
pub(crate) struct Image {
    keyspace: KeyspaceId,
    index: Arc<Lsm>,
    files: Arc<Files>,
    memory: Arc<MemoryBudget>,
}

/// The resident runs of a keyspace, newest first to whoever reads the view.
#[derive(Clone)]
pub(crate) struct Resident {
    pub(crate) image: Arc<Image>,
    pub(crate) view: Arc<dyn IndexView>,
    /// Of all runs.
    pub(crate) ranges: Arc<Vec<RangeTombstone>>,
}

/// By keyspace.
pub(crate) type Residents = BTreeMap<KeyspaceId, Resident>;

/// What the resident runs of all keyspaces stand for.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Held {
    /// Generations.
    pub(crate) runs: u32,
    /// Bytes that indexes will have to hold for them, about.
    pub(crate) index_bytes: u64,
    /// Log that they keep: from the flush point on.
    pub(crate) log_bytes: u64,
}

/// Numbers of files that nobody else sees.
struct Numbers(AtomicU64);

impl FileNumbers for Numbers {
    fn next(&self) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

impl Image {
    fn new(db: DbId, keyspace: KeyspaceId) -> Result<Arc<Image>> {
        let memory = Arc::new(MemoryBudget::new(usize::MAX));
        let files = Arc::new(Files::default());
        let env = LsmEnv {
            volume: Arc::clone(&files) as Arc<dyn glintdb_flash::Volume>,
            cache: Arc::new(Cache::new(CACHE_BYTES)),
            memory: Arc::clone(&memory),
            db,
            numbers: Arc::new(Numbers(AtomicU64::new(1))),
            run_bytes: 1,
            tombstone_floor: Arc::default(),
            reads: None,
        };
        let options = LsmOptions::default().table_bytes_target(4 << 30);
        let index = Lsm::create(env, options)?;
        // Whatever comes is pinned: the engine looks to it that it is not too much.
        index.set_pin_share(glintdb_core::index::PinShare {
            auto_bytes: u64::MAX / 8,
            bytes_max: u64::MAX / 8,
        });
        Ok(Arc::new(Image {
            keyspace,
            index,
            files,
            memory,
        }))
    }

    /// Whose runs they are.
    pub(crate) fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }

    /// Memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.used_bytes_total() + self.files.bytes()
    }

    /// Adds a run above those that are there.
    fn hold(&self, run: &mut dyn SortedRun) -> Result<()> {
        let change = self.index.write_run(run)?;
        self.index.apply(&change)?;
        for table in Lsm::tables_after(std::slice::from_ref(&change.edit)) {
            self.files.cut(table.id, table.tail_offset)?;
        }
        Ok(())
    }
}

impl Resident {
    /// `before`, if there is anything, with `run` above it.
    fn with_run(
        before: Option<&Resident>,
        db: DbId,
        keyspace: KeyspaceId,
        run: &mut dyn SortedRun,
    ) -> Result<Resident> {
        let image = match before {
            Some(before) => Arc::clone(&before.image),
            None => Image::new(db, keyspace)?,
        };
        let before = before.map_or(&[][..], |before| &before.ranges);
        let ranges = before.iter().chain(run.range_tombstones()).cloned();
        let ranges = Arc::new(ranges.collect());
        image.hold(run)?;
        Ok(Resident {
            view: image.index.view(),
            image,
            ranges,
        })
    }

    /// Entries of all runs.
    pub(crate) fn entries(&self) -> u64 {
        self.view.stats().entries
    }
}

impl Held {
    /// With a generation more.
    fn and(self, generation: &Generation) -> Held {
        Held {
            runs: self.runs + 1,
            index_bytes: self.index_bytes + generation.index_bytes(),
            log_bytes: self.log_bytes + generation.log_bytes(),
        }
    }
}

impl Version {
    /// The resident runs of a keyspace.
    pub(crate) fn resident(&self, id: KeyspaceId) -> Option<&Resident> {
        self.keyspace(id)?.resident.as_ref()
    }

    /// All resident runs.
    pub(crate) fn residents(&self) -> Residents {
        let keyspaces = self.live_keyspaces();
        let held = keyspaces.filter_map(|one| Some((one.state.id, one.resident.as_ref()?.clone())));
        held.collect()
    }

    /// Memory of resident runs.
    pub(crate) fn images(&self) -> impl Iterator<Item = &Arc<Image>> {
        let residents = self
            .live_keyspaces()
            .filter_map(|keyspace| keyspace.resident.as_ref());
        residents.map(|resident| &resident.image)
    }

    /// Bytes of memory of resident runs.
    pub(crate) fn resident_bytes(&self) -> usize {
        self.images().map(|image| image.bytes()).sum()
    }
}

impl Options {
    /// Memory that resident runs may take: as much as memtables.
    pub(crate) fn resident_share_bytes(&self) -> usize {
        match self.pin_mode {
            PinMode::WrittenThrough => 0,
            PinMode::LogBacked => self.memory_budget_bytes / 4,
        }
    }

    /// Log at which the active memtables are sealed. With another generation sealed, and the log that resident runs keep, `replay_bytes_max` holds.
    pub(crate) fn log_seal_bytes(&self) -> u64 {
        match self.pin_mode {
            PinMode::WrittenThrough => self.replay_bytes_max / 2,
            PinMode::LogBacked => self.replay_bytes_max / 4,
        }
    }

    /// Log that resident runs may keep, the newest one's too.
    fn held_log_bytes_max(&self) -> u64 {
        self.replay_bytes_max / 2
    }
}

impl Engine {
    /// Whether the oldest sealed generation becomes a resident run: what there is then stays within the runs that a lookup may visit, within their share of memory, and within the log that may have
    /// to be replayed; nobody waits for the space that the log takes; and the reserve holds what writing all of it will take. That is asked for: deletions are numbered without it, as what they bring is
    /// written before the next memtable is full.
    pub(crate) fn may_hold(&self, version: &Version, oldest: &Generation) -> bool {
        if self.options.pin_mode != PinMode::LogBacked {
            return false;
        }
        let then = version.held.and(oldest);
        let bytes = version.resident_bytes() as u64 + oldest.index_bytes();
        let log_bytes_max = (self.options.held_log_bytes_max()).min(self.gc.seal_bytes());
        then.runs <= RUNS_MAX
            && bytes <= self.options.resident_share_bytes() as u64
            && then.log_bytes <= log_bytes_max
            && !self.must_persist()
            && self.refill_reserve(0).unwrap_or(false)
    }

    /// Log at which the active memtables are sealed so that garbage in it gets known. What overwrites is not known to have done so before it is in the index: so runs that are held have half of what
    /// memtables else have.
    pub(crate) fn gc_seal_bytes(&self) -> u64 {
        match self.options.pin_mode {
            PinMode::WrittenThrough => self.gc.seal_bytes(),
            PinMode::LogBacked => self.gc.seal_bytes() / 2,
        }
    }

    /// Whether the log that resident runs keep is wanted for its space.
    fn must_persist(&self) -> bool {
        self.reserve.is_lent() || (self.options.value_gc && self.is_gc_urgent())
    }

    /// Whether resident runs are to be persisted although no generation waits to be flushed.
    pub(crate) fn wants_persist(&self) -> bool {
        self.options.pin_mode == PinMode::LogBacked
            && self.version.load().held.runs > 0
            && self.must_persist()
    }

    /// Makes the oldest sealed generation a resident run of each keyspace. All its commits are visible.
    pub(crate) fn hold(
        &self,
        oldest: &Arc<Generation>,
        keyspaces: impl Iterator<Item = Arc<KeyspaceState>>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let version = self.version.load_full();
        let mut held = Vec::new();
        for keyspace in keyspaces {
            let Some(mem) = oldest.keyspace(keyspace.id).filter(|mem| !mem.is_empty()) else {
                continue;
            };
            let mut run = MemtableRun::new(&keyspace, Some(mem), None, progress)?;
            let before = version.resident(keyspace.id);
            let resident = Resident::with_run(before, self.db, keyspace.id, &mut run)?;
            held.push((keyspace, resident));
        }
        drop(version);
        let replaced = self.install(|version| {
            let mut next = version.clone();
            for (keyspace, resident) in &held {
                // Dropped meanwhile: what was held is nobody's.
                if let Some(Some(slot)) = next.keyspaces.get_mut(keyspace.id.0 as usize) {
                    slot.resident = Some(resident.clone());
                }
            }
            next.held = next.held.and(oldest);
            next.sealed.retain(|sealed| !Arc::ptr_eq(sealed, oldest));
            next
        });
        drop(replaced);
        Ok(())
    }
}
