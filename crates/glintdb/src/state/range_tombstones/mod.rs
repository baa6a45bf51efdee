//! Range tombstones of one memtable, or of one transaction.
//!
//! Thread safety: inserts and reads from any thread. Reads of an empty set touch one atomic; other
//! reads share a lock with inserts, for one lookup.
//!
//! Invariants:
//! 1. What a read found for commit `at` stays so, if every tombstone at or below `at` was inserted
//!    before. So cursors keep what they have found.
//! 2. The memory of the tombstones counts as memory of the arena.

mod cursor;
mod fragments;
mod past;

pub(crate) use self::cursor::RangeCursor;

use self::fragments::Fragments;
use self::past::Past;
use glintdb_core::sync::RwLock;
use glintdb_core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use glintdb_core::{RangeTombstone, SeqNum, key};
use glintdb_memtable::Arena;
use std::ops::Bound;
use std::sync::Arc;

/// Memory of an allocation in bytes, beside what it holds.
const ALLOCATION_BYTES: usize = 48;

/// A set of range tombstones. A lookup takes O(log n), and an insert O(log n) on the average,
/// whatever the ranges.
pub(crate) struct RangeSet {
    count: AtomicUsize,
    /// The greatest sequence number.
    newest: AtomicU64,
    tombstones: RwLock<Tombstones>,
    /// Counts the memory.
    arena: Option<Arc<Arena>>,
}

#[derive(Default)]
struct Tombstones {
    /// For readers of the newest commits.
    newest: Fragments,
    /// Number of fragments whose memory is counted.
    counted: usize,
    /// For readers of older commits.
    past: Past,
}

impl RangeSet {
    /// Creates an empty set whose memory counts as memory of `arena`.
    pub(crate) fn new(arena: Option<Arc<Arena>>) -> Self {
        RangeSet {
            count: AtomicUsize::new(0),
            newest: AtomicU64::new(0),
            tombstones: RwLock::new(Tombstones::default()),
            arena,
        }
    }

    fn note_memory(&self, bytes: usize) {
        if let Some(arena) = &self.arena {
            arena.note_bytes_beside(bytes);
        }
    }

    pub(crate) fn insert(&self, tombstone: RangeTombstone) {
        let ends = [Some(&tombstone.start), tombstone.end.as_ref()];
        let keys = ends.into_iter().flatten();
        let key_bytes: usize = keys.map(|key| key.len() + ALLOCATION_BYTES).sum();
        self.newest.fetch_max(tombstone.seqno.0, Ordering::Relaxed);
        let mut tombstones = self.tombstones.write();
        let Tombstones {
            newest,
            counted,
            past,
        } = &mut *tombstones;
        newest.add(&tombstone);
        past.push(tombstone);
        let more = newest.len().saturating_sub(*counted);
        *counted += more;
        self.count.fetch_add(1, Ordering::Release);
        drop(tombstones);
        self.note_memory(key_bytes + size_of::<RangeTombstone>() + Fragments::memory_bytes(more));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Returns the newest tombstone at or below `at` that covers `key`, if it is newer than
    /// `since`.
    pub(crate) fn newest_covering(&self, key: &[u8], at: SeqNum, since: SeqNum) -> Option<SeqNum> {
        if self.is_empty() || self.newest.load(Ordering::Relaxed) <= since.0 {
            return None;
        }
        let tombstones = self.tombstones.read();
        let mut seqno = tombstones.newest.seqno_at(key);
        if seqno > at {
            let (found, made_bytes) = tombstones.past.at(key, at);
            self.note_memory(made_bytes);
            seqno = found.seqno;
        }
        (seqno > since).then_some(seqno)
    }

    /// Returns a tombstone that is newer than `since` and overlaps the bounds, if there is one.
    pub(crate) fn newer_meeting(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        since: SeqNum,
    ) -> Option<SeqNum> {
        if self.is_empty() {
            return None;
        }
        let (start, end) = key::half_open(lower, upper);
        self.tombstones.read().newest.newer_in(&start, &end, since)
    }

    /// Returns the number of disjoint tombstones that delete the same keys as all of them do, and
    /// up to twice `count` of these, spread evenly.
    pub(crate) fn some_fragments(&self, count: usize) -> (usize, Vec<RangeTombstone>) {
        let tombstones = self.tombstones.read();
        let all = tombstones.newest.len();
        let every = (all / count.max(1)).max(1);
        let some = tombstones.newest.iter().step_by(every);
        (all, some.cloned().collect())
    }

    /// Returns disjoint tombstones that delete the same keys as all of them do, in key order.
    pub(crate) fn fragments(&self) -> Vec<RangeTombstone> {
        if self.is_empty() {
            return Vec::new();
        }
        let tombstones = self.tombstones.read();
        let mut all = Vec::with_capacity(tombstones.newest.len());
        all.extend(tombstones.newest.iter().cloned());
        all
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
