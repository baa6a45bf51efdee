//! Builds the image of one key block, entry by entry.
//!
//! Not thread-safe: belongs to one writer.
//!
//! Invariant: `used_bytes` is exactly the size that the image would have if it were finished now,
//! so that a block can be cut to fill its page.

use super::block::{KIND_INLINE, KIND_POINTER, KIND_TOMBSTONE, Layout, RawEntry};
use super::block_shape::BlockShape;
use super::copy::{append, append_part};
use super::format::{BLOCK_HEADER_BYTES, RESTART_BYTES};
use glintdb_core::codec::put_varint;
use glintdb_core::key::shared_prefix;
use glintdb_core::{EntryRef, SeqNum};

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Added {
    /// It is in the block.
    Yes,
    /// It would not fit any more.
    Full,
    /// Its key is not greater than the one before.
    OutOfOrder,
}

/// A block being built. Reused from block to block, so it allocates nothing once warm.
pub(super) struct BlockBuilder {
    /// The configured size of blocks, and entries from one restart point to the next.
    block_bytes: usize,
    restart_interval: usize,
    /// Those of this block, which follow from its first key.
    shape: BlockShape,
    /// Entries before the next restart point.
    until_restart: usize,
    /// The entries without their sequence numbers, whose width is known only at the end.
    entries: Vec<u8>,
    /// Each entry's sequence number and end in `entries`.
    seqnos: Vec<(u64, usize)>,
    seqno_min: u64,
    seqno_max: u64,
    /// Offset of each restart point in `entries`, and how much it shares with the first key.
    restarts: Vec<(usize, usize)>,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    /// What `finish` made.
    image: Vec<u8>,
}

fn varint_bytes(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

fn seqno_width(min: u64, max: u64) -> usize {
    (u64::BITS - (max - min).leading_zeros()).div_ceil(8) as usize
}

/// The lengths of an entry, where each takes one byte.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "held to be below 128")]
fn narrow(tag: usize, suffix: usize, value: usize) -> Option<[u8; 3]> {
    (tag | suffix | value < 0x80).then_some([tag as u8, suffix as u8, value as u8])
}

/// Length of a value as it stands in an entry.
fn value_bytes(value: &EntryRef<'_>) -> usize {
    match value {
        EntryRef::Inline(value) => value.len(),
        EntryRef::Pointer(_) => glintdb_core::ValuePointer::ENCODED_BYTES,
        EntryRef::Tombstone => 0,
    }
}

impl BlockBuilder {
    pub(super) fn new(block_bytes: usize, restart_interval: usize) -> Self {
        BlockBuilder {
            block_bytes,
            restart_interval,
            shape: BlockShape::new(0, block_bytes, restart_interval),
            until_restart: 0,
            entries: Vec::new(),
            seqnos: Vec::new(),
            seqno_min: 0,
            seqno_max: 0,
            restarts: Vec::new(),
            first_key: Vec::new(),
            last_key: Vec::new(),
            image: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seqnos.is_empty()
    }

    /// Key added last.
    pub(super) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Size of the image if it were finished now; 0 while there is nothing in it.
    pub(super) fn used_bytes(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        Layout::used_bytes(
            self.entries.len(),
            self.seqnos.len(),
            self.shape.interval,
            seqno_width(self.seqno_min, self.seqno_max),
        )
    }

    /// Whether the block is less than half full, though it has an entry.
    pub(super) fn is_small(&self) -> bool {
        self.shape.is_small(self.used_bytes(), self.seqnos.len())
    }

    /// Adds an entry if there is room for it. The first entry always fits.
    #[inline]
    pub(super) fn try_add(&mut self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) -> Added {
        let ordinal = self.seqnos.len();
        let (mut min, mut max) = (seqno.0, seqno.0);
        let mut shared = 0;
        if ordinal > 0 {
            shared = shared_prefix(&self.last_key, key);
            if key.get(shared) <= self.last_key.get(shared) {
                return Added::OutOfOrder;
            }
            (min, max) = (min.min(self.seqno_min), max.max(self.seqno_max));
        }
        let restart = self.until_restart == 0;
        if restart && ordinal > 0 {
            shared = shared_prefix(&self.first_key, key);
        }
        let suffix = &key[shared..];
        let (kind, inline) = match value {
            EntryRef::Inline(value) => (KIND_INLINE, value),
            EntryRef::Pointer(_) => (KIND_POINTER, [].as_slice()),
            EntryRef::Tombstone => (KIND_TOMBSTONE, [].as_slice()),
        };
        let tag = shared << 2 | kind;
        // Nearly always all three lengths take one byte.
        let short = narrow(tag, suffix.len(), inline.len());
        let lengths = usize::from(kind == KIND_INLINE);
        let head_bytes = match short {
            Some(_) => 2 + lengths,
            None => {
                varint_bytes(tag)
                    + varint_bytes(suffix.len())
                    + lengths * varint_bytes(inline.len())
            }
        };
        if ordinal > 0 {
            let used = BLOCK_HEADER_BYTES
                + self.entries.len()
                + head_bytes
                + suffix.len()
                + value_bytes(&value)
                + (ordinal + 1) * seqno_width(min, max)
                + (self.restarts.len() + usize::from(restart)) * RESTART_BYTES;
            if used > self.shape.bytes_max || ordinal >= self.shape.entries_max {
                return Added::Full;
            }
        } else {
            self.first_key.clear();
            self.first_key.extend_from_slice(key);
            self.shape = BlockShape::new(key.len(), self.block_bytes, self.restart_interval);
        }
        if restart {
            self.restarts.push((self.entries.len(), shared));
            self.until_restart = self.shape.interval;
        }
        self.until_restart -= 1;
        (self.seqno_min, self.seqno_max) = (min, max);
        match short {
            Some(lengths) => {
                let end = self.entries.len() + head_bytes;
                self.entries.extend_from_slice(&lengths);
                self.entries.truncate(end);
            }
            None => {
                put_varint(&mut self.entries, tag as u64);
                put_varint(&mut self.entries, suffix.len() as u64);
                if kind == KIND_INLINE {
                    put_varint(&mut self.entries, inline.len() as u64);
                }
            }
        }
        append(&mut self.entries, suffix);
        match value {
            EntryRef::Inline(value) => append(&mut self.entries, value),
            EntryRef::Pointer(pointer) => self.entries.extend_from_slice(&pointer.encode()),
            EntryRef::Tombstone => {}
        }
        self.seqnos.push((seqno.0, self.entries.len()));
        self.last_key.clear();
        append(&mut self.last_key, key);
        Added::Yes
    }

    /// Returns first key, last key, and the image without padding. Its checksum (bytes 0 to 4) and
    /// codec (byte 4) are still 0. Empty the builder with [`clear`](Self::clear) afterwards.
    ///
    /// # Panics
    /// If nothing was added.
    pub(super) fn finish(&mut self) -> (&[u8], &[u8], &mut Vec<u8>) {
        assert!(!self.is_empty(), "a key block holds an entry");
        let width = seqno_width(self.seqno_min, self.seqno_max);
        let prefix = shared_prefix(&self.first_key, &self.last_key).min(usize::from(u16::MAX));
        let used = u32::try_from(self.used_bytes()).expect("keys and values are below 2 GiB");
        let narrow = |count: usize| u16::try_from(count).expect("a block is cut at 64 KiB");
        let interval = u8::try_from(self.shape.interval).expect("held by TableConfig::check");
        let mut image = std::mem::take(&mut self.image);
        image.clear();
        image.extend_from_slice(&[0; 5]);
        image.push(u8::try_from(width).expect("at most 8"));
        image.extend_from_slice(&[interval, 0]);
        image.extend_from_slice(&narrow(self.seqnos.len()).to_le_bytes());
        image.extend_from_slice(&narrow(self.restarts.len()).to_le_bytes());
        image.extend_from_slice(&narrow(prefix).to_le_bytes());
        image.extend_from_slice(&[0; 2]);
        image.extend_from_slice(&used.to_le_bytes());
        image.extend_from_slice(&self.seqno_min.to_le_bytes());
        for &(offset, shared) in &self.restarts {
            let head = self.restart_head(offset, shared, prefix);
            image.extend_from_slice(&head.to_le_bytes());
        }
        let entries_at = BLOCK_HEADER_BYTES + self.restarts.len() * RESTART_BYTES;
        for (restart, &(offset, _)) in self.restarts.iter().enumerate() {
            let offset = entries_at + offset + restart * self.shape.interval * width;
            image.extend_from_slice(&narrow(offset).to_le_bytes());
        }
        let mut start = 0;
        for &(seqno, end) in &self.seqnos {
            let length = image.len() + width;
            image.extend_from_slice(&(seqno - self.seqno_min).to_le_bytes());
            image.truncate(length);
            append_part::<64>(&mut image, &self.entries, start, end).expect("written above");
            start = end;
        }
        self.image = image;
        (&self.first_key, &self.last_key, &mut self.image)
    }

    /// Returns the head of a restart point: four bytes of its key behind the block's common prefix,
    /// some of which it may share with the first key.
    fn restart_head(&self, offset: usize, shared: usize, prefix: usize) -> u32 {
        let entry = RawEntry::parse(&self.entries, offset, 0).expect("written above");
        let suffix = &self.entries[entry.suffix_at..entry.value_at];
        let mut bytes = [0; 4];
        let from_first = self.first_key[prefix..shared.max(prefix)].iter();
        let from_suffix = suffix[prefix.saturating_sub(shared)..].iter();
        for (to, from) in bytes.iter_mut().zip(from_first.chain(from_suffix)) {
            *to = *from;
        }
        u32::from_be_bytes(bytes)
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.seqnos.clear();
        self.restarts.clear();
        self.until_restart = 0;
    }
}
