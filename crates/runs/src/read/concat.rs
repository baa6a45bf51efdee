//! One cursor over tables that ascend and do not overlap: a run, a level, or a part of one.
//!
//! Not thread-safe: belongs to one reader or merge. Does no I/O before the first `look_ahead`,
//! `advance` or `seek`.

use crate::keys::range::{Bounds, key_of};
use crate::read::tournament::MergeSource;
use crate::sorted::Slot;
use crate::table::{BlockHandle, Purpose, TableCursor};
use bytes::Bytes;
use glintdb_core::{Direction, EntryRef, RangeTombstone, Result, SeqNum, key, planted};
use std::ops::Range;
use std::sync::Arc;

/// A cursor that walks one table after the other.
pub(crate) struct Concat {
    slots: Arc<Vec<Arc<Slot>>>,
    /// Tables that are not begun yet. The next one is at the front (forwards) or at the back
    /// (backwards). The first one and the last one have entries.
    rest: Range<usize>,
    cursor: Option<TableCursor>,
    /// For compactions: a cursor on the next table, whose first blocks are being read.
    upcoming: Option<Box<TableCursor>>,
    bounds: Arc<Bounds>,
    direction: Direction,
    purpose: Purpose,
}

impl Concat {
    /// A cursor over the tables of `slots` at `places` that hold entries within the bounds.
    pub(crate) fn new(
        slots: &Arc<Vec<Arc<Slot>>>,
        places: Range<usize>,
        bounds: &Arc<Bounds>,
        direction: Direction,
        purpose: Purpose,
    ) -> Concat {
        let mut this = Concat {
            slots: Arc::clone(slots),
            rest: places,
            cursor: None,
            upcoming: None,
            bounds: Arc::clone(bounds),
            direction,
            purpose,
        };
        this.trim();
        this
    }

    /// Skips tables at both ends that hold no entries within the bounds.
    fn trim(&mut self) {
        let slots = self.slots.get(self.rest.clone()).unwrap_or_default();
        let before = |slot: &&Arc<Slot>| {
            let meta = slot.meta();
            meta.entries == 0 || !key::at_or_after(&meta.largest, self.bounds.lower())
        };
        let behind = |slot: &&Arc<Slot>| {
            let meta = slot.meta();
            meta.entries == 0 || !key::at_or_before(&meta.smallest, self.bounds.upper())
        };
        let start = slots.iter().take_while(before).count();
        let end = slots.len() - slots.iter().rev().take_while(behind).count();
        self.rest = self.rest.start + start..self.rest.start + end.max(start);
    }

    /// Whether no table can give an entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.cursor.is_none()
    }

    /// The first key and the last one of the tables that are not begun.
    pub(crate) fn ends(&self) -> Option<(&[u8], &[u8])> {
        let slots = self.slots.get(self.rest.clone())?;
        let (first, last) = (slots.first()?, slots.last()?);
        Some((&first.meta().smallest, &last.meta().largest))
    }

    /// Goes to the next entry.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        if let Some(cursor) = &mut self.cursor
            && cursor.advance()?
        {
            return Ok(true);
        }
        self.next_table()
    }

    /// See [`Cursor::walk`](glintdb_core::index::Cursor::walk).
    #[inline]
    pub(crate) fn walk(
        &mut self,
        take: &mut impl FnMut(&[u8], SeqNum, EntryRef<'_>, Option<&Bytes>) -> bool,
    ) -> Result<bool> {
        loop {
            if let Some(cursor) = &mut self.cursor
                && cursor.walk(take)?
            {
                return Ok(true);
            }
            if !self.next_table()? {
                return Ok(false);
            }
            if let Some(cursor) = &self.cursor {
                let memory = Some(cursor.memory());
                if !take(cursor.key(), cursor.seqno(), cursor.value(), memory) {
                    return Ok(true);
                }
            }
        }
    }

    #[cold]
    fn next_table(&mut self) -> Result<bool> {
        if self.cursor.is_some() {
            planted!("lsm: a cursor passes over a table", (), self.pop());
        }
        while self.begin_table() {
            if let Some(cursor) = &mut self.cursor
                && cursor.advance()?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes on to the first entry at or behind `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        if let Some(cursor) = &mut self.cursor
            && cursor.seek(key)?
        {
            return Ok(true);
        }
        // The current table has no such entry: skip the tables that end before the key.
        self.cursor = None;
        while let Some(slot) = self.peek() {
            let passed = match self.direction {
                Direction::Forward => slot.meta().largest.as_ref() < key,
                Direction::Reverse => slot.meta().smallest.as_ref() > key,
            };
            if passed {
                self.pop();
                continue;
            }
            self.begin_table();
            if let Some(cursor) = &mut self.cursor
                && cursor.seek(key)?
            {
                return Ok(true);
            }
        }
        self.cursor = None;
        Ok(false)
    }

    /// Whether `range` hides all that the current table has in it.
    pub(crate) fn is_hidden_by(&self, range: &RangeTombstone) -> bool {
        let newest = self.cursor.as_ref().map(|cursor| cursor.meta().seqno_max);
        newest.is_some_and(|newest| newest < range.seqno)
    }

    /// Goes behind what `range` covers, which covers the current key and hides all that the current
    /// table has in it. Reads no table that has nothing else.
    pub(crate) fn pass(&mut self, range: &RangeTombstone) -> Result<bool> {
        let Some(meta) = self.cursor.as_ref().map(TableCursor::meta) else {
            return Ok(false);
        };
        let ends_inside = range.covers(match self.direction {
            Direction::Forward => &meta.largest,
            Direction::Reverse => &meta.smallest,
        });
        if ends_inside {
            self.cursor = None;
            let is_hidden = |slot: &Arc<Slot>| {
                let meta = slot.meta();
                meta.seqno_max < range.seqno
                    && range.covers(&meta.smallest)
                    && range.covers(&meta.largest)
            };
            while self.peek().is_some_and(is_hidden) {
                self.pop();
            }
            return self.next_table();
        }
        match (self.direction, &range.end) {
            (Direction::Forward, Some(end)) => self.seek(end),
            (Direction::Forward, None) => unreachable!("the range covers the end of the table"),
            (Direction::Reverse, _) => {
                let found = self.seek(&range.start)?;
                if found && self.current() == Some(range.start.as_ref()) {
                    return self.advance();
                }
                Ok(found)
            }
        }
    }

    /// The table that the first `seek` to `key` (`None`: the first `advance`) will read, and the
    /// blocks that it will have to read there.
    pub(crate) fn first_blocks(
        &self,
        key: Option<&[u8]>,
        count: usize,
    ) -> Result<Option<(Arc<Slot>, Vec<BlockHandle>)>> {
        let near = key_of(match self.direction {
            Direction::Forward => self.bounds.lower(),
            Direction::Reverse => self.bounds.upper(),
        });
        // The one that is farther in the cursor's direction.
        let key = match (key, near, self.direction) {
            (Some(key), Some(near), Direction::Forward) => Some(key.max(near)),
            (Some(key), Some(near), Direction::Reverse) => Some(key.min(near)),
            (key, near, _) => key.or(near),
        };
        let reached = |slot: &&Arc<Slot>| {
            let meta = slot.meta();
            let behind = match (key, self.direction) {
                (None, _) => true,
                (Some(key), Direction::Forward) => meta.largest.as_ref() >= key,
                (Some(key), Direction::Reverse) => meta.smallest.as_ref() <= key,
            };
            behind && meta.entries > 0
        };
        let mut rest = self.slots.get(self.rest.clone()).unwrap_or_default().iter();
        let slot = match self.direction {
            Direction::Forward => rest.find(reached),
            Direction::Reverse => rest.rfind(reached),
        };
        let Some(slot) = slot else { return Ok(None) };
        let blocks = slot.table.first_blocks(key, self.direction, count)?;
        Ok((!blocks.is_empty()).then(|| (Arc::clone(slot), blocks)))
    }

    /// The cursor of the current table, if it is at an entry.
    #[inline]
    pub(crate) fn cursor(&self) -> Option<&TableCursor> {
        self.cursor.as_ref()
    }

    /// See [`cursor`](Self::cursor).
    pub(crate) fn cursor_mut(&mut self) -> Option<&mut TableCursor> {
        self.cursor.as_mut()
    }

    fn peek(&self) -> Option<&Arc<Slot>> {
        let mut rest = self.rest.clone();
        let place = match self.direction {
            Direction::Forward => rest.next(),
            Direction::Reverse => rest.next_back(),
        };
        self.slots.get(place?)
    }

    fn pop(&mut self) {
        self.upcoming = None;
        match self.direction {
            Direction::Forward => self.rest.next(),
            Direction::Reverse => self.rest.next_back(),
        };
        self.trim();
    }

    /// A cursor on the next table, if there is one.
    fn next_cursor(&self) -> Option<TableCursor> {
        self.peek().map(|slot| {
            let bounds = slot.bounds(&self.bounds);
            TableCursor::within(&slot.table, bounds, self.direction, self.purpose)
        })
    }

    /// For compactions: offers the first blocks of the next table to be read ahead.
    pub(crate) fn look_ahead(&mut self) {
        if self.purpose == Purpose::Compaction {
            self.upcoming = self.next_cursor().map(Box::new);
            if let Some(upcoming) = &mut self.upcoming {
                upcoming.look_ahead();
            }
        }
    }

    /// Opens a cursor on the next table. `false`: there is no next table, and no cursor any more.
    fn begin_table(&mut self) -> bool {
        let upcoming = self.upcoming.take();
        self.cursor = upcoming
            .map(|cursor| *cursor)
            .or_else(|| self.next_cursor());
        self.pop();
        self.look_ahead();
        self.cursor.is_some()
    }
}

impl MergeSource for Concat {
    #[inline]
    fn current(&self) -> Option<&[u8]> {
        self.cursor.as_ref().map(TableCursor::key)
    }
}
