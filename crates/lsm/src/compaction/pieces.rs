//! Divides a plan into tables that are removed unread, tables that are moved as they are, and
//! *pieces*: key ranges that are merged, each by a job of its own.
//!
//! A table that range tombstones hide wholly is removed unread, unless it points to values in the
//! log, which must be counted as dead.
//!
//! Tables of a plan whose ranges overlap, directly or through others, form a group. A group of one
//! table is moved whole, unless it is small or has entries that can be dropped. Neighbouring groups
//! with no moved table between them are merged together, which joins small tables. Large pieces are
//! split at fences, so that several threads can share one compaction.

use crate::compaction::deletions::removable_unread;
use crate::compaction::picker::Plan;
use crate::edit::Place;
use crate::levels::Levels;
use bytes::Bytes;
use glintdb_core::SeqNum;
use glintdb_runs::Slot;
use glintdb_runs::keys::{KeyRange, compare_ends};
use std::sync::Arc;

/// Most pieces one group of tables is split into.
const SPLITS_MAX: u64 = 4;

/// A divided plan.
#[derive(Default)]
pub(crate) struct Pieces {
    /// Tables that are removed without being read.
    pub(crate) removed: Vec<(Place, Arc<Slot>)>,
    /// Tables that only change their place.
    pub(crate) moved: Vec<(Place, Arc<Slot>)>,
    /// Tables that are merged.
    pub(crate) merged: Vec<(Place, Arc<Slot>)>,
    /// Key ranges to be merged, ascending and disjoint. Together they contain all of `merged`.
    pub(crate) ranges: Vec<KeyRange>,
}

/// Tables that overlap, and the range they cover.
struct Group {
    range: KeyRange,
    slots: Vec<(Place, Arc<Slot>)>,
    barrier: bool,
}

/// Divides `plan`. Tables of `movable_bytes` or more may be moved from level 0. Pieces of at least
/// twice `split_bytes` are split.
pub(crate) fn cut(
    plan: &Plan,
    levels: &Levels,
    floor: SeqNum,
    movable_bytes: u64,
    split_bytes: u64,
) -> Pieces {
    let mut pieces = Pieces::default();
    let tables = (plan.inputs.iter()).flat_map(|input| {
        input
            .slots
            .iter()
            .map(|slot| (input.place, Arc::clone(slot)))
    });
    // Without the range tombstones, which the merge reads again, no table is known to be hidden.
    let tombstones = levels.tombstones().ok();
    let (removed, kept) = tables.partition(|(_, slot)| {
        tombstones.is_some_and(|tombstones| removable_unread(tombstones, slot))
    });
    pieces.removed = removed;
    // The groups that are being joined.
    let mut open: Option<Group> = None;
    for group in groups(kept, &plan.barriers) {
        let alone = match group.slots.as_slice() {
            [] => group.barrier,
            [(place, slot)] => stays_whole(plan, levels, floor, movable_bytes, *place, slot),
            _ => false,
        };
        if alone {
            pieces.close(open.take(), split_bytes);
            let elsewhere = |place: &Place| place.level != plan.output;
            pieces.moved.extend(
                group
                    .slots
                    .into_iter()
                    .filter(|(place, _)| elsewhere(place)),
            );
        } else if let Some(open) = &mut open {
            open.range = open.range.hull(&group.range);
            open.slots.extend(group.slots);
        } else {
            open = Some(group);
        }
    }
    pieces.close(open, split_bytes);
    pieces
}

/// Whether a table that meets no other input can be left unwritten.
fn stays_whole(
    plan: &Plan,
    levels: &Levels,
    floor: SeqNum,
    movable_bytes: u64,
    place: Place,
    slot: &Slot,
) -> bool {
    let meta = slot.meta();
    let only_input = plan
        .inputs
        .iter()
        .map(|input| input.slots.len())
        .sum::<usize>()
        == 1;
    if meta.bytes < movable_bytes && !only_input {
        return false;
    }
    if plan.rewrite && place.level == plan.output {
        return false;
    }
    // A rewrite of the table drops the tombstones that nothing beneath needs.
    let droppable = meta.tombstones + meta.range_tombstones > 0
        && meta.seqno_min < floor
        && (place.level != plan.output || plan.rewrite)
        && !anything_beneath(levels, plan.output, &slot.range);
    let hidden = plan.rewrite
        && levels.tombstones().is_ok_and(|set| {
            set.newest_meeting(&slot.range)
                .is_some_and(|newest| newest > meta.seqno_min)
        });
    !droppable && !hidden
}

/// Whether a level below `level` holds a table that meets `range`.
fn anything_beneath(levels: &Levels, level: u8, range: &KeyRange) -> bool {
    levels
        .beneath(level)
        .any(|tables| !tables.meeting(range).is_empty())
}

/// The groups of overlapping tables and the barriers, ascending.
fn groups(tables: Vec<(Place, Arc<Slot>)>, barriers: &[KeyRange]) -> Vec<Group> {
    let mut all: Vec<Group> = tables
        .into_iter()
        .map(|(place, slot)| Group {
            range: slot.range.clone(),
            slots: vec![(place, slot)],
            barrier: false,
        })
        .collect();
    all.extend(barriers.iter().map(|range| Group {
        range: range.clone(),
        slots: Vec::new(),
        barrier: true,
    }));
    all.sort_by(|a, b| {
        let order = a.range.start.cmp(&b.range.start);
        order.then_with(|| compare_ends(&a.range.end, &b.range.end))
    });
    let mut groups: Vec<Group> = Vec::new();
    for next in all {
        match groups.last_mut() {
            Some(last) if last.range.overlaps(&next.range) => {
                last.range = last.range.hull(&next.range);
                last.slots.extend(next.slots);
            }
            _ => groups.push(next),
        }
    }
    groups
}

impl Pieces {
    fn close(&mut self, group: Option<Group>, split_bytes: u64) {
        let Some(group) = group else { return };
        self.ranges.extend(split(&group, split_bytes));
        self.merged.extend(group.slots);
    }
}

/// Splits the range of a group into parts of about equal size.
fn split(group: &Group, split_bytes: u64) -> Vec<KeyRange> {
    let bytes: u64 = group.slots.iter().map(|(_, slot)| slot.meta().bytes).sum();
    let parts = (bytes / split_bytes.max(1)).min(SPLITS_MAX);
    if parts < 2 {
        return vec![group.range.clone()];
    }
    let mut ranges = Vec::new();
    let mut start = group.range.start.clone();
    for cut in cuts(group, parts) {
        ranges.push(KeyRange {
            start: std::mem::replace(&mut start, cut.clone()),
            end: Some(cut),
        });
    }
    ranges.push(KeyRange {
        start,
        end: group.range.end.clone(),
    });
    ranges
}

/// Keys that divide the bytes of a group evenly into `parts`: first keys of its tables if there are
/// many, else fences of the largest table.
fn cuts(group: &Group, parts: u64) -> Vec<Bytes> {
    let mut starts: Vec<&Bytes> = group
        .slots
        .iter()
        .map(|(_, slot)| &slot.range.start)
        .collect();
    if starts.len() as u64 >= 8 * SPLITS_MAX {
        starts.retain(|start| group.range.contains(start) && **start > group.range.start);
        starts.sort();
        starts.dedup();
        let mut cuts: Vec<Bytes> = (1..parts)
            .filter_map(|part| {
                let at = starts.len() as u64 * part / parts;
                starts.get(usize::try_from(at).ok()?).copied().cloned()
            })
            .collect();
        cuts.dedup();
        return cuts;
    }
    let largest = group.slots.iter().max_by_key(|(_, slot)| slot.meta().bytes);
    // Ignore an error: the merge reads the fences again and reports it.
    largest
        .and_then(|(_, slot)| slot.table.fences_dividing(&group.range, parts).ok())
        .unwrap_or_default()
}
