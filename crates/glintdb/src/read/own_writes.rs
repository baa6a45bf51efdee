//! A transaction's own writes to one keyspace, and a cursor over them.
//!
//! The writes are a persistent map, so an iterator has the writes of its beginning at no cost, and
//! the transaction writes on.
//!
//! Thread safety: a [`Writes`] belongs to its transaction, a view and a cursor to their iterator.

use crate::read::bounds::{bound_slices, is_empty};
use crate::state::range_tombstones::RangeSet;
use crate::state::version::KeyspaceState;
use bytes::Bytes;
use glintdb_core::{Direction, EntryRef, EntryValue, RangeTombstone, SeqNum, planted};
use rpds::RedBlackTreeMapSync;
use std::ops::Bound;
use std::sync::Arc;

/// Keys that a transaction wrote, with their newest values.
type Entries = RedBlackTreeMapSync<Bytes, EntryValue>;

/// Writes of a transaction to one keyspace.
pub(crate) struct Writes {
    pub(crate) keyspace: Arc<KeyspaceState>,
    entries: Entries,
    /// Range deletions, numbered in order. None covers an entry, because it removed those that were
    /// there.
    ranges: Arc<RangeSet>,
    /// Number of the last range deletion.
    last_range: SeqNum,
}

impl Writes {
    pub(crate) fn new(keyspace: &Arc<KeyspaceState>) -> Self {
        Writes {
            keyspace: Arc::clone(keyspace),
            entries: Entries::new_sync(),
            ranges: Arc::new(RangeSet::new(None)),
            last_range: SeqNum::ZERO,
        }
    }

    pub(crate) fn put(&mut self, key: Bytes, value: EntryValue) {
        self.entries.insert_mut(key, value);
    }

    /// Deletes `[start, end)`.
    pub(crate) fn delete_range(&mut self, start: Bytes, end: Option<Bytes>) {
        let mut covered = self.view().cursor(
            Bound::Included(&start),
            end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            Direction::Forward,
        );
        while covered.advance() {
            self.entries.remove_mut(covered.key());
        }
        self.last_range = self.last_range.next();
        self.ranges.insert(RangeTombstone {
            start,
            end,
            seqno: self.last_range,
        });
    }

    /// Returns the newest write of `key`. A range deletion counts as a deletion of the key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&EntryValue> {
        self.entries.get(key).or_else(|| {
            let deleted = planted!(
                "glintdb: a transaction does not see its own range deletion",
                (self.ranges)
                    .newest_covering(key, SeqNum::MAX, SeqNum::ZERO)
                    .is_some(),
                false
            );
            deleted.then_some(&EntryValue::Tombstone)
        })
    }

    /// Returns the keys and their values, in key order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Bytes, &EntryValue)> {
        self.entries.iter()
    }

    /// Returns the ranges that were deleted: disjoint, in key order.
    pub(crate) fn deleted_ranges(&self) -> Vec<RangeTombstone> {
        self.ranges.fragments()
    }

    /// Returns the writes so far, for an iterator.
    pub(crate) fn view(&self) -> OwnView {
        OwnView {
            entries: self.entries.clone(),
            ranges: Arc::clone(&self.ranges),
            at: self.last_range,
        }
    }
}

/// A transaction's writes to one keyspace, as an iterator sees them.
pub(crate) struct OwnView {
    entries: Entries,
    pub(crate) ranges: Arc<RangeSet>,
    /// The newest of `ranges` that the iterator sees.
    pub(crate) at: SeqNum,
}

impl OwnView {
    /// Returns a cursor over the writes within bounds, which do not exclude each other.
    pub(crate) fn cursor(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> OwnCursor {
        OwnCursor {
            entries: self.entries.clone(),
            lower: lower.map(Bytes::copy_from_slice),
            upper: upper.map(Bytes::copy_from_slice),
            direction,
            current: None,
        }
    }
}

/// A cursor over a transaction's own writes.
pub(crate) struct OwnCursor {
    entries: Entries,
    /// The bounds of the writes that the cursor has not passed.
    lower: Bound<Bytes>,
    upper: Bound<Bytes>,
    direction: Direction,
    current: Option<(Bytes, EntryValue)>,
}

impl OwnCursor {
    /// Advances to the next write. Returns false at the end.
    pub(crate) fn advance(&mut self) -> bool {
        if let Some((key, _)) = self.current.take() {
            match self.direction {
                Direction::Forward => self.lower = Bound::Excluded(key),
                Direction::Reverse => self.upper = Bound::Excluded(key),
            }
        }
        let bounds = bound_slices(&self.lower, &self.upper);
        if is_empty(bounds) {
            return false;
        }
        let mut left = self.entries.range::<[u8], _>(bounds);
        let next = match self.direction {
            Direction::Forward => left.next(),
            Direction::Reverse => left.next_back(),
        };
        self.current = next.map(|(key, value)| (key.clone(), value.clone()));
        self.current.is_some()
    }

    /// Advances to the first write at or behind `key` in the cursor's direction.
    pub(crate) fn seek(&mut self, key: &[u8]) -> bool {
        let key = Bound::Included(Bytes::copy_from_slice(key));
        self.current = None;
        match self.direction {
            Direction::Forward => self.lower = key,
            Direction::Reverse => self.upper = key,
        }
        self.advance()
    }

    /// Returns the current key. Empty if there is none.
    pub(crate) fn key(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |(key, _)| key)
    }

    /// Returns the current value.
    pub(crate) fn value(&self) -> EntryRef<'_> {
        let value = self.current.as_ref().map(|(_, value)| value.as_ref());
        value.unwrap_or(EntryRef::Tombstone)
    }
}
