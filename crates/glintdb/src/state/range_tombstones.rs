//! Range tombstones of one memtable.
//!
//! Thread safety: inserts and reads from any thread; reads of an empty set touch one atomic.

use glintdb_core::sync::RwLock;
use glintdb_core::sync::atomic::{AtomicUsize, Ordering};
use glintdb_core::{RangeTombstone, SeqNum};
use std::ops::Bound;

/// Range tombstones, in the order in which they were inserted.
pub(crate) struct RangeSet {
    count: AtomicUsize,
    tombstones: RwLock<Vec<RangeTombstone>>,
}

impl RangeSet {
    pub(crate) fn new() -> Self {
        RangeSet {
            count: AtomicUsize::new(0),
            tombstones: RwLock::new(Vec::new()),
        }
    }

    pub(crate) fn insert(&self, tombstone: RangeTombstone) {
        let mut tombstones = self.tombstones.write();
        tombstones.push(tombstone);
        self.count.store(tombstones.len(), Ordering::Release);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Returns the newest tombstone at or below `at` that covers `key`.
    pub(crate) fn newest_covering(&self, key: &[u8], at: SeqNum) -> Option<SeqNum> {
        if self.is_empty() {
            return None;
        }
        self.tombstones
            .read()
            .iter()
            .filter(|tombstone| tombstone.seqno <= at && tombstone.covers(key))
            .map(|tombstone| tombstone.seqno)
            .max()
    }

    /// Returns the newest tombstone that overlaps the bounds.
    pub(crate) fn newest_meeting(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Option<SeqNum> {
        if self.is_empty() {
            return None;
        }
        let (start, end) = glintdb_core::key::half_open(lower, upper);
        let meets = |tombstone: &RangeTombstone| {
            end.as_ref().is_none_or(|end| tombstone.start < *end)
                && tombstone
                    .end
                    .as_ref()
                    .is_none_or(|tombstone_end| start < *tombstone_end)
        };
        self.tombstones
            .read()
            .iter()
            .filter(|tombstone| meets(tombstone))
            .map(|tombstone| tombstone.seqno)
            .max()
    }

    /// Returns copies of the tombstones at or below `at`.
    pub(crate) fn at(&self, at: SeqNum) -> Vec<RangeTombstone> {
        if self.is_empty() {
            return Vec::new();
        }
        self.tombstones
            .read()
            .iter()
            .filter(|tombstone| tombstone.seqno <= at)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn newest_covering_respects_bounds_and_snapshot() {
        let set = RangeSet::new();
        let tombstone = |start: &'static [u8], end: Option<&'static [u8]>, seqno| RangeTombstone {
            start: Bytes::from_static(start),
            end: end.map(Bytes::from_static),
            seqno: SeqNum(seqno),
        };
        set.insert(tombstone(b"b", Some(b"d"), 5));
        set.insert(tombstone(b"c", None, 9));
        assert_eq!(set.newest_covering(b"a", SeqNum::MAX), None);
        assert_eq!(set.newest_covering(b"b", SeqNum::MAX), Some(SeqNum(5)));
        assert_eq!(set.newest_covering(b"c", SeqNum(8)), Some(SeqNum(5)));
        assert_eq!(set.newest_covering(b"z", SeqNum::MAX), Some(SeqNum(9)));
        assert_eq!(
            set.newest_meeting(Bound::Unbounded, Bound::Excluded(b"b")),
            None
        );
        assert_eq!(
            set.newest_meeting(Bound::Unbounded, Bound::Included(b"b")),
            Some(SeqNum(5))
        );
        assert_eq!(
            set.newest_meeting(Bound::Excluded(b"c"), Bound::Unbounded),
            Some(SeqNum(9))
        );
    }
}
