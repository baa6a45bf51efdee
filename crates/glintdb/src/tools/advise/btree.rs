//! The costs of a B+tree, with and without `reshape`.
//!
//! Thread-safe: plain values.

use super::costs::{
    Costs, Memory, PAGE_BYTES, READ_US, SEQUENTIAL_US, false_positives, hits, tail_bytes,
};
use super::{CACHE_ENTRY_BYTES, Prediction, Workload, live_part};
use crate::options::{KeyspaceOptions, Options};

/// Share of a leaf that entries fill on average. Leaves are written 9 tenths full, and random
/// inserts divide them.
const LEAF_FILL: f64 = 0.8;
/// Bytes of memory for each leaf: its separator and its place (`docs/decisions/039-btree.md`).
const LEAF_MEMORY_BYTES: f64 = 40.0;
/// Bytes of a branch for each leaf, besides the separator.
const CHILD_BYTES: f64 = 18.0;
/// The shelf of a reshaped keyspace is settled when this part of its share of memory is in use.
const SHARE_USED: f64 = 7.0 / 8.0;

/// A B+tree with one workload.
pub(super) struct Model<'a> {
    workload: &'a Workload,
    options: &'a Options,
    keyspace: &'a KeyspaceOptions,
    /// Bytes of an entry in a leaf or a run.
    entry: f64,
    /// Number of entries of a flush.
    flushed: f64,
    leaf_bytes: f64,
    /// Number of leaves.
    leaves: f64,
    /// Number of branches above the leaves.
    branches: f64,
}

/// The runs above the tree.
struct Shelf {
    /// Average number of runs.
    runs: f64,
    /// Number of runs from which writers are slowed.
    runs_slow: u32,
    /// Number of entries that a settling merges into the tree.
    settled: f64,
    /// How often an entry is merged with others before it is settled.
    cleanings: f64,
    /// Average number of entries on the shelf.
    entries: f64,
    /// Bytes of memory for each of them: filter and fences.
    tail_bytes: f64,
    /// Bits of a filter for each key.
    filter_bits: u32,
}

impl<'a> Model<'a> {
    pub(super) fn new(
        workload: &'a Workload,
        options: &'a Options,
        keyspace: &'a KeyspaceOptions,
    ) -> Self {
        let entry = workload.entry(options);
        let leaf_bytes = f64::from(keyspace.btree.block_bytes);
        let leaves = workload.records * entry / (leaf_bytes * LEAF_FILL);
        let child_bytes = CHILD_BYTES + workload.key_bytes;
        Model {
            workload,
            options,
            keyspace,
            entry,
            flushed: workload.run(options) / entry,
            leaf_bytes,
            leaves: leaves.ceil(),
            branches: (leaves * child_bytes / PAGE_BYTES).ceil(),
        }
    }

    /// The runs above the tree. Once scans have passed as many entries as a settling would write,
    /// the shelf is settled for them (`docs/decisions/026-compaction-for-scans.md`).
    fn shelf(&self) -> Shelf {
        let mut shelf = self.shelf_without_scans();
        let scanned = self.workload.scan_percent * self.workload.scan_records;
        let scanned_for_a_put = scanned / self.workload.write_percent().max(f64::MIN_POSITIVE);
        if scanned_for_a_put > 1.0 {
            let puts = (self.workload.records / (scanned_for_a_put - 1.0)).max(self.flushed);
            let part = (puts / shelf.settled).min(1.0);
            shelf.settled *= part;
            // Between one and none.
            shelf.runs = (shelf.runs * part).max(0.5);
            shelf.entries *= part;
        }
        shelf
    }

    fn shelf_without_scans(&self) -> Shelf {
        let btree = &self.keyspace.btree;
        let experiments = &btree.experiments;
        let filter_bits = match btree.reshape {
            true => experiments.reshape_filter_bits,
            false => btree.filter_bits_per_key,
        };
        let tail_bytes = tail_bytes(self.workload, self.entry, filter_bits, btree.block_bytes);
        if !btree.reshape {
            let runs = f64::from(experiments.shelf_runs_settle);
            return Shelf {
                runs: runs / 2.0,
                runs_slow: experiments.shelf_runs_slow,
                settled: runs * self.flushed,
                cleanings: 0.0,
                entries: runs / 2.0 * self.flushed,
                tail_bytes,
                filter_bits,
            };
        }
        let share = self.options.memory_budget_bytes as f64 * f64::from(btree.reshape_share);
        let most = (share / 100.0 * SHARE_USED / tail_bytes).max(self.flushed);
        let fan = f64::from(experiments.reshape_fan);
        // A tier has `fan` runs at most, each `fan` times as large as one of the tier before.
        let tiers = (most / self.flushed).ln() / fan.ln();
        let cleanings = tiers.floor().max(0.0);
        Shelf {
            runs: (cleanings + 1.0) * fan / 2.0,
            runs_slow: 4 * experiments.reshape_fan,
            // The oldest tier, which has most of the shelf.
            settled: most * (1.0 - 1.0 / fan),
            cleanings,
            entries: (most / 2.0).min(self.workload.records),
            tail_bytes,
            filter_bits,
        }
    }

    /// Bytes that a settling writes to the tree, and the part of the leaves that it rewrites.
    fn settled(&self, shelf: &Shelf) -> (f64, f64) {
        // Each entry goes to any of the leaves.
        let touched = |nodes: f64| 1.0 - (-shelf.settled / nodes.max(1.0)).exp();
        let leaves = self.leaves * touched(self.leaves) * self.leaf_bytes;
        let branches = self.branches * touched(self.branches) * PAGE_BYTES;
        (leaves + branches, touched(self.leaves))
    }

    pub(super) fn prediction(&self) -> Prediction {
        let Model {
            workload,
            leaf_bytes,
            ..
        } = *self;
        let shelf = self.shelf();
        let in_memory = shelf.entries * shelf.tail_bytes + self.leaves * LEAF_MEMORY_BYTES;
        let memory = Memory::new(workload, self.options, in_memory);
        let tree = self.leaves * leaf_bytes;
        let all = tree + shelf.entries * self.entry;
        let cached = all * (1.0 + CACHE_ENTRY_BYTES / leaf_bytes);
        let misses = 1.0 - hits(memory.cache, cached);
        let value_reads = workload.value_reads(self.options, memory.cache - cached);
        // Each run that has not the key costs a read if its filter errs.
        let false_positives = false_positives(shelf.filter_bits);
        let index_reads = misses * (1.0 + shelf.runs * false_positives);

        let (settled_bytes, touched) = self.settled(&shelf);
        // Leaves that are replaced leave garbage among leaves that are needed, which are moved.
        let live = live_part(self.options);
        let moved = settled_bytes * (1.0 - touched) * live / (1.0 - live);
        let flushed_bytes = shelf.settled * self.entry;
        let of_tree = (settled_bytes + moved) / flushed_bytes;
        let writes = 1.0 + shelf.cleanings + of_tree;
        // A settling reads what it rewrites: leaf by leaf, or all in sequence.
        let nodes = settled_bytes / leaf_bytes;
        let read_us = (nodes * READ_US)
            .min(tree / PAGE_BYTES * SEQUENTIAL_US)
            .max(nodes * SEQUENTIAL_US);
        let scanned = workload.scan_records * self.entry / (PAGE_BYTES * LEAF_FILL);
        let costs = Costs {
            index_reads,
            value_reads,
            scan_blocks: (shelf.runs + 1.0 + scanned) * misses,
            writes,
            compaction_read_us: misses * read_us / shelf.settled
                + (shelf.cleanings * self.entry + moved / shelf.settled) / PAGE_BYTES
                    * SEQUENTIAL_US,
        };
        Prediction {
            levels: 1,
            ratio: (tree / flushed_bytes).max(1.0),
            level_bytes: vec![tree],
            reads_max: shelf.runs_slow,
            ..costs.prediction(workload, self.options, &memory, self.keyspace)
        }
    }
}
