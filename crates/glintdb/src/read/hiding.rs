//! The range tombstones of a merge: which entries of its sources they hide.
//!
//! Thread safety: belongs to the merge's thread.

use crate::state::range_tombstones::RangeSet;
use glintdb_core::{RangeTombstone, SeqNum};
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
#[derive(Default)]
pub(crate) struct Hiding {
    sets: Vec<Hider>,
    /// The set that hid the last entry that was hidden.
    last: usize,
    /// Whether the same range of it had hidden the entry before.
    is_same: bool,
}

/// The range tombstones of one source.
struct Hider {
    age: Age,
    set: Arc<RangeSet>,
    at: SeqNum,
    /// The part of the keys that was looked at last, with its deletion. Zero: there is none.
    range: Option<RangeTombstone>,
}

impl Hider {
    /// Returns the range of `key`, and whether it was known.
    fn range(&mut self, key: &[u8]) -> (&RangeTombstone, bool) {
        let known = self.range.take().filter(|range| range.covers(key));
        let is_known = known.is_some();
        let range = known.unwrap_or_else(|| self.set.range_at(key, self.at));
        (self.range.insert(range), is_known)
    }
}

impl Hiding {
    /// Adds the range tombstones at or below `at` of a source.
    pub(crate) fn add(&mut self, age: Age, set: &Arc<RangeSet>, at: SeqNum) {
        if !set.is_empty() {
            self.sets.push(Hider {
                age,
                set: Arc::clone(set),
                at,
                range: None,
            });
        }
    }

    /// Returns whether there are no range tombstones.
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Returns whether a range tombstone hides the entry of a source of this age.
    pub(crate) fn hides(&mut self, key: &[u8], seqno: SeqNum, age: Age) -> bool {
        for (index, hider) in self.sets.iter_mut().enumerate() {
            let hider_age = hider.age;
            if hider_age > age {
                continue;
            }
            let (range, is_known) = hider.range(key);
            let hides = match hider_age == age {
                true => range.seqno > seqno,
                false => range.seqno > SeqNum::ZERO,
            };
            if hides {
                self.is_same = is_known && self.last == index;
                self.last = index;
                return true;
            }
        }
        false
    }

    /// Returns the range that hid the last entry that was hidden, the age of its source, and
    /// whether it had hidden the entry before too.
    ///
    /// # Panics
    /// If no entry was hidden.
    pub(crate) fn hider(&self) -> (&RangeTombstone, Age, bool) {
        let hider = &self.sets[self.last];
        match &hider.range {
            Some(range) => (range, hider.age, self.is_same),
            None => panic!("no entry was hidden"),
        }
    }

    /// Returns a range around `key`, which no tombstone covers, that no tombstone covers. `None`:
    /// there are no tombstones.
    pub(crate) fn uncovered_around(&mut self, key: &[u8]) -> Option<RangeTombstone> {
        let mut around: Option<RangeTombstone> = None;
        for hider in &mut self.sets {
            let (range, _) = hider.range(key);
            debug_assert_eq!(range.seqno, SeqNum::ZERO, "a tombstone covers the key");
            match &mut around {
                Some(found) => found.narrow(&range.start, &range.end),
                None => around = Some(range.clone()),
            }
        }
        around
    }
}
