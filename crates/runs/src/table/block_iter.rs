//! Walks the entries of one key block in either direction, keeping the key it stands on assembled.
//!
//! Backwards, a restart interval is decoded once and then walked from its end.

use super::block::{Block, Layout, Malformed, Place, RawEntry, View};
use super::copy::append_part;
use bytes::Bytes;
use glintdb_core::key::KEY_BYTES_MAX;
use glintdb_core::{Direction, EntryRef, SeqNum};

/// A position in a block. `key`, `seqno` and `raw` mean something only after a step said `true`.
pub(super) struct BlockIter {
    block: Block,
    layout: Layout,
    direction: Direction,
    /// Forward: offset of the next entry.
    next_at: usize,
    /// Forward: ordinal of the next entry. Reverse: ordinal of the entry stood on.
    ordinal: usize,
    /// Forward: whether `key` is not the key of the entry before `next_at`, but only what the next key shares with the first.
    fresh: bool,
    key: Vec<u8>,
    raw: RawEntry,
    seqno: SeqNum,
    /// Reverse: the interval decoded last, walked from its end: keys in one arena, and each entry with the end of its key there.
    arena: Vec<u8>,
    interval: Vec<(usize, RawEntry)>,
}

const NOWHERE: RawEntry = RawEntry {
    at: 0,
    kind: super::block::KIND_TOMBSTONE,
    shared: 0,
    suffix_at: 0,
    value_at: 0,
    end: 0,
};

impl BlockIter {
    /// Stands before the first entry of nothing; [`reset`](Self::reset) gives it a block.
    pub(super) fn new(direction: Direction) -> Self {
        let handle = super::block::BlockHandle {
            index: 0,
            offset: 0,
            length: 0,
        };
        BlockIter {
            block: Block {
                image: Bytes::new(),
                handle,
            },
            layout: Layout::default(),
            direction,
            next_at: 0,
            ordinal: 0,
            fresh: true,
            key: Vec::new(),
            raw: NOWHERE,
            seqno: SeqNum::ZERO,
            arena: Vec::new(),
            interval: Vec::new(),
        }
    }

    /// Goes to the edge of `block` where its direction begins.
    pub(super) fn reset(&mut self, block: Block) -> Result<(), Malformed> {
        self.layout = block.view()?.layout;
        self.block = block;
        self.key.clear();
        self.fresh = true;
        self.interval.clear();
        self.next_at = self.layout.entries_at;
        self.ordinal = match self.direction {
            Direction::Forward => 0,
            Direction::Reverse => self.layout.entries,
        };
        Ok(())
    }

    pub(super) fn block(&self) -> &Block {
        &self.block
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn seqno(&self) -> SeqNum {
        self.seqno
    }

    pub(super) fn raw(&self) -> &RawEntry {
        &self.raw
    }

    /// The value of the entry it stands on.
    #[inline]
    pub(super) fn value(&self) -> Result<EntryRef<'_>, Malformed> {
        self.view()?.value(&self.raw)
    }

    #[inline]
    fn view(&self) -> Result<View<'_>, Malformed> {
        View::of(&self.block.image, self.layout)
    }

    /// Forward: whether it stands on the block's first entry.
    pub(super) fn on_first(&self) -> bool {
        self.ordinal == 1
    }

    /// Forward: goes behind the block's last entry.
    pub(super) fn skip_rest(&mut self) {
        self.ordinal = usize::MAX;
    }

    /// Whether [`skip_rest`](Self::skip_rest) put it behind the block.
    pub(super) fn is_behind(&self) -> bool {
        self.ordinal == usize::MAX
    }

    /// Whether it stands on no entry yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Next entry in its direction.
    #[inline]
    pub(super) fn step(&mut self) -> Result<bool, Malformed> {
        match self.direction {
            Direction::Forward => self.step_forward(),
            Direction::Reverse => self.step_back(),
        }
    }

    #[inline]
    fn step_forward(&mut self) -> Result<bool, Malformed> {
        if self.ordinal >= self.layout.entries {
            return Ok(false);
        }
        let view = View::of(&self.block.image, self.layout)?;
        let entry = view.entry(self.next_at)?;
        // Entries are about as long as their neighbours: this is the next but one.
        glintdb_cache::prefetch_line(view.image, 2 * entry.end - entry.at);
        let suffix = view.bytes(entry.suffix_at, entry.value_at)?;
        // A restart point shares with the block's first key, and so at least as much with the key before it. Keys must ascend: what compactions write next
        // depends on it.
        let before = self.key.get(entry.shared..).ok_or(Malformed)?;
        let ascends = match (suffix, before) {
            // Nearly always decided here: what is shared is all that is shared.
            (&[byte, ..], &[byte_before, ..]) if byte != byte_before => byte > byte_before,
            _ => suffix > before,
        };
        if !(ascends || self.fresh) || entry.shared + suffix.len() > KEY_BYTES_MAX {
            return Err(Malformed);
        }
        self.key.truncate(entry.shared);
        let image = &self.block.image;
        append_part::<16>(&mut self.key, image, entry.suffix_at, entry.value_at)
            .ok_or(Malformed)?;
        self.seqno = view.seqno(&entry)?;
        self.raw = entry;
        self.fresh = false;
        self.next_at = entry.end;
        self.ordinal += 1;
        Ok(true)
    }

    /// Forward: steps through the block, and gives each entry to `take`, until that says `false`: `true` then. `false` at the block's end.
    #[inline]
    pub(super) fn walk(
        &mut self,
        take: &mut impl FnMut(&[u8], SeqNum, EntryRef<'_>, Option<&Bytes>) -> bool,
    ) -> Result<bool, Malformed> {
        while self.step_forward()? {
            if !take(
                &self.key,
                self.seqno,
                self.value()?,
                Some(&self.block.image),
            ) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn step_back(&mut self) -> Result<bool, Malformed> {
        if self.interval.is_empty() {
            let interval = self.layout.interval;
            let Some(restart) = self.ordinal.checked_sub(1).map(|last| last / interval) else {
                return Ok(false);
            };
            self.decode_interval(restart)?;
        }
        self.pop_back()
    }

    /// Takes the last entry of the decoded interval.
    fn pop_back(&mut self) -> Result<bool, Malformed> {
        let (end, entry) = self.interval.pop().ok_or(Malformed)?;
        let start = self.interval.last().map_or(0, |(end, _)| *end);
        let key = self.arena.get(start..end).ok_or(Malformed)?;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.fresh = false;
        self.raw = entry;
        self.ordinal = self.ordinal.checked_sub(1).ok_or(Malformed)?;
        self.seqno = self.view()?.seqno(&entry)?;
        Ok(true)
    }

    /// Decodes the interval of `restart`; `ordinal` becomes that behind its last entry.
    fn decode_interval(&mut self, restart: usize) -> Result<(), Malformed> {
        let view = View::of(&self.block.image, self.layout)?;
        let first_key = view.first_key()?;
        let start = restart * view.layout.interval;
        let end = (start + view.layout.interval).min(view.layout.entries);
        let mut at = view.restart_offset(restart)?;
        self.arena.clear();
        self.interval.clear();
        let mut key_start = 0;
        for ordinal in start..end {
            let entry = view.entry(at)?;
            let suffix = view.bytes(entry.suffix_at, entry.value_at)?;
            let key_end = self.arena.len();
            if ordinal == start {
                self.arena
                    .extend_from_slice(first_key.get(..entry.shared).ok_or(Malformed)?);
            } else {
                let shared_end = key_start + entry.shared;
                if shared_end > key_end {
                    return Err(Malformed);
                }
                self.arena.extend_from_within(key_start..shared_end);
                key_start = key_end;
            }
            self.arena.extend_from_slice(suffix);
            self.interval.push((self.arena.len(), entry));
            at = entry.end;
        }
        self.ordinal = end;
        Ok(())
    }

    /// Goes to the first entry at or behind `key` in its direction, wherever in the block that is; `false`: there is none in this block.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<bool, Malformed> {
        match self.direction {
            Direction::Forward => self.seek_at_or_after(key),
            Direction::Reverse => self.seek_at_or_before(key),
        }
    }

    fn seek_at_or_after(&mut self, key: &[u8]) -> Result<bool, Malformed> {
        let view = View::of(&self.block.image, self.layout)?;
        let first_key = view.first_key()?;
        let restart = match view.restart_at_or_before(key, first_key)? {
            Place::Before => 0,
            Place::At(restart) => restart,
        };
        self.next_at = view.restart_offset(restart)?;
        self.ordinal = restart * view.layout.interval;
        self.key.clear();
        self.fresh = true;
        if restart > 0 {
            let entry = view.entry(self.next_at)?;
            self.key
                .extend_from_slice(first_key.get(..entry.shared).ok_or(Malformed)?);
        }
        while self.step_forward()? {
            if self.key.as_slice() >= key {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn seek_at_or_before(&mut self, key: &[u8]) -> Result<bool, Malformed> {
        let view = View::of(&self.block.image, self.layout)?;
        match view.restart_at_or_before(key, view.first_key()?)? {
            Place::Before => {
                self.interval.clear();
                self.ordinal = 0;
                return Ok(false);
            }
            Place::At(restart) => self.decode_interval(restart)?,
        }
        while !self.interval.is_empty() {
            self.pop_back()?;
            if self.key.as_slice() <= key {
                return Ok(true);
            }
        }
        // The restart point's own key is at or before `key`.
        Err(Malformed)
    }

    /// Puts the block's last key into `key`.
    pub(super) fn last_key_of(block: &Block, key: &mut Vec<u8>) -> Result<(), Malformed> {
        let view = block.view()?;
        let restart = view.layout.restarts - 1;
        let mut at = view.restart_offset(restart)?;
        let first_key = view.first_key()?;
        key.clear();
        key.extend_from_slice(first_key);
        for _ in restart * view.layout.interval..view.layout.entries {
            let entry = view.entry(at)?;
            if entry.shared > key.len() {
                return Err(Malformed);
            }
            key.truncate(entry.shared);
            append_part::<16>(key, view.image, entry.suffix_at, entry.value_at).ok_or(Malformed)?;
            at = entry.end;
        }
        Ok(())
    }
}
