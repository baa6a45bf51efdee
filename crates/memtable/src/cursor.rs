//! Cursors: ordered walks in one direction, leaf by leaf.
//!
//! A cursor copies the record addresses of one leaf under validation and walks its copy; inserts go on meanwhile. Forward, the next
//! leaf is the copied leaf's right neighbour; in reverse it is found by a new descent to the keys below the copied leaf's low fence.
//!
//! Thread safety: a cursor belongs to one thread at a time (`Send`); any number of cursors and writers work on one memtable.
//!
//! Invariants:
//! 1. The copies of successive leaves cover successive ranges of keys without gap or overlap: a leaf's low fence never changes, and
//!    its high fence at the time of the copy stays a border between leaves for ever. So no key is skipped or repeated.
//! 2. A copied address is the newest record of its key at the time of the copy, or newer than what `at` asks for; what lies behind
//!    it in the chain never goes away.

use std::ops::Bound;
use std::sync::Arc;

use glintdb_core::sync::hint;
use glintdb_core::{Direction, EntryRef, SeqNum, planted};

use crate::memtable::{Memtable, Seen, Target};
use crate::node::{NodeRef, SLOTS};
use crate::record::Record;

/// How many records ahead of the walk are asked for: some 8 × 30 ns of work per record hide one miss of 150–400 ns.
const PREFETCH_RECORDS: usize = 8;

/// One leaf as it was at some moment.
#[derive(Default)]
pub(crate) struct LeafCopy {
    records: Vec<Record>,
    pub(crate) low: Option<Record>,
    pub(crate) high: Option<Record>,
    pub(crate) right: Option<NodeRef>,
}

impl LeafCopy {
    fn new() -> Self {
        Self {
            records: Vec::with_capacity(SLOTS),
            ..Self::default()
        }
    }

    /// Copies `leaf`; false if a writer changed it since it was seen. With `newer_than`, the records are left out if none is newer.
    fn read(&mut self, leaf: Seen, newer_than: Option<SeqNum>) -> bool {
        let node = leaf.node;
        self.records.clear();
        self.low = node.low();
        self.high = node.high();
        self.right = node.right();
        if newer_than.is_none_or(|seqno| node.max_seqno() > seqno) {
            self.records
                .extend((0..node.count()).filter_map(|index| node.record(index)));
        }
        node.validate(leaf.version)
    }

    /// Number of records whose keys lie before `lower`.
    fn before(&self, lower: &Bound<impl AsRef<[u8]>>) -> usize {
        self.records
            .partition_point(|record| !above(lower, record.key()))
    }

    /// Number of records whose keys do not lie behind `upper`.
    fn up_to(&self, upper: &Bound<impl AsRef<[u8]>>) -> usize {
        self.records
            .partition_point(|record| below(upper, record.key()))
    }
}

/// Whether `key` satisfies a lower bound.
fn above(lower: &Bound<impl AsRef<[u8]>>, key: &[u8]) -> bool {
    match lower {
        Bound::Included(lower) => key >= lower.as_ref(),
        Bound::Excluded(lower) => key > lower.as_ref(),
        Bound::Unbounded => true,
    }
}

/// Whether `key` satisfies an upper bound.
fn below(upper: &Bound<impl AsRef<[u8]>>, key: &[u8]) -> bool {
    match upper {
        Bound::Included(upper) => key <= upper.as_ref(),
        Bound::Excluded(upper) => key < upper.as_ref(),
        Bound::Unbounded => true,
    }
}

/// Where the walk goes when the copy is used up.
#[derive(Clone, Copy)]
enum Next {
    /// To the bound the walk starts from, or to `seek_key`.
    Start {
        seek: bool,
    },
    /// Forward, to this leaf.
    Right(NodeRef),
    /// In reverse, to the keys below this record's.
    Below(Record),
    End,
}

/// Keys that a cursor passes unless they have a newer record.
#[derive(Clone, Copy)]
struct Passed<'a> {
    start: &'a [u8],
    end: Option<&'a [u8]>,
    newer_than: SeqNum,
}

impl Passed<'_> {
    /// Whether the range has all keys of a leaf that a cursor, which is in the range, comes to.
    fn covers(&self, leaf: &LeafCopy, direction: Direction) -> bool {
        match direction {
            Direction::Forward => match (self.end, leaf.high) {
                (None, _) => true,
                (Some(end), Some(high)) => high.key() <= end,
                (Some(_), None) => false,
            },
            Direction::Reverse => match leaf.low {
                Some(low) => low.key() >= self.start,
                None => self.start.is_empty(),
            },
        }
    }
}

/// A walk over the keys of a [`Memtable`] within bounds, in one direction, as of one seqno.
///
/// A new cursor, and one that was just told to [`seek`](Self::seek), stands before its first key: call [`advance`](Self::advance).
/// [`key`](Self::key), [`seqno`](Self::seqno) and [`value`](Self::value) are of the key that the last `advance` returned true for.
pub struct MemCursor {
    memtable: Arc<Memtable>,
    lower: Bound<Box<[u8]>>,
    upper: Bound<Box<[u8]>>,
    direction: Direction,
    at: SeqNum,
    seek_key: Vec<u8>,
    leaf: LeafCopy,
    /// What is still to be walked of the copy: forward from the start of the range, in reverse from its end.
    left: std::ops::Range<usize>,
    next: Next,
    current: Option<Record>,
    /// Leaves of which [`pass_older`](Self::pass_older) read the head alone.
    passed_leaves: usize,
}

// SAFETY: the addresses in a cursor point into the arena that its `memtable` keeps alive, to records and nodes that any thread may
// read; nothing in it is tied to a thread.
unsafe impl Send for MemCursor {}

impl MemCursor {
    pub(crate) fn new(
        memtable: Arc<Memtable>,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
        at: SeqNum,
    ) -> Self {
        Self {
            memtable,
            lower: lower.map(Box::from),
            upper: upper.map(Box::from),
            direction,
            at,
            seek_key: Vec::new(),
            leaf: LeafCopy::new(),
            left: 0..0,
            next: Next::Start { seek: false },
            current: None,
            passed_leaves: 0,
        }
    }

    /// Goes to the next key that has a record at or below the cursor's seqno. False at the end, and from then on until a `seek`.
    pub fn advance(&mut self) -> bool {
        loop {
            while let Some(index) = self.take() {
                let Some(record) = self.leaf.records[index].newest_at(self.at) else {
                    continue;
                };
                self.current = Some(record);
                return true;
            }
            if !self.fill(None) {
                self.current = None;
                return false;
            }
        }
    }

    /// Goes on to the next key that is outside of `[start, end)` or has a record of `seqno` or
    /// newer, as [`advance`](Self::advance) does. Of leaves without such a record it reads the head
    /// alone.
    pub fn pass_older(&mut self, start: &[u8], end: Option<&[u8]>, seqno: SeqNum) -> bool {
        let inside = |key: &[u8]| start <= key && end.is_none_or(|end| key < end);
        let passed = Passed {
            start,
            end,
            newer_than: SeqNum(seqno.0.saturating_sub(1)),
        };
        loop {
            while let Some(index) = self.take() {
                let Some(record) = self.leaf.records[index].newest_at(self.at) else {
                    continue;
                };
                if record.seqno() >= seqno || !inside(record.key()) {
                    self.current = Some(record);
                    return true;
                }
            }
            if !self.fill(Some(passed)) {
                self.current = None;
                return false;
            }
        }
    }

    /// Returns of how many leaves [`pass_older`](Self::pass_older) has read the head alone.
    #[must_use]
    pub fn passed_leaves(&self) -> usize {
        self.passed_leaves
    }

    /// Lets the next `advance` go to the first key at or above `key` (in reverse: the last key at or below it), before or behind the
    /// present one, within the cursor's bounds.
    pub fn seek(&mut self, key: &[u8]) {
        self.current = None;
        let within = match (self.leaf.records.first(), self.leaf.records.last()) {
            (Some(first), Some(last)) => first.key() <= key && key <= last.key(),
            _ => false,
        };
        if within && above(&self.lower, key) && below(&self.upper, key) {
            // Both ends of what is left are known from the copy; the other bound and what follows the leaf are as they were.
            let (from, to) = self.clip();
            self.left = match self.direction {
                Direction::Forward => self.leaf.before(&Bound::Included(key)).max(from)..to,
                Direction::Reverse => from..self.leaf.up_to(&Bound::Included(key)).min(to),
            };
            self.follow();
            return;
        }
        self.seek_key.clear();
        self.seek_key.extend_from_slice(key);
        self.left = 0..0;
        self.next = Next::Start { seek: true };
    }

    /// The present key.
    ///
    /// # Panics
    /// If the cursor stands at no key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.present().key()
    }

    /// Seqno of the present key's record.
    ///
    /// # Panics
    /// If the cursor stands at no key.
    #[must_use]
    pub fn seqno(&self) -> SeqNum {
        self.present().seqno()
    }

    /// Value of the present key's record.
    ///
    /// # Panics
    /// If the cursor stands at no key.
    #[must_use]
    pub fn value(&self) -> EntryRef<'_> {
        self.present().value()
    }

    fn present(&self) -> Record {
        match self.current {
            Some(record) => record,
            None => panic!("the cursor stands at no key: the last `advance` did not return true"),
        }
    }

    fn take(&mut self) -> Option<usize> {
        match self.direction {
            Direction::Forward => {
                let index = self.left.next()?;
                if let Some(ahead) =
                    self.leaf.records[..self.left.end].get(index + PREFETCH_RECORDS)
                {
                    ahead.prefetch();
                }
                Some(index)
            }
            Direction::Reverse => {
                let index = self.left.next_back()?;
                if let Some(ahead) = index.checked_sub(PREFETCH_RECORDS) {
                    self.leaf.records[ahead].prefetch();
                }
                Some(index)
            }
        }
    }

    /// Copies the next leaf of which not all is passed; false if there is none.
    fn fill(&mut self, mut passed: Option<Passed<'_>>) -> bool {
        let started = loop {
            let found = match self.next {
                Next::End => return false,
                Next::Right(node) => Some(Seen {
                    node,
                    version: node.stable_version(),
                }),
                Next::Below(low) => self.memtable.try_descend(Target::Below(low.key())),
                Next::Start { seek } => self.memtable.try_descend(self.start(seek)),
            };
            let newer_than = passed.map(|passed| passed.newer_than);
            if let Some(leaf) = found
                && self.leaf.read(leaf, newer_than)
            {
                match passed {
                    Some(range) if self.leaf.records.is_empty() => {
                        match range.covers(&self.leaf, self.direction) {
                            true => {
                                self.passed_leaves += 1;
                                self.follow();
                            }
                            // Other keys are in the leaf too.
                            false => passed = None,
                        }
                        continue;
                    }
                    _ => break self.next,
                }
            }
            if !self.memtable.has_root() {
                self.next = Next::End;
            }
            hint::spin_loop();
        };
        let (mut from, mut to) = self.clip();
        if let Next::Start { seek: true } = started {
            let key = Bound::Included(&self.seek_key);
            match self.direction {
                Direction::Forward => from = from.max(self.leaf.before(&key)),
                Direction::Reverse => to = to.min(self.leaf.up_to(&key)),
            }
        }
        self.left = from..to.max(from);
        self.follow();
        let near = self.left.len().min(PREFETCH_RECORDS);
        let first = match self.direction {
            Direction::Forward => self.left.start,
            Direction::Reverse => self.left.end - near,
        };
        self.leaf.records[first..first + near]
            .iter()
            .for_each(|record| record.prefetch());
        true
    }

    /// The leaf that the walk starts in: that of the seek key or of the bound, whichever comes later.
    fn start(&self, seek: bool) -> Target<'_> {
        let seek_key = seek.then_some(self.seek_key.as_slice());
        match (self.direction, seek_key) {
            (Direction::Forward, Some(key)) if above(&self.lower, key) => Target::Holding(key),
            (Direction::Reverse, Some(key)) if below(&self.upper, key) => Target::Holding(key),
            (Direction::Forward, _) => match &self.lower {
                Bound::Included(key) | Bound::Excluded(key) => Target::Holding(key),
                Bound::Unbounded => Target::First,
            },
            (Direction::Reverse, _) => match &self.upper {
                Bound::Included(key) | Bound::Excluded(key) => Target::Holding(key),
                Bound::Unbounded => Target::Last,
            },
        }
    }

    /// The part of the copy within the bounds. Touches no record if the fences are within them.
    fn clip(&self) -> (usize, usize) {
        let from = match self.leaf.low {
            Some(low) if above(&self.lower, low.key()) => 0,
            _ => self.leaf.before(&self.lower),
        };
        let to = match self.leaf.high {
            Some(high) if below(&self.upper, high.key()) => planted!(
                "memtable: a cursor leaves out the last entry of a node",
                self.leaf.records.len(),
                self.leaf.records.len().saturating_sub(1)
            ),
            _ => self.leaf.up_to(&self.upper),
        };
        (from, to)
    }

    /// Decides where to go after the copied leaf.
    fn follow(&mut self) {
        self.next = match self.direction {
            Direction::Forward => match (self.leaf.high, self.leaf.right) {
                (Some(high), Some(right)) if below(&self.upper, high.key()) => Next::Right(right),
                _ => Next::End,
            },
            Direction::Reverse => match self.leaf.low {
                // A low fence that only just satisfies the bound has nothing of ours below it, which the next copy will show.
                Some(low) if above(&self.lower, low.key()) => Next::Below(low),
                _ => Next::End,
            },
        };
    }
}

/// See [`Memtable::latest_seqno_in`].
pub(crate) fn latest_seqno_in(
    memtable: &Memtable,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
    above_seqno: SeqNum,
) -> Option<SeqNum> {
    let mut newest = above_seqno;
    let mut copy = LeafCopy::new();
    let mut next: Option<NodeRef> = None;
    loop {
        let found = match (next, lower) {
            (Some(node), _) => Some(Seen {
                node,
                version: node.stable_version(),
            }),
            (None, Bound::Included(key) | Bound::Excluded(key)) => {
                memtable.try_descend(Target::Holding(key))
            }
            (None, Bound::Unbounded) => memtable.try_descend(Target::First),
        };
        if found.is_none_or(|leaf| !copy.read(leaf, Some(newest))) {
            if !memtable.has_root() {
                return None;
            }
            hint::spin_loop();
            continue;
        }
        let (from, to) = (copy.before(&lower), copy.up_to(&upper));
        if let Some(inside) = copy.records.get(from..to) {
            newest = inside
                .iter()
                .map(|record| record.seqno())
                .fold(newest, SeqNum::max);
        }
        match (copy.high, copy.right) {
            (Some(high), Some(right)) if below(&upper, high.key()) => next = Some(right),
            _ => return (newest > above_seqno).then_some(newest),
        }
    }
}
