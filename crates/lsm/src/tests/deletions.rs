//! Deletions pay for themselves: what they hide is removed where that is worth the work, without a
//! call that asks for it.

use super::harness::{Harness, Random, VecRun, small_options};
use super::limits::run_of;
use crate::LsmOptions;
use bytes::Bytes;
use glintdb_core::index::Index;
use glintdb_core::{EntryValue, RangeTombstone, SegmentId, SeqNum, ValuePointer};
use std::ops::{Bound, Range};

fn key(n: u64) -> Bytes {
    Bytes::from(format!("row{n:08}"))
}

/// Writes a run into the index, and settles the compactions that follow.
fn write(harness: &mut Harness, mut run: VecRun) {
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
    harness.settle();
}

fn load(harness: &mut Harness, keys: Range<u64>, bytes: usize) {
    let run = run_of(harness, keys.start, keys.end - keys.start, bytes);
    write(harness, run);
}

/// Puts pointers to values of 1,000 bytes in segment 1.
fn load_pointers(harness: &mut Harness, keys: Range<u64>) {
    let mut run = VecRun::default();
    for n in keys {
        harness.seqno += 1;
        let value = EntryValue::Pointer(ValuePointer {
            segment: SegmentId(1),
            offset: 8 * u32::try_from(n).unwrap(),
            length: 1000,
            checksum: 7,
        });
        let seqno = SeqNum(harness.seqno);
        harness.model.put(key(n), seqno, value.clone());
        run.entries.push((key(n), seqno, value));
    }
    write(harness, run);
}

fn delete_each(harness: &mut Harness, keys: impl Iterator<Item = u64>) {
    let mut run = VecRun::default();
    for n in keys {
        harness.seqno += 1;
        let seqno = SeqNum(harness.seqno);
        harness.model.put(key(n), seqno, EntryValue::Tombstone);
        run.entries.push((key(n), seqno, EntryValue::Tombstone));
    }
    write(harness, run);
}

fn delete_range(harness: &mut Harness, keys: Range<u64>) {
    harness.seqno += 1;
    let range = RangeTombstone {
        start: key(keys.start),
        end: Some(key(keys.end)),
        seqno: SeqNum(harness.seqno),
    };
    harness.model.ranges.push(range.clone());
    let run = VecRun {
        ranges: vec![range],
        ..VecRun::default()
    };
    write(harness, run);
}

fn entries(harness: &Harness) -> u64 {
    harness.index.view().stats().entries
}

/// A harness in whose index no transaction keeps tombstones.
fn harness() -> Harness {
    let harness = Harness::new(small_options());
    harness.set_floor(u64::MAX >> 8);
    harness
}

#[test]
fn tables_that_a_range_deletion_hides_are_removed_unread() {
    let mut harness = harness();
    for part in 0..6 {
        load(&mut harness, part * 300..(part + 1) * 300, 100);
    }
    let before = harness.index.view().stats();
    assert!(before.bytes > 200_000);
    delete_range(&mut harness, 0..2000);
    let after = harness.index.view().stats();
    assert_eq!((after.entries, after.tombstones), (0, 0));
    // Only the table with the range tombstone was read.
    assert!(after.compaction_read_bytes - before.compaction_read_bytes <= 8192);
    harness.check(&mut Random(1));
    harness.check_no_orphans();
}

#[test]
fn hidden_tables_with_values_in_the_log_are_read_and_the_values_counted() {
    let mut harness = harness();
    load_pointers(&mut harness, 0..600);
    assert_eq!(harness.liveness[&SegmentId(1)], 600_000);
    delete_range(&mut harness, 0..600);
    assert_eq!(entries(&harness), 0);
    assert_eq!(harness.liveness[&SegmentId(1)], 0);
    harness.check(&mut Random(1));
    harness.check_no_orphans();
}

/// Also in level 0, where a table is removed, but not rewritten.
#[test]
fn hidden_tables_of_level_0_are_removed() {
    let mut harness = harness();
    load(&mut harness, 0..600, 100);
    load_pointers(&mut harness, 600..650);
    let run = run_of(&mut harness, 0, 2000, 40);
    let change = harness.index.write_run(&mut run.clone()).unwrap();
    harness.apply(&change);
    delete_range(&mut harness, 0..2000);
    let stats = harness.index.view().stats();
    assert_eq!((stats.entries, stats.pointed_bytes), (0, 0));
    harness.check(&mut Random(1));
}

#[test]
fn a_table_of_which_a_range_deletion_hides_much_is_rewritten_in_its_place() {
    let mut harness = harness();
    load(&mut harness, 0..400, 100);
    let (before, level) = {
        let stats = harness.index.view().stats();
        let level = stats.levels.iter().rposition(|level| level.parts > 0);
        (stats, level.unwrap())
    };
    delete_range(&mut harness, 100..390);
    let after = harness.index.view().stats();
    assert!(after.entries < 200, "{after:?}");
    assert_eq!(after.levels[level].entries, after.entries);
    assert!(after.compactions > before.compactions);
    harness.check(&mut Random(1));
    // The rest of the table is not rewritten a second time.
    let compactions = harness.index.view().stats().compactions;
    harness.settle();
    assert_eq!(harness.index.view().stats().compactions, compactions);
}

/// The table has entries that are newer than the deletion.
#[test]
fn a_table_with_newer_entries_under_a_range_deletion_stays() {
    let mut harness = harness();
    load(&mut harness, 0..600, 100);
    let mut run = run_of(&mut harness, 0, 600, 50);
    run.entries.retain(|(key, ..)| key.ends_with(b"7"));
    let kept: Vec<Bytes> = run.entries.iter().map(|(key, ..)| key.clone()).collect();
    harness.model.points.retain(|key, _| kept.contains(key));
    let older = RangeTombstone {
        start: key(0),
        end: Some(key(600)),
        seqno: SeqNum(run.entries[0].1.0 - 1),
    };
    harness.model.ranges.push(older.clone());
    run.ranges.push(older);
    write(&mut harness, run);
    assert_eq!(entries(&harness), 60);
    for key in kept {
        assert!(harness.index.view().get(&key).unwrap().is_some());
    }
    harness.check(&mut Random(1));
}

#[test]
fn deletions_of_single_keys_are_merged_down_at_once() {
    let mut harness = harness();
    for part in 0..6 {
        load(&mut harness, part * 300..(part + 1) * 300, 100);
    }
    load_pointers(&mut harness, 0..300);
    let full = harness.index.view().stats();
    assert!(full.levels.iter().filter(|level| level.parts > 0).count() > 1);
    // One run, which alone does not fill level 0.
    delete_each(&mut harness, 0..1800);
    let stats = harness.index.view().stats();
    assert_eq!((stats.entries, stats.tombstones), (0, 0), "{stats:?}");
    assert_eq!(harness.liveness[&SegmentId(1)], 0);
    harness.check(&mut Random(1));
    harness.check_no_orphans();
}

#[test]
fn deletions_of_keys_that_are_not_there_merge_nothing() {
    let mut harness = harness();
    load(&mut harness, 0..1000, 400);
    let before = harness.index.view().stats().compaction_written_bytes;
    let mut run = VecRun::default();
    for n in (0..1000).step_by(20) {
        harness.seqno += 1;
        let between = Bytes::from(format!("row{n:08}x"));
        let seqno = SeqNum(harness.seqno);
        harness
            .model
            .put(between.clone(), seqno, EntryValue::Tombstone);
        run.entries.push((between, seqno, EntryValue::Tombstone));
    }
    write(&mut harness, run);
    let stats = harness.index.view().stats();
    assert_eq!(
        (stats.compaction_written_bytes, stats.tombstones),
        (before, 50)
    );
    harness.check(&mut Random(1));
}

#[test]
fn tombstones_that_a_transaction_kept_go_when_it_has_ended() {
    let mut harness = harness();
    let floor = std::sync::atomic::AtomicU64::new(1);
    harness.env.tombstone_floor = floor.into();
    harness.index = crate::Lsm::create(harness.env.clone(), harness.options.clone()).unwrap();
    load(&mut harness, 0..600, 100);
    delete_each(&mut harness, 0..600);
    assert_eq!(harness.index.view().stats().tombstones, 600);
    harness.set_floor(harness.seqno + 1);
    harness.settle();
    assert_eq!(entries(&harness), 0);
    harness.check_no_orphans();
}

/// A merge of such a table would rewrite everything between the deletions and the puts.
#[test]
fn deletions_and_puts_far_apart_come_into_tables_of_their_own() {
    let mut harness = harness();
    for part in 0..8 {
        load(&mut harness, part * 300..(part + 1) * 300, 100);
    }
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    let puts = run_of(&mut harness, 2400, 200, 100);
    for by_range in [false, true] {
        let mut run = VecRun::default();
        let seqno = SeqNum(harness.seqno);
        match by_range {
            true => run.ranges.push(RangeTombstone {
                start: Bytes::new(),
                end: Some(key(20)),
                seqno,
            }),
            false => {
                let deletes = (0..20).map(|n| (key(n), seqno, EntryValue::Tombstone));
                run.entries.extend(deletes);
            }
        }
        run.entries.extend(puts.entries.iter().cloned());
        let change = harness.index.write_run(&mut run).unwrap();
        let edit = crate::edit::Edit::decode(&change.edit).unwrap();
        let tables: Vec<_> = (edit.ops.iter())
            .filter_map(|op| match op {
                crate::edit::EditOp::Add(_, meta) => Some(meta),
                crate::edit::EditOp::Remove(..) => None,
            })
            .collect();
        let first = tables.first().unwrap();
        assert_eq!(
            (first.entries, first.range_tombstones),
            match by_range {
                true => (0, 1),
                false => (20, 0),
            }
        );
        assert!(first.range.1.as_ref().is_some_and(|end| *end <= key(20)));
        assert!(tables[1..].iter().all(|table| table.tombstones == 0));
        harness.index.abandon(change);
    }
}

/// Both tables of the run are rewritten for their tombstones. One output for both would overlap the
/// table between them.
#[test]
fn rewritten_tables_of_a_moved_run_stay_on_their_side_of_a_base_table() {
    // With tables of this size, two tombstones alone do not pay for a merge of level 0.
    let mut options = LsmOptions {
        table_bytes_target: 256 << 10,
        ..small_options()
    };
    options.experiments.base_level_bytes = 1 << 20;
    let mut harness = Harness::new(options);
    harness.set_floor(u64::MAX >> 8);
    load(&mut harness, 1000..1400, 100);
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    let mut run = run_of(&mut harness, 0, 400, 100);
    let behind = run_of(&mut harness, 2000, 400, 100);
    run.entries.extend(behind.entries);
    for at in [10, 410] {
        let (key, seqno, value) = &mut run.entries[at];
        *value = EntryValue::Tombstone;
        harness.model.put(key.clone(), *seqno, value.clone());
    }
    let moved = harness.index.view().stats().compactions;
    write(&mut harness, run);
    let stats = harness.index.view().stats();
    assert!(stats.compactions > moved, "the run was moved down");
    assert_eq!((stats.entries, stats.tombstones), (1198, 0));
    harness.check(&mut Random(1));
}
