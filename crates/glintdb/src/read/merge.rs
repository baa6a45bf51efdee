//! A merging cursor over a transaction's own writes, memtables and an index. It yields one entry
//! for each key, the newest at or below a sequence number, and leaves out deleted keys.
//!
//! Thread safety: belongs to one thread, and owns the sources that it reads.
//!
//! Invariants:
//! 1. Sources are ordered newest first. If several have a key, the first one wins, and the others
//!    advance with it.
//! 2. All that a source has is newer than what a source of a greater [`Age`] has. So what a range
//!    tombstone covers in sources of a greater age is deleted, and the merge passes it by a seek.

use crate::Result;
use crate::read::dead_run::DeadRun;
use crate::read::hiding::{Age, Hiding};
use crate::read::own_writes::{OwnCursor, OwnView};
use crate::state::gaps::{GAP_SEEKS_MIN, Stretch};
use crate::state::version::{KeyspaceState, Version};
use bytes::Bytes;
use glintdb_core::index::Cursor;
use glintdb_core::{Direction, EntryRef, RangeTombstone, SeqNum, key, planted};
use glintdb_memtable::MemCursor;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// Number of deleted entries in a row that a merge passes one by one before it seeks behind them. A
/// seek costs about as much as this many steps.
const SEEK_AFTER: usize = 8;
/// Number of leaves of a memtable from which on passing them costs more than a gap.
const GAP_LEAVES_MIN: usize = 4;

/// One sorted input.
pub(crate) enum Source {
    /// A transaction's own writes.
    Own(OwnCursor),
    /// A memtable.
    Memtable(Age, MemCursor),
    /// An index.
    Index(Box<dyn Cursor>),
}

impl Source {
    fn advance(&mut self) -> Result<bool> {
        match self {
            Source::Own(cursor) => Ok(cursor.advance()),
            Source::Memtable(_, cursor) => Ok(cursor.advance()),
            Source::Index(cursor) => cursor.advance(),
        }
    }

    /// Advances to the first entry outside of `range`, which has the current key.
    fn leave(&mut self, range: &RangeTombstone, direction: Direction) -> Result<bool> {
        match direction {
            Direction::Forward => match &range.end {
                Some(end) => self.seek(end),
                None => Ok(false),
            },
            Direction::Reverse => {
                if !self.seek(&range.start)? {
                    return Ok(false);
                }
                match self.key() == range.start.as_ref() {
                    true => self.advance(),
                    false => Ok(true),
                }
            }
        }
    }

    /// Advances to the first entry at or behind `key` in the cursor's direction.
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        match self {
            Source::Own(cursor) => Ok(cursor.seek(key)),
            Source::Memtable(_, cursor) => {
                cursor.seek(key);
                Ok(cursor.advance())
            }
            Source::Index(cursor) => cursor.seek(key),
        }
    }

    fn age(&self) -> Age {
        match self {
            Source::Own(_) => Age::OWN,
            Source::Memtable(age, _) => *age,
            Source::Index(_) => Age::INDEX,
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Source::Own(cursor) => cursor.key(),
            Source::Memtable(_, cursor) => cursor.key(),
            Source::Index(cursor) => cursor.key(),
        }
    }

    fn seqno(&self) -> SeqNum {
        match self {
            Source::Own(_) => SeqNum::MAX,
            Source::Memtable(_, cursor) => cursor.seqno(),
            Source::Index(cursor) => cursor.seqno(),
        }
    }

    fn value(&self) -> EntryRef<'_> {
        match self {
            Source::Own(cursor) => cursor.value(),
            Source::Memtable(_, cursor) => cursor.value(),
            Source::Index(cursor) => cursor.value(),
        }
    }

    /// Returns the memory that holds the current value, if it can be shared ([`Cursor::memory`]).
    fn memory(&self) -> Option<&Bytes> {
        match self {
            Source::Own(_) | Source::Memtable(..) => None,
            Source::Index(cursor) => cursor.memory(),
        }
    }
}

/// Where the sources are.
enum Positions {
    /// Before their first entries.
    Before,
    /// The current source, and those with the same key, are on the entry that was yielded last.
    On,
    /// All sources are on entries that are not yielded yet.
    Ahead,
}

/// A merge. It is used like a cursor: `advance`, then `key`, `seqno`, `value`.
pub(crate) struct Merge {
    /// Sources that have an entry (all of them, before the first `advance`), newest first.
    sources: Vec<Source>,
    hiding: Hiding,
    direction: Direction,
    positions: Positions,
    /// Number of entries in a row that the same range tombstone has hidden.
    hidden_in_row: usize,
    /// The keyspace whose gaps are passed, and the commit that the merge shows.
    gaps: Option<(Arc<KeyspaceState>, SeqNum)>,
    dead: DeadRun,
    /// Number of deleted entries in a row after which it seeks.
    seek_after: usize,
    /// Whether a transaction's own writes are among the sources.
    has_own: bool,
    /// Whether tombstones, and hidden entries as tombstones, are yielded too.
    keep_deleted: bool,
    current: usize,
    deleted: bool,
}

impl Merge {
    pub(crate) fn new(sources: Vec<Source>, hiding: Hiding, direction: Direction) -> Self {
        let has_own = sources
            .first()
            .is_some_and(|source| source.age() == Age::OWN);
        Merge {
            sources,
            has_own,
            hiding,
            direction,
            positions: Positions::Before,
            hidden_in_row: 0,
            gaps: None,
            dead: DeadRun::new(direction, None, usize::MAX),
            seek_after: SEEK_AFTER,
            keep_deleted: false,
            current: 0,
            deleted: false,
        }
    }

    /// Makes the merge yield tombstones too, for checks and flushes.
    pub(crate) fn keep_deleted(mut self) -> Self {
        self.keep_deleted = true;
        self
    }

    /// Makes the merge, which shows what the keyspace has within bounds at commit `at`, pass gaps
    /// and find new ones. It seeks after `seek_after` deleted entries in a row; 0: it never does.
    pub(crate) fn with_gaps(
        mut self,
        keyspace: &Arc<KeyspaceState>,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        at: SeqNum,
        seek_after: usize,
    ) -> Self {
        if seek_after == 0 {
            self.seek_after = usize::MAX;
            return self;
        }
        self.seek_after = seek_after;
        let limit = match self.direction {
            Direction::Forward => key::half_open(Bound::Unbounded, upper).1,
            Direction::Reverse => Some(key::half_open(lower, Bound::Unbounded).0),
        };
        let long = seek_after.saturating_mul(GAP_SEEKS_MIN);
        self.dead = DeadRun::new(self.direction, limit, long);
        self.gaps = Some((Arc::clone(keyspace), at));
        self
    }

    /// Takes the number of deleted entries that the merge has passed one by one, and the long
    /// stretches of them.
    pub(crate) fn take_dead(&mut self) -> (u64, Vec<Stretch>) {
        let found = self.dead.take_found();
        // A transaction's own deletions are no deletions for others.
        let is_shared = planted!(
            "glintdb: a gap is learnt from a transaction's own deletions",
            !self.has_own,
            true
        );
        let stretches = if is_shared { found } else { Vec::new() };
        (self.dead.take_total(), stretches)
    }

    /// Advances to the next key that exists. Returns false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        loop {
            if !self.step()? {
                self.dead.end(None);
                return Ok(false);
            }
            let source = &self.sources[self.current];
            let hidden = !self.hiding.is_empty()
                && (self.hiding).hides(source.key(), source.seqno(), source.age());
            self.deleted = hidden || matches!(source.value(), EntryRef::Tombstone);
            if self.keep_deleted || !self.deleted {
                self.dead.end(Some(source.key()));
                return Ok(true);
            }
            self.pass_deleted(hidden)?;
        }
    }

    /// Passes the current entry, which is deleted, and what follows it if a seek is worth it.
    fn pass_deleted(&mut self, hidden: bool) -> Result<()> {
        let dead = self.dead.note(self.sources[self.current].key());
        if hidden {
            let (range, age, is_same) = self.hiding.hider();
            self.hidden_in_row = if is_same { self.hidden_in_row + 1 } else { 1 };
            if self.hidden_in_row >= self.seek_after {
                let range = range.clone();
                let leaves = self.pass_range(&range, age)?;
                self.dead.pass_range(&range, leaves >= GAP_LEAVES_MIN);
                return Ok(());
            }
        }
        if dead.is_multiple_of(self.seek_after)
            && let Some((keyspace, at)) = &self.gaps
            && let Some((start, end)) = keyspace.gaps.around(self.key(), *at)
        {
            self.dead.pass_gap(&start, end.as_ref());
            let range = RangeTombstone {
                start,
                end,
                seqno: *at,
            };
            self.pass_range(&range, Age::OWN)?;
        }
        Ok(())
    }

    /// Moves sources that are older than `age` behind `range`, which has the current key. Of a
    /// memtable of this age, passes the entries that are older than the range, and returns how many
    /// leaves have no others. Moves all other sources behind the current key.
    fn pass_range(&mut self, range: &RangeTombstone, age: Age) -> Result<usize> {
        let mut leaves = 0;
        let key = Bytes::copy_from_slice(self.sources[self.current].key());
        for index in (0..self.sources.len()).rev() {
            let source = &mut self.sources[index];
            let is_covered = range.covers(source.key());
            let there = match source {
                Source::Memtable(own, cursor)
                    if *own == age && is_covered && cursor.seqno() < range.seqno =>
                {
                    let newer = planted!(
                        "glintdb: a range deletion passes over newer entries of its own memtable",
                        range.seqno,
                        SeqNum::MAX
                    );
                    let before = cursor.passed_leaves();
                    let there = cursor.pass_older(&range.start, range.end.as_deref(), newer);
                    leaves += cursor.passed_leaves() - before;
                    there
                }
                _ if is_covered && source.age() > age => source.leave(range, self.direction)?,
                _ if source.key() == key => source.advance()?,
                _ => true,
            };
            if !there {
                drop(self.sources.remove(index));
            }
        }
        self.positions = Positions::Ahead;
        Ok(leaves)
    }

    /// Advances, and calls `take` with each entry, and with the memory that holds its value if that
    /// can be shared, until `take` returns false. Returns true then, and the merge is on the entry
    /// that `take` had last. Returns false at the end.
    pub(crate) fn walk(
        &mut self,
        mut take: impl FnMut(&[u8], EntryRef<'_>, Option<&Bytes>) -> bool,
    ) -> Result<bool> {
        while self.advance()? {
            let memory = self.sources[self.current].memory();
            if !take(self.key(), self.value(), memory) {
                return Ok(true);
            }
            if !self.keep_deleted && self.walk_index(&mut take)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// If the current source is an index, walks it alone while its keys come before those of all
    /// other sources, and no range tombstone hides them. Returns true if `take` returned false.
    fn walk_index(
        &mut self,
        take: &mut impl FnMut(&[u8], EntryRef<'_>, Option<&Bytes>) -> bool,
    ) -> Result<bool> {
        let (before, from) = self.sources.split_at_mut(self.current);
        let Some((Source::Index(cursor), behind)) = from.split_first_mut() else {
            return Ok(false);
        };
        let forward = self.direction == Direction::Forward;
        let others = before.iter().chain(behind.iter()).map(Source::key);
        let rival = match forward {
            true => others.min(),
            false => others.max(),
        };
        let met = |key: &[u8], rival: Option<&[u8]>| match rival {
            Some(rival) if forward => key >= rival,
            Some(rival) => key <= rival,
            None => false,
        };
        // Another source may have an older entry of the key that was yielded last.
        if met(cursor.key(), rival) {
            return Ok(false);
        }
        let hiding = &mut self.hiding;
        let is_hiding = !hiding.is_empty();
        let end = planted!(
            "glintdb: an index is walked past keys of memtables",
            rival,
            None
        );
        let mut enough = false;
        let (dead, seek_after) = (&mut self.dead, self.seek_after);
        let there = cursor.walk(&mut |key, seqno, value, memory| {
            if met(key, end) || (is_hiding && hiding.would_hide(key, seqno, Age::INDEX)) {
                return false;
            }
            if matches!(value, EntryRef::Tombstone) {
                // `advance` passes the rest of many deleted entries by a seek.
                let few = dead.entries() + 1 < seek_after;
                if few {
                    dead.note(key);
                }
                return few;
            }
            dead.end(Some(key));
            enough = !take(key, value, memory);
            !enough
        })?;
        if !enough {
            self.positions = Positions::Ahead;
            if !there {
                drop(self.sources.remove(self.current));
            }
        }
        Ok(enough)
    }

    /// Advances to the next key of any source, and finds the newest source that has it.
    fn step(&mut self) -> Result<bool> {
        match std::mem::replace(&mut self.positions, Positions::On) {
            Positions::On => self.leave_current_key()?,
            Positions::Ahead => {}
            Positions::Before => {
                let mut index = 0;
                while index < self.sources.len() {
                    if self.sources[index].advance()? {
                        index += 1;
                    } else {
                        drop(self.sources.remove(index));
                    }
                }
            }
        }
        if self.sources.is_empty() {
            return Ok(false);
        }
        let wanted = if self.direction == Direction::Forward {
            Ordering::Less
        } else {
            Ordering::Greater
        };
        self.current = 0;
        for index in 1..self.sources.len() {
            let order = self.sources[index]
                .key()
                .cmp(self.sources[self.current].key());
            let wins = planted!(
                "glintdb: of two sources the older one wins",
                order == wanted,
                order == wanted || order == Ordering::Equal
            );
            if wins {
                self.current = index;
            }
        }
        Ok(true)
    }

    /// Advances every source that is on the current key.
    fn leave_current_key(&mut self) -> Result<()> {
        // Later sources first: a removal must not move `current`, which is the first source with
        // the key.
        for index in (self.current + 1..self.sources.len()).rev() {
            if self.sources[index].key() == self.sources[self.current].key() {
                self.move_source(index)?;
            }
        }
        self.move_source(self.current)
    }

    fn move_source(&mut self, index: usize) -> Result<()> {
        if !self.sources[index].advance()? {
            drop(self.sources.remove(index));
        }
        Ok(())
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.sources[self.current].key()
    }

    pub(crate) fn seqno(&self) -> SeqNum {
        self.sources[self.current].seqno()
    }

    pub(crate) fn value(&self) -> EntryRef<'_> {
        if self.deleted {
            EntryRef::Tombstone
        } else {
            self.sources[self.current].value()
        }
    }
}

/// Returns a merge of everything in `version` that a keyspace has within bounds at commit `at`.
pub(crate) fn merge_of(
    version: &Version,
    at: SeqNum,
    keyspace: &KeyspaceState,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
    direction: Direction,
    own: Option<&OwnView>,
) -> Result<Merge> {
    let mut sources = Vec::with_capacity(version.sealed.len() + 4);
    let mut hiding = Hiding::new();
    if let Some(own) = own {
        hiding.add(Age::OWN, &own.ranges, own.at);
        let cursor = own.cursor(lower, upper, direction);
        sources.push(Source::Own(cursor));
    }
    for (age, generation) in Age::of_generations().zip(version.generations()) {
        let Some(mem) = generation.keyspace(keyspace.id) else {
            continue;
        };
        hiding.add(age, &mem.ranges, at);
        if !mem.map.is_empty() {
            let cursor = mem.map.cursor(lower, upper, direction, at);
            sources.push(Source::Memtable(age, cursor));
        }
    }
    if let Some(view) = version.view(keyspace.id) {
        sources.push(Source::Index(view.cursor(lower, upper, direction)?));
    }
    Ok(Merge::new(sources, hiding, direction))
}
