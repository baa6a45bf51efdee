//! A key block in memory: an image that is searched where it lies, without being unpacked.
//!
//! Immutable, shared by reference count. Invariants: 1. the checksum of what was read was checked before a [`Block`] was made of it; 2. the arrays lie
//! inside the image ([`Layout::parse`]); everything else in an image may still be hostile, so reading it is checked and gives
//! [`Malformed`], never a panic.
//!
//! Image: header (28 bytes), heads (u32) and offsets (u16) of the restart points, entries. What a search touches first lies together at the front, and a sequence
//! number lies in its entry, because in a cache of many blocks each cache line costs 100 ns or more. See `docs/format/table.md`.

use super::format::{BLOCK_HEADER_BYTES, RESTART_BYTES};
use bytes::Bytes;
use glintdb_core::key::shared_prefix;
use glintdb_core::{EntryRef, EntryValue, Error, FileId, SeqNum, ValuePointer};
use std::cmp::Ordering;

/// Where a key block lies in its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHandle {
    /// Its place among the table's blocks, from 0.
    pub index: u32,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Bytes stored.
    pub length: u32,
}

/// A verified key block in memory, decompressed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Block {
    pub(super) image: Bytes,
    pub(super) handle: BlockHandle,
}

/// A verified key block with the bytes it is stored as, for whole-block moves.
#[derive(Clone, Debug)]
pub(crate) struct StoredBlock {
    pub(super) file: FileId,
    pub(super) stored: Bytes,
    pub(super) block: Block,
}

/// What a walk that enters a block looks at first: header, restart points, and an entry or two.
const BEGINNING_LINES: usize = 3;
const LINE_BYTES: usize = 64;

impl Block {
    /// Has its beginning fetched from memory: each line costs 100 ns or more, and those that come together cost one.
    #[inline]
    pub(super) fn prefetch(&self) {
        for line in 0..BEGINNING_LINES {
            glintdb_cache::prefetch_line(&self.image, line * LINE_BYTES);
        }
    }
}

impl StoredBlock {
    /// Corruption of this block.
    #[cold]
    pub(super) fn corrupt(&self, what: impl Into<String>) -> Error {
        Error::corruption(self.file, self.block.handle.offset, what)
    }

    /// The block.
    #[must_use]
    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    /// The block's first key.
    ///
    /// # Errors
    /// `Corruption` where it does not parse.
    pub(crate) fn first_key(&self) -> Result<&[u8], Error> {
        let first = self.block.view().and_then(|view| view.first_key());
        first.map_err(|Malformed| self.corrupt("a key block to be moved does not parse"))
    }
}

/// A block whose checksum is right but whose contents make no sense: written by a faulty or hostile writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// The fixed part of an image, and where its parts are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layout {
    pub(super) entries: usize,
    pub(super) interval: usize,
    pub(super) restarts: usize,
    pub(super) prefix_bytes: usize,
    pub(super) seqno_base: u64,
    pub(super) seqno_width: usize,
    /// End of the restart points' heads, start of their offsets.
    pub(super) offsets_at: usize,
    /// End of the arrays, start of the entries.
    pub(super) entries_at: usize,
    /// End of the entries.
    pub(super) used: usize,
}

impl Layout {
    #[inline]
    pub(super) fn parse(image: &[u8]) -> Option<Layout> {
        let header: &[u8; BLOCK_HEADER_BYTES] = image.first_chunk()?;
        let u16_at = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let restarts = u16_at(10);
        let used = u32::from_le_bytes([header[16], header[17], header[18], header[19]]) as usize;
        let (_, base) = header.split_last_chunk::<8>()?;
        let offsets_at = BLOCK_HEADER_BYTES + restarts * 4;
        let layout = Layout {
            entries: u16_at(8),
            interval: usize::from(header[6]),
            restarts,
            prefix_bytes: u16_at(12),
            seqno_base: u64::from_le_bytes(*base),
            seqno_width: usize::from(header[5]),
            offsets_at,
            entries_at: offsets_at + restarts * 2,
            used,
        };
        let sound = restarts > 0
            && layout.entries_at < used
            && used <= image.len()
            && layout.seqno_width <= 8;
        sound.then_some(layout)
    }

    /// Whether the counts fit each other; checked once, when a block enters memory.
    fn is_consistent(&self) -> bool {
        self.interval > 0 && self.restarts == self.entries.div_ceil(self.interval)
    }

    /// Bytes of an image of that shape, padding not counted; `entry_bytes` are those of the entries without their sequence numbers.
    #[inline]
    pub(super) fn used_bytes(
        entry_bytes: usize,
        entries: usize,
        interval: usize,
        seqno_width: usize,
    ) -> usize {
        BLOCK_HEADER_BYTES
            + entry_bytes
            + entries * seqno_width
            + entries.div_ceil(interval) * RESTART_BYTES
    }
}

/// One entry as it lies in an image: positions are offsets in the image.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawEntry {
    /// Where it begins: with its sequence number.
    pub(super) at: usize,
    pub(super) kind: usize,
    pub(super) shared: usize,
    pub(super) suffix_at: usize,
    pub(super) value_at: usize,
    pub(super) end: usize,
}

pub(super) const KIND_INLINE: usize = 0;
pub(super) const KIND_POINTER: usize = 1;
pub(super) const KIND_TOMBSTONE: usize = 2;

fn varint32(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value = 0u32;
    for shift in [0, 7, 14, 21, 28] {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let bits = u32::from(byte & 0x7f);
        if shift == 28 && bits > 0xf {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value as usize);
        }
    }
    None
}

/// Tag, length of the key's rest and length of an inline value, each as long as it may be.
#[cold]
fn lengths(entries: &[u8], position: &mut usize) -> Option<(usize, usize, usize)> {
    let tag = varint32(entries, position)?;
    let suffix = varint32(entries, position)?;
    let value = if tag & 3 == KIND_INLINE {
        varint32(entries, position)?
    } else {
        0
    };
    Some((tag, suffix, value))
}

impl RawEntry {
    /// Reads the entry at `at`, which begins with a sequence number of `seqno_width` bytes; `entries` ends where the entries end.
    #[inline(always)]
    pub(super) fn parse(entries: &[u8], at: usize, seqno_width: usize) -> Option<RawEntry> {
        let mut position = at + seqno_width;
        let (tag, suffix, value) = match entries.get(position..position + 3) {
            // Nearly always all three lengths take one byte.
            Some(&[tag, suffix, value]) if (tag | suffix | value) < 0x80 => {
                position += if usize::from(tag & 3) == KIND_INLINE {
                    3
                } else {
                    2
                };
                (usize::from(tag), usize::from(suffix), usize::from(value))
            }
            _ => lengths(entries, &mut position)?,
        };
        let kind = tag & 3;
        let value_bytes = match kind {
            KIND_INLINE => value,
            KIND_POINTER => ValuePointer::ENCODED_BYTES,
            KIND_TOMBSTONE => 0,
            _ => return None,
        };
        let value_at = position + suffix;
        let end = value_at + value_bytes;
        (end <= entries.len()).then_some(RawEntry {
            at,
            kind,
            shared: tag >> 2,
            suffix_at: position,
            value_at,
            end,
        })
    }
}

/// The first four bytes, zeros behind the end, so that unsigned order follows key order.
#[inline]
pub(super) fn head_of(bytes: &[u8]) -> u32 {
    if let Some(head) = bytes.first_chunk::<4>() {
        return u32::from_be_bytes(*head);
    }
    let mut head = [0; 4];
    for (to, from) in head.iter_mut().zip(bytes) {
        *to = *from;
    }
    u32::from_be_bytes(head)
}

/// A key block's image, opened for searching.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) image: &'a [u8],
    pub(super) layout: Layout,
    /// The image up to the end of the entries.
    entries: &'a [u8],
}

/// Where [`View::restart_at_or_before`] found a key.
pub(super) enum Place {
    /// Below the block's first key.
    Before,
    /// At or behind the key of this restart point, below that of the next one.
    At(usize),
}

impl<'a> View<'a> {
    #[inline]
    pub(super) fn new(image: &'a [u8]) -> Result<View<'a>, Malformed> {
        let layout = Layout::parse(image).ok_or(Malformed)?;
        View::of(image, layout)
    }

    /// With the layout parsed before.
    #[inline]
    pub(super) fn of(image: &'a [u8], layout: Layout) -> Result<View<'a>, Malformed> {
        let entries = image.get(..layout.used).ok_or(Malformed)?;
        Ok(View {
            image,
            layout,
            entries,
        })
    }

    #[inline]
    pub(super) fn entry(&self, at: usize) -> Result<RawEntry, Malformed> {
        RawEntry::parse(self.entries, at, self.layout.seqno_width).ok_or(Malformed)
    }

    #[inline]
    pub(super) fn bytes(&self, from: usize, to: usize) -> Result<&'a [u8], Malformed> {
        self.entries.get(from..to).ok_or(Malformed)
    }

    /// The block's first key.
    #[inline]
    pub(super) fn first_key(&self) -> Result<&'a [u8], Malformed> {
        let first = self.entry(self.layout.entries_at)?;
        if first.shared != 0 {
            return Err(Malformed);
        }
        self.bytes(first.suffix_at, first.value_at)
    }

    #[inline]
    pub(super) fn restart_offset(&self, restart: usize) -> Result<usize, Malformed> {
        let at = self.layout.offsets_at + restart * 2;
        match self.image.get(at..at + 2) {
            Some(&[low, high]) => Ok(usize::from(u16::from_le_bytes([low, high]))),
            _ => Err(Malformed),
        }
    }

    /// Sequence number of an entry.
    #[inline]
    pub(super) fn seqno(&self, entry: &RawEntry) -> Result<SeqNum, Malformed> {
        let width = self.layout.seqno_width;
        let delta = match self.image.get(entry.at..) {
            Some(&[a, b, c, d, e, f, g, h, ..]) if width > 0 && width <= 8 => {
                u64::from_le_bytes([a, b, c, d, e, f, g, h]) & u64::MAX >> (64 - 8 * width)
            }
            _ => {
                let bytes = self.bytes(entry.at, entry.at + width)?;
                bytes
                    .iter()
                    .rev()
                    .fold(0, |delta, &byte| delta << 8 | u64::from(byte))
            }
        };
        let seqno = self.layout.seqno_base.wrapping_add(delta);
        (seqno <= SeqNum::MAX.0)
            .then_some(SeqNum(seqno))
            .ok_or(Malformed)
    }

    /// The value of an entry.
    #[inline]
    pub(super) fn value(&self, entry: &RawEntry) -> Result<EntryRef<'a>, Malformed> {
        let bytes = self.bytes(entry.value_at, entry.end)?;
        match entry.kind {
            KIND_INLINE => Ok(EntryRef::Inline(bytes)),
            KIND_POINTER => ValuePointer::decode(bytes)
                .map(EntryRef::Pointer)
                .ok_or(Malformed),
            _ => Ok(EntryRef::Tombstone),
        }
    }

    /// The last restart point whose key is at or before `key`.
    pub(super) fn restart_at_or_before(
        &self,
        key: &[u8],
        first_key: &[u8],
    ) -> Result<Place, Malformed> {
        let Layout {
            prefix_bytes,
            restarts,
            offsets_at,
            ..
        } = self.layout;
        let prefix = first_key.get(..prefix_bytes).ok_or(Malformed)?;
        // Every key of the block begins with `prefix`; so one that does not lies wholly before or behind it.
        let Some((_, rest)) = key
            .split_at_checked(prefix_bytes)
            .filter(|(head, _)| *head == prefix)
        else {
            return Ok(if key < prefix {
                Place::Before
            } else {
                Place::At(restarts - 1)
            });
        };
        let wanted = head_of(rest);
        let heads = self
            .image
            .get(BLOCK_HEADER_BYTES..offsets_at)
            .ok_or(Malformed)?;
        let (mut below, mut up_to) = (0usize, 0usize);
        for head in heads.as_chunks::<4>().0 {
            let head = u32::from_le_bytes(*head);
            below += usize::from(head < wanted);
            up_to += usize::from(head <= wanted);
        }
        // Restart points with the same head must be compared byte by byte; there is rarely one.
        while below < up_to {
            let middle = below + (up_to - below) / 2;
            match self.compare_restart(middle, key, first_key)? {
                Ordering::Greater => up_to = middle,
                Ordering::Less | Ordering::Equal => below = middle + 1,
            }
        }
        Ok(below.checked_sub(1).map_or(Place::Before, Place::At))
    }

    /// How the key of a restart point compares to `key`.
    fn compare_restart(
        &self,
        restart: usize,
        key: &[u8],
        first_key: &[u8],
    ) -> Result<Ordering, Malformed> {
        let entry = self.entry(self.restart_offset(restart)?)?;
        let shared = first_key.get(..entry.shared).ok_or(Malformed)?;
        let suffix = self.bytes(entry.suffix_at, entry.value_at)?;
        let split = entry.shared.min(key.len());
        let (head, rest) = key.split_at(split);
        Ok(shared.cmp(head).then_with(|| suffix.cmp(rest)))
    }

    /// The entry of `key`.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Result<Option<RawEntry>, Malformed> {
        let first_key = self.first_key()?;
        let Place::At(restart) = self.restart_at_or_before(key, first_key)? else {
            return Ok(None);
        };
        // `matched` bytes of `key` equal those of the entry before, which lies before `key`; so an entry that shares more with it lies before `key` as well,
        // and one that shares less lies behind. Only one that shares exactly that much has bytes to compare.
        let mut matched = if restart == 0 {
            0
        } else {
            shared_prefix(key, first_key)
        };
        let mut at = self.restart_offset(restart)?;
        let end = if restart + 1 < self.layout.restarts {
            self.restart_offset(restart + 1)?
        } else {
            self.layout.used
        };
        while at < end {
            let entry = self.entry(at)?;
            at = entry.end;
            match entry.shared.cmp(&matched) {
                Ordering::Greater => continue,
                Ordering::Less => return Ok(None),
                Ordering::Equal => {}
            }
            let suffix = self.bytes(entry.suffix_at, entry.value_at)?;
            let rest = key.get(matched..).ok_or(Malformed)?;
            let common = shared_prefix(suffix, rest);
            match (suffix.get(common), rest.get(common)) {
                (None, None) => return Ok(Some(entry)),
                (Some(_), None) => return Ok(None),
                (Some(found), Some(wanted)) if found > wanted => return Ok(None),
                _ => matched += common,
            }
        }
        Ok(None)
    }
}

impl<'a> View<'a> {
    /// The last entry whose key is at or before `key`; the first entry if there is none.
    pub(super) fn floor(&self, key: &[u8]) -> Result<RawEntry, Malformed> {
        let first_key = self.first_key()?;
        let Place::At(restart) = self.restart_at_or_before(key, first_key)? else {
            return self.entry(self.layout.entries_at);
        };
        // As in `find`.
        let mut matched = if restart == 0 {
            0
        } else {
            shared_prefix(key, first_key)
        };
        let mut at = self.restart_offset(restart)?;
        let end = if restart + 1 < self.layout.restarts {
            self.restart_offset(restart + 1)?
        } else {
            self.layout.used
        };
        let mut floor = self.entry(at)?;
        while at < end {
            let entry = self.entry(at)?;
            at = entry.end;
            match entry.shared.cmp(&matched) {
                Ordering::Greater => {}
                Ordering::Less => return Ok(floor),
                Ordering::Equal => {
                    let suffix = self.bytes(entry.suffix_at, entry.value_at)?;
                    let rest = key.get(matched..).ok_or(Malformed)?;
                    let common = shared_prefix(suffix, rest);
                    match (suffix.get(common), rest.get(common)) {
                        (None, None) => return Ok(entry),
                        (Some(_), None) => return Ok(floor),
                        (Some(found), Some(wanted)) if found > wanted => return Ok(floor),
                        _ => matched += common,
                    }
                }
            }
            floor = entry;
        }
        Ok(floor)
    }
}

impl Block {
    /// Takes an image whose checksum was verified.
    pub(super) fn new(image: Bytes, handle: BlockHandle) -> Result<Block, Malformed> {
        let view = View::new(&image)?;
        if !view.layout.is_consistent() || view.restart_offset(0)? != view.layout.entries_at {
            return Err(Malformed);
        }
        Ok(Block { image, handle })
    }

    /// Where it lies.
    #[must_use]
    pub fn handle(&self) -> BlockHandle {
        self.handle
    }

    /// Bytes in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.image.len()
    }

    /// Bytes of the block that are in use.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.view().map_or(0, |view| view.layout.used)
    }

    #[inline]
    pub(super) fn view(&self) -> Result<View<'_>, Malformed> {
        View::new(&self.image)
    }

    /// The value of an entry of this block; an inline one shares the block's memory.
    #[inline]
    pub(super) fn owned_value(&self, entry: &RawEntry) -> Result<EntryValue, Malformed> {
        match self.view()?.value(entry)? {
            EntryRef::Inline(_) => Ok(EntryValue::Inline(
                self.image.slice(entry.value_at..entry.end),
            )),
            EntryRef::Pointer(pointer) => Ok(EntryValue::Pointer(pointer)),
            EntryRef::Tombstone => Ok(EntryValue::Tombstone),
        }
    }
}
