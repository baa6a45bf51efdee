//! A merging cursor over a transaction's own writes, memtables and an index. It yields one entry
//! for each key, the newest at or below a sequence number, and leaves out deleted keys.
//!
//! Thread safety: belongs to one thread, and owns the sources that it reads.
//!
//! Invariants:
//! 1. Sources are ordered newest first. If several have a key, the first one wins, and the others
//!    advance with it.
//! 2. A range tombstone of `hiding` hides an entry if it covers its key and is newer.

use crate::Result;
use crate::read::bounds::bound_slices;
use crate::state::version::{KeyspaceState, Version};
use bytes::Bytes;
use glintdb_core::index::Cursor;
use glintdb_core::{Direction, EntryRef, EntryValue, RangeTombstone, SeqNum, key, planted};
use glintdb_memtable::MemCursor;
use std::cmp::Ordering;
use std::ops::Bound;

/// One sorted input.
pub(crate) enum Source {
    /// A transaction's own writes, in the cursor's order.
    Own(OwnWrites),
    /// A memtable.
    Memtable(MemCursor),
    /// An index.
    Index(Box<dyn Cursor>),
}

/// A transaction's own writes within the bounds, in the cursor's order.
pub(crate) struct OwnWrites {
    entries: std::vec::IntoIter<(Bytes, EntryValue)>,
    current: Option<(Bytes, EntryValue)>,
}

impl OwnWrites {
    pub(crate) fn new(entries: Vec<(Bytes, EntryValue)>) -> Self {
        OwnWrites {
            entries: entries.into_iter(),
            current: None,
        }
    }
}

impl Source {
    fn advance(&mut self) -> Result<bool> {
        match self {
            Source::Own(own) => {
                own.current = own.entries.next();
                Ok(own.current.is_some())
            }
            Source::Memtable(cursor) => Ok(cursor.advance()),
            Source::Index(cursor) => cursor.advance(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Source::Own(own) => own.current.as_ref().map_or(&[][..], |(key, _)| key),
            Source::Memtable(cursor) => cursor.key(),
            Source::Index(cursor) => cursor.key(),
        }
    }

    fn seqno(&self) -> SeqNum {
        match self {
            Source::Own(_) => SeqNum::MAX,
            Source::Memtable(cursor) => cursor.seqno(),
            Source::Index(cursor) => cursor.seqno(),
        }
    }

    fn value(&self) -> EntryRef<'_> {
        match self {
            Source::Own(own) => own
                .current
                .as_ref()
                .map_or(EntryRef::Tombstone, |(_, value)| value.as_ref()),
            Source::Memtable(cursor) => cursor.value(),
            Source::Index(cursor) => cursor.value(),
        }
    }

    /// Returns the memory that holds the current value, if it can be shared ([`Cursor::memory`]).
    fn memory(&self) -> Option<&Bytes> {
        match self {
            Source::Own(_) | Source::Memtable(_) => None,
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
    hiding: Vec<RangeTombstone>,
    direction: Direction,
    positions: Positions,
    /// Whether tombstones, and hidden entries as tombstones, are yielded too.
    keep_deleted: bool,
    current: usize,
    deleted: bool,
}

impl Merge {
    pub(crate) fn new(
        sources: Vec<Source>,
        hiding: Vec<RangeTombstone>,
        direction: Direction,
    ) -> Self {
        Merge {
            sources,
            hiding,
            direction,
            positions: Positions::Before,
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

    /// Advances to the next key that exists. Returns false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        loop {
            if !self.step()? {
                return Ok(false);
            }
            let source = &self.sources[self.current];
            self.deleted = matches!(source.value(), EntryRef::Tombstone)
                || (!self.hiding.is_empty() && {
                    let (key, seqno) = (source.key(), source.seqno());
                    self.hiding
                        .iter()
                        .any(|tombstone| tombstone.seqno > seqno && tombstone.covers(key))
                });
            if self.keep_deleted || !self.deleted {
                return Ok(true);
            }
        }
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
            if self.hiding.is_empty() && !self.keep_deleted && self.walk_index(&mut take)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// If the current source is an index, walks it alone while its keys come before those of all
    /// other sources. Returns true if `take` returned false.
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
        let end = planted!(
            "glintdb: an index is walked past keys of memtables",
            rival,
            None
        );
        let mut enough = false;
        let there = cursor.walk(&mut |key, _, value, memory| {
            if met(key, end) {
                return false;
            }
            enough = !matches!(value, EntryRef::Tombstone) && !take(key, value, memory);
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

/// A transaction's writes to one keyspace, as an iterator sees them.
pub(crate) struct OwnView {
    pub(crate) entries: Vec<(Bytes, EntryValue)>,
    pub(crate) ranges: Vec<RangeTombstone>,
}

impl OwnView {
    /// Returns the part within bounds, in the order of `direction`.
    pub(crate) fn within(
        &self,
        lower: &Bound<Bytes>,
        upper: &Bound<Bytes>,
        direction: Direction,
    ) -> OwnView {
        let (lower, upper) = bound_slices(lower, upper);
        let mut entries: Vec<_> = self
            .entries
            .iter()
            .filter(|(key, _)| key::at_or_after(key, lower) && key::at_or_before(key, upper))
            .cloned()
            .collect();
        if direction == Direction::Reverse {
            entries.reverse();
        }
        OwnView {
            entries,
            ranges: self.ranges.clone(),
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
    own: Option<OwnView>,
) -> Result<Merge> {
    let mut sources = Vec::with_capacity(version.sealed.len() + 4);
    let mut hiding = Vec::new();
    if let Some(own) = own {
        hiding.extend(own.ranges);
        sources.push(Source::Own(OwnWrites::new(own.entries)));
    }
    for generation in version.generations() {
        let Some(mem) = generation.keyspace(keyspace.id) else {
            continue;
        };
        hiding.extend(mem.ranges.at(at));
        if !mem.map.is_empty() {
            sources.push(Source::Memtable(
                mem.map.cursor(lower, upper, direction, at),
            ));
        }
    }
    if let Some(view) = version.view(keyspace.id) {
        sources.push(Source::Index(view.cursor(lower, upper, direction)?));
    }
    Ok(Merge::new(sources, hiding, direction))
}
