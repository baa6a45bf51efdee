//! Walks one table in one direction, block by block, as its [source](super::source) gives them.
//!
//! Not thread-safe: one owner. Invariants: 1. `blocks` are the blocks in its direction that were not visited yet; 2. only the last of them can hold keys beyond the
//! far bound, so only there keys are compared with it; 3. after an error the cursor is over.

use super::block::{Block, Malformed, StoredBlock};
use super::block_iter::BlockIter;
use super::meta::TableMeta;
use super::reader::Table;
use super::source::{BlockSource, Purpose};
use crate::keys::range::{Bounds, key_of};
use bytes::Bytes;
use glintdb_core::{Direction, Entry, EntryRef, EntryValue, Error, Result, SeqNum, key};
use std::ops::{Bound, Range};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Before the first `advance` or `seek`.
    New,
    /// On an entry, or just behind a block that was taken.
    On,
    Over,
}

/// Walks one table. `advance`, `seek`, `key`, `seqno` and `value` mean what they mean in [`Cursor`](glintdb_core::index::Cursor).
pub struct TableCursor {
    bounds: Arc<Bounds>,
    direction: Direction,
    state: State,
    iter: BlockIter,
    /// The block it is in, as stored; for compactions.
    stored: Option<StoredBlock>,
    /// Blocks not visited yet.
    blocks: Range<usize>,
    /// Whether the block it is in may hold keys beyond the far bound.
    check_end: bool,
    source: BlockSource,
    last_key: Vec<u8>,
}

impl TableCursor {
    /// A cursor over the entries of `table` within the bounds.
    pub(crate) fn within(
        table: &Arc<Table>,
        bounds: Arc<Bounds>,
        direction: Direction,
        purpose: Purpose,
    ) -> Self {
        TableCursor {
            source: BlockSource::new(Arc::clone(table), direction, purpose),
            bounds,
            direction,
            state: State::New,
            iter: BlockIter::new(direction),
            stored: None,
            blocks: 0..0,
            check_end: false,
            last_key: Vec::new(),
        }
    }

    /// Offers what it will read first, before its first `advance`. What is wrong with the table is told then.
    pub(crate) fn look_ahead(&mut self) {
        if self.source.looks_ahead() && self.start().is_ok_and(|any| any) {
            self.source.offer(&self.blocks);
        }
    }

    /// The properties of the table.
    pub(crate) fn meta(&self) -> &TableMeta {
        self.source.table.meta()
    }

    /// Corruption of the block it is in.
    #[cold]
    pub(crate) fn corrupt(&self, what: String) -> Error {
        let offset = self.iter.block().handle().offset;
        Error::corruption(self.meta().id, offset, what)
    }

    /// Goes to the next entry (the first one at the first call); `false` at the end.
    ///
    /// # Errors
    /// I/O errors, `Corruption`; the cursor is over then.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        match self.state {
            State::On => {
                let stepped = self.iter.step();
                self.settle(stepped)
            }
            State::New => {
                let started = self.start().and_then(|any| {
                    if any {
                        self.go_to_near_bound()
                    } else {
                        Ok(false)
                    }
                });
                self.conclude(started)
            }
            State::Over => Ok(false),
        }
    }

    /// See [`Cursor::walk`](glintdb_core::index::Cursor::walk).
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    #[inline]
    pub fn walk(
        &mut self,
        take: &mut impl FnMut(&[u8], SeqNum, EntryRef<'_>, Option<&Bytes>) -> bool,
    ) -> Result<bool> {
        while self.advance()? {
            if !take(self.key(), self.seqno(), self.value(), Some(self.memory())) {
                return Ok(true);
            }
            // What is left of a block without the far bound needs no look at anything else.
            if self.direction == Direction::Forward && !self.check_end {
                let walked = self.iter.walk(take);
                match self.wrap(walked) {
                    Ok(false) => {}
                    stopped => return self.conclude(stopped),
                }
            }
        }
        Ok(false)
    }

    /// Goes to the first entry at or behind `key` in its direction, from where it is; `false` where there is none.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let sought = match self.state {
            State::Over => return Ok(false),
            State::New => self.start().and_then(|any| {
                // The bound may lie behind the key.
                let near = match self.direction {
                    Direction::Forward => self.bounds.lower(),
                    Direction::Reverse => self.bounds.upper(),
                };
                let bound_wins = key_of(near).is_some_and(|near| !self.is_before(near, key));
                match any {
                    false => Ok(false),
                    true if bound_wins => self.go_to_near_bound(),
                    true => self.go_to(key),
                }
            }),
            // It may stand behind a block that was taken, with the key of that block's end: going to the key is then still right.
            State::On if !self.is_before(self.iter.key(), key) && !self.iter.is_behind() => {
                return Ok(true);
            }
            State::On => self.go_to(key),
        };
        self.conclude(sought)
    }

    /// Key of the entry it stands on.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.iter.key()
    }

    /// Sequence number of the entry it stands on.
    #[inline]
    #[must_use]
    pub fn seqno(&self) -> SeqNum {
        self.iter.seqno()
    }

    /// Value of the entry it stands on.
    #[inline]
    #[must_use]
    pub fn value(&self) -> EntryRef<'_> {
        // Steps checked that the value lies in the block.
        self.iter.value().unwrap_or(EntryRef::Tombstone)
    }

    /// See [`Cursor::memory`](glintdb_core::index::Cursor::memory).
    #[inline]
    #[must_use]
    pub fn memory(&self) -> &Bytes {
        &self.iter.block().image
    }

    /// The entry it stands on; an inline value shares the block's memory.
    #[must_use]
    pub fn entry(&self) -> Entry {
        let value = self.iter.block().owned_value(self.iter.raw());
        Entry {
            seqno: self.seqno(),
            value: value.unwrap_or(EntryValue::Tombstone),
        }
    }

    /// Whether a compaction's forward cursor stands on the first entry of a block that lies wholly within its bounds. Then
    /// [`whole_block_end`](Self::whole_block_end) is that block's last key.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn find_whole_block(&mut self) -> Result<bool> {
        let on_first = self.state == State::On
            && self.direction == Direction::Forward
            && self.source.gives_stored()
            && self.iter.on_first();
        if !on_first {
            return Ok(false);
        }
        let block = self.iter.block();
        BlockIter::last_key_of(block, &mut self.last_key)
            .map_err(|Malformed| self.source.table.malformed(block.handle))?;
        let fences = &self.source.table.opened()?.fences;
        let next = block.handle.index as usize + 1;
        if next < fences.len() && fences.is_at_or_below(next, &self.last_key) {
            return Err(self.source.table.malformed(block.handle));
        }
        Ok(!self.check_end || key::at_or_before(&self.last_key, self.bounds.upper()))
    }

    /// Last key of the block that [`find_whole_block`](Self::find_whole_block) found last.
    #[must_use]
    pub(crate) fn whole_block_end(&self) -> &[u8] {
        &self.last_key
    }

    /// The block it stands on, whole; the next `advance` goes to the first entry behind it.
    ///
    /// # Panics
    /// Where [`find_whole_block`](Self::find_whole_block) did not just find one.
    pub(crate) fn take_block(&mut self) -> StoredBlock {
        assert!(
            self.state == State::On && self.iter.on_first(),
            "there is a block to take"
        );
        self.iter.skip_rest();
        self.stored
            .clone()
            .expect("compactions keep what is stored")
    }

    /// Whether `a` comes before `b` in its direction.
    fn is_before(&self, a: &[u8], b: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => a < b,
            Direction::Reverse => a > b,
        }
    }

    /// Finds the blocks that the bounds leave; `false`: none.
    fn start(&mut self) -> Result<bool> {
        let meta = self.source.table.meta();
        let outside = meta.entries == 0
            || !key::at_or_after(&meta.largest, self.bounds.lower())
            || !key::at_or_before(&meta.smallest, self.bounds.upper());
        if outside {
            return Ok(false);
        }
        let fences = &self.source.table.opened()?.fences;
        let first = key_of(self.bounds.lower()).map_or(0, |key| fences.find(key));
        let last = key_of(self.bounds.upper()).map_or(fences.len() - 1, |key| fences.find(key));
        self.blocks = first..last + 1;
        Ok(first <= last)
    }

    /// After [`start`](Self::start): the blocks begin with the one that holds the near bound.
    fn go_to_near_bound(&mut self) -> Result<bool> {
        let bounds = Arc::clone(&self.bounds);
        let near = match self.direction {
            Direction::Forward => bounds.lower(),
            Direction::Reverse => bounds.upper(),
        };
        match near {
            Bound::Unbounded => self.next_entry(),
            Bound::Included(key) => self.seek_in_next_block(key),
            Bound::Excluded(key) => {
                let found = self.seek_in_next_block(key)?;
                if found && self.iter.key() == key {
                    return self.next_entry();
                }
                Ok(found)
            }
        }
    }

    /// Goes to the first entry at or behind `key`, which is not before where it is.
    fn go_to(&mut self, key: &[u8]) -> Result<bool> {
        let target = self.source.table.opened()?.fences.find(key);
        let Range { start, end } = self.blocks;
        let jump = match self.direction {
            Direction::Forward => target.checked_sub(start),
            Direction::Reverse => end.checked_sub(target + 1),
        };
        match jump {
            Some(skipped) => {
                match self.direction {
                    Direction::Forward => self.blocks.start = target.min(end),
                    Direction::Reverse => self.blocks.end = (target + 1).max(start),
                }
                if skipped > 0 {
                    self.source.jumped();
                }
                self.seek_in_next_block(key)
            }
            // In a block that was taken.
            None if self.iter.is_behind() => self.next_entry(),
            None => self.seek_in_block(key),
        }
    }

    /// Goes to the first entry at or behind `key`, which no block before the next one holds.
    fn seek_in_next_block(&mut self, key: &[u8]) -> Result<bool> {
        match self.next_block()? {
            true => self.seek_in_block(key),
            false => Ok(false),
        }
    }

    /// The same, of the block it is in, and those behind.
    fn seek_in_block(&mut self, key: &[u8]) -> Result<bool> {
        let found = self.iter.seek(key);
        if self.wrap(found)? {
            return Ok(true);
        }
        self.next_entry()
    }

    /// The next entry, in this block or the next.
    fn next_entry(&mut self) -> Result<bool> {
        loop {
            let stepped = self.iter.step();
            if self.wrap(stepped)? {
                return Ok(true);
            }
            if !self.next_block()? {
                return Ok(false);
            }
        }
    }

    /// What a step within a block came to; goes on to the next block at its end.
    #[inline]
    fn settle(&mut self, stepped: Result<bool, Malformed>) -> Result<bool> {
        match stepped {
            Ok(true) if !self.check_end => Ok(true),
            Ok(true) => self.conclude(Ok(true)),
            Ok(false) => {
                let found = self.next_entry();
                self.conclude(found)
            }
            Err(malformed) => {
                let error = self.wrap(Err(malformed));
                self.conclude(error)
            }
        }
    }

    /// Ends the cursor at errors, at the end, and beyond the far bound.
    fn conclude(&mut self, found: Result<bool>) -> Result<bool> {
        self.state = State::Over;
        if found? && !(self.check_end && self.is_beyond_far_bound()) {
            self.state = State::On;
            return Ok(true);
        }
        Ok(false)
    }

    fn is_beyond_far_bound(&self) -> bool {
        match self.direction {
            Direction::Forward => !key::at_or_before(self.iter.key(), self.bounds.upper()),
            Direction::Reverse => !key::at_or_after(self.iter.key(), self.bounds.lower()),
        }
    }

    fn wrap<T>(&self, result: Result<T, Malformed>) -> Result<T> {
        result.map_err(|Malformed| self.source.table.malformed(self.iter.block().handle()))
    }

    /// Goes to the edge of the next block; `false`: there is none.
    fn next_block(&mut self) -> Result<bool> {
        if self.blocks.is_empty() {
            return Ok(false);
        }
        let stored = self.source.fetch(&self.blocks)?;
        let index = match self.direction {
            Direction::Forward => {
                self.blocks.start += 1;
                self.blocks.start - 1
            }
            Direction::Reverse => {
                self.blocks.end -= 1;
                self.blocks.end
            }
        };
        let block = match self.source.gives_stored() {
            true => self.stored.insert(stored).block.clone(),
            false => stored.block,
        };
        self.check_end = self.blocks.is_empty();
        let in_order = self.is_in_order(index, &block)?;
        let handle = block.handle();
        let reset = self.iter.reset(block);
        self.wrap(reset)?;
        if in_order {
            Ok(true)
        } else {
            Err(self.source.table.malformed(handle))
        }
    }

    /// Whether the fence `index` lies between the key it stands on and the first one of `block`: together with the order within blocks, which is checked step by
    /// step, forward cursors so never give keys that do not ascend, whatever the file holds.
    fn is_in_order(&self, index: usize, block: &Block) -> Result<bool> {
        let fences = &self.source.table.opened()?.fences;
        let first_key = block.view().and_then(|view| view.first_key());
        let ascends = self.direction == Direction::Reverse
            || self.iter.is_fresh()
            || !fences.is_at_or_below(index, self.iter.key());
        Ok(ascends && first_key.is_ok_and(|first| fences.is_at_or_below(index, first)))
    }
}
