//! One cursor over tables that ascend and do not overlap: a run, a level, or a part of one.
//!
//! Not thread-safe: belongs to one reader or merge. Does no I/O before the first `look_ahead`, `advance` or `seek`.

use crate::levels::Slot;
use crate::merge::MergeSource;
use crate::range::KeyRange;
use crate::table::{BlockHandle, Purpose, TableCursor};
use bytes::Bytes;
use glintdb_core::{Direction, EntryRef, Result, SeqNum};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// See the module's page.
pub(crate) struct Concat {
    /// Tables not begun yet; the next one is at the front (forwards) or at the back.
    rest: VecDeque<Arc<Slot>>,
    cursor: Option<TableCursor>,
    /// For compactions: a cursor on the next table, which has its first blocks read meanwhile.
    upcoming: Option<TableCursor>,
    lower: Bound<Bytes>,
    upper: Bound<Bytes>,
    direction: Direction,
    purpose: Purpose,
}

impl Concat {
    /// A cursor over those of `slots` that hold entries within the bounds.
    pub(crate) fn new<'a>(
        slots: impl IntoIterator<Item = &'a Arc<Slot>>,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
        purpose: Purpose,
    ) -> Concat {
        let range = KeyRange::from_bounds(lower, upper);
        Concat {
            rest: slots
                .into_iter()
                .filter(|slot| slot.meta().entries > 0 && slot.range.overlaps(&range))
                .cloned()
                .collect(),
            cursor: None,
            upcoming: None,
            lower: lower.map(Bytes::copy_from_slice),
            upper: upper.map(Bytes::copy_from_slice),
            direction,
            purpose,
        }
    }

    /// Whether no table can give an entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.cursor.is_none()
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
        take: &mut impl FnMut(&[u8], SeqNum, EntryRef<'_>) -> bool,
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
            if let Some(cursor) = &self.cursor
                && !take(cursor.key(), cursor.seqno(), cursor.value())
            {
                return Ok(true);
            }
        }
    }

    #[cold]
    fn next_table(&mut self) -> Result<bool> {
        if self.cursor.is_some() && glintdb_core::seeded::bug("lsm: a cursor passes over a table") {
            self.pop();
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

    /// Goes to the first entry at or behind `key`, from where it is.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        if let Some(cursor) = &mut self.cursor
            && cursor.seek(key)?
        {
            return Ok(true);
        }
        // Not in the table begun: pass the tables that end before the key.
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

    /// The table that the first `seek` to `key` (`None`: the first `advance`) will read, and the blocks it will miss there.
    pub(crate) fn first_blocks(
        &self,
        key: Option<&[u8]>,
        count: usize,
    ) -> Result<Option<(Arc<Slot>, Vec<BlockHandle>)>> {
        let near = match self.direction {
            Direction::Forward => &self.lower,
            Direction::Reverse => &self.upper,
        };
        let near = match near {
            Bound::Included(bound) | Bound::Excluded(bound) => Some(bound.as_ref()),
            Bound::Unbounded => None,
        };
        // Whichever lies farther in the cursor's direction.
        let key = match (key, near, self.direction) {
            (Some(key), Some(near), Direction::Forward) => Some(key.max(near)),
            (Some(key), Some(near), Direction::Reverse) => Some(key.min(near)),
            (key, near, _) => key.or(near),
        };
        let reached = |slot: &&Arc<Slot>| match (key, self.direction) {
            (None, _) => true,
            (Some(key), Direction::Forward) => slot.meta().largest.as_ref() >= key,
            (Some(key), Direction::Reverse) => slot.meta().smallest.as_ref() <= key,
        };
        let slot = match self.direction {
            Direction::Forward => self.rest.iter().find(reached),
            Direction::Reverse => self.rest.iter().rev().find(reached),
        };
        let Some(slot) = slot else { return Ok(None) };
        let blocks = slot.table.first_blocks(key, self.direction, count)?;
        Ok((!blocks.is_empty()).then(|| (Arc::clone(slot), blocks)))
    }

    /// The table's cursor, where it stands on an entry.
    #[inline]
    pub(crate) fn cursor(&self) -> Option<&TableCursor> {
        self.cursor.as_ref()
    }

    /// See [`cursor`](Self::cursor).
    pub(crate) fn cursor_mut(&mut self) -> Option<&mut TableCursor> {
        self.cursor.as_mut()
    }

    fn peek(&self) -> Option<&Arc<Slot>> {
        match self.direction {
            Direction::Forward => self.rest.front(),
            Direction::Reverse => self.rest.back(),
        }
    }

    fn pop(&mut self) -> Option<Arc<Slot>> {
        self.upcoming = None;
        match self.direction {
            Direction::Forward => self.rest.pop_front(),
            Direction::Reverse => self.rest.pop_back(),
        }
    }

    /// A cursor on the next table, if there is one.
    fn next_cursor(&self) -> Option<TableCursor> {
        self.peek().map(|slot| {
            slot.table.cursor(
                self.lower.as_ref().map(Bytes::as_ref),
                self.upper.as_ref().map(Bytes::as_ref),
                self.direction,
                self.purpose,
            )
        })
    }

    /// For compactions: offers what is read first of the next table.
    pub(crate) fn look_ahead(&mut self) {
        if self.purpose == Purpose::Compaction {
            self.upcoming = self.next_cursor();
            self.upcoming.iter_mut().for_each(TableCursor::look_ahead);
        }
    }

    /// Opens the next table's cursor; `false`: there is none, and the cursor is gone.
    fn begin_table(&mut self) -> bool {
        let upcoming = self.upcoming.take();
        self.cursor = upcoming.or_else(|| self.next_cursor());
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
