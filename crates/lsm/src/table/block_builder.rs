//! Builds the image of one key block, entry by entry.
//!
//! Invariant: `used_bytes` is exactly the size the image would have if it were finished now, so that a block can be cut to fill its page.

use super::block::{KIND_INLINE, KIND_POINTER, KIND_TOMBSTONE, Layout, common_prefix, head_of};
use super::format::BLOCK_HEADER_BYTES;
use glintdb_core::codec::put_varint;
use glintdb_core::{EntryRef, SeqNum};

/// A block being built. Reused from block to block, so it allocates nothing once warm.
pub(super) struct BlockBuilder {
    interval: usize,
    /// Header (filled in by `finish`) and entries.
    image: Vec<u8>,
    seqnos: Vec<u64>,
    seqno_min: u64,
    seqno_max: u64,
    /// Offset of each restart point, and how much it shares with the first key.
    restarts: Vec<(u16, usize)>,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
}

fn varint_bytes(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

fn seqno_width(min: u64, max: u64) -> usize {
    (u64::BITS - (max - min).leading_zeros()).div_ceil(8) as usize
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
    pub(super) fn new(interval: usize) -> Self {
        BlockBuilder {
            interval,
            image: vec![0; BLOCK_HEADER_BYTES],
            seqnos: Vec::new(),
            seqno_min: 0,
            seqno_max: 0,
            restarts: Vec::new(),
            first_key: Vec::new(),
            last_key: Vec::new(),
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
            self.image.len() - BLOCK_HEADER_BYTES,
            self.seqnos.len(),
            self.interval,
            seqno_width(self.seqno_min, self.seqno_max),
        )
    }

    /// Adds an entry if the block then still fits `bytes_max`; the first entry fits always. `key` is greater than every key before.
    pub(super) fn try_add(
        &mut self,
        key: &[u8],
        seqno: SeqNum,
        value: EntryRef<'_>,
        bytes_max: usize,
    ) -> bool {
        let ordinal = self.seqnos.len();
        let restart = ordinal.is_multiple_of(self.interval);
        let shared = match (ordinal, restart) {
            (0, _) => 0,
            (_, true) => common_prefix(&self.first_key, key),
            (_, false) => common_prefix(&self.last_key, key),
        };
        let suffix = &key[shared..];
        let value_bytes = value_bytes(&value);
        let (kind, length_bytes) = match value {
            EntryRef::Inline(_) => (KIND_INLINE, varint_bytes(value_bytes)),
            EntryRef::Pointer(_) => (KIND_POINTER, 0),
            EntryRef::Tombstone => (KIND_TOMBSTONE, 0),
        };
        let tag = shared << 2 | usize::from(kind);
        let (min, max) = if ordinal == 0 {
            (seqno.0, seqno.0)
        } else {
            (self.seqno_min.min(seqno.0), self.seqno_max.max(seqno.0))
        };
        if ordinal > 0 {
            let entry_bytes = varint_bytes(tag)
                + varint_bytes(suffix.len())
                + length_bytes
                + suffix.len()
                + value_bytes;
            let used = Layout::used_bytes(
                self.image.len() - BLOCK_HEADER_BYTES + entry_bytes,
                ordinal + 1,
                self.interval,
                seqno_width(min, max),
            );
            if used > bytes_max || ordinal >= usize::from(u16::MAX) {
                return false;
            }
        }
        if ordinal == 0 {
            self.first_key.clear();
            self.first_key.extend_from_slice(key);
        }
        if restart {
            // Blocks of more than one entry are at most 64 KiB, and restart points lie before their arrays.
            let offset = u16::try_from(self.image.len());
            self.restarts
                .push((offset.expect("a block is cut at 64 KiB"), shared));
        }
        (self.seqno_min, self.seqno_max) = (min, max);
        self.seqnos.push(seqno.0);
        put_varint(&mut self.image, tag as u64);
        put_varint(&mut self.image, suffix.len() as u64);
        if let EntryRef::Inline(value) = value {
            put_varint(&mut self.image, value.len() as u64);
        }
        self.image.extend_from_slice(suffix);
        match value {
            EntryRef::Inline(value) => self.image.extend_from_slice(value),
            EntryRef::Pointer(pointer) => self.image.extend_from_slice(&pointer.encode()),
            EntryRef::Tombstone => {}
        }
        self.last_key.truncate(shared.min(self.last_key.len()));
        if restart {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        } else {
            self.last_key.extend_from_slice(suffix);
        }
        true
    }

    /// First key, last key, and the image without padding; its checksum (bytes 0 to 4) and codec (byte 4) are still 0. Empty the builder with [`clear`](Self::clear) afterwards.
    ///
    /// # Panics
    /// Where nothing was added.
    pub(super) fn finish(&mut self) -> (&[u8], &[u8], &mut Vec<u8>) {
        assert!(!self.is_empty(), "a key block holds an entry");
        let width = seqno_width(self.seqno_min, self.seqno_max);
        for seqno in &self.seqnos {
            let delta = (seqno - self.seqno_min).to_le_bytes();
            self.image.extend_from_slice(&delta[..width]);
        }
        let prefix = common_prefix(&self.first_key, &self.last_key).min(usize::from(u16::MAX));
        for &(offset, shared) in &self.restarts {
            let head = self.restart_head(usize::from(offset), shared, prefix);
            self.image.extend_from_slice(&head.to_le_bytes());
        }
        for &(offset, _) in &self.restarts {
            self.image.extend_from_slice(&offset.to_le_bytes());
        }
        let used = u32::try_from(self.image.len()).expect("keys and values are below 2 GiB");
        let entries = u16::try_from(self.seqnos.len()).expect("held by try_add");
        let interval = u8::try_from(self.interval).expect("held by TableConfig::check");
        let prefix = u16::try_from(prefix).expect("capped above");
        self.image[5] = u8::try_from(width).expect("at most 8");
        self.image[6..8].copy_from_slice(&entries.to_le_bytes());
        self.image[8] = interval;
        self.image[10..12].copy_from_slice(&prefix.to_le_bytes());
        self.image[12..16].copy_from_slice(&used.to_le_bytes());
        self.image[16..24].copy_from_slice(&self.seqno_min.to_le_bytes());
        (&self.first_key, &self.last_key, &mut self.image)
    }

    /// Head of a restart point: four bytes of its key behind the block's common prefix, some of which it may share with the first key.
    fn restart_head(&self, offset: usize, shared: usize, prefix: usize) -> u32 {
        let entry = super::block::RawEntry::parse(&self.image, offset).expect("written above");
        let suffix = &self.image[entry.suffix_at..entry.value_at];
        let mut bytes = [0; 4];
        let from_first = self.first_key[prefix..shared.max(prefix)].iter();
        let from_suffix = suffix[prefix.saturating_sub(shared)..].iter();
        let mut length = 0;
        for (to, from) in bytes.iter_mut().zip(from_first.chain(from_suffix)) {
            *to = *from;
            length += 1;
        }
        head_of(&bytes[..length])
    }

    pub(super) fn clear(&mut self) {
        self.image.clear();
        self.image.resize(BLOCK_HEADER_BYTES, 0);
        self.seqnos.clear();
        self.restarts.clear();
    }
}
