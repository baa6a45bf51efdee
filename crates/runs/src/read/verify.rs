//! Checks tables byte by byte, their order, and finds the pointers of live entries.
//!
//! Thread-safe: plain functions over immutable tables.

use crate::keys::tombstones::TombstoneSet;
use crate::read::cursor::MergeCursor;
use crate::sorted::Sorted;
use crate::table::Purpose;
use glintdb_core::{Direction, EntryRef, Error, Result, ValuePointer};
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;

/// Checks the tables at one place of an index: each by itself, then their order. `report` gets each
/// error, `held` every pointer in the tables, `checked` the length of each file. Returns whether
/// there was no error.
pub fn verify_tables(
    place: impl Debug,
    tables: &Sorted,
    report: &mut dyn FnMut(Error),
    held: &mut dyn FnMut(ValuePointer),
    checked: &mut dyn FnMut(u64),
) -> bool {
    let mut sound = true;
    for slot in tables.slots() {
        slot.table.verify(
            &mut |error| {
                sound = false;
                report(error);
            },
            &mut |key, pointer| {
                if !slot.is_clipped_off(key) {
                    held(pointer);
                }
            },
        );
        checked(slot.meta().bytes);
    }
    for pair in tables.slots().windows(2) {
        if let [a, b] = pair
            && a.range.overlaps(&b.range)
        {
            sound = false;
            report(Error::corruption(
                b.meta().id,
                0,
                format!("overlaps {} at {place:?}", a.meta().id),
            ));
        }
    }
    sound
}

/// Gives the pointers of live entries to `live`, with their keys. `tombstones` has the range
/// tombstones of all sources.
///
/// # Errors
/// I/O errors, `Corruption`.
pub fn live_pointers<'a>(
    sources: impl Iterator<Item = &'a Sorted>,
    tombstones: &Arc<TombstoneSet>,
    live: &mut dyn FnMut(&[u8], ValuePointer),
) -> Result<()> {
    let bounds = (Bound::Unbounded, Bound::Unbounded);
    let (direction, purpose) = (Direction::Forward, Purpose::Compaction);
    let mut cursor = MergeCursor::new(sources, tombstones, bounds, direction, purpose).boxed();
    while cursor.advance()? {
        if let EntryRef::Pointer(found) = cursor.value() {
            live(cursor.key(), found);
        }
    }
    Ok(())
}
