//! Samples of a view: keys spread evenly over its entries, and how many entries are near them. For
//! counting without reading everything.
//!
//! Thread-safe: plain functions over an immutable view. Reads fences, and the blocks that are
//! counted.

use crate::levels::Sorted;
use crate::range::{Bounds, KeyRange, before_end};
use crate::table::{Purpose, TableCursor};
use crate::view::View;
use bytes::Bytes;
use glintdb_core::{Direction, Result};
use std::ops::Bound;
use std::sync::Arc;

/// Implements [`IndexView::sample_keys`](glintdb_core::index::IndexView::sample_keys).
pub(crate) fn sample_keys(view: &View, every: u64) -> Result<Vec<Bytes>> {
    let every = every.max(1);
    let mut keys = Vec::new();
    // Entries from here to the next sample.
    let mut until_next = every / 2;
    for (_, slot) in view.levels.slots() {
        let (entries, blocks) = (slot.meta().entries, slot.meta().blocks);
        while until_next < entries {
            let block = u128::from(until_next) * u128::from(blocks) / u128::from(entries);
            keys.extend(match usize::try_from(block).unwrap_or(usize::MAX) {
                // The first fence can be far below the first key.
                0 => Some(slot.meta().smallest.clone()),
                block => slot.table.fence_key(block)?.map(Bytes::from),
            });
            until_next = until_next.saturating_add(every);
        }
        until_next -= entries;
    }
    Ok(keys)
}

/// Implements [`IndexView::sample_end`](glintdb_core::index::IndexView::sample_end).
pub(crate) fn sample_end(view: &View, start: &[u8]) -> Result<Option<Bytes>> {
    let mut nearest: Option<Bytes> = None;
    for (_, tables) in view.levels.sources() {
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
    for slot in tables.slots.iter().skip(tables.first_behind(start)) {
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

/// Implements [`IndexView::count_entries`](glintdb_core::index::IndexView::count_entries).
pub(crate) fn count_entries(view: &View, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64> {
    let range = KeyRange::from_bounds(lower, upper);
    let bounds = Bounds::new(lower, upper);
    let mut entries = 0;
    for (_, tables) in view.levels.sources() {
        for slot in tables.meeting(&range) {
            let bounds = Arc::clone(&bounds);
            let (table, purpose) = (&slot.table, Purpose::Read);
            let mut cursor = TableCursor::within(table, bounds, Direction::Forward, purpose);
            while cursor.advance()? {
                entries += 1;
            }
        }
    }
    Ok(entries)
}
