//! Range tombstones of many tables made flat: disjoint fragments in key order, each with the newest
//! sequence number that deletes its keys.
//!
//! An index holds one entry a key, and no reader of its view asks for an older commit. So of
//! overlapping tombstones only the newest counts. A lookup is one binary search; a merge walks
//! beside its keys.
//!
//! Thread-safe: immutable once built.
//!
//! Invariants:
//! 1. Fragments are not empty, ascend, and do not overlap. Neighbours that touch have different
//!    sequence numbers.
//! 2. For every key, the number of its fragment is the greatest of all tombstones that cover the
//!    key.

use crate::keys::range::{KeyRange, before_end, compare_ends};
use bytes::Bytes;
use glintdb_core::{RangeTombstone, SeqNum};
use std::collections::BinaryHeap;

/// A flat set of range tombstones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TombstoneSet {
    fragments: Vec<RangeTombstone>,
}

impl TombstoneSet {
    /// Flattens `tombstones`, in any order. O(n log n).
    pub(crate) fn new(tombstones: impl IntoIterator<Item = RangeTombstone>) -> TombstoneSet {
        let mut tombstones: Vec<RangeTombstone> = tombstones
            .into_iter()
            .filter(|t| before_end(&t.start, &t.end))
            .collect();
        tombstones.sort_by(|a, b| a.start.cmp(&b.start));
        let mut ends: Vec<Option<Bytes>> = tombstones.iter().map(|t| t.end.clone()).collect();
        ends.sort_by(compare_ends);

        let mut set = TombstoneSet::default();
        // Tombstones that have begun, newest first. One that has ended is removed when it comes to
        // the top.
        let mut open: BinaryHeap<(SeqNum, usize)> = BinaryHeap::new();
        let mut from = Bytes::new();
        let (mut starts, mut next_end) = (tombstones.iter().enumerate().peekable(), 0);
        while next_end < ends.len() {
            // The next boundary: a start or an end, whichever comes first.
            let end = &ends[next_end];
            let boundary = match starts.peek() {
                Some((_, t)) if before_end(&t.start, end) => Some(t.start.clone()),
                _ => end.clone(),
            };
            while let Some(&(seqno, at)) = open.peek() {
                if compare_ends(&tombstones[at].end, &Some(from.clone())).is_le() {
                    open.pop();
                } else {
                    set.push(from.clone(), boundary.clone(), seqno);
                    break;
                }
            }
            while starts
                .peek()
                .is_some_and(|(_, t)| Some(&t.start) == boundary.as_ref())
            {
                if let Some((at, t)) = starts.next() {
                    open.push((t.seqno, at));
                }
            }
            while next_end < ends.len() && compare_ends(&ends[next_end], &boundary).is_le() {
                next_end += 1;
            }
            match boundary {
                Some(key) => from = key,
                None => break,
            }
        }
        set
    }

    /// Adds a fragment behind the last one. Joins them if they touch and have the same number.
    fn push(&mut self, start: Bytes, end: Option<Bytes>, seqno: SeqNum) {
        if !before_end(&start, &end) {
            return;
        }
        if let Some(last) = self.fragments.last_mut()
            && last.seqno == seqno
            && last.end.as_ref() == Some(&start)
        {
            last.end = end;
            return;
        }
        self.fragments.push(RangeTombstone { start, end, seqno });
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// Returns the fragments in key order.
    pub(crate) fn fragments(&self) -> &[RangeTombstone] {
        &self.fragments
    }

    /// The sequence number of the newest deletion of `key`. Zero: there is none.
    pub(crate) fn seqno_at(&self, key: &[u8]) -> SeqNum {
        let fragment = self.fragment_at(key);
        fragment.map_or(SeqNum::ZERO, |fragment| fragment.seqno)
    }

    /// The fragment that covers `key`.
    pub(crate) fn fragment_at(&self, key: &[u8]) -> Option<&RangeTombstone> {
        if self.fragments.is_empty() {
            return None;
        }
        let behind = self
            .fragments
            .partition_point(|fragment| fragment.start.as_ref() <= key);
        let fragment = &self.fragments[behind.checked_sub(1)?];
        before_end(key, &fragment.end).then_some(fragment)
    }

    /// The fragments that meet `range`.
    pub(crate) fn meeting(&self, range: &KeyRange) -> &[RangeTombstone] {
        let from = self.fragments.partition_point(|fragment| {
            fragment.end.as_ref().is_some_and(|end| *end <= range.start)
        });
        let to = self
            .fragments
            .partition_point(|fragment| before_end(&fragment.start, &range.end));
        self.fragments.get(from..to).unwrap_or_default()
    }

    /// The parts of the fragments that are in `range`.
    pub(crate) fn clipped(&self, range: &KeyRange) -> impl Iterator<Item = RangeTombstone> {
        self.meeting(range)
            .iter()
            .filter_map(move |fragment| clip(fragment, range))
    }

    /// The newest sequence number of the fragments that meet `range`.
    #[must_use]
    pub fn newest_meeting(&self, range: &KeyRange) -> Option<SeqNum> {
        self.meeting(range).iter().map(|t| t.seqno).max()
    }
}

/// The part of `tombstone` that is in `range`.
fn clip(tombstone: &RangeTombstone, range: &KeyRange) -> Option<RangeTombstone> {
    let own = range_of(tombstone);
    let part = own.intersection(range)?;
    Some(RangeTombstone {
        start: part.start,
        end: part.end,
        seqno: tombstone.seqno,
    })
}

/// The keys that a tombstone deletes.
pub(crate) fn range_of(tombstone: &RangeTombstone) -> KeyRange {
    KeyRange {
        start: tombstone.start.clone(),
        end: tombstone.end.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glintdb_core::TombstoneWalk;
    use proptest::prelude::*;

    fn tombstone(start: u8, end: Option<u8>, seqno: u64) -> RangeTombstone {
        RangeTombstone {
            start: Bytes::copy_from_slice(&[start]),
            end: end.map(|end| Bytes::copy_from_slice(&[end])),
            seqno: SeqNum(seqno),
        }
    }

    proptest! {
        #[test]
        fn prop_fragments_answer_as_the_tombstones_do(
            raw in proptest::collection::vec((0u8..30, proptest::option::of(0u8..32), 1u64..20), 0..12),
            clip_start in 0u8..30, clip_end in proptest::option::of(0u8..32),
        ) {
            let tombstones: Vec<_> = raw.iter().map(|&(s, e, n)| tombstone(s, e, n)).collect();
            let set = TombstoneSet::new(tombstones.clone());
            for pair in set.fragments().windows(2) {
                let end = pair[0].end.as_ref().unwrap();
                prop_assert!(*end <= pair[1].start);
                prop_assert!(*end < pair[1].start || pair[0].seqno != pair[1].seqno);
            }
            let mut walk = TombstoneWalk::default();
            let range = KeyRange { start: Bytes::copy_from_slice(&[clip_start]), end: clip_end.map(|e| Bytes::copy_from_slice(&[e])) };
            let clipped = TombstoneSet::new(set.clipped(&range));
            let mut newest = None;
            for key in 0u8..34 {
                let key = [key];
                let expected = tombstones.iter().filter(|t| t.covers(&key)).map(|t| t.seqno).max().unwrap_or(SeqNum::ZERO);
                prop_assert_eq!(set.seqno_at(&key), expected);
                prop_assert_eq!(walk.seqno_at(set.fragments(), &key), expected);
                let inside = if range.contains(&key) { expected } else { SeqNum::ZERO };
                prop_assert_eq!(clipped.seqno_at(&key), inside);
                if inside > SeqNum::ZERO { newest = newest.max(Some(inside)); }
            }
            if !range.is_empty() {
                prop_assert_eq!(set.newest_meeting(&range), newest);
            }
        }
    }
}
