//! Pinned levels over a growing tree: what lookups read against what the figures promise, and memory against what was given.

use super::harness::{Harness, Random, small_options};
use crate::{LsmExperiments, LsmOptions};
use bytes::Bytes;
use glintdb_cache::Cache;
use glintdb_core::index::{Index, IndexView, MemoryShare, PinnedLevels};
use std::sync::Arc;

const ROOM: MemoryShare = MemoryShare {
    pins_auto_bytes: 64 << 20,
    pins_max_bytes: 64 << 20,
    remap_max_bytes: 0,
};

/// An index without a cache, so that every block that is not pinned is read.
fn harness(pinned_levels: PinnedLevels, share: MemoryShare) -> Harness {
    let mut harness = Harness::new(LsmOptions {
        size_ratio: 3,
        // Filters would hide most of what there is to count.
        filter_bits_per_key: 0,
        pinned_levels,
        experiments: LsmExperiments {
            level0_runs_compact: 3,
            base_level_bytes: 32 << 10,
            ..small_options().experiments
        },
        ..small_options()
    });
    harness.deletes = false;
    harness.env.cache = Arc::new(Cache::new(0));
    harness.edits = vec![harness.index.snapshot_edit()];
    harness.reopen(true);
    harness.keys = 3000;
    harness.index.set_memory_share(share);
    harness
}

/// Blocks that `read` reads, by lookup.
fn reads_of(view: &dyn IndexView, read: impl FnOnce()) -> Vec<u64> {
    let before = view.stats().lookups_by_reads;
    read();
    let after = view.stats().lookups_by_reads;
    (before.iter().zip(after))
        .map(|(before, after)| after - before)
        .collect()
}

/// Looks up one key by itself and many at once; the greatest number of blocks a lookup read.
fn most_reads(harness: &Harness, keys: &[Bytes]) -> u32 {
    let view = harness.index.view();
    let bound = view.stats().lookup_reads_max;
    let mut most = 0;
    let mut look = |lookups: usize, reads: Vec<u64>| {
        assert_eq!(
            reads.iter().sum::<u64>(),
            lookups as u64,
            "every lookup is counted"
        );
        let worst = reads.iter().rposition(|&count| count > 0).unwrap() as u32;
        assert!(
            worst <= bound,
            "{worst} blocks read, the figures say {bound}"
        );
        most = most.max(worst);
    };
    for key in keys {
        look(1, reads_of(view.as_ref(), || drop(view.get(key).unwrap())));
    }
    let wanted: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
    let batch = || {
        view.get_batch(&wanted)
            .into_iter()
            .for_each(|found| drop(found.unwrap()))
    };
    look(keys.len(), reads_of(view.as_ref(), batch));
    most
}

#[test]
fn no_lookup_reads_more_than_stats_say() {
    let mut worst_without_pins = 0;
    for pinned in [0, 1, 2, 3]
        .map(PinnedLevels::Levels)
        .into_iter()
        .chain([PinnedLevels::Auto])
    {
        let mut harness = harness(pinned, ROOM);
        let mut random = Random(5);
        for round in 0..40 {
            harness.flush(&mut random, 100, true);
            if round % 2 == 0 {
                harness.settle();
            }
            let uniform: Vec<Bytes> = (0..20).map(|_| harness.random_key(&mut random)).collect();
            let newest = harness.keys.min(40);
            let latest: Vec<Bytes> = (0..20).map(|_| harness.key(random.below(newest))).collect();
            let most = most_reads(&harness, &uniform).max(most_reads(&harness, &latest));
            let levels = harness.index.view().stats().levels;
            let deep = levels[1..].iter().filter(|level| level.parts > 0).count() as u32;
            match pinned {
                // What is written for a pinned level is pinned from the start, so nothing has to be waited for.
                PinnedLevels::Auto => assert_eq!(most, 0),
                PinnedLevels::Levels(0) => worst_without_pins = worst_without_pins.max(most),
                PinnedLevels::Levels(count) => {
                    assert!(most <= (deep + 1).saturating_sub(count.into()))
                }
            }
        }
        harness.check(&mut random);
        let stats = harness.index.view().stats();
        assert!(
            stats.levels[1..]
                .iter()
                .filter(|level| level.parts > 0)
                .count()
                >= 3,
            "{stats:?}"
        );
        let expected = match pinned {
            PinnedLevels::Levels(count) => u32::from(count),
            PinnedLevels::Auto => {
                stats.levels[1..]
                    .iter()
                    .filter(|level| level.parts > 0)
                    .count() as u32
                    + 1
            }
        };
        assert_eq!(stats.pinned_levels, expected);
    }
    assert!(worst_without_pins >= 4, "{worst_without_pins}");
}

#[test]
fn pins_follow_the_share_and_are_read_back_after_opening() {
    let mut harness = harness(PinnedLevels::Auto, ROOM);
    let mut random = Random(9);
    for _ in 0..40 {
        harness.flush(&mut random, 100, true);
        harness.settle();
    }
    let whole = harness.index.view().stats().pinned_bytes;
    assert!(whole > 0 && harness.index.view().stats().lookup_reads_max == 0);
    harness.reopen(false);
    assert_eq!(
        harness.index.view().stats().pinned_bytes,
        0,
        "nothing was given yet"
    );
    harness.index.set_memory_share(ROOM);
    harness.settle();
    let stats = harness.index.view().stats();
    assert_eq!((stats.pinned_bytes, stats.lookup_reads_max), (whole, 0));
    // What is taken away goes at once, from below; what is given comes with the next job.
    let mut before = stats.pinned_levels;
    for bytes in [whole / 2, whole / 8, 0] {
        harness.index.set_memory_share(MemoryShare {
            pins_auto_bytes: bytes,
            pins_max_bytes: bytes,
            remap_max_bytes: 0,
        });
        let stats = harness.index.view().stats();
        assert!(
            stats.pinned_bytes <= bytes && stats.pinned_levels <= before,
            "{stats:?}"
        );
        before = stats.pinned_levels;
        harness.check(&mut random);
    }
    harness.index.set_memory_share(ROOM);
    harness.set_options(&LsmOptions {
        pinned_levels: PinnedLevels::Levels(2),
        ..harness.options.clone()
    });
    harness.settle();
    let stats = harness.index.view().stats();
    assert_eq!(stats.pinned_levels, 2);
    assert!(stats.pinned_bytes > 0 && stats.pinned_bytes < whole);
    assert_eq!(
        harness
            .env
            .memory
            .used_bytes(glintdb_core::memory::MemoryPart::Pinned) as u64,
        stats.pinned_bytes
    );
}

/// A table whose blocks are damaged is not pinned, and nothing else is the worse for it; whoever reads it is told.
#[test]
fn damage_is_told_by_reads_and_not_by_pinning() {
    let mut harness = harness(PinnedLevels::Auto, MemoryShare::default());
    let mut random = Random(3);
    for _ in 0..12 {
        harness.flush(&mut random, 100, true);
        harness.settle();
    }
    let slots: Vec<_> = harness
        .index
        .view_for_tests()
        .levels
        .slots()
        .map(|(_, slot)| slot.meta().clone())
        .collect();
    let bad = slots.iter().find(|meta| meta.entries > 0).unwrap();
    harness.volume.flip_bits(bad.id, 4096 + 99, 1).unwrap();
    harness.index.set_memory_share(ROOM);
    harness.checks = false;
    harness.settle();
    let view = harness.index.view_for_tests();
    for (_, slot) in view.levels.slots() {
        assert_eq!(
            slot.table.is_pinned(),
            slot.meta().entries > 0 && slot.meta().id != bad.id
        );
    }
    assert_eq!(view.stats().lookup_reads_max, 1);
    assert!(view.get(&bad.smallest).is_err());
}
