//! The range tombstones of a merge: which entries of its sources they hide.
//!
//! Thread safety: belongs to the merge's thread.

use crate::state::range_tombstones::{RangeCursor, RangeSet};
use glintdb_core::{RangeTombstone, SeqNum};
use std::cmp::Ordering;
use std::sync::Arc;

/// The place of a source in the order of commits: all that it has is newer than what a source of a
/// greater age has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Age(u32);

impl Age {
    /// A transaction's own writes.
    pub(crate) const OWN: Age = Age(0);
    /// The index of a keyspace.
    pub(crate) const INDEX: Age = Age(u32::MAX);

    /// Returns the ages of generations, newest first.
    pub(crate) fn of_generations() -> impl Iterator<Item = Age> {
        (1..u32::MAX).map(Age)
    }
}

/// The range tombstones of a merge.
pub(crate) struct Hiding {
    sets: Vec<Hider>,
    /// The set that hid the last entry that was hidden, and which of its ranges.
    last: (usize, u64),
    /// Whether the same range had hidden the entry before.
    is_same: bool,
}

/// The range tombstones of one source.
struct Hider {
    age: Age,
    ranges: RangeCursor,
}

impl Hiding {
    /// Creates an empty set.
    pub(crate) fn new() -> Self {
        Hiding {
            sets: Vec::new(),
            last: (usize::MAX, 0),
            is_same: false,
        }
    }

    /// Adds the range tombstones at or below `at` of a source.
    pub(crate) fn add(&mut self, age: Age, set: &Arc<RangeSet>, at: SeqNum) {
        if !set.is_empty() {
            let ranges = RangeCursor::new(set, at);
            self.sets.push(Hider { age, ranges });
        }
    }

    /// Returns whether there are no range tombstones.
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Returns the number of the set that hides the entry of a source of this age.
    fn find(&mut self, key: &[u8], seqno: SeqNum, age: Age) -> Option<usize> {
        self.sets.iter_mut().position(|hider| {
            let hidden_from = match hider.age.cmp(&age) {
                Ordering::Less => SeqNum::ZERO,
                Ordering::Equal => seqno,
                Ordering::Greater => return false,
            };
            hider.ranges.seek(key) > hidden_from
        })
    }

    /// Returns whether a range tombstone hides the entry of a source of this age, and notes which
    /// one.
    pub(crate) fn hides(&mut self, key: &[u8], seqno: SeqNum, age: Age) -> bool {
        let Some(index) = self.find(key, seqno, age) else {
            return false;
        };
        let found = (index, self.sets[index].ranges.moves());
        self.is_same = std::mem::replace(&mut self.last, found) == found;
        true
    }

    /// Returns whether a range tombstone hides the entry of a source of this age.
    pub(crate) fn would_hide(&mut self, key: &[u8], seqno: SeqNum, age: Age) -> bool {
        self.find(key, seqno, age).is_some()
    }

    /// Returns the range that hid the last entry, the age of its source, and whether it had hidden
    /// the entry before too.
    ///
    /// # Panics
    /// If no entry was hidden.
    pub(crate) fn hider(&self) -> (&RangeTombstone, Age, bool) {
        let hider = self.sets.get(self.last.0);
        match hider.and_then(|hider| Some((hider.ranges.range()?, hider.age))) {
            Some((range, age)) => (range, age, self.is_same),
            None => panic!("no entry was hidden"),
        }
    }
}
