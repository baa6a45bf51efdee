//! Key reshaping: tiers of the shelf, their memory, and the numbers of runs.

use super::harness::{Harness, small_options};
use crate::BTreeOptions;
use glintdb_core::index::{Index, MemoryShare};
use glintdb_core::memory::MemoryPart;
use glintdb_indextest::Random;
use std::ops::Bound;

/// Two runs of a tier are merged, and the numbers of runs have four bits.
pub(super) fn options() -> BTreeOptions {
    let mut options = small_options().reshape(true);
    options.experiments.reshape_fan = 2;
    options.experiments.reshape_bits = 4;
    options
}

fn share(harness: &Harness, bytes: u64) {
    harness.index.set_memory_share(MemoryShare {
        remap_max_bytes: bytes,
        ..MemoryShare::default()
    });
}

fn runs(harness: &Harness) -> Vec<(u64, u8)> {
    let picture = &harness.index.view_for_tests().picture;
    let runs = picture.runs.iter();
    runs.map(|run| (run.id, picture.tier_of(run))).collect()
}

#[test]
fn runs_are_merged_in_tiers_and_stay_on_the_shelf() {
    let mut harness = Harness::new(options());
    let mut random = Random(1);
    let mut flushed = 0;
    for flush in 1..=11u32 {
        harness.flush(&mut random, 100, true);
        harness.settle();
        let tiers: Vec<u8> = runs(&harness).into_iter().map(|(_, tier)| tier).collect();
        // As the bits of a binary number: two runs of a tier make one of the next.
        let bits: Vec<u8> = (0..8u8).filter(|bit| flush >> bit & 1 == 1).collect();
        assert_eq!(tiers, bits, "after {flush} flushes");
        harness.reopen(flush % 2 == 0);
        harness.check(&mut random);
        flushed += 100;
    }
    let stats = harness.index.view().stats();
    assert_eq!(stats.levels[2].entries, 0, "nothing is in the tree");
    // Of 300 keys each is there a few times at most.
    assert!(stats.entries < flushed * 2 / 3, "{}", stats.entries);
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    assert_eq!(runs(&harness), []);
    harness.check(&mut random);
}

#[test]
fn filters_and_fences_of_the_shelf_stay_within_their_share() {
    let mut harness = Harness::new(options().table_bytes_target(1 << 20));
    harness.deletes = false;
    harness.keys = 100_000;
    let mut random = Random(2);
    let bytes = 24 << 10;
    share(&harness, bytes);
    let mut most = 0;
    for _ in 0..30 {
        harness.flush(&mut random, 600, true);
        harness.settle();
        let tails = harness.index.view_for_tests().picture.tail_bytes();
        assert!(tails <= bytes, "{tails} of {bytes}");
        most = most.max(tails);
        let debt = harness.index.debt();
        assert!(debt.runs < debt.runs_slow, "{debt:?}");
    }
    assert!(most > bytes / 2, "{most} of {bytes} were used");
    assert!(harness.index.view().stats().levels[2].entries > 1000);
    harness.check(&mut random);
    // They are a part of the memory of their own.
    let used = harness.env.memory.used_bytes(MemoryPart::Remap) as u64;
    assert!(used > most / 4 && used < 2 * bytes, "{used}");
    // Beyond the share, writers are slowed.
    let tails = harness.index.view_for_tests().picture.tail_bytes();
    share(&harness, tails * 9 / 10);
    let debt = harness.index.debt();
    assert!(
        debt.runs >= debt.runs_slow && debt.runs < debt.runs_stop,
        "{debt:?}"
    );
    share(&harness, tails / 2);
    let debt = harness.index.debt();
    assert!(debt.runs >= debt.runs_stop, "{debt:?}");
}

#[test]
fn runs_are_numbered_anew_before_their_numbers_exceed_the_bits() {
    let mut harness = Harness::new(options());
    let mut random = Random(3);
    let mut renumbered = 0;
    let mut before = 0;
    for flush in 0..60 {
        harness.flush(&mut random, 40, true);
        let newest = runs(&harness).first().map_or(0, |(id, _)| *id);
        assert!(newest < 16, "run {newest} has more than 4 bits");
        renumbered += u32::from(newest < before);
        before = newest;
        harness.settle();
        if flush % 3 == 0 {
            harness.reopen(flush % 2 == 0);
        }
        harness.check(&mut random);
    }
    assert!(renumbered >= 3, "{renumbered}");
}

/// A job and a relocation know runs by their numbers.
#[test]
fn a_job_and_a_relocation_put_off_new_numbers() {
    let mut options = options();
    options.experiments.reshape_bits = 5;
    let mut harness = Harness::new(options);
    let mut random = Random(4);
    let newest = |harness: &Harness| runs(harness).first().map_or(0, |(id, _)| *id);
    while newest(&harness) < 24 {
        harness.flush(&mut random, 40, true);
        harness.settle();
    }
    let relocation = harness.index.begin_relocation();
    for _ in 0..2 {
        harness.flush(&mut random, 40, true);
    }
    assert_eq!(newest(&harness), 27, "a place is pending");
    drop(relocation);
    let job = harness.index.pick_job().unwrap();
    harness.flush(&mut random, 40, true);
    assert_eq!(newest(&harness), 28, "a job is under way");
    harness.finish(job);
    harness.flush(&mut random, 40, true);
    assert!(newest(&harness) < 10, "{:?}", runs(&harness));
    harness.check(&mut random);
}

/// On a full medium there may be no space for a whole run. A slice is smaller, and gives space
/// back.
#[test]
fn the_oldest_tier_is_settled_if_a_cleaning_is_refused() {
    let mut harness = Harness::new(options());
    let mut random = Random(6);
    for _ in 0..5 {
        harness.flush(&mut random, 60, true);
    }
    let refused = harness.index.pick_job().unwrap();
    assert!(refused.name().starts_with("cleaning"));
    drop(refused);
    let job = harness.index.pick_job().unwrap();
    assert!(job.name().starts_with("settling"), "{}", job.name());
    harness.finish(job);
    harness.check(&mut random);
    harness.settle();
    assert!(harness.index.view().stats().levels[2].entries > 0);
    harness.check(&mut random);
}

/// A change that is given up must not leave the numbers that only it would have brought.
#[test]
fn a_flush_that_is_given_up_leaves_the_old_numbers() {
    let mut harness = Harness::new(options());
    let mut random = Random(5);
    while runs(&harness).first().is_none_or(|(id, _)| *id < 12) {
        harness.flush(&mut random, 40, true);
        harness.settle();
    }
    let before = runs(&harness);
    let (mut run, _) = harness.random_run(&mut random, 40);
    let change = harness.index.write_run(&mut run).unwrap();
    assert!(
        harness.index.pick_job().is_none(),
        "numbers are about to change"
    );
    harness.index.abandon(change);
    assert_eq!(runs(&harness), before);
    harness.flush(&mut random, 40, true);
    harness.settle();
    harness.check(&mut random);
    harness.check_no_orphans();
}
