//! The costs of one shape of an LSM tree.
//!
//! Thread-safe: plain values.

use super::costs::{Costs, Memory, PAGE_BYTES, SEQUENTIAL_US, false_positives, hits, tail_bytes};
use super::{CACHE_ENTRY_BYTES, Prediction, Workload};
use crate::index_kinds::lsm::{LsmOptions, level_bytes};
use crate::options::{KeyspaceOptions, Options};
use glintdb_core::index::PinnedLevels;

/// Share of their target sizes that levels above the deepest one hold on average: a compaction
/// moves the excess down before the next one adds more.
const UPPER_FILL: f64 = 0.75;
/// Share of the ratio of two levels that moving a byte down rewrites. Less than 1, because tables
/// with the least overlap are compacted first.
const OVERLAP: f64 = 0.6;

/// One shape of the tree with one workload.
pub(super) struct Model<'a> {
    workload: &'a Workload,
    options: &'a Options,
    keyspace: &'a KeyspaceOptions,
    lsm: &'a LsmOptions,
    entry: f64,
    run: f64,
    /// Bytes of the levels below level 0.
    levels: Vec<f64>,
}

impl<'a> Model<'a> {
    pub(super) fn new(
        workload: &'a Workload,
        options: &'a Options,
        keyspace: &'a KeyspaceOptions,
    ) -> Self {
        let lsm = &keyspace.lsm;
        let entry = workload.entry(options);
        let run = workload.run(options);
        let deepest = workload.records * entry;
        let levels = level_bytes(lsm, run as u64, deepest as u64);
        Model {
            workload,
            options,
            keyspace,
            lsm,
            entry,
            run,
            levels: levels.into_iter().map(|bytes| bytes as f64).collect(),
        }
    }

    /// Bytes that a compaction of level 0 moves to the base level.
    fn batch(&self) -> f64 {
        self.run * f64::from(self.lsm.experiments.level0_runs_compact)
    }

    /// Bytes written for each flushed byte: one by the flush, then with the overlapping bytes of
    /// the base level, then with those of each level further down.
    fn writes(&self) -> f64 {
        let into_base = 1.0 + self.levels[0] * UPPER_FILL / self.batch();
        let steps = self.levels.windows(2);
        let down = steps.map(|pair| OVERLAP * pair[1] / pair[0].max(1.0));
        1.0 + into_base + down.sum::<f64>()
    }

    /// Average bytes in each level, level 0 first.
    fn sizes(&self) -> Vec<f64> {
        let deepest = self.levels.len() - 1;
        let below = self.levels.iter().enumerate().map(|(at, bytes)| match at {
            at if at == deepest => *bytes,
            _ => bytes * UPPER_FILL,
        });
        std::iter::once(self.batch() / 2.0).chain(below).collect()
    }

    /// Divides the memory budget. Returns it with the number of pinned levels.
    fn memory(&self, sizes: &[f64]) -> (Memory, usize) {
        let Model { workload, lsm, .. } = *self;
        let index: f64 = sizes.iter().sum();
        let (bits, block_bytes) = (lsm.filter_bits_per_key, lsm.block_bytes);
        let filters = index / self.entry * tail_bytes(workload, self.entry, bits, block_bytes);
        let mut memory = Memory::new(workload, self.options, filters);
        let fitting = |bytes: f64| {
            let mut sum = 0.0;
            let fits = |size: &&f64| {
                sum += **size;
                sum <= bytes
            };
            sizes.iter().take_while(fits).count()
        };
        let rest = memory.cache;
        let (pinned, asked) = match lsm.pinned_levels {
            PinnedLevels::Auto => (fitting(rest / 2.0), 0),
            PinnedLevels::Levels(levels) => {
                let asked = usize::from(levels).min(sizes.len());
                (fitting(rest - memory.cache_min).min(asked), asked)
            }
        };
        memory.fits &= pinned >= asked;
        memory.pin(sizes[..pinned].iter().sum());
        (memory, pinned)
    }

    pub(super) fn prediction(&self) -> Prediction {
        let Model { workload, lsm, .. } = *self;
        let sizes = self.sizes();
        let (memory, pinned) = self.memory(&sizes);

        // Key blocks are used far more often than values, so the cache holds them first.
        let unpinned: f64 = sizes[pinned..].iter().sum();
        let unpinned = unpinned * (1.0 + CACHE_ENTRY_BYTES / f64::from(lsm.block_bytes));
        let misses = 1.0 - hits(memory.cache, unpinned);
        let false_positives = false_positives(lsm.filter_bits_per_key);
        let index: f64 = sizes.iter().sum();
        let (mut index_reads, mut sources) = (0.0, 0.0);
        for (at, size) in sizes.iter().enumerate().skip(pinned) {
            // Each unpinned source above the key's level costs a read if its filter errs.
            index_reads += size / index * misses * (1.0 + sources * false_positives);
            sources += match at {
                0 => f64::from(lsm.experiments.level0_runs_compact) / 2.0,
                _ => 1.0,
            };
        }
        let unpinned_levels = (sizes.len() - pinned) as u32;
        let reads_max = match pinned {
            0 => lsm.experiments.level0_runs_slow - 1 + unpinned_levels - 1,
            _ => unpinned_levels,
        };
        let writes = self.writes();
        let scanned = workload.scan_records * self.entry / PAGE_BYTES;
        let costs = Costs {
            index_reads,
            value_reads: workload.value_reads(self.options, memory.cache - unpinned),
            scan_blocks: (sources + scanned) * misses,
            writes,
            // Compactions read about as much as they write; a flush reads nothing.
            compaction_read_us: (writes - 1.0) * self.entry / PAGE_BYTES * SEQUENTIAL_US,
        };
        let deepest = self.levels[self.levels.len() - 1];
        let ratio = (deepest / self.batch()).max(1.0);
        Prediction {
            levels: self.levels.len() as u32,
            ratio: ratio.powf(1.0 / self.levels.len() as f64),
            level_bytes: self.levels.clone(),
            pinned_levels: pinned as u32,
            reads_max,
            ..costs.prediction(workload, self.options, &memory, self.keyspace)
        }
    }
}
