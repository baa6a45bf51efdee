//! Compactions take their input from the queue of reads ahead, and leave nothing in it.

use super::harness::{Harness, Random, small_options};
use crate::LsmOptions;
use glintdb_core::index::{Index, JobStep, PinnedLevels};
use glintdb_core::memory::MemoryPart;
use glintdb_flash::{ReadQueueStats, Reader};
use std::ops::Bound;

/// An index with several runs whose blocks are not in memory.
fn with_runs() -> Harness {
    let mut harness = Harness::new(LsmOptions {
        pinned_levels: PinnedLevels::Levels(0),
        ..small_options()
    });
    let mut random = Random(5);
    for _ in 0..8 {
        harness.flush(&mut random, 300, true);
    }
    harness
}

fn stats(harness: &Harness) -> ReadQueueStats {
    harness.env.reads.as_ref().unwrap().stats()
}

fn assert_empty(harness: &Harness) {
    assert_eq!(stats(harness).pending, 0);
    assert_eq!(harness.env.memory.used_bytes(MemoryPart::Prefetch), 0);
    assert_eq!(harness.env.memory.used_bytes(MemoryPart::Buffers), 0);
}

#[test]
fn a_compaction_reads_its_input_ahead_and_all_of_it_once() {
    let mut harness = with_runs();
    let before = harness.index.view().stats().compaction_read_bytes;
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    let read = harness.index.view().stats().compaction_read_bytes - before;
    let stats = stats(&harness);
    assert!(stats.hits > 0, "{stats:?}");
    assert_eq!((stats.withdrawn_bytes, stats.helper_bytes), (0, 0));
    // Filters and fences are no part of it.
    assert!(
        (read / 2..=read).contains(&stats.owner_bytes),
        "{read} {stats:?}"
    );
    assert_empty(&harness);
    harness.check(&mut Random(6));
}

/// Somebody else reads whenever he can: the compaction reads nothing itself but what there was no room for.
#[test]
fn what_a_helper_has_begun_a_compaction_takes() {
    let mut harness = with_runs();
    let queue = harness.env.reads.clone().unwrap();
    while let Some(mut job) = harness
        .index
        .pick_full_compaction(Bound::Unbounded, Bound::Unbounded)
    {
        loop {
            while queue.begin(Reader::Helper) > 0 {}
            match job.step().unwrap() {
                JobStep::More => {}
                JobStep::Done(change) => break harness.apply(&change),
            }
        }
    }
    harness.check(&mut Random(7));
    assert_empty(&harness);
}

#[test]
fn a_compaction_that_is_given_up_leaves_nothing_in_the_queue() {
    let harness = with_runs();
    let queue = harness.env.reads.clone().unwrap();
    let mut job = harness.index.pick_job().unwrap();
    let _step = job.step().unwrap();
    queue.begin(Reader::Helper);
    drop(job);
    assert_empty(&harness);
}
