//! The range tombstones of a merge: which entries of its sources they hide.
//!
//! Thread safety: belongs to the merge's thread.

use crate::state::range_tombstones::RangeSet;
use glintdb_core::{Direction, RangeTombstone, SeqNum};
use std::collections::VecDeque;
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

/// Most ranges of a set that are fetched at once.
const RANGES_MAX: usize = 64;

/// The range tombstones of a merge.
pub(crate) struct Hiding {
    direction: Direction,
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
    direction: Direction,
    /// The range of the last key, with its deletion (zero: there is none), and ranges that follow
    /// it.
    ranges: VecDeque<RangeTombstone>,
    /// Number of ranges that were fetched at once.
    fetched: usize,
    /// Number of them that had a key.
    used: usize,
}

impl Hider {
    /// Returns the range of `key`, and whether it is that of the last key.
    fn range(&mut self, key: &[u8]) -> (&RangeTombstone, bool) {
        let is_same = self.ranges.front().is_some_and(|last| last.covers(key));
        if !is_same {
            self.next_range(key);
        }
        (&self.ranges[0], is_same)
    }

    /// Makes the range of `key` the first of `ranges`.
    fn next_range(&mut self, key: &[u8]) {
        let passed = self.ranges.iter().take_while(|range| !range.covers(key));
        let passed = passed.count();
        if passed < self.ranges.len() {
            self.ranges.drain(..passed);
            self.used += 1;
            return;
        }
        // Keys that are close have most of the ranges, and keys that are not have few of them.
        let count = match 2 * self.used >= self.fetched {
            true => (2 * self.fetched).clamp(1, RANGES_MAX),
            false => self.fetched / 2,
        };
        (self.set).ranges_from(key, self.direction, self.at, count, &mut self.ranges);
        (self.fetched, self.used) = (count, 1);
    }
}

impl Hiding {
    /// Creates an empty set for keys that come in `direction`.
    pub(crate) fn new(direction: Direction) -> Self {
        Hiding {
            direction,
            sets: Vec::new(),
            last: 0,
            is_same: false,
        }
    }

    /// Adds the range tombstones at or below `at` of a source.
    pub(crate) fn add(&mut self, age: Age, set: &Arc<RangeSet>, at: SeqNum) {
        if !set.is_empty() {
            self.sets.push(Hider {
                age,
                set: Arc::clone(set),
                at,
                direction: self.direction,
                ranges: VecDeque::new(),
                fetched: 0,
                used: 0,
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
        match hider.ranges.front() {
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
