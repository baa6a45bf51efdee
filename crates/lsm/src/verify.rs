//! Checks a whole view: each table by itself, then the order of the tables, then the pointers of
//! live entries.

use crate::table::Purpose;
use crate::view::View;
use crate::walk::cursor::MergeCursor;
use glintdb_core::{Direction, EntryRef, Error, Result, ValuePointer};
use std::ops::Bound;

/// Implements [`IndexView::verify`](glintdb_core::index::IndexView::verify).
pub(crate) fn verify(
    view: &View,
    report: &mut dyn FnMut(Error),
    held: &mut dyn FnMut(ValuePointer),
    live: &mut dyn FnMut(&[u8], ValuePointer),
    checked: &mut dyn FnMut(u64),
) {
    let mut sound = true;
    for (place, tables) in view.levels.sources() {
        for slot in tables.slots.iter() {
            slot.table.verify(
                &mut |error| {
                    sound = false;
                    report(error);
                },
                &mut |_, pointer| held(pointer),
            );
            checked(slot.meta().bytes);
        }
        for pair in tables.slots.windows(2) {
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
    }
    if let Err(error) = live_pointers(view, live) {
        // What is wrong with a table was said above, once.
        if sound {
            report(error);
        }
    }
}

fn live_pointers(view: &View, pointer: &mut dyn FnMut(&[u8], ValuePointer)) -> Result<()> {
    let mut cursor = MergeCursor::new(
        &view.levels,
        Bound::Unbounded,
        Bound::Unbounded,
        Direction::Forward,
        Purpose::Compaction,
    )?
    .boxed();
    while cursor.advance()? {
        if let EntryRef::Pointer(found) = cursor.value() {
            pointer(cursor.key(), found);
        }
    }
    Ok(())
}
