//! Relocations: entries get other pointers and nothing else. No key comes back, no newer value is lost, whatever is written and compacted while one is pending.

use super::harness::{Harness, Random, VecRun, small_options};
use bytes::Bytes;
use glintdb_core::index::{Index, IndexChange};
use glintdb_core::{EntryRef, EntryValue, RangeTombstone, SegmentId, SeqNum, ValuePointer};
use glintdb_indextest::Relocating;
use std::ops::Bound;

/// An index with pointers under 40 keys at the bottom, and nothing else.
fn filled() -> Harness {
    let mut harness = Harness::new(small_options());
    let mut run = VecRun::default();
    for n in 1..=40 {
        harness.seqno += 1;
        let (key, seqno) = (harness.key(n), SeqNum(harness.seqno));
        let value = EntryValue::Pointer(ValuePointer {
            segment: SegmentId(1),
            offset: n as u32,
            length: 100,
            checksum: 0,
        });
        harness.model.put(key.clone(), seqno, value.clone());
        run.entries.push((key, seqno, value));
    }
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    assert_eq!(harness.index.debt().runs, 0);
    harness
}

/// Flushes one operation on one key.
fn flush_one(harness: &mut Harness, n: u64, value: EntryValue) {
    harness.seqno += 1;
    let (key, seqno) = (harness.key(n), SeqNum(harness.seqno));
    harness.model.put(key.clone(), seqno, value.clone());
    let mut run = VecRun {
        entries: vec![(key, seqno, value)],
        ..VecRun::default()
    };
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
}

fn inline(byte: u8) -> EntryValue {
    EntryValue::Inline(Bytes::from(vec![byte; 9]))
}

fn level0_runs(harness: &Harness) -> u32 {
    harness.index.debt().runs
}

#[test]
fn a_relocation_stays_beneath_what_was_flushed_after_its_view() {
    let mut harness = filled();
    let relocating = Relocating::begin(&*harness.index, 1);
    flush_one(&mut harness, 3, inline(3));
    flush_one(&mut harness, 4, EntryValue::Tombstone);
    harness.seqno += 1;
    let range = RangeTombstone {
        start: harness.key(20),
        end: Some(harness.key(30)),
        seqno: SeqNum(harness.seqno),
    };
    harness.model.ranges.push(range.clone());
    let mut run = VecRun {
        ranges: vec![range],
        ..VecRun::default()
    };
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
    // Every pointer that is live in its view, those of keys 3, 4 and 20 to 29 too.
    let (change, moved) = relocating.write_one_in(1, &mut Random(1));
    assert_eq!(moved.0.len(), 40);
    harness.apply(&change);
    moved.note(&mut harness.model);
    harness.check(&mut Random(1));
    harness.reopen(false);
    harness.check(&mut Random(2));
    harness.set_floor(harness.seqno + 1);
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    harness.check(&mut Random(3));
    // Of the old segment only the key that was overwritten inline, and what was deleted, had anything, and that is gone.
    assert_eq!(harness.liveness[&SegmentId(1)], 0);
    assert_eq!(harness.index.view().stats().entries, 29);
}

#[test]
fn level0_waits_for_a_pending_relocation() {
    let mut harness = filled();
    flush_one(&mut harness, 1, inline(1));
    flush_one(&mut harness, 2, inline(2));
    let relocating = Relocating::begin(&*harness.index, 1);
    assert!(harness.index.busy());
    flush_one(&mut harness, 3, inline(3));
    flush_one(&mut harness, 4, inline(4));
    // What the view has goes down, what came later stays.
    while let Some(job) = harness.index.pick_job() {
        harness.finish(job);
    }
    assert_eq!(level0_runs(&harness), 2);
    let full = || {
        harness
            .index
            .pick_full_compaction(Bound::Unbounded, Bound::Unbounded)
    };
    assert!(full().is_none() && harness.index.busy());
    let (change, moved) = relocating.write(&mut Random(5));
    assert!(!moved.0.is_empty() && harness.index.pick_job().is_none());
    harness.apply(&change);
    moved.note(&mut harness.model);
    assert_eq!(level0_runs(&harness), 3);
    assert!(!harness.index.busy());
    harness.check(&mut Random(1));
    harness.settle();
    assert_eq!(level0_runs(&harness), 0);
    harness.check(&mut Random(2));
}

#[test]
fn the_oldest_of_several_relocations_holds_level0() {
    let mut harness = filled();
    let first = Relocating::begin(&*harness.index, 1);
    flush_one(&mut harness, 1, inline(1));
    flush_one(&mut harness, 2, inline(2));
    let second = Relocating::begin(&*harness.index, 2);
    let (change, moved) = second.write(&mut Random(5));
    harness.apply(&change);
    moved.note(&mut harness.model);
    assert_eq!(level0_runs(&harness), 3);
    assert!(harness.index.pick_job().is_none());
    drop(first);
    harness.settle();
    assert_eq!(level0_runs(&harness), 0);
    harness.check(&mut Random(1));
}

#[test]
fn the_place_is_free_however_a_relocation_ends() {
    let mut harness = filled();
    let free = |harness: &Harness| !harness.index.busy();
    drop(Relocating::begin(&*harness.index, 1));
    assert!(free(&harness));

    let (change, _) = Relocating::begin(&*harness.index, 2).write(&mut Random(1));
    assert!(!free(&harness));
    harness.index.abandon(change);
    assert!(free(&harness));
    harness.check_no_orphans();

    let (change, moved) = Relocating::begin(&*harness.index, 3).write(&mut Random(1));
    harness.apply(&change);
    moved.note(&mut harness.model);
    assert!(free(&harness));

    // Nothing to be moved: no change that anybody would apply.
    let none = Relocating::begin(&*harness.index, 4).relocation;
    let change = none.write(&mut VecRun::default()).unwrap();
    assert_eq!(change, IndexChange::default());
    assert!(free(&harness));

    // The source of the entries fails.
    let failing = Relocating::begin(&*harness.index, 5).relocation;
    assert!(failing.write(&mut Failing(0)).is_err());
    assert!(free(&harness));
    harness.check_no_orphans();
    harness.check(&mut Random(1));
}

/// A run whose second entry cannot be read.
struct Failing(u32);

impl glintdb_core::index::SortedRun for Failing {
    fn next(&mut self) -> glintdb_core::Result<Option<(&[u8], SeqNum, EntryRef<'_>)>> {
        self.0 += 1;
        match self.0 {
            1 => Ok(Some((b"key0001", SeqNum(1), EntryRef::Inline(b"x")))),
            _ => Err(glintdb_core::Error::new(
                glintdb_core::ErrorKind::Io,
                "the values cannot be read",
            )),
        }
    }

    fn range_tombstones(&self) -> &[RangeTombstone] {
        &[]
    }

    fn entries_hint(&self) -> usize {
        2
    }
}
