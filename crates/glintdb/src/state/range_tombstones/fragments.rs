//! Range tombstones cut into disjoint fragments: for each key the newest deletion.
//!
//! Thread safety: changed under the lock of its owner.
//!
//! Invariants:
//! 1. Fragments are not empty and do not overlap.
//! 2. The sequence number of a key's fragment is the greatest of all tombstones that were added and
//!    cover the key.

use bytes::Bytes;
use glintdb_core::key::before_end;
use glintdb_core::{RangeTombstone, SeqNum};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Memory of one fragment in bytes, without its keys: a full entry of the map, at the usual fill of
/// its nodes.
const FRAGMENT_BYTES: usize = (size_of::<Bytes>() + size_of::<Fragment>()) * 3 / 2;

/// A fragment, by its start.
#[derive(Clone)]
struct Fragment {
    end: Option<Bytes>,
    seqno: SeqNum,
}

/// Disjoint fragments of range tombstones, in key order.
#[derive(Clone, Default)]
pub(super) struct Fragments {
    by_start: BTreeMap<Bytes, Fragment>,
}

impl Fragments {
    /// Adds a tombstone. Takes O(log n) for a tombstone that is newer than all others, however many
    /// fragments it replaces: each is replaced once.
    pub(super) fn add(&mut self, tombstone: &RangeTombstone) {
        let RangeTombstone { start, end, seqno } = tombstone;
        if !before_end(start, end) {
            return;
        }
        // The part of the tombstone that begins at `from` is not added yet.
        let mut from = start.clone();
        if let Some(first) = self.reaching_into(start) {
            let over = self.remove(&first);
            self.insert(first, Some(start.clone()), over.seqno);
            self.insert(start.clone(), over.end, over.seqno);
        }
        while let Some(next) = self.first_from(&from, end) {
            let mut old = self.remove(&next);
            if let Some(end) = end
                && old.end.as_ref().is_none_or(|old_end| old_end > end)
            {
                self.insert(end.clone(), old.end.take(), old.seqno);
                old.end = Some(end.clone());
            }
            if old.seqno < *seqno {
                continue;
            }
            // An older tombstone was added late. It has only what newer ones leave.
            self.insert(from, Some(next.clone()), *seqno);
            self.insert(next, old.end.clone(), old.seqno);
            match old.end {
                Some(end) => from = end,
                None => return,
            }
        }
        self.insert(from, end.clone(), *seqno);
    }

    /// Returns the start of the fragment that begins before `key` and has it.
    fn reaching_into(&self, key: &Bytes) -> Option<Bytes> {
        let (start, fragment) = self.by_start.range(..key.clone()).next_back()?;
        before_end(key, &fragment.end).then(|| start.clone())
    }

    /// Returns the start of the first fragment in a range.
    fn first_from(&self, from: &Bytes, end: &Option<Bytes>) -> Option<Bytes> {
        let upper = end.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        if !before_end(from, end) {
            return None;
        }
        let mut inside = self
            .by_start
            .range::<Bytes, _>((Bound::Included(from), upper));
        inside.next().map(|(start, _)| start.clone())
    }

    fn remove(&mut self, start: &Bytes) -> Fragment {
        match self.by_start.remove(start) {
            Some(fragment) => fragment,
            None => unreachable!("the fragment was found above"),
        }
    }

    fn insert(&mut self, start: Bytes, end: Option<Bytes>, seqno: SeqNum) {
        if before_end(&start, &end) {
            self.by_start.insert(start, Fragment { end, seqno });
        }
    }

    /// Returns the fragment that has `key`, or the range between two fragments, with sequence
    /// number zero.
    pub(super) fn at(&self, key: &[u8]) -> RangeTombstone {
        let mut up_to = self
            .by_start
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        let start = match up_to.next_back() {
            Some((start, fragment)) if before_end(key, &fragment.end) => {
                return tombstone(start, fragment);
            }
            Some((_, fragment)) => fragment.end.clone().unwrap_or_default(),
            None => Bytes::new(),
        };
        let mut behind = self
            .by_start
            .range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded));
        RangeTombstone {
            start,
            end: behind.next().map(|(start, _)| start.clone()),
            seqno: SeqNum::ZERO,
        }
    }

    /// Returns the sequence number of the newest deletion of `key`. Zero: there is none.
    pub(super) fn seqno_at(&self, key: &[u8]) -> SeqNum {
        let mut up_to = self
            .by_start
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        match up_to.next_back() {
            Some((_, fragment)) if before_end(key, &fragment.end) => fragment.seqno,
            _ => SeqNum::ZERO,
        }
    }

    /// Returns the sequence number of a fragment in `[start, end)` that is newer than `since`, if
    /// there is one.
    pub(super) fn newer_in(
        &self,
        start: &Bytes,
        end: &Option<Bytes>,
        since: SeqNum,
    ) -> Option<SeqNum> {
        if !before_end(start, end) {
            return None;
        }
        let upper = end.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let inside = self
            .by_start
            .range::<Bytes, _>((Bound::Included(start), upper));
        let first = self.reaching_into(start);
        let first = first.and_then(|start| self.by_start.get(&start));
        let mut seqnos = first
            .into_iter()
            .chain(inside.map(|(_, fragment)| fragment));
        seqnos
            .find(|fragment| fragment.seqno > since)
            .map(|fragment| fragment.seqno)
    }

    /// Returns the fragments in key order.
    pub(super) fn iter(&self) -> impl Iterator<Item = RangeTombstone> {
        (self.by_start.iter()).map(|(start, fragment)| tombstone(start, fragment))
    }

    /// Returns the number of fragments.
    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Returns about how many bytes of memory `fragments` fragments take, without their keys.
    pub(super) fn memory_bytes(fragments: usize) -> usize {
        fragments * FRAGMENT_BYTES
    }
}

fn tombstone(start: &Bytes, fragment: &Fragment) -> RangeTombstone {
    RangeTombstone {
        start: start.clone(),
        end: fragment.end.clone(),
        seqno: fragment.seqno,
    }
}
