//! Walks the entries of one key block in either direction, and keeps the key of its entry
//! assembled.
//!
//! Backwards, it decodes a restart interval once and notes for each entry which bytes of the key
//! before it replaces. Then it walks the interval from its end by putting these bytes back. So it
//! needs one key and little more, however long keys are.
//!
//! Not thread-safe: belongs to one cursor.

use super::block::{Block, Layout, Malformed, Place, RawEntry, View};
use super::copy::append_part;
use super::delta_order::DeltaOrder;
use bytes::Bytes;
use glintdb_core::key::KEY_BYTES_MAX;
use glintdb_core::{Direction, EntryRef, SeqNum};

/// A position in a block. `key`, `seqno` and `raw` are meaningful only after a step returned true.
pub(super) struct BlockIter {
    block: Block,
    layout: Layout,
    direction: Direction,
    /// Forward: offset of the next entry.
    next_at: usize,
    /// Forward: ordinal of the next entry. Reverse: ordinal of the current entry.
    ordinal: usize,
    /// Forward: whether `key` is not the key of the entry before `next_at`, but only the bytes that
    /// the next key shares with the first one.
    fresh: bool,
    key: Vec<u8>,
    raw: RawEntry,
    seqno: SeqNum,
    /// Reverse: the entries of the interval that was decoded last, from its begin to the current
    /// one. Each has the place in `replaced` of the bytes that its key has replaced.
    interval: Vec<(usize, RawEntry)>,
    /// Reverse: bytes of keys of the interval that the next key does not share.
    replaced: Vec<u8>,
    /// Reverse: whether the last entry of `interval` is the current one, and not the next one.
    on_last: bool,
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
    /// An iterator without entries. [`reset`](Self::reset) gives it a block.
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
            interval: Vec::new(),
            replaced: Vec::new(),
            on_last: false,
        }
    }

    /// Goes to the edge of `block` at which its direction begins.
    pub(super) fn reset(&mut self, block: Block) -> Result<(), Malformed> {
        self.layout = block.view()?.layout;
        self.block = block;
        self.key.clear();
        self.fresh = true;
        self.interval.clear();
        self.on_last = false;
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

    /// The value of the current entry.
    #[inline]
    pub(super) fn value(&self) -> Result<EntryRef<'_>, Malformed> {
        self.view()?.value(&self.raw)
    }

    #[inline]
    fn view(&self) -> Result<View<'_>, Malformed> {
        View::of(&self.block.image, self.layout)
    }

    /// Forward: whether the current entry is the block's first one.
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

    /// Whether it is on no entry yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Goes to the next entry in its direction. Returns false if there is none.
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
        // A restart point shares bytes with the block's first key, and so at least as many with
        // the key before it. Keys must ascend, because compactions write them in this order.
        let before = self.key.get(entry.shared..).ok_or(Malformed)?;
        let ascends = match (suffix, before) {
            // Nearly always decided here, because `shared` counts all bytes that are shared.
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

    /// Forward: steps through the block and gives each entry to `take`, until that returns false.
    /// Returns true then, and false at the block's end.
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
        self.leave()?;
        if self.interval.is_empty() {
            let interval = self.layout.interval;
            let Some(restart) = self.ordinal.checked_sub(1).map(|last| last / interval) else {
                return Ok(false);
            };
            self.decode_interval(restart, None)?;
        }
        self.settle_on_last()
    }

    /// Reverse: removes the current entry from the interval, and makes `key` the key of the entry
    /// before it. If there is none in the interval, `key` means nothing.
    fn leave(&mut self) -> Result<(), Malformed> {
        if !std::mem::take(&mut self.on_last) {
            return Ok(());
        }
        let (replaced_at, entry) = self.interval.pop().ok_or(Malformed)?;
        self.key.truncate(entry.shared);
        let replaced = self.replaced.get(replaced_at..).ok_or(Malformed)?;
        self.key.extend_from_slice(replaced);
        self.replaced.truncate(replaced_at);
        Ok(())
    }

    /// Reverse: makes the last entry of the interval, whose key is in `key`, the current one.
    fn settle_on_last(&mut self) -> Result<bool, Malformed> {
        let (_, entry) = *self.interval.last().ok_or(Malformed)?;
        self.raw = entry;
        self.seqno = self.view()?.seqno(&entry)?;
        self.fresh = false;
        self.on_last = true;
        self.ordinal = self.ordinal.checked_sub(1).ok_or(Malformed)?;
        Ok(true)
    }

    /// Reverse: decodes the interval of `restart`, up to the last entry at or before `end` if that
    /// is given. `ordinal` becomes that of the entry behind the last one that was decoded, whose
    /// key is in `key`.
    fn decode_interval(&mut self, restart: usize, end: Option<&[u8]>) -> Result<(), Malformed> {
        let view = View::of(&self.block.image, self.layout)?;
        let first_key = view.first_key()?;
        let mut order = end.map(DeltaOrder::new);
        if let Some(order) = &mut order {
            order.pass(0, first_key);
        }
        self.ordinal = restart * view.layout.interval;
        let ordinals = self.ordinal..view.layout.entries;
        let mut at = view.restart_offset(restart)?;
        self.interval.clear();
        self.replaced.clear();
        self.key.clear();
        self.key.extend_from_slice(first_key);
        for ordinal in ordinals.take(view.layout.interval) {
            let entry = view.entry(at)?;
            let suffix = view.bytes(entry.suffix_at, entry.value_at)?;
            // A restart point, the first entry here, shares bytes with the block's first key. The
            // first entry of the block shares none.
            let replaced = self.key.get(entry.shared..).ok_or(Malformed)?;
            if entry.shared + suffix.len() > KEY_BYTES_MAX {
                return Err(Malformed);
            }
            let above = |order: &mut DeltaOrder<'_>| order.pass(entry.shared, suffix).is_gt();
            if order.as_mut().is_some_and(above) {
                break;
            }
            self.interval.push((self.replaced.len(), entry));
            if self.interval.len() > 1 {
                self.replaced.extend_from_slice(replaced);
            }
            self.key.truncate(entry.shared);
            self.key.extend_from_slice(suffix);
            self.ordinal = ordinal + 1;
            at = entry.end;
        }
        Ok(())
    }

    /// Goes to the first entry at or behind `key` in its direction, wherever in the block that is.
    /// Returns false if there is none in this block.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<bool, Malformed> {
        match self.direction {
            Direction::Forward => self.seek_at_or_after(key),
            Direction::Reverse => self.seek_at_or_before(key),
        }
    }

    /// Goes to the last entry at or before `key`, or to the first entry if there is none. Returns
    /// false if there is no entry.
    pub(super) fn seek_floor(&mut self, key: &[u8]) -> Result<bool, Malformed> {
        if self.direction == Direction::Reverse {
            if self.seek_at_or_before(key)? {
                return Ok(true);
            }
            let first_key = self.view()?.first_key()?.to_vec();
            return self.seek_at_or_before(&first_key);
        }
        let view = View::of(&self.block.image, self.layout)?;
        let floor = view.floor(key)?.at;
        let restart = match view.restart_at_or_before(key, view.first_key()?)? {
            Place::Before => 0,
            Place::At(restart) => restart,
        };
        self.begin_at(restart)?;
        while self.step_forward()? {
            if self.raw.at == floor {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Forward: goes before the entry of a restart point.
    fn begin_at(&mut self, restart: usize) -> Result<(), Malformed> {
        let view = View::of(&self.block.image, self.layout)?;
        self.next_at = view.restart_offset(restart)?;
        self.ordinal = restart * view.layout.interval;
        self.key.clear();
        self.fresh = true;
        if restart > 0 {
            let first_key = view.first_key()?;
            let entry = view.entry(self.next_at)?;
            self.key
                .extend_from_slice(first_key.get(..entry.shared).ok_or(Malformed)?);
        }
        Ok(())
    }

    fn seek_at_or_after(&mut self, key: &[u8]) -> Result<bool, Malformed> {
        let view = View::of(&self.block.image, self.layout)?;
        let first_key = view.first_key()?;
        let restart = match view.restart_at_or_before(key, first_key)? {
            Place::Before => 0,
            Place::At(restart) => restart,
        };
        let mut order = DeltaOrder::new(key);
        if restart > 0 {
            order.pass(0, first_key);
        }
        self.begin_at(restart)?;
        let next_restart = self.ordinal + self.layout.interval;
        while self.step_forward()? {
            let suffix = self.key.get(self.raw.shared..).ok_or(Malformed)?;
            // The next restart point, which is behind `key`, is no delta against the key before it.
            let reached = match self.ordinal <= next_restart {
                true => order.pass(self.raw.shared, suffix).is_ge(),
                false => self.key.as_slice() >= key,
            };
            if reached {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn seek_at_or_before(&mut self, key: &[u8]) -> Result<bool, Malformed> {
        let view = View::of(&self.block.image, self.layout)?;
        self.on_last = false;
        match view.restart_at_or_before(key, view.first_key()?)? {
            Place::Before => {
                self.interval.clear();
                self.ordinal = 0;
                Ok(false)
            }
            // The restart point's own key is at or before `key`.
            Place::At(restart) => {
                self.decode_interval(restart, Some(key))?;
                self.settle_on_last()
            }
        }
    }

    /// Puts the last key of `block` into `key`.
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
