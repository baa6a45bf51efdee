//! Versions: immutable pictures of the database. A reader takes one and needs no lock from then on.
//!
//! Thread safety: a [`Version`] never changes. The memtables of its active generation grow by
//! commits that are not visible yet.
//!
//! Invariants:
//! 1. Sealed generations are newest first. Every commit is in exactly one generation or in the
//!    indexes, in commit order: indexes, oldest sealed, …, active.
//! 2. A generation's sequence numbers are contiguous: `[first_seqno, first_seqno of the next)`.
//! 3. Indexes hold only visible commits.

use crate::index_kinds::AnyIndex;
use crate::options::KeyspaceOptions;
use crate::state::gaps::Gaps;
use crate::state::range_tombstones::RangeSet;
use crate::state::scattered::Scattered;
use crate::write::backpressure::compaction_debt::IndexDebt;
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::IndexView;
use glintdb_core::sync::atomic::AtomicBool;
use glintdb_core::sync::{ArcSwap, Mutex};
use glintdb_core::{EntryRef, EntryValue, KeyspaceId, SeqNum, planted};
use glintdb_log::Lsn;
use glintdb_memtable::{Arena, Memtable};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the indexes need of the reserve for a full disk.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct IndexNeeds {
    /// Live bytes of all indexes.
    pub(crate) live_bytes: u64,
    /// Bytes that the job of one index takes before it gives space back.
    pub(crate) job_bytes: u64,
}

/// The memtable of one keyspace in one generation.
pub(crate) struct KeyspaceMem {
    pub(crate) map: Arc<Memtable>,
    pub(crate) ranges: Arc<RangeSet>,
    /// Number of deletions of single keys.
    pub(crate) deletes: AtomicU64,
}

/// The memtables of all keyspaces between two seals. They are flushed together, so that there is
/// one flush point.
pub(crate) struct Generation {
    pub(crate) first_seqno: SeqNum,
    /// Place of its first commit in the log: replay begins here while it is not flushed.
    pub(crate) start_lsn: Lsn,
    /// Position of the log behind the newest earlier commit; 0 if this process wrote no earlier
    /// commit. The log must be durable up to here before `start_lsn` is the flush point.
    pub(crate) log_position: u64,
    arena: Arc<Arena>,
    keyspaces: Vec<Option<KeyspaceMem>>,
    /// Bytes that indexes will have to hold for it. Set when it is sealed.
    index_bytes: AtomicU64,
}

impl Generation {
    /// Creates an empty generation with a memtable for each of `ids`.
    pub(crate) fn new(
        first_seqno: SeqNum,
        start_lsn: Lsn,
        arena: Arc<Arena>,
        ids: impl Iterator<Item = KeyspaceId>,
    ) -> Self {
        let mut keyspaces = Vec::new();
        for id in ids {
            let slot = id.0 as usize;
            if keyspaces.len() <= slot {
                keyspaces.resize_with(slot + 1, || None);
            }
            keyspaces[slot] = Some(KeyspaceMem {
                map: Arc::new(Memtable::new(Arc::clone(&arena))),
                ranges: Arc::new(RangeSet::new(Some(Arc::clone(&arena)))),
                deletes: AtomicU64::new(0),
            });
        }
        Generation {
            first_seqno,
            start_lsn,
            log_position: 0,
            arena,
            keyspaces,
            index_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the memtable of a keyspace. `None` if the keyspace is younger than the generation.
    pub(crate) fn keyspace(&self, id: KeyspaceId) -> Option<&KeyspaceMem> {
        self.keyspaces.get(id.0 as usize)?.as_ref()
    }

    /// Returns the memory that its memtables and their cursors share.
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns the bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.allocated_bytes()
    }

    /// Returns the bytes that its records take of its memory. A generation is full by these bytes,
    /// so that it also uses the last chunk that it takes.
    pub(crate) fn filled_bytes(&self) -> usize {
        self.arena.filled_bytes()
    }

    /// Returns the number of keys in its memtables.
    pub(crate) fn entries(&self) -> usize {
        let memtables = self.keyspaces.iter().flatten();
        memtables.map(|mem| mem.map.len()).sum()
    }

    /// Returns the bytes that indexes will have to hold for it; 0 before it is sealed.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.index_bytes.load(Ordering::Relaxed)
    }

    /// Sets, when it is sealed, the bytes that indexes will have to hold for it.
    pub(crate) fn set_index_bytes(&self, index_bytes: u64) {
        self.index_bytes.store(index_bytes, Ordering::Relaxed);
    }
}

impl KeyspaceMem {
    /// Whether nothing was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty() && self.ranges.is_empty()
    }

    /// Returns the newest entry of `key` at or below `at`. A range tombstone that hides it counts
    /// as a tombstone.
    pub(crate) fn get(&self, key: &[u8], at: SeqNum) -> Option<(SeqNum, EntryRef<'_>)> {
        let found = self.map.get(key, at);
        let since = found.map_or(SeqNum::ZERO, |(seqno, _)| seqno);
        let covered = planted!(
            "glintdb: a range deletion hides nothing in its memtable",
            self.ranges.newest_covering(key, at, since),
            None
        );
        match covered {
            Some(hidden_at) => Some((hidden_at, EntryRef::Tombstone)),
            None => found,
        }
    }
}

/// The state of a keyspace that versions share.
#[repr(align(128))]
pub(crate) struct KeyspaceState {
    pub(crate) id: KeyspaceId,
    pub(crate) name: String,
    /// The options. They change only under the manifest's lock.
    pub(crate) options: Mutex<KeyspaceOptions>,
    /// The option of the database. It is here because each put needs it.
    pub(crate) separate_min_bytes: usize,
    /// The index. It changes only under the flush lock and the manifest's lock.
    index: ArcSwap<AnyIndex>,
    pub(crate) dropped: AtomicBool,
    /// An index of another kind is being made. One thread does that at a time.
    pub(crate) converting: AtomicBool,
    /// Another index is about to take over. No relocation begins.
    pub(crate) switching: AtomicBool,
    pub(crate) counters: KeyspaceCounters,
    pub(crate) scattered: Scattered,
    pub(crate) gaps: Gaps,
    /// The debt of the index, for which writers to the keyspace pay.
    pub(crate) debt: IndexDebt,
}

impl KeyspaceState {
    pub(crate) fn new(
        id: KeyspaceId,
        name: String,
        options: KeyspaceOptions,
        separate_min_bytes: usize,
        index: AnyIndex,
    ) -> Self {
        KeyspaceState {
            id,
            name,
            options: Mutex::new(options),
            separate_min_bytes,
            index: ArcSwap::from_pointee(index),
            dropped: AtomicBool::new(false),
            converting: AtomicBool::new(false),
            switching: AtomicBool::new(false),
            counters: KeyspaceCounters::default(),
            scattered: Scattered::default(),
            gaps: Gaps::default(),
            debt: IndexDebt::default(),
        }
    }

    /// Returns the index.
    pub(crate) fn index(&self) -> Arc<AnyIndex> {
        self.index.load_full()
    }

    /// Replaces the index. The caller holds the flush lock and the manifest's lock.
    pub(crate) fn set_index(&self, index: AnyIndex) {
        self.index.store(Arc::new(index));
    }

    /// Checks that the keyspace was not dropped.
    ///
    /// # Errors
    /// `NotFound`: it was.
    pub(crate) fn check_there(&self) -> Result<()> {
        match self.dropped.load(Ordering::Acquire) {
            true => Err(self.gone()),
            false => Ok(()),
        }
    }

    /// Returns the error that it was dropped.
    pub(crate) fn gone(&self) -> Error {
        Error::new(
            ErrorKind::NotFound,
            format!("keyspace {:?} was dropped", self.name),
        )
    }
}

/// Counters of a keyspace since open.
#[derive(Default)]
pub(crate) struct KeyspaceCounters {
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed_entries: AtomicU64,
}

/// A keyspace within a version.
#[derive(Clone)]
pub(crate) struct KeyspaceVersion {
    pub(crate) state: Arc<KeyspaceState>,
    pub(crate) view: Arc<dyn IndexView>,
}

/// A point to read at: a version, and the newest commit that is visible in it.
#[derive(Clone)]
pub(crate) struct ReadPoint {
    pub(crate) version: Arc<Version>,
    pub(crate) at: SeqNum,
}

/// The newest entry of a key that was found.
pub(crate) type Found = Option<(SeqNum, EntryValue)>;

/// Returns whether a lookup found a value.
pub(crate) fn is_there(found: &Found) -> bool {
    !matches!(found, None | Some((_, EntryValue::Tombstone)))
}

/// An immutable picture of the database.
#[derive(Clone)]
#[repr(align(128))]
pub(crate) struct Version {
    /// Number of versions that this one and its predecessors have replaced.
    pub(crate) number: u64,
    pub(crate) active: Arc<Generation>,
    /// Generations that wait to be flushed, newest first.
    pub(crate) sealed: Vec<Arc<Generation>>,
    /// Keyspaces by their ids.
    pub(crate) keyspaces: Vec<Option<KeyspaceVersion>>,
}

impl Version {
    pub(crate) fn keyspace(&self, id: KeyspaceId) -> Option<&KeyspaceVersion> {
        self.keyspaces.get(id.0 as usize)?.as_ref()
    }

    /// Returns the view of a keyspace's index, which is beneath its memtables. `None` if the
    /// keyspace was dropped.
    pub(crate) fn view(&self, id: KeyspaceId) -> Option<&Arc<dyn IndexView>> {
        self.keyspace(id).map(|keyspace| &keyspace.view)
    }

    /// Returns the newest entry of `key` at commit `at`, tombstones included.
    pub(crate) fn find(&self, at: SeqNum, keyspace: &KeyspaceState, key: &[u8]) -> Result<Found> {
        for generation in self.generations() {
            let found = generation
                .keyspace(keyspace.id)
                .and_then(|mem| mem.get(key, at));
            if let Some((seqno, value)) = found {
                return Ok(Some((seqno, value.to_owned())));
            }
        }
        let Some(view) = self.view(keyspace.id) else {
            return Ok(None);
        };
        let entry = view.get(key)?;
        Ok(entry.map(|entry| (entry.seqno, entry.value)))
    }

    /// Returns the oldest generation. Everything before it is in the indexes.
    pub(crate) fn oldest(&self) -> &Arc<Generation> {
        self.sealed.last().unwrap_or(&self.active)
    }

    /// Checks invariant 2 for this version, which replaces `old`.
    ///
    /// # Panics
    /// If generations are out of order, or if one is older than all of `old`.
    pub(crate) fn assert_follows(&self, old: &Version) {
        let in_order = |newer: &Generation, older: &Generation| {
            newer.first_seqno > older.first_seqno && newer.start_lsn >= older.start_lsn
        };
        let older = self.generations().skip(1);
        for (newer, older) in self.generations().zip(older) {
            assert!(
                in_order(newer, older),
                "generations ascend in commit order, and a sealed one has a commit: {} at {} is \
                 followed by {} at {}",
                older.first_seqno,
                older.start_lsn,
                newer.first_seqno,
                newer.start_lsn
            );
        }
        assert!(
            self.oldest().first_seqno >= old.oldest().first_seqno,
            "commits leave memory oldest first: the oldest generation began with commit {}, and \
             now begins with {}",
            old.oldest().first_seqno,
            self.oldest().first_seqno
        );
    }

    /// Checks that memory begins where the indexes, which hold all commits up to `flushed`, end.
    ///
    /// # Panics
    /// If a commit is in neither or in both.
    pub(crate) fn assert_begins_behind(&self, flushed: SeqNum) {
        assert_eq!(
            self.oldest().first_seqno,
            flushed.next(),
            "memtables begin with the commit behind the flush point"
        );
    }

    /// Returns whether a generation waits to be flushed.
    pub(crate) fn has_sealed(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// Returns the bytes of the files of all indexes that the indexes still need.
    pub(crate) fn index_live_bytes(&self) -> u64 {
        self.index_needs().live_bytes
    }

    /// Returns what the reserve must know of the indexes.
    pub(crate) fn index_needs(&self) -> IndexNeeds {
        let mut needs = IndexNeeds::default();
        for keyspace in self.live_keyspaces() {
            let stats = keyspace.view.stats();
            needs.live_bytes += stats.live_bytes;
            // One job after the other.
            needs.job_bytes = needs.job_bytes.max(stats.job_bytes);
        }
        needs
    }

    /// Returns the generations, newest first.
    pub(crate) fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// Returns whether the memtables of one of its generations are in `arena`.
    pub(crate) fn has_arena(&self, arena: &Arc<Arena>) -> bool {
        self.generations()
            .any(|generation| Arc::ptr_eq(generation.arena(), arena))
    }

    pub(crate) fn live_keyspaces(&self) -> impl Iterator<Item = &KeyspaceVersion> {
        self.keyspaces.iter().flatten()
    }

    pub(crate) fn with_keyspace(mut self, keyspace: KeyspaceVersion) -> Self {
        let slot = keyspace.state.id.0 as usize;
        if self.keyspaces.len() <= slot {
            self.keyspaces.resize_with(slot + 1, || None);
        }
        self.keyspaces[slot] = Some(keyspace);
        self
    }
}
