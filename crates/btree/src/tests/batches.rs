//! Reads of settlings in batches.

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
fn tree() -> Harness {
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
    harness.env.cache = Arc::new(Cache::new(64 << 20));
    let (env, options) = (harness.env.clone(), harness.options.clone());
    harness.index = BTree::open(env, options, &harness.edits).unwrap();
    harness
}

#[test]
fn branches_are_read_in_batches_after_an_opening() {
    let harness = tree();
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
    let mut harness = tree();
    let leaves = u64::from(harness.index.view().stats().levels[2].parts);
    let mut run = VecRun::default();
    let mut changed = 0;
    for n in (0..30_000).step_by(5) {
        let key = Bytes::from(format!("row{n:08}"));
        let value = EntryValue::Inline(Bytes::from(vec![b'w'; 400]));
        run.entries.push((key, SeqNum(30_001 + n), value));
        changed += 1;
    }
    assert!(changed > leaves, "every leaf changes");
    harness.seqno = 70_000;
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
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
