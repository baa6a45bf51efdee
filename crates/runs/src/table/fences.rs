//! Fences: for each key block the shortest key that separates it from the block before, all in memory.
//!
//! In memory: the keys' common prefix once, then for each fence an 8-byte head (big-endian value of the bytes behind the prefix, zeros behind the end), its length up to
//! 8 and what does not fit the head in one arena, and the block's place. 17 bytes a block for short keys in uncompressed tables: 0.4 % of a 4 KiB block.
//!
//! Section: checksum u32 (of everything behind it), blocks u32, common prefix (varint length, bytes), then for each block: varint bytes shared with the fence before
//! (prefix not counted), varint length and bytes of the rest, varint gap between the block before and this one, varint length of the block.

use super::block::{BlockHandle, common_prefix};
use super::format::{EXPANSION_MAX, PAGE_BYTES};
use glintdb_core::checksum::FileSeed;
use glintdb_core::codec::{Reader, put_bytes, put_varint};
use glintdb_core::key::KEY_BYTES_MAX;
use glintdb_core::planted;
use std::cmp::Ordering;

const HEAD_BYTES: usize = 8;

/// A block's place, and the fence before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    /// Where the block lies.
    pub handle: BlockHandle,
    /// No key of this block is below it; every key of the blocks before is.
    pub lower: Vec<u8>,
}

/// Where blocks lie, as compact as the table allows.
enum Places {
    /// Every block begins on a page and ends where the next begins: page numbers, one more than blocks.
    Pages(Vec<u32>),
    /// Offset and length.
    Exact(Vec<(u64, u32)>),
}

/// The fences of a table.
pub(super) struct Fences {
    prefix: Box<[u8]>,
    heads: Box<[u64]>,
    /// Where each fence begins in the arena; one more than fences.
    starts: Box<[u32]>,
    /// Each fence: one byte, its length behind the prefix up to 8; then what of it does not fit its head.
    arena: Box<[u8]>,
    places: Places,
}

/// The first eight bytes, zeros behind the end.
fn head_of(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk::<HEAD_BYTES>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; HEAD_BYTES];
    for (to, from) in head.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_be_bytes(head)
}

impl Fences {
    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let places = match &self.places {
            Places::Pages(pages) => size_of_val(pages.as_slice()),
            Places::Exact(exact) => size_of_val(exact.as_slice()),
        };
        self.prefix.len()
            + size_of_val(&*self.heads)
            + size_of_val(&*self.starts)
            + self.arena.len()
            + places
    }

    /// The block that holds `key` if any does: the last one whose fence is at or below it; the first one where there is none such.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        let Some((_, rest)) = key
            .split_at_checked(self.prefix.len())
            .filter(|(head, _)| *head == &*self.prefix)
        else {
            let before = key < &*self.prefix;
            return if before {
                0
            } else {
                self.len().saturating_sub(1)
            };
        };
        let wanted = head_of(rest);
        planted!(
            "lsm: a key that equals a fence is looked for a block too early",
            self.at_or_below(wanted, rest),
            self.heads.partition_point(|&head| head < wanted)
        )
        .saturating_sub(1)
    }

    /// The number of fences at or below the key whose head is `wanted`, and that is `rest` behind
    /// the common prefix.
    #[inline]
    fn at_or_below(&self, wanted: u64, rest: &[u8]) -> usize {
        let found = self.heads.partition_point(|&head| head <= wanted);
        if found > 0 && self.heads[found - 1] == wanted {
            let ties = self.heads[..found].partition_point(|&head| head < wanted);
            return ties + self.partition_ties(ties, found, rest);
        }
        found
    }

    /// Whether a fence is at or below `key`.
    pub(super) fn is_at_or_below(&self, index: usize, key: &[u8]) -> bool {
        let Some((_, rest)) = key
            .split_at_checked(self.prefix.len())
            .filter(|(head, _)| *head == &*self.prefix)
        else {
            return key > &*self.prefix;
        };
        let order = self.heads[index].cmp(&head_of(rest));
        order.then_with(|| self.compare_tie(index, rest)) != Ordering::Greater
    }

    /// Number of fences in `from..to` (all with the head of `rest`) at or below `rest`.
    fn partition_ties(&self, from: usize, to: usize, rest: &[u8]) -> usize {
        let (mut low, mut high) = (from, to);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.compare_tie(middle, rest) == Ordering::Greater {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low - from
    }

    /// How a fence compares to `rest` where their heads are equal: bytes both have in the head are equal, those that one has not are zero.
    fn compare_tie(&self, index: usize, rest: &[u8]) -> Ordering {
        let (length, tail) = self.tail(index);
        length
            .cmp(&rest.len().min(HEAD_BYTES))
            .then_with(|| tail.cmp(rest.get(HEAD_BYTES..).unwrap_or(&[])))
    }

    /// Length of a fence's part in its head, and the part behind it.
    fn tail(&self, index: usize) -> (usize, &[u8]) {
        let range = self.starts[index] as usize..self.starts[index + 1] as usize;
        match self.arena[range].split_first() {
            Some((length, tail)) => (usize::from(*length), tail),
            None => (0, &[]),
        }
    }

    /// The fence of a block, whole.
    pub(super) fn key(&self, index: usize) -> Vec<u8> {
        let (length, tail) = self.tail(index);
        let head = self.heads[index].to_be_bytes();
        let mut key = Vec::with_capacity(self.prefix.len() + length + tail.len());
        key.extend_from_slice(&self.prefix);
        key.extend_from_slice(&head[..length]);
        key.extend_from_slice(tail);
        key
    }

    /// Where a block lies.
    pub(super) fn handle(&self, index: usize) -> BlockHandle {
        let (offset, length) = match &self.places {
            Places::Pages(pages) => {
                let (start, end) = (u64::from(pages[index]), u64::from(pages[index + 1]));
                let bytes = (end - start) * PAGE_BYTES as u64;
                (
                    start * PAGE_BYTES as u64,
                    u32::try_from(bytes).unwrap_or(u32::MAX),
                )
            }
            Places::Exact(exact) => exact[index],
        };
        BlockHandle {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            offset,
            length,
        }
    }

    /// Reads a section whose checksum was verified: `blocks` blocks that lie in `[first, end)` of the file, one behind the other.
    pub(super) fn decode(section: &[u8], blocks: u32, first: u64, end: u64) -> Option<Fences> {
        let mut reader = Reader::new(section);
        reader.u32()?;
        // A fence takes four bytes at least, so `blocks` bounds what is allocated.
        if reader.u32()? != blocks || u64::from(blocks) * 4 > reader.rest().len() as u64 {
            return None;
        }
        let blocks = blocks as usize;
        let prefix = reader.bytes()?;
        let mut heads = Vec::with_capacity(blocks);
        let mut starts = Vec::with_capacity(blocks + 1);
        let mut arena = Vec::new();
        let mut exact = Vec::with_capacity(blocks);
        let mut position = first;
        let mut last = Vec::new();
        for index in 0..blocks {
            let shared = usize::try_from(reader.varint()?).ok()?;
            let suffix = reader.bytes()?;
            let ascending = index == 0 || suffix > last.get(shared..)?;
            if shared > last.len()
                || !ascending
                || prefix.len() + shared + suffix.len() > KEY_BYTES_MAX
            {
                return None;
            }
            last.truncate(shared);
            last.extend_from_slice(suffix);
            starts.push(u32::try_from(arena.len()).ok()?);
            heads.push(head_of(&last));
            arena.push(u8::try_from(last.len().min(HEAD_BYTES)).ok()?);
            arena.extend_from_slice(last.get(HEAD_BYTES..).unwrap_or(&[]));
            let offset = position.checked_add(reader.varint()?)?;
            let length = reader.varint32()?;
            position = offset.checked_add(u64::from(length))?;
            // The block stores its first key whole, and the fence is a part of it: that bounds what is allocated here.
            let key_bytes_max = length as usize * EXPANSION_MAX;
            if position > end || length == 0 || prefix.len() + last.len() > key_bytes_max {
                return None;
            }
            exact.push((offset, length));
        }
        starts.push(u32::try_from(arena.len()).ok()?);
        if !reader.is_empty() {
            return None;
        }
        Some(Fences {
            prefix: prefix.into(),
            heads: heads.into(),
            starts: starts.into(),
            arena: arena.into(),
            places: in_pages(&exact, first).map_or(Places::Exact(exact), Places::Pages),
        })
    }
}

/// Page numbers of blocks that are whole pages without gaps.
fn in_pages(exact: &[(u64, u32)], first: u64) -> Option<Vec<u32>> {
    let page = PAGE_BYTES as u64;
    let mut position = first;
    let mut pages = Vec::with_capacity(exact.len() + 1);
    for &(offset, length) in exact {
        if offset != position || !offset.is_multiple_of(page) {
            return None;
        }
        pages.push(u32::try_from(offset / page).ok()?);
        position = offset + u64::from(length);
    }
    position.is_multiple_of(page).then_some(())?;
    pages.push(u32::try_from(position / page).ok()?);
    Some(pages)
}

/// Collects the fences of a table being written.
#[derive(Default)]
pub(super) struct FencesBuilder {
    /// Fences, one behind the other.
    keys: Vec<u8>,
    ends: Vec<usize>,
    places: Vec<(u64, u32)>,
}

impl FencesBuilder {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Takes note of a block: `last_before` is the last key of the block before (`None` for the first block).
    pub(super) fn add(
        &mut self,
        last_before: Option<&[u8]>,
        first_key: &[u8],
        offset: u64,
        length: u32,
    ) {
        let fence = match last_before {
            // Of all keys above `last_before` and not above `first_key`, the shortest one.
            Some(last) => &first_key[..common_prefix(last, first_key) + 1],
            None => first_key,
        };
        self.keys.extend_from_slice(fence);
        self.ends.push(self.keys.len());
        self.places.push((offset, length));
    }

    /// About the length of the section.
    pub(super) fn estimated_bytes(&self) -> usize {
        16 + self.keys.len() + self.places.len() * 5
    }

    fn fences(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, &end)| &self.keys[start..end])
    }

    /// The section as it stands at `offset` of the file; blocks begin at `first`, `largest` is the table's last key.
    pub(super) fn encode(
        &self,
        seed: FileSeed,
        offset: u64,
        first: u64,
        largest: &[u8],
    ) -> Vec<u8> {
        let mut out = vec![0; 4];
        let blocks = u32::try_from(self.len()).expect("a block takes at least a few bytes");
        out.extend_from_slice(&blocks.to_le_bytes());
        // Every fence lies between the first key and the last, and so begins with what they have in common; the first fence is cut down to that.
        let smallest = self.fences().next().unwrap_or(&[]);
        let prefix = &smallest[..common_prefix(smallest, largest)];
        put_bytes(&mut out, prefix);
        let mut last: &[u8] = &[];
        let mut position = first;
        for (index, (fence, &(offset, length))) in self.fences().zip(&self.places).enumerate() {
            let fence = if index == 0 {
                &[][..]
            } else {
                &fence[prefix.len()..]
            };
            let shared = common_prefix(last, fence);
            put_varint(&mut out, shared as u64);
            put_bytes(&mut out, &fence[shared..]);
            put_varint(&mut out, offset - position);
            put_varint(&mut out, u64::from(length));
            position = offset + u64::from(length);
            last = fence;
        }
        let checksum = seed.checksum(offset, &out[4..]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        out
    }
}
