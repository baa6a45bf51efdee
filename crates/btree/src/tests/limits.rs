//! Shapes and edges of the tree.

use super::harness::{Harness, small_options};
use crate::{BTreeExperiments, BTreeOptions};
use bytes::Bytes;
use glintdb_core::index::Index;
use glintdb_core::{EntryValue, SeqNum};
use glintdb_indextest::{Random, VecRun};
use std::ops::Bound;

fn load(harness: &mut Harness, keys: impl Iterator<Item = Bytes>, bytes: usize) {
    let mut run = VecRun::default();
    for key in keys {
        harness.seqno += 1;
        let seqno = SeqNum(harness.seqno);
        let value = EntryValue::Inline(Bytes::from(vec![b'v'; bytes]));
        harness.model.put(key.clone(), seqno, value.clone());
        run.entries.push((key, seqno, value));
    }
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
}

fn key(n: u64) -> Bytes {
    Bytes::from(format!("row{n:08}"))
}

fn compact(harness: &mut Harness) {
    harness.compact(Bound::Unbounded, Bound::Unbounded);
}

#[test]
fn a_tree_of_several_levels_grows_and_empties_again() {
    let mut harness = Harness::new(BTreeOptions::default());
    harness.checks = false;
    load(&mut harness, (0..60_000).map(key), 40);
    compact(&mut harness);
    harness.check_shape();
    let stats = harness.index.view().stats();
    assert_eq!(stats.lookup_reads_max, 1, "{stats:?}");
    assert_eq!(stats.entries, 60_000);
    // Leaves are nine tenths full: 3,660 bytes of 4,096.
    assert!(stats.bytes < 60_000 * 66, "{stats:?}");
    for n in [0, 1, 31_313, 59_999] {
        assert!(harness.index.view().get(&key(n)).unwrap().is_some());
    }
    assert!(harness.index.view().get(b"row").unwrap().is_none());
    let mut run = VecRun::default();
    harness.seqno += 1;
    run.ranges.push(glintdb_core::RangeTombstone {
        start: Bytes::new(),
        end: None,
        seqno: SeqNum(harness.seqno),
    });
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
    harness.set_floor(harness.seqno + 1);
    compact(&mut harness);
    let stats = harness.index.view().stats();
    assert_eq!((stats.bytes, stats.entries), (0, 0), "{stats:?}");
    harness.check_no_orphans();
}

#[test]
fn a_run_that_gets_the_number_of_a_settled_run_is_not_clipped() {
    let mut harness = Harness::new(small_options());
    load(&mut harness, (0..2000).map(key), 40);
    load(&mut harness, (0..10).map(key), 40);
    let slice = harness.index.pick_job().unwrap();
    harness.finish(slice);
    // The slice has settled the newer run, and a part of the older one.
    let view = harness.index.view_for_tests();
    assert_eq!(view.picture.runs.len(), 1);
    assert!(view.picture.clip.is_some());
    // Numbers of new runs follow those of the runs that are left.
    harness.reopen(false);
    load(&mut harness, (5..15).map(key), 50);
    harness.check(&mut Random(7));
    harness.settle();
    harness.check(&mut Random(7));
}

#[test]
fn keys_of_64_kib_that_share_nothing_with_their_neighbours_make_a_tree() {
    let mut harness = Harness::new(BTreeOptions::default());
    harness.checks = false;
    // Pairs of keys that share all but their last byte.
    let keys = (0..40u8).flat_map(|n| {
        [1, 2].map(|last| {
            let mut key = vec![n; 64 << 10];
            key[(64 << 10) - 1] = last;
            if n <= 2 {
                key[0] = n;
            }
            Bytes::from(key)
        })
    });
    let mut keys: Vec<Bytes> = keys.collect();
    keys.sort();
    keys.dedup();
    load(&mut harness, keys.iter().cloned(), 10);
    compact(&mut harness);
    harness.check_shape();
    let view = harness.index.view();
    for key in &keys {
        assert!(view.get(key).unwrap().is_some());
    }
    assert_eq!(
        view.count_entries(Bound::Unbounded, Bound::Unbounded)
            .unwrap(),
        80
    );
}

#[test]
fn a_settling_stops_at_slices_and_goes_on_after_reopening() {
    let mut harness = Harness::new(small_options());
    for round in 0..2 {
        load(&mut harness, (0..600).map(|n| key(2 * n + round)), 100);
    }
    let mut slices = 0;
    while let Some(job) = harness.index.pick_job() {
        let is_slice = job.name().starts_with("settling");
        harness.finish(job);
        if !is_slice {
            continue;
        }
        harness.check(&mut Random(slices));
        slices += 1;
        harness.reopen(slices % 2 == 0);
        harness.check(&mut Random(slices));
    }
    assert!(slices > 4, "{slices} slices");
    assert_eq!(harness.index.view().stats().levels[0].parts, 0);
    harness.check_no_orphans();
}

/// Else each leaf that overflows would leave a leaf of one entry.
#[test]
fn leaves_that_are_split_are_about_equally_large() {
    let mut harness = Harness::new(BTreeOptions::default());
    harness.checks = false;
    load(&mut harness, (0..20_000).map(|n| key(10 * n)), 40);
    compact(&mut harness);
    for round in 1..5 {
        let keys = (0..4000).map(move |n| key(50 * n + round));
        load(&mut harness, keys, 40);
        compact(&mut harness);
    }
    let stats = harness.index.view().stats();
    let leaves = stats.levels[2];
    assert_eq!(leaves.entries, 36_000);
    let in_leaf = leaves.entries / u64::from(leaves.parts);
    assert!(in_leaf > 35, "{in_leaf} entries a leaf of at most 70");
    harness.check_shape();
}

#[test]
fn leaves_that_deletions_have_emptied_are_joined() {
    let mut options = BTreeOptions::default();
    options.experiments.shelf_runs_settle = 1;
    let mut harness = Harness::new(options);
    harness.checks = false;
    load(&mut harness, (0..4000).map(key), 200);
    compact(&mut harness);
    let mut left: Vec<u64> = (0..4000).collect();
    let mut random = Random(1);
    while left.len() > 400 {
        harness.seqno += 1;
        let seqno = SeqNum(harness.seqno);
        let mut gone: Vec<u64> = (0..4)
            .map(|_| left.swap_remove(random.below(left.len() as u64) as usize))
            .collect();
        gone.sort_unstable();
        let mut run = VecRun::default();
        for n in gone {
            harness.model.put(key(n), seqno, EntryValue::Tombstone);
            run.entries.push((key(n), seqno, EntryValue::Tombstone));
        }
        let change = harness.index.write_run(&mut run).unwrap();
        harness.apply(&change);
        harness.set_floor(harness.seqno + 1);
        harness.settle();
    }
    let leaves = harness.index.view().stats().levels[2];
    assert_eq!(leaves.entries, 400);
    let in_leaf = leaves.entries / u64::from(leaves.parts);
    assert!(in_leaf >= 7, "{in_leaf} entries a leaf of at most 18");
    harness.check_shape();
}

#[test]
fn garbage_beyond_the_limit_is_compacted() {
    let mut harness = Harness::new(BTreeOptions::default());
    harness.checks = false;
    load(&mut harness, (0..20_000).map(|n| key(10 * n)), 40);
    compact(&mut harness);
    let live = harness.index.view().stats().live_bytes;
    harness.index.set_garbage_max(live / 4);
    for round in 0..8 {
        for part in 0..4 {
            let keys = (0..200).map(move |n| key(1000 * n + 10 * part + round));
            load(&mut harness, keys, 40);
        }
        harness.settle();
        let stats = harness.index.view().stats();
        let garbage = stats.bytes - stats.live_bytes;
        assert!(garbage <= live / 4, "{garbage} of {live}");
    }
    harness.check_shape();
}

#[test]
fn garbage_stays_at_the_limit_while_settlings_are_always_due() {
    let options = BTreeOptions {
        experiments: BTreeExperiments {
            slice_bytes: 128 << 10,
            ..small_options().experiments
        },
        ..BTreeOptions::default()
    };
    let mut harness = Harness::new(options);
    harness.checks = false;
    load(&mut harness, (0..20_000).map(key), 40);
    compact(&mut harness);
    let live = harness.index.view().stats().live_bytes;
    harness.index.set_garbage_max(live / 4);
    let mut most = 0;
    for round in 0..12 {
        for part in 0..2 {
            // Entries for about half of the leaves.
            let keys = (0..180).map(move |n| key((n * 110 + 37 * round + part) % 20_000));
            let mut keys: Vec<Bytes> = keys.collect();
            keys.sort();
            load(&mut harness, keys.into_iter(), 40);
        }
        while harness.index.view().stats().levels[0].parts > 0 {
            let job = harness.index.pick_job().unwrap();
            harness.finish(job);
            let stats = harness.index.view().stats();
            most = most.max(stats.bytes - stats.live_bytes);
        }
    }
    // A slice of a settling, and the shelf.
    let above = (128 << 10) * 5 / 4 + (64 << 10);
    assert!(most <= live / 4 + above, "{most} of {live}");
    harness.check_shape();
}
