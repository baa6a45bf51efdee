//! Fences: for each key block of a table the shortest key that separates it from the block before,
//! all in memory.
//!
//! In memory are the keys' common prefix, once, and for each fence an 8-byte head (the big-endian
//! value of the bytes behind the prefix, zeros behind the end), its length up to 8, and the block's
//! place. That is 17 bytes a block for short keys in uncompressed tables: 0.4 % of a 4 KiB block.
//! What does not fit the head is in one arena: whole for one fence in eight, for the others as a
//! delta against the fence before. So long keys that share most of their bytes take little memory,
//! and a search compares a few of them.
//!
//! Section: checksum u32 (of everything behind it), blocks u32, common prefix (varint length,
//! bytes), then for each block: varint bytes shared with the fence before (prefix not counted),
//! varint length and bytes of the rest, varint gap between the block before and this one, varint
//! length of the block. [`FencesBuilder`](super::fences_builder::FencesBuilder) writes it.
//!
//! Thread-safe: immutable.

use super::block::BlockHandle;
use super::delta_order::DeltaOrder;
use super::format::{EXPANSION_MAX, PAGE_BYTES};
use bytes::Bytes;
use glintdb_core::codec::{Reader, put_varint};
use glintdb_core::key::{KEY_BYTES_MAX, key_head};
use glintdb_core::planted;
use std::cmp::Ordering;

const HEAD_BYTES: usize = 8;
/// Fences from one whose tail is stored whole to the next.
const GROUP: usize = 8;

/// A block's place, and the fence before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    /// Where the block is.
    pub handle: BlockHandle,
    /// No key of this block is below it; every key of the blocks before is.
    pub lower: Vec<u8>,
}

/// Where blocks are, as compact as the table allows.
enum Places {
    /// Every block begins on a page and ends where the next begins: page numbers, one more than
    /// blocks.
    Pages(Vec<u32>),
    /// Offset and length.
    Exact(Vec<(u64, u32)>),
}

/// The fences of a table.
pub(super) struct Fences {
    /// Mostly a part of the table's first key, whose memory it shares.
    prefix: Bytes,
    heads: Box<[u64]>,
    /// Where the tail of each fence begins in the arena; one more than fences.
    starts: Box<[u32]>,
    /// For each fence the number of its bytes in the head, a byte; then, if it has more, the number
    /// of these that it shares with the tail of the fence before (a varint), and the others.
    arena: Box<[u8]>,
    places: Places,
}

/// A fence but for its head.
#[derive(Clone, Copy)]
struct Tail<'a> {
    /// Bytes of the fence that are in its head.
    in_head: usize,
    /// Bytes behind the head that are those of the fence before it.
    shared: usize,
    /// The bytes behind these.
    rest: &'a [u8],
}

/// The bytes behind the head.
fn tail_of(bytes: &[u8]) -> &[u8] {
    bytes.get(HEAD_BYTES..).unwrap_or(&[])
}

impl Fences {
    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// Bytes in memory, without the common prefix.
    pub(super) fn memory_bytes(&self) -> usize {
        let places = match &self.places {
            Places::Pages(pages) => size_of_val(pages.as_slice()),
            Places::Exact(exact) => size_of_val(exact.as_slice()),
        };
        size_of_val(&*self.heads) + size_of_val(&*self.starts) + self.arena.len() + places
    }

    /// The block that holds `key` if any does: the last one whose fence is at or below it, or the
    /// first one if there is none such.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        let Some(rest) = self.behind_prefix(key) else {
            let before = *key < self.prefix[..];
            return if before {
                0
            } else {
                self.len().saturating_sub(1)
            };
        };
        let wanted = key_head(rest, 0);
        planted!(
            "lsm: a key that equals a fence is looked for a block too early",
            self.at_or_below(wanted, rest),
            self.heads.partition_point(|&head| head < wanted)
        )
        .saturating_sub(1)
    }

    /// The bytes of `key` behind the common prefix. `None`: it does not begin with that.
    #[inline]
    fn behind_prefix<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let (head, rest) = key.split_at_checked(self.prefix.len())?;
        (*head == self.prefix[..]).then_some(rest)
    }

    /// The number of fences at or below the key whose head is `wanted`, and that is `rest` behind
    /// the common prefix.
    #[inline]
    fn at_or_below(&self, wanted: u64, rest: &[u8]) -> usize {
        let found = self.heads.partition_point(|&head| head <= wanted);
        if found > 0 && self.heads[found - 1] == wanted {
            let ties = self.heads[..found].partition_point(|&head| head < wanted);
            return self.partition_ties(ties, found, rest);
        }
        found
    }

    /// Whether a fence is at or below `key`.
    pub(super) fn is_at_or_below(&self, index: usize, key: &[u8]) -> bool {
        let Some(rest) = self.behind_prefix(key) else {
            return *key > self.prefix[..];
        };
        let order = self.heads[index].cmp(&key_head(rest, 0));
        order.then_with(|| self.compare_tie(index, rest)) != Ordering::Greater
    }

    /// The number of fences at or below `rest`: all before `from`, none from `to` on, and some of
    /// those in between, which have the head of `rest`.
    fn partition_ties(&self, from: usize, to: usize, rest: &[u8]) -> usize {
        // Among the fences that begin a group, the first one that is greater.
        let (mut low, mut high) = (from.div_ceil(GROUP), to.div_ceil(GROUP));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.compare_tie(middle * GROUP, rest) == Ordering::Greater {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let group = low.saturating_sub(1) * GROUP;
        let mut order = DeltaOrder::new(tail_of(rest));
        for index in group..to.min(group + GROUP) {
            let above = self.pass(index, rest, &mut order) == Ordering::Greater;
            if index >= from && above {
                return index;
            }
        }
        to.min(group + GROUP)
    }

    /// How a fence compares to `rest`, whose head is equal.
    fn compare_tie(&self, index: usize, rest: &[u8]) -> Ordering {
        let mut order = DeltaOrder::new(tail_of(rest));
        let group = index - index % GROUP;
        let compared = (group..=index).map(|index| self.pass(index, rest, &mut order));
        compared.last().unwrap_or(Ordering::Equal)
    }

    /// How a fence compares to `rest`, if their heads are equal: bytes that both have in the head
    /// are equal, and those that one has not are zero. Fences are passed from the first one of a
    /// group on.
    #[inline]
    fn pass(&self, index: usize, rest: &[u8], order: &mut DeltaOrder<'_>) -> Ordering {
        let tail = self.tail(index);
        let tails = order.pass(tail.shared, tail.rest);
        tail.in_head.cmp(&rest.len().min(HEAD_BYTES)).then(tails)
    }

    fn tail(&self, index: usize) -> Tail<'_> {
        let range = self.starts[index] as usize..self.starts[index + 1] as usize;
        let mut reader = Reader::new(&self.arena[range]);
        let in_head = reader.u8().map_or(0, usize::from);
        let shared = reader.varint32().map_or(0, |shared| shared as usize);
        Tail {
            in_head,
            shared,
            rest: reader.rest(),
        }
    }

    /// The fence of a block, whole.
    pub(super) fn key(&self, index: usize) -> Vec<u8> {
        let mut key = self.prefix.to_vec();
        let head = self.heads[index].to_be_bytes();
        key.extend_from_slice(&head[..self.tail(index).in_head]);
        let tail_at = key.len();
        for index in index - index % GROUP..=index {
            let tail = self.tail(index);
            key.truncate(tail_at + tail.shared);
            key.extend_from_slice(tail.rest);
        }
        key
    }

    /// Where a block is.
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

    /// Reads a section whose checksum was verified: `blocks` blocks in `[first, end)` of the file,
    /// in order. `smallest` is the table's first key, if it is known.
    pub(super) fn decode(
        section: &[u8],
        blocks: u32,
        (first, end): (u64, u64),
        smallest: &Bytes,
    ) -> Option<Fences> {
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
            heads.push(key_head(&last, 0));
            arena.push(u8::try_from(last.len().min(HEAD_BYTES)).ok()?);
            put_tail(&mut arena, index, shared, &last);
            let offset = position.checked_add(reader.varint()?)?;
            let length = reader.varint32()?;
            position = offset.checked_add(u64::from(length))?;
            // The block stores its first key whole, and the fence is a part of it: that bounds what
            // is allocated here.
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
            prefix: match smallest.get(..prefix.len()) == Some(prefix) {
                true => smallest.slice(..prefix.len()),
                false => Bytes::copy_from_slice(prefix),
            },
            heads: heads.into(),
            starts: starts.into(),
            arena: arena.into(),
            places: in_pages(&exact, first).map_or(Places::Exact(exact), Places::Pages),
        })
    }
}

/// Appends the tail of a fence, which shares its first `shared` bytes with the fence before it.
fn put_tail(arena: &mut Vec<u8>, index: usize, shared: usize, fence: &[u8]) {
    let tail = tail_of(fence);
    if tail.is_empty() {
        return;
    }
    let shared = match index.is_multiple_of(GROUP) {
        true => 0,
        false => shared.saturating_sub(HEAD_BYTES),
    };
    put_varint(arena, shared as u64);
    arena.extend_from_slice(tail.get(shared..).unwrap_or(&[]));
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
