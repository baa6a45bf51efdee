//! What settlings read, in batches, and what they leave in the cache.

use super::harness::Harness;
use crate::{BTree, BTreeOptions};
use bytes::Bytes;
use glintdb_cache::Cache;
use glintdb_core::index::{Index, JobStep};
use glintdb_core::{EntryValue, SeqNum};
use glintdb_flash::Volume;
use glintdb_indextest::VecRun;
use std::ops::Bound;
use std::sync::Arc;

/// Reads and batches of reads so far.
fn counts(harness: &Harness) -> (u64, u64) {
    let stats = harness.volume.stats();
    (stats.reads, stats.read_batches)
}

/// A tree of three levels, of which the cache has nothing.
fn tree(cache_bytes: usize) -> Harness {
    let mut harness = Harness::new(BTreeOptions::default());
    harness.checks = false;
    let mut run = VecRun::default();
    for n in 0..30_000 {
        let key = Bytes::from(format!("row{n:08}"));
        let value = EntryValue::Inline(Bytes::from(vec![b'v'; 400]));
        run.entries.push((key, SeqNum(n + 1), value));
    }
    harness.seqno = 30_000;
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    harness.env.reads = None;
    harness.env.cache = Arc::new(Cache::new(cache_bytes));
    let (env, options) = (harness.env.clone(), harness.options.clone());
    harness.index = BTree::open(env, options, &harness.edits).unwrap();
    harness
}

/// Puts a run over every leaf of [`tree`] on the shelf. Returns the number of its entries.
fn change_each_leaf(harness: &mut Harness) -> u64 {
    let mut run = VecRun::default();
    for n in (0..30_000).step_by(5) {
        let key = Bytes::from(format!("row{n:08}"));
        let value = EntryValue::Inline(Bytes::from(vec![b'w'; 400]));
        run.entries.push((key, SeqNum(30_001 + n), value));
    }
    harness.seqno = 70_000;
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
    run.entries.len() as u64
}

/// Looks up each of `keys`. Returns how many reads that takes.
fn reads_of(harness: &Harness, keys: impl Iterator<Item = u64>) -> u64 {
    let before = counts(harness).0;
    let view = harness.index.view();
    for n in keys {
        let key = format!("row{n:08}");
        assert!(view.get(key.as_bytes()).unwrap().is_some(), "{key}");
    }
    counts(harness).0 - before
}

#[test]
fn branches_are_read_in_batches_after_an_opening() {
    let harness = tree(64 << 20);
    let before = counts(&harness);
    let job = harness.index.pick_job().unwrap();
    assert_eq!(job.name(), "reading of fences and branches");
    let mut job = job;
    while !matches!(job.step().unwrap(), JobStep::Done(_)) {}
    let after = counts(&harness);
    let branches = u64::from(harness.index.view().stats().levels[1].parts);
    assert!(branches > 15, "{branches}");
    // The root, then all others.
    assert_eq!((after.0 - before.0, after.1 - before.1), (branches, 2));
    assert!(harness.index.pick_job().is_none(), "they are read once");
    harness.index.view().get(b"row00012345").unwrap().unwrap();
    assert_eq!(counts(&harness).0 - after.0, 1, "only the leaf is read");
}

#[test]
fn settling_reads_branches_and_leaves_in_batches() {
    let mut harness = tree(64 << 20);
    let leaves = u64::from(harness.index.view().stats().levels[2].parts);
    let changed = change_each_leaf(&mut harness);
    assert!(changed > leaves, "every leaf changes");
    let before = counts(&harness);
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    let batches = counts(&harness).1 - before.1;
    // Windows of 128 leaves, and the branches in two batches.
    let windows = leaves.div_ceil(128);
    assert!(
        (windows..windows + 6).contains(&batches),
        "{batches}, {windows} of them"
    );
}

#[test]
fn leaves_that_replace_cached_ones_are_cached() {
    let mut harness = tree(2 << 20);
    for _ in 0..2 {
        reads_of(&harness, 0..800);
    }
    // The cache has no room for new leaves then.
    reads_of(&harness, (1_000..10_000).step_by(9));
    assert_eq!(reads_of(&harness, 0..800), 0);
    change_each_leaf(&mut harness);
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    let (warm, cold) = (
        reads_of(&harness, 0..800),
        reads_of(&harness, 20_000..20_800),
    );
    assert!(warm < 10 && cold > 80, "{warm} and {cold} reads");
}

#[test]
fn leaves_are_cached_when_there_is_room() {
    let mut harness = tree(64 << 20);
    change_each_leaf(&mut harness);
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    assert_eq!(reads_of(&harness, 0..30_000), 0);
}
