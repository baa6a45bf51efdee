//! Shapes and edges: what is moved and not rewritten, levels within their targets, debt, spoilt manifests, dropped keyspaces.

use super::harness::{Harness, Random, VecRun, small_options};
use crate::{Lsm, LsmExperiments, LsmOptions};
use bytes::Bytes;
use glintdb_cache::Cache;
use glintdb_core::index::{Index, IndexChange, JobStep};
use glintdb_core::{Direction, EntryValue, ErrorKind, RangeTombstone, SeqNum};
use glintdb_flash::Volume;
use std::ops::Bound;
use std::sync::Arc;

/// A run of `count` keys from `from` on, with values of `bytes` bytes.
pub(super) fn run_of(harness: &mut Harness, from: u64, count: u64, bytes: usize) -> VecRun {
    let mut run = VecRun::default();
    for n in from..from + count {
        harness.seqno += 1;
        let (key, seqno) = (Bytes::from(format!("row{n:08}")), SeqNum(harness.seqno));
        let value = EntryValue::Inline(Bytes::from(vec![n as u8; bytes]));
        harness.model.put(key.clone(), seqno, value.clone());
        run.entries.push((key, seqno, value));
    }
    run
}

fn load(harness: &mut Harness, from: u64, count: u64, bytes: usize) {
    let mut run = run_of(harness, from, count, bytes);
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
}

#[test]
fn sequential_load_is_moved_and_never_rewritten() {
    let mut harness = Harness::new(small_options());
    for part in 0..20 {
        load(&mut harness, part * 100, 100, 200);
        harness.settle();
    }
    let stats = harness.index.view().stats();
    assert_eq!(stats.compaction_written_bytes, 0);
    assert!(stats.moved_bytes >= stats.bytes);
    assert_eq!(stats.levels[0].parts, 0);
    assert_eq!(stats.entries, 2000);
    harness.check(&mut Random(1));
}

/// A step of 8,192 entries was 128 MiB of 16 KiB values, and a flush that came meanwhile waited for all of it.
#[test]
fn a_step_of_a_merge_is_bounded_by_bytes_as_by_entries() {
    const BUDGET: u32 = 1024;
    // 256 bytes count as an entry; tables are written in pieces of 512 KiB, and with the last step comes the end of a table.
    const STEP_BYTES: u64 = BUDGET as u64 * 256;
    const SLACK_BYTES: u64 = 1 << 20;
    // With one value in a block blocks are moved whole; with several, in runs that take turns, entries are merged.
    for block_bytes in [4 << 10, 64 << 10] {
        let mut harness = Harness::new(LsmOptions {
            block_bytes,
            table_bytes_target: 1 << 20,
            ..small_options()
        });
        let all = run_of(&mut harness, 0, 500, 16 << 10).entries;
        for parity in [0, 1] {
            let taken = all.iter().enumerate().filter(|(n, _)| n % 2 == parity);
            let mut run = VecRun {
                entries: taken.map(|(_, entry)| entry.clone()).collect(),
                ..VecRun::default()
            };
            let change = harness.index.write_run(&mut run).unwrap();
            harness.apply(&change);
        }
        let mut job = harness.index.pick_job().unwrap();
        let written = || harness.volume.stats().written_bytes;
        let (begin, mut steps) = (written(), 0);
        let change = loop {
            let before = written();
            let step = job.step_within(BUDGET).unwrap();
            let bytes = written() - before;
            assert!(bytes <= STEP_BYTES + SLACK_BYTES, "{block_bytes}: {bytes}");
            steps += 1;
            match step {
                JobStep::More => {}
                JobStep::Done(change) if change.edit.is_empty() => {
                    job = harness.index.pick_job().unwrap();
                }
                JobStep::Done(change) => break change,
            }
        };
        let bytes = written() - begin;
        assert!(bytes > 500 * (16 << 10), "all of it was merged: {bytes}");
        // Not all: a block costs what it is longer than the budget left.
        assert!(
            steps >= bytes / STEP_BYTES - bytes / STEP_BYTES / 8,
            "{block_bytes}: {steps} steps"
        );
        drop(job);
        harness.apply(&change);
    }
}

#[test]
fn small_tables_are_joined_rather_than_moved() {
    let mut harness = Harness::new(LsmOptions {
        table_bytes_target: 1 << 20,
        experiments: LsmExperiments {
            base_level_bytes: 1 << 20,
            ..small_options().experiments
        },
        ..small_options()
    });
    for part in 0..16 {
        load(&mut harness, part * 10, 10, 100);
        harness.settle();
    }
    let stats = harness.index.view().stats();
    assert!(stats.levels.iter().map(|level| level.parts).sum::<u32>() <= 2);
    harness.check(&mut Random(1));
}

#[test]
fn blocks_that_nothing_reaches_into_are_moved_whole() {
    let options = LsmOptions {
        table_bytes_target: 1 << 20,
        experiments: LsmExperiments {
            base_level_bytes: 1 << 20,
            ..small_options().experiments
        },
        ..small_options()
    };
    let mut harness = Harness::new(options);
    load(&mut harness, 0, 2000, 200);
    harness.settle();
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    // Two runs at the two ends, so that the table is an input but its middle meets nothing.
    load(&mut harness, 0, 3, 200);
    load(&mut harness, 1997, 3, 200);
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    harness.check(&mut Random(1));
    assert_eq!(harness.index.view().stats().entries, 2000);
}

#[test]
fn random_load_fills_levels_within_their_targets() {
    let mut harness = Harness::new(LsmOptions {
        table_bytes_target: 16 << 10,
        size_ratio: 3,
        experiments: LsmExperiments {
            base_level_bytes: 32 << 10,
            ..small_options().experiments
        },
        ..small_options()
    });
    (harness.keys, harness.deletes) = (3000, false);
    let mut random = Random(5);
    for _ in 0..60 {
        harness.flush(&mut random, 100, true);
        harness.settle();
    }
    let stats = harness.index.view().stats();
    let used = stats.levels.iter().filter(|level| level.parts > 0).count();
    assert!(used >= 3, "{stats:?}");
    for level in &stats.levels[1..6] {
        assert!(level.bytes <= level.target_bytes, "{stats:?}");
    }
    let runs = harness.index.view_for_tests().levels.runs.len();
    let below0 = used - usize::from(runs > 0);
    assert_eq!(stats.lookup_reads_max as usize, below0 + runs);
    let debt = harness.index.debt();
    assert_eq!(debt.compaction_bytes, 0);
    assert!(debt.runs < harness.options.experiments.level0_runs_compact);
    harness.check(&mut random);
}

#[test]
fn debt_grows_with_runs_and_is_paid() {
    let mut harness = Harness::new(small_options());
    for n in 0..6 {
        load(&mut harness, 0, 50, 100);
        let debt = harness.index.debt();
        assert_eq!(debt.runs, n + 1);
        assert_eq!(debt.compaction_bytes > 0, n + 1 >= 2);
    }
    harness.settle();
    assert_eq!(harness.index.debt().compaction_bytes, 0);
    assert_eq!(harness.index.debt().runs, 0);
}

#[test]
fn pieces_of_one_compaction_come_as_one_change() {
    let mut harness = Harness::new(LsmOptions {
        table_bytes_target: 16 << 10,
        ..small_options()
    });
    for _ in 0..3 {
        load(&mut harness, 0, 300, 300);
    }
    let mut jobs = Vec::new();
    while let Some(job) = harness.index.pick_job() {
        jobs.push(job);
    }
    assert!(jobs.len() >= 2, "{} jobs", jobs.len());
    let mut changes = Vec::new();
    // The last piece first: the order does not matter.
    for mut job in jobs.into_iter().rev() {
        loop {
            if let JobStep::Done(change) = job.step().unwrap() {
                changes.push(change);
                break;
            }
        }
    }
    let whole: Vec<_> = changes
        .iter()
        .filter(|change| !change.edit.is_empty())
        .collect();
    assert_eq!(whole.len(), 1);
    assert!(harness.index.busy());
    harness.apply(&whole[0].clone());
    assert!(!harness.index.busy());
    harness.check(&mut Random(1));
    assert_eq!(harness.index.view().stats().entries, 300);
}

#[test]
fn dropping_one_piece_gives_up_the_whole_compaction() {
    let mut harness = Harness::new(LsmOptions {
        table_bytes_target: 16 << 10,
        ..small_options()
    });
    for _ in 0..3 {
        load(&mut harness, 0, 300, 300);
    }
    let mut first = harness.index.pick_job().unwrap();
    let second = harness.index.pick_job().unwrap();
    assert!(matches!(
        first.step().unwrap(),
        JobStep::More | JobStep::Done(_)
    ));
    drop(second);
    loop {
        if let JobStep::Done(change) = first.step().unwrap() {
            assert!(change.edit.is_empty());
            break;
        }
    }
    drop(first);
    assert!(!harness.index.busy());
    harness.check_no_orphans();
    harness.settle();
    harness.check(&mut Random(1));
}

#[test]
fn empty_run_is_an_empty_change() {
    let harness = Harness::new(small_options());
    let change = harness.index.write_run(&mut VecRun::default()).unwrap();
    assert_eq!(change, glintdb_core::index::IndexChange::default());
    harness.index.apply(&change).unwrap();
    assert!(harness.index.files().is_empty());
    harness.check_no_orphans();
}

#[test]
fn run_of_range_tombstones_alone_hides_what_is_beneath() {
    let mut harness = Harness::new(small_options());
    load(&mut harness, 0, 300, 100);
    harness.settle();
    harness.seqno += 1;
    let range = RangeTombstone {
        start: Bytes::from_static(b"row00000010"),
        end: None,
        seqno: SeqNum(harness.seqno),
    };
    let mut run = VecRun {
        ranges: vec![range.clone()],
        ..VecRun::default()
    };
    harness.model.ranges.push(range);
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
    harness.check(&mut Random(1));
    let entry = harness.index.view().get(b"row00000010").unwrap().unwrap();
    assert_eq!(
        (entry.seqno, entry.value),
        (SeqNum(301), EntryValue::Tombstone)
    );
    // Below the floor everything it hides, and it itself, goes.
    harness.set_floor(302);
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    let stats = harness.index.view().stats();
    assert_eq!((stats.entries, stats.tombstones), (10, 0));
    assert_eq!(harness.index.view().get(b"row00000010").unwrap(), None);
    harness.check(&mut Random(1));
}

#[test]
fn tombstones_stay_until_the_floor_has_passed_them() {
    let mut harness = Harness::new(small_options());
    load(&mut harness, 0, 10, 100);
    let mut run = VecRun::default();
    for n in 0..10u64 {
        harness.seqno += 1;
        let (key, seqno) = (Bytes::from(format!("row{n:08}")), SeqNum(harness.seqno));
        harness.model.put(key.clone(), seqno, EntryValue::Tombstone);
        run.entries.push((key, seqno, EntryValue::Tombstone));
    }
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
    harness.set_floor(11);
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    assert_eq!(harness.index.view().stats().tombstones, 10);
    harness.check(&mut Random(1));
    // Every tombstone is below this floor: the table is rewritten for them, by itself.
    harness.set_floor(21);
    harness.settle();
    assert_eq!(harness.index.view().stats().entries, 0);
    harness.check_no_orphans();
}

#[test]
fn missing_and_short_tables_are_named_at_open() {
    let mut harness = Harness::new(small_options());
    load(&mut harness, 0, 100, 100);
    let file = harness.index.files()[0];
    let open =
        |harness: &Harness| Lsm::open(harness.env.clone(), harness.options.clone(), &harness.edits);
    open(&harness).unwrap();
    let length = harness.volume.open(file).unwrap().len().unwrap();
    harness
        .volume
        .open(file)
        .unwrap()
        .set_len(length - 1)
        .unwrap();
    let error = open(&harness).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains(&file.to_string()), "{error}");
    harness.volume.delete(file).unwrap();
    let error = open(&harness).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains(&file.to_string()), "{error}");
}

#[test]
fn edits_that_do_not_fit_are_corruption() {
    let mut harness = Harness::new(small_options());
    load(&mut harness, 0, 100, 100);
    load(&mut harness, 50, 100, 100);
    harness.settle();
    let edits = &harness.edits;
    let open = |edits: &[Vec<u8>]| {
        Lsm::open(harness.env.clone(), harness.options.clone(), edits).map(drop)
    };
    for spoilt in [
        vec![edits[0].clone(), edits[0].clone()],
        edits[1..].to_vec(),
        vec![vec![1, 9]],
    ] {
        assert_eq!(open(&spoilt).unwrap_err().kind(), ErrorKind::Corruption);
    }
    assert_eq!(
        open(&[vec![77]]).unwrap_err().kind(),
        ErrorKind::UnsupportedFormat
    );
    assert!(Lsm::table_changes(&[77]).is_err());
    // The engine asks before it records an edit: this one adds tables that are there.
    let change = IndexChange {
        edit: harness.index.snapshot_edit(),
        ..IndexChange::default()
    };
    let refused = harness.index.check(&change).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corruption);
    assert!(harness.index.check(&IndexChange::default()).is_ok());
    let changes = Lsm::table_changes(&edits[0]).unwrap();
    assert!(!changes.is_empty() && changes.iter().all(|change| change.added.is_some()));
    let bad = LsmOptions {
        size_ratio: 1,
        ..small_options()
    };
    let error = Lsm::create(harness.env.clone(), bad).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn dropped_index_removes_its_files_when_the_last_view_goes() {
    let mut harness = Harness::new(small_options());
    load(&mut harness, 0, 300, 100);
    load(&mut harness, 0, 300, 100);
    let view = harness.index.view();
    let job = harness.index.pick_job();
    harness.index.discard();
    assert!(harness.index.pick_job().is_none());
    assert!(harness.index.files().is_empty());
    assert!(view.get(b"row00000007").unwrap().is_some());
    drop(job);
    assert!(!harness.volume.list().unwrap().is_empty());
    drop(view);
    assert!(harness.volume.list().unwrap().is_empty());
}

#[test]
fn a_released_index_gives_out_no_jobs_and_leaves_its_files() {
    let mut harness = Harness::new(small_options());
    load(&mut harness, 0, 300, 100);
    load(&mut harness, 0, 300, 100);
    let (edit, files) = (harness.index.snapshot_edit(), harness.index.files());
    harness.index.release();
    assert!(harness.index.pick_job().is_none());
    let everything = (Bound::Unbounded, Bound::Unbounded);
    let full = harness
        .index
        .pick_full_compaction(everything.0, everything.1);
    assert!(full.is_none());
    assert!(harness.index.view().get(b"row00000007").unwrap().is_some());
    let Harness {
        index: lsm, env, ..
    } = harness;
    drop(lsm);
    let another = Lsm::open(env, small_options(), &[edit]).unwrap();
    assert_eq!(another.files(), files);
    assert!(another.view().get(b"row00000007").unwrap().is_some());
}

#[test]
fn one_cold_batch_of_lookups_is_one_batch_of_reads() {
    let mut harness = Harness::new(small_options());
    for part in 0..6 {
        load(&mut harness, part * 300, 300, 100);
        harness.settle();
    }
    load(&mut harness, 0, 100, 100);
    harness.env.cache = Arc::new(Cache::new(0));
    harness.reopen(false);
    let view = harness.index.view();
    let keys: Vec<String> = (0..64).map(|n| format!("row{:08}", n * 27)).collect();
    let refs: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    // Fences and filters come in at first use.
    view.get_batch(&refs)
        .into_iter()
        .for_each(|answer| assert!(answer.unwrap().is_some()));
    harness.reopen(false);
    let view = harness.index.view();
    for slot in harness.index.view_for_tests().levels.slots() {
        slot.1.table.load().unwrap();
    }
    let before = harness.volume.stats();
    for answer in view.get_batch(&refs) {
        assert!(answer.unwrap().is_some());
    }
    let after = harness.volume.stats();
    // A filter may err once or twice, which takes another round.
    assert!(after.read_batches - before.read_batches <= 2);
}

#[test]
fn cold_seek_reads_the_beginnings_of_all_sources_in_one_batch() {
    let mut harness = Harness::new(LsmOptions {
        experiments: LsmExperiments {
            level0_runs_compact: 10,
            level0_runs_slow: 11,
            level0_runs_stop: 12,
            ..small_options().experiments
        },
        ..small_options()
    });
    for _ in 0..5 {
        load(&mut harness, 0, 300, 100);
    }
    harness.env.cache = Arc::new(Cache::new(1 << 20));
    harness.reopen(false);
    for (_, slot) in harness.index.view_for_tests().levels.slots() {
        slot.table.load().unwrap();
    }
    for direction in [Direction::Forward, Direction::Reverse] {
        harness.env.cache.set_capacity_bytes(0);
        harness.env.cache.set_capacity_bytes(1 << 20);
        let view = harness.index.view();
        let mut cursor = view
            .cursor(Bound::Unbounded, Bound::Unbounded, direction)
            .unwrap();
        let before = harness.volume.stats();
        assert!(cursor.seek(b"row00000150").unwrap());
        assert_eq!(cursor.key(), b"row00000150");
        let after = harness.volume.stats();
        assert_eq!(after.read_batches - before.read_batches, 1);
        // One block of each source, and up to three more of the last one.
        assert!((5..=8).contains(&(after.reads - before.reads)));
    }
}

/// A table in a gap between what level 0 holds may be on its way down in another compaction; until that one is applied, or given up, nothing may be laid over it.
#[test]
fn level_0_is_not_merged_over_a_table_that_another_compaction_has() {
    for give_up in [true, false] {
        let mut harness = Harness::new(LsmOptions {
            size_ratio: 4,
            experiments: LsmExperiments {
                base_level_bytes: 160 << 10,
                ..small_options().experiments
            },
            ..small_options()
        });
        for part in 0..12 {
            load(&mut harness, part * 100, 100, 200);
            harness.settle();
        }
        let view = harness.index.view_for_tests();
        let base = view.levels.first_level().unwrap();
        let tables = view.levels.level(base).slots();
        assert!(
            base < 6 && tables.len() >= 3,
            "{} tables at L{base}",
            tables.len()
        );
        let [left, gap, right] = [&tables[0], &tables[1], &tables[2]];
        let (lower, upper) = (&gap.meta().smallest, &gap.meta().largest);
        let mut downwards = harness
            .index
            .pick_full_compaction(Bound::Included(lower), Bound::Included(upper))
            .unwrap();
        // Level 0 gets the last key before the gap and the first one behind it.
        for key in [&left.meta().largest, &right.meta().smallest] {
            harness.seqno += 1;
            let (seqno, value) = (
                SeqNum(harness.seqno),
                EntryValue::Inline(Bytes::from_static(b"new")),
            );
            harness.model.put(key.clone(), seqno, value.clone());
            let mut run = VecRun {
                entries: vec![(key.clone(), seqno, value)],
                ..VecRun::default()
            };
            let change = harness.index.write_run(&mut run).unwrap();
            harness.apply(&change);
        }
        let level0 = harness.index.pick_job().unwrap();
        assert_eq!(level0.name(), format!("compaction L0->L{base}"));
        harness.finish(level0);
        let change = loop {
            if let JobStep::Done(change) = downwards.step().unwrap() {
                break change;
            }
        };
        if give_up {
            harness.index.abandon(change);
        } else {
            harness.apply(&change);
        }
        harness.settle();
        harness.check(&mut Random(1));
    }
}

/// A scan pays for every run of level 0, and a compaction too: it comes when scans have paid as much.
#[test]
fn scans_call_for_a_compaction_when_they_have_spent_what_it_costs() {
    const COSTS: u64 = 1 << 16;
    let mut harness = Harness::new(LsmOptions {
        experiments: LsmExperiments {
            level0_runs_compact: 8,
            level0_runs_slow: 16,
            level0_runs_stop: 32,
            ..LsmExperiments::default()
        },
        ..LsmOptions::default()
    });
    let scanned = |harness: &Harness, entries| harness.index.note_scanned(entries);
    assert!(!scanned(&harness, 2 * COSTS), "there is nothing");
    load(&mut harness, 0, 3000, 50);
    harness.settle();
    assert!(!scanned(&harness, 2 * COSTS), "one run is no merge");
    for _ in 0..2 {
        load(&mut harness, 0, 3000, 50);
    }
    let runs = |harness: &Harness| harness.index.debt().runs;
    assert_eq!(runs(&harness), 3);
    assert!(!scanned(&harness, COSTS - 1));
    assert!(harness.index.pick_job().is_none());
    assert!(scanned(&harness, 1));
    assert!(!scanned(&harness, COSTS), "it is told once");
    harness.settle();
    assert_eq!(runs(&harness), 0);
    harness.check(&mut Random(3));
    // What was spent is spent.
    load(&mut harness, 0, 3000, 50);
    assert!(!scanned(&harness, COSTS - 1));
    assert!(harness.index.pick_job().is_none());
    // More entries cost more.
    for _ in 0..5 {
        load(&mut harness, 0, 30_000, 50);
    }
    assert!(!scanned(&harness, COSTS));
    assert!(scanned(&harness, COSTS));
}
