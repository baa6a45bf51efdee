//! Samples of tables: keys spread evenly over their entries, and the number of entries near them.
//! For counting without reading everything.
//!
//! Thread-safe: plain functions over immutable tables. They read fences, and the blocks whose
//! entries are counted.

use crate::keys::range::{Bounds, KeyRange, before_end};
use crate::sorted::Sorted;
use crate::table::{Purpose, Table, TableCursor, key_hash};
use bytes::Bytes;
use glintdb_core::{Direction, EntryRef, Result, proportion};
use std::ops::Bound;
use std::sync::Arc;

/// Number of blocks from which [`deleting_part`] takes tombstones.
const DELETING_BLOCKS: u64 = 8;
/// Most entries of a block that it looks at.
const DELETING_ENTRIES: u32 = 32;
/// With fewer tombstones it gives no estimate.
const DELETING_TOMBSTONES_MIN: u32 = 16;

/// Keys spread evenly over the entries of the sources, one for about `every` entries, in no
/// particular order. Each is the first key of a table, or separates two blocks.
///
/// # Errors
/// I/O errors, `Corruption`.
pub fn sample_keys<'a>(
    sources: impl Iterator<Item = &'a Sorted>,
    every: u64,
) -> Result<Vec<Bytes>> {
    let every = every.max(1);
    let mut keys = Vec::new();
    // Entries from here to the next sample.
    let mut until_next = every / 2;
    for slot in sources.flat_map(Sorted::slots) {
        let (entries, blocks) = (slot.meta().entries, slot.meta().blocks);
        while until_next < entries {
            let block = proportion(until_next, blocks.into(), entries);
            keys.extend(match usize::try_from(block).unwrap_or(usize::MAX) {
                // The first fence may be far below the first key.
                0 => Some(slot.meta().smallest.clone()),
                block => slot.table.fence_key(block)?.map(Bytes::from),
            });
            until_next = until_next.saturating_add(every);
        }
        until_next -= entries;
    }
    Ok(keys)
}

/// A key behind `start`, so near that no source has more than two blocks from `start` up to it.
/// `None`: no source has more than two blocks from `start` on.
///
/// # Errors
/// I/O errors, `Corruption`.
pub fn sample_end<'a>(
    sources: impl Iterator<Item = &'a Sorted>,
    start: &[u8],
) -> Result<Option<Bytes>> {
    let mut nearest: Option<Bytes> = None;
    for tables in sources {
        if let Some(end) = end_in(tables, start)?
            && before_end(&end, &nearest)
        {
            nearest = Some(end);
        }
    }
    Ok(nearest)
}

/// The second fence behind `start` in sorted tables. The first key of a table is a fence too.
fn end_in(tables: &Sorted, start: &[u8]) -> Result<Option<Bytes>> {
    let mut skip = 1;
    for slot in tables.slots().iter().skip(tables.first_behind(start)) {
        if slot.meta().entries == 0 {
            continue;
        }
        if slot.meta().smallest > start {
            if skip == 0 {
                return Ok(Some(slot.meta().smallest.clone()));
            }
            skip -= 1;
        }
        let mut block = slot.table.first_fence_behind(start)?.max(1);
        while let Some(key) = slot.table.fence_key(block)? {
            if skip == 0 {
                return Ok(Some(key.into()));
            }
            (skip, block) = (skip - 1, block + 1);
        }
    }
    Ok(None)
}

/// The part of a table's tombstones whose keys the tables `beneath` hold, by their filters: 0 to 1.
/// Looks at some entries of a few blocks that are spread evenly over the table. If they have hardly
/// any tombstones, all of them are taken to delete something.
///
/// # Errors
/// I/O errors, `Corruption`.
pub(crate) fn deleting_part(table: &Arc<Table>, beneath: &[&Sorted]) -> Result<f64> {
    let (blocks, in_table) = (u64::from(table.meta().blocks), table.meta().tombstones);
    let parts = blocks.min(DELETING_BLOCKS);
    let (mut tombstones, mut deleting) = (0u32, 0u32);
    for part in 0..parts {
        let block = usize::try_from((2 * part + 1) * blocks / (2 * parts)).unwrap_or(usize::MAX);
        let Some(first) = table.fence_key(block)? else {
            continue;
        };
        let bounds = Bounds::new(Bound::Included(&first), Bound::Unbounded);
        let mut cursor = TableCursor::within(table, bounds, Direction::Forward, Purpose::Read);
        for _ in 0..DELETING_ENTRIES {
            if !cursor.advance()? {
                break;
            }
            if cursor.value() == EntryRef::Tombstone {
                tombstones += 1;
                deleting += u32::from(may_hold(beneath, cursor.key())?);
            }
        }
    }
    if tombstones < DELETING_TOMBSTONES_MIN.min(u32::try_from(in_table).unwrap_or(u32::MAX)) {
        return Ok(1.0);
    }
    Ok(f64::from(deleting) / f64::from(tombstones.max(1)))
}

/// Whether a filter of the tables says that they may hold `key`.
fn may_hold(sources: &[&Sorted], key: &[u8]) -> Result<bool> {
    let hash = key_hash(key);
    for tables in sources {
        if let Some(slot) = tables.candidate(key)
            && slot.range.contains(key)
            && slot.table.locate(key, hash)?.is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Counts the entries of the sources within the bounds, also tombstones and hidden entries. Reads
/// all of their blocks.
///
/// # Errors
/// I/O errors, `Corruption`.
pub fn count_entries<'a>(
    sources: impl Iterator<Item = &'a Sorted>,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> Result<u64> {
    let range = KeyRange::from_bounds(lower, upper);
    let bounds = Bounds::new(lower, upper);
    let mut entries = 0;
    for tables in sources {
        for slot in tables.meeting(&range) {
            let bounds = slot.bounds(&bounds);
            let (table, purpose) = (&slot.table, Purpose::Read);
            let mut cursor = TableCursor::within(table, bounds, Direction::Forward, purpose);
            while cursor.advance()? {
                entries += 1;
            }
        }
    }
    Ok(entries)
}
