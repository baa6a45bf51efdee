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

use crate::keys::range::{KeyRange, before_end};
use bytes::Bytes;
use glintdb_core::{RangeTombstone, SeqNum};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A flat set of range tombstones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TombstoneSet {
    fragments: Vec<RangeTombstone>,
}

impl TombstoneSet {
    /// Flattens `tombstones`, in any order. O(n log n), and O(n) if they are flat, as those of a
    /// memtable are.
    #[must_use]
    pub fn new(tombstones: impl IntoIterator<Item = RangeTombstone>) -> TombstoneSet {
        let tombstones = tombstones.into_iter();
        let mut all: Vec<_> = tombstones
            .filter(|t| before_end(&t.start, &t.end))
            .collect();
        if !all.is_sorted_by(is_flat) {
            all.sort_unstable_by(|a, b| a.start.cmp(&b.start));
            return TombstoneSet::merged([all.as_slice()], Some);
        }
        all.shrink_to_fit();
        TombstoneSet { fragments: all }
    }

    /// Flattens the tombstones of several sources, each of which is ordered by start, and keeps of
    /// each fragment what `keep` returns. Needs no memory for the others. O(n log n).
    pub(crate) fn merged<'a>(
        sources: impl IntoIterator<Item = &'a [RangeTombstone]>,
        keep: impl Fn(RangeTombstone) -> Option<RangeTombstone>,
    ) -> TombstoneSet {
        let mut set = TombstoneSet::default();
        let mut starts = ByStart::new(sources).peekable();
        // Tombstones that have begun, newest first. One that has ended is removed when it comes to
        // the top.
        let mut open: BinaryHeap<(SeqNum, Option<&Bytes>)> = BinaryHeap::new();
        let Some(first) = starts.peek() else {
            return set;
        };
        let mut from = &first.start;
        loop {
            while let Some(begun) = starts.next_if(|next| next.start == *from) {
                open.push((begun.seqno, begun.end.as_ref()));
            }
            while open
                .peek()
                .is_some_and(|(_, end)| end.is_some_and(|end| end <= from))
            {
                open.pop();
            }
            let next = starts.peek().map(|next| &next.start);
            let mut boundary = next;
            if let Some(&(seqno, end)) = open.peek() {
                boundary = [next, end].into_iter().flatten().min();
                let fragment = RangeTombstone {
                    start: from.clone(),
                    end: boundary.cloned(),
                    seqno,
                };
                if let Some(kept) = keep(fragment) {
                    set.push(kept);
                }
            }
            match boundary {
                Some(key) => from = key,
                None => break,
            }
        }
        set.fragments.shrink_to_fit();
        set
    }

    /// Adds a fragment behind the last one. Joins them if they touch and have the same number.
    fn push(&mut self, fragment: RangeTombstone) {
        match self.fragments.last_mut() {
            Some(last)
                if last.seqno == fragment.seqno && last.end.as_ref() == Some(&fragment.start) =>
            {
                last.end = fragment.end;
            }
            _ => self.fragments.push(fragment),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// Returns the fragments in key order.
    #[must_use]
    pub fn fragments(&self) -> &[RangeTombstone] {
        &self.fragments
    }

    /// The sequence number of the newest deletion of `key`. Zero: there is none.
    #[must_use]
    pub fn seqno_at(&self, key: &[u8]) -> SeqNum {
        let fragment = self.fragment_at(key);
        fragment.map_or(SeqNum::ZERO, |fragment| fragment.seqno)
    }

    /// The fragment that covers `key`.
    #[must_use]
    pub fn fragment_at(&self, key: &[u8]) -> Option<&RangeTombstone> {
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
    #[must_use]
    pub fn meeting(&self, range: &KeyRange) -> &[RangeTombstone] {
        let from = self.fragments.partition_point(|fragment| {
            fragment.end.as_ref().is_some_and(|end| *end <= range.start)
        });
        let to = self
            .fragments
            .partition_point(|fragment| before_end(&fragment.start, &range.end));
        self.fragments.get(from..to).unwrap_or_default()
    }

    /// The parts of the fragments that are in `range`.
    pub fn clipped(&self, range: &KeyRange) -> impl Iterator<Item = RangeTombstone> {
        self.meeting(range)
            .iter()
            .filter_map(move |fragment| clip(fragment, range))
    }

    /// Whether every key in `range` is deleted by a tombstone that is newer than `seqno`.
    #[must_use]
    pub fn hides_all(&self, range: &KeyRange, seqno: SeqNum) -> bool {
        let mut from = &range.start;
        for fragment in self.meeting(range) {
            if fragment.start > *from || fragment.seqno <= seqno {
                return false;
            }
            match &fragment.end {
                Some(end) if before_end(end, &range.end) => from = end,
                _ => return true,
            }
        }
        false
    }

    /// The newest sequence number of the fragments that meet `range`.
    #[must_use]
    pub fn newest_meeting(&self, range: &KeyRange) -> Option<SeqNum> {
        self.meeting(range).iter().map(|t| t.seqno).max()
    }
}

/// Whether two tombstones may follow each other in a flat set.
fn is_flat(one: &RangeTombstone, next: &RangeTombstone) -> bool {
    let order = one.end.as_ref().map(|end| end.cmp(&next.start));
    match order {
        Some(Ordering::Equal) => one.seqno != next.seqno,
        order => order == Some(Ordering::Less),
    }
}

/// The tombstones of several sources, each of which is ordered by start, in that order.
struct ByStart<'a> {
    sources: Vec<&'a [RangeTombstone]>,
    /// The first start of each source, and the source.
    firsts: BinaryHeap<Reverse<(&'a Bytes, usize)>>,
}

impl<'a> ByStart<'a> {
    fn new(sources: impl IntoIterator<Item = &'a [RangeTombstone]>) -> Self {
        let sources: Vec<_> = sources.into_iter().collect();
        let firsts = (sources.iter().enumerate())
            .filter_map(|(at, source)| Some(Reverse((&source.first()?.start, at))));
        ByStart {
            firsts: firsts.collect(),
            sources,
        }
    }
}

impl<'a> Iterator for ByStart<'a> {
    type Item = &'a RangeTombstone;

    fn next(&mut self) -> Option<&'a RangeTombstone> {
        let Reverse((_, at)) = self.firsts.pop()?;
        let (first, rest) = self.sources[at].split_first()?;
        self.sources[at] = rest;
        if let Some(next) = rest.first() {
            self.firsts.push(Reverse((&next.start, at)));
        }
        Some(first)
    }
}

/// The part of `tombstone` that is in `range`.
pub(crate) fn clip(tombstone: &RangeTombstone, range: &KeyRange) -> Option<RangeTombstone> {
    let own = range_of(tombstone);
    let part = own.intersection(range)?;
    Some(RangeTombstone {
        start: part.start,
        end: part.end,
        seqno: tombstone.seqno,
    })
}

/// The keys that a tombstone deletes.
#[must_use]
pub fn range_of(tombstone: &RangeTombstone) -> KeyRange {
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
            // The same of several sources.
            let mut sources = vec![Vec::new(); 3];
            for (at, tombstone) in tombstones.iter().enumerate() {
                sources[at % 3].push(tombstone.clone());
            }
            for source in &mut sources {
                source.retain(|t: &RangeTombstone| before_end(&t.start, &t.end));
                source.sort_by(|a, b| a.start.cmp(&b.start));
            }
            let sources = || sources.iter().map(Vec::as_slice);
            prop_assert_eq!(&TombstoneSet::merged(sources(), Some), &set);
            let merged = TombstoneSet::merged(sources(), |fragment| clip(&fragment, &range));
            prop_assert_eq!(&merged, &clipped);
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
                for seqno in [0, 5, 10].map(SeqNum) {
                    // Between two neighbours of one byte there are longer keys, which the fragments
                    // that end at a byte treat alike.
                    let last = range.end.as_ref().map_or(34, |end| end[0]);
                    let all = (clip_start..last).all(|key| set.seqno_at(&[key]) > seqno)
                        && (range.end.is_some() || set.seqno_at(&[0xff]) > seqno);
                    prop_assert_eq!(set.hides_all(&range, seqno), all);
                }
            }
        }
    }
}
