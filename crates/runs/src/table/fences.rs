//! Fences: for each key block of a table the shortest key that separates it from the block before,
//! with the block's place, all in memory.
//!
//! That is 17 bytes a block for short keys in uncompressed tables: 0.4 % of a 4 KiB block.
//!
//! Section: checksum u32 (of everything behind it), blocks u32, common prefix (varint length,
//! bytes), then for each block: varint bytes shared with the fence before (prefix not counted),
//! varint length and bytes of the rest, varint gap between the block before and this one, varint
//! length of the block. [`FencesBuilder`](super::fences_builder::FencesBuilder) writes it.
//!
//! Thread-safe: immutable.

use super::block::BlockHandle;
use super::format::{EXPANSION_MAX, PAGE_BYTES};
use super::separators::{Separators, SeparatorsBuilder};
use bytes::Bytes;
use glintdb_core::codec::Reader;
use glintdb_core::key::KEY_BYTES_MAX;

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
    keys: Separators,
    places: Places,
}

impl Fences {
    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Bytes in memory, without the common prefix.
    pub(super) fn memory_bytes(&self) -> usize {
        let places = match &self.places {
            Places::Pages(pages) => size_of_val(pages.as_slice()),
            Places::Exact(exact) => size_of_val(exact.as_slice()),
        };
        self.keys.memory_bytes() + places
    }

    /// The block that holds `key` if any does: the last one whose fence is at or below it, or the
    /// first one if there is none such.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        self.keys.find(key)
    }

    /// Whether a fence is at or below `key`.
    pub(super) fn is_at_or_below(&self, index: usize, key: &[u8]) -> bool {
        self.keys.is_at_or_below(index, key)
    }

    /// The fence of a block, whole.
    pub(super) fn key(&self, index: usize) -> Vec<u8> {
        self.keys.key(index)
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
        let mut keys = SeparatorsBuilder::with_capacity(blocks);
        let mut exact = Vec::with_capacity(blocks);
        let mut position = first;
        for _ in 0..blocks {
            let shared = usize::try_from(reader.varint()?).ok()?;
            let suffix = reader.bytes()?;
            if prefix.len() + shared + suffix.len() > KEY_BYTES_MAX {
                return None;
            }
            keys.push(shared, suffix)?;
            let offset = position.checked_add(reader.varint()?)?;
            let length = reader.varint32()?;
            position = offset.checked_add(u64::from(length))?;
            // The block stores its first key whole, and the fence is a part of it: that bounds what
            // is allocated here.
            let key_bytes_max = length as usize * EXPANSION_MAX;
            if position > end || length == 0 || prefix.len() + keys.last.len() > key_bytes_max {
                return None;
            }
            exact.push((offset, length));
        }
        if !reader.is_empty() {
            return None;
        }
        let prefix = match smallest.get(..prefix.len()) == Some(prefix) {
            true => smallest.slice(..prefix.len()),
            false => Bytes::copy_from_slice(prefix),
        };
        Some(Fences {
            keys: keys.finish(prefix)?,
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
