//! Predicts what an index costs: reads of a lookup, bytes written for each byte stored, memory, and
//! device time. [`advise`](advise()) compares LSM trees of all shapes, a B+tree, and a reshaped
//! B+tree for a [`Workload`]; [`predict`] predicts one.
//!
//! The model of LSM trees follows "LSM-Tree-Based Key-Value SSDs", §4.4. There, in a tree of *n*
//! levels whose top *k* are pinned, a lookup reads at most n − k − 1 blocks, a byte is written
//! about (n − k − 1) · R^(1/(n − 1)) times for *R* blocks in all, and the pinned levels take the
//! sum of their sizes in memory. This model differs where the engine does:
//!
//! - Level 0 holds runs that wait for a compaction, and counts as a level.
//! - Pinned levels are written as well.
//! - Tables have filters, so a lookup seldom reads more than one block.
//! - The rest of the memory is a cache.
//! - Separated values are written once to the log, and again by value GC.
//!
//! A B+tree is settled in rounds. Of *L* leaves, a round of *n* entries rewrites
//! L · (1 − e^(−n/L)), and reads those that are not cached. With `reshape`, *n* is as large as the
//! share of memory for filters of the shelf allows, and an entry is merged a few times on the shelf
//! before (`docs/decisions/041-reshaping.md`).
//!
//! The functions do no I/O.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "predicted sizes: only three digits matter, and none is negative"
)]

mod btree;
mod costs;
mod lsm;
#[cfg(test)]
mod tests;

use crate::index_kinds;
use crate::index_kinds::lsm::LEVELS_BELOW_0_MAX;
use crate::options::{IndexKind, KeyspaceOptions, Options};
use crate::{Error, Result};
use costs::hits;
use glintdb_core::index::PinnedLevels;

/// What a keyspace stores, and the mix of operations on it. The model assumes that all keys are
/// used equally often; with skewed use, the cache does better than predicted.
///
/// ```
/// use glintdb::advise::{Workload, advise};
/// let workload = Workload::new(100e6, 16.0, 1000.0).mix(90.0, 5.0);
/// let options = glintdb::Options::default().memory_budget_bytes(8 << 30);
/// let advice = advise(&workload, &options, &Default::default())?;
/// assert!(advice.best.fits && advice.kinds.len() == 3);
/// println!("{}", advice.reason);
/// # Ok::<(), glintdb::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Workload {
    /// Number of records.
    pub records: f64,
    /// Average bytes of a key.
    pub key_bytes: f64,
    /// Average bytes of a value.
    pub value_bytes: f64,
    /// Lookups of single keys, in percent of all operations. Operations that are neither lookups
    /// nor scans are writes.
    pub read_percent: f64,
    /// Scans, in percent of all operations.
    pub scan_percent: f64,
    /// Number of records that a scan returns.
    pub scan_records: f64,
    /// Bytes of an entry in the index, if known. Else they follow from key and value.
    pub entry_bytes: Option<f64>,
}

/// Predicted costs of one index.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Prediction {
    /// Number of levels below level 0 (the paper's n − 1). Of a B+tree 1: the tree.
    pub levels: u32,
    /// Bytes of each level below level 0, from the top.
    pub level_bytes: Vec<f64>,
    /// Average size ratio of a level to the one above it; of a B+tree to what a settling brings.
    pub ratio: f64,
    /// Number of pinned levels, level 0 included (the paper's k).
    pub pinned_levels: u32,
    /// Most key blocks that a lookup reads, with the most runs at level 0 or on the shelf that do
    /// not slow writers. A separated value is one more read.
    pub reads_max: u32,
    /// Average reads of a lookup of a key that exists, with the read of its separated value.
    pub reads_mean: f64,
    /// Bytes that commits write to the log for each byte of keys and values.
    pub write_amplification_log: f64,
    /// Bytes that value GC writes for each byte of keys and values, if every write overwrites a
    /// random record.
    pub write_amplification_gc: f64,
    /// Bytes that flushes and compactions write for each byte of keys and values.
    pub write_amplification_index: f64,
    /// Bytes that flushes and compactions write for each byte that is flushed.
    pub writes_of_a_flushed_byte: f64,
    /// Memory of memtables and the log's ring, in bytes.
    pub memtable_bytes: f64,
    /// Memory of the filters and fences of all tables, and of a B+tree's branches, in bytes.
    pub filter_bytes: f64,
    /// Memory of pinned levels, in bytes.
    pub pinned_bytes: f64,
    /// Memory left for the cache, in bytes.
    pub cache_bytes: f64,
    /// Whether these parts fit the memory budget.
    pub fits: bool,
    /// Device time of a lookup, in microseconds.
    pub lookup_us: f64,
    /// Device time of a scan, in microseconds.
    pub scan_us: f64,
    /// Device time of a write with its part of flushes, compactions and value GC, in microseconds.
    pub write_us: f64,
    /// Device time of one operation of the mix on average, in microseconds.
    pub device_us: f64,
    /// Keyspace options that select this index.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub options: KeyspaceOptions,
}

/// The recommended index, and all that were compared.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Advice {
    /// The recommended index: the first of `kinds` that takes at most a tenth more of the device's
    /// time than the fastest one.
    pub best: Prediction,
    /// Why, in a sentence.
    pub reason: String,
    /// The best index of each kind that fits the memory: the LSM tree first, then the B+tree, then
    /// the reshaped one. Of the LSM trees that take at most 1 % more of the device's time than the
    /// fastest one, it is the one with the lowest `reads_max`; ties are broken by the lowest
    /// `write_amplification_index`, then by the fewest pinned levels.
    pub kinds: Vec<Prediction>,
    /// Every LSM tree that was compared, sorted by levels and pinned levels.
    pub shapes: Vec<Prediction>,
}

/// Bytes of an entry in a table beyond its key and value: its header, and its share of restarts,
/// fences and the block's trailer.
const ENTRY_OVERHEAD_BYTES: f64 = 5.0;
/// Bytes of a pointer to a separated value.
const POINTER_BYTES: f64 = 20.0;
/// Bytes of a record in a memtable beyond its key and its value or pointer, with leaves 70 % full.
const MEMTABLE_OVERHEAD_BYTES: f64 = 60.0;
/// Bytes of the header of a log frame.
const FRAME_BYTES: f64 = 40.0;
/// Bytes of a cached value or block beyond its content.
const CACHE_ENTRY_BYTES: f64 = 100.0;
/// Share of the garbage allowed by `space_amp_max` that dead values get. Value GC starts before the
/// bound is reached, and frame headers, the index and unflushed commits count against it.
const GARBAGE_USED: f64 = 0.85;

impl Workload {
    /// Returns a workload of half lookups and half writes on `records` records. Set another mix
    /// with [`mix`](Self::mix).
    #[must_use]
    pub fn new(records: f64, key_bytes: f64, value_bytes: f64) -> Self {
        Workload {
            records,
            key_bytes,
            value_bytes,
            read_percent: 50.0,
            scan_percent: 0.0,
            scan_records: 50.0,
            entry_bytes: None,
        }
    }

    /// Returns a workload with as many records as fit on a device of `capacity_bytes` bytes.
    #[must_use]
    pub fn of_capacity(
        capacity_bytes: f64,
        key_bytes: f64,
        value_bytes: f64,
        options: &Options,
    ) -> Self {
        let mut workload = Self::new(1.0, key_bytes, value_bytes);
        // The upper levels add a tenth to the index, and dead values add to the live ones.
        let mut record = workload.entry(options) * 1.1;
        if workload.separates(options) {
            record += workload.log_bytes(options) * options.space_amp_max;
        }
        workload.records = (capacity_bytes / record).max(1.0);
        workload
    }

    /// Sets the shares of lookups and scans, in percent of all operations. The rest are writes.
    #[must_use]
    pub fn mix(mut self, read_percent: f64, scan_percent: f64) -> Self {
        (self.read_percent, self.scan_percent) = (read_percent, scan_percent);
        self
    }

    fn check(&self) -> Result<()> {
        let wrong = |name: &str, value: f64, limits: &str| {
            Err(Error::invalid(format!("{name} is {value}; {limits}")))
        };
        for (name, value, least) in [
            ("records", self.records, 1.0),
            ("key_bytes", self.key_bytes, 0.0),
            ("value_bytes", self.value_bytes, 0.0),
            ("scan_records", self.scan_records, 1.0),
        ] {
            if !value.is_finite() || value < least {
                return wrong(name, value, &format!("it must be at least {least}"));
            }
        }
        for (name, value) in [
            ("read_percent", self.read_percent),
            ("scan_percent", self.scan_percent),
            (
                "read_percent and scan_percent together",
                self.read_percent + self.scan_percent,
            ),
        ] {
            if !(0.0..=100.0).contains(&value) {
                return wrong(name, value, "it must be from 0 to 100");
            }
        }
        Ok(())
    }

    fn write_percent(&self) -> f64 {
        100.0 - self.read_percent - self.scan_percent
    }

    fn separates(&self, options: &Options) -> bool {
        self.value_bytes >= options.separate_min_bytes as f64
    }

    /// Bytes of the value, or of its pointer, in memtables and tables.
    fn payload(&self, options: &Options) -> f64 {
        match self.separates(options) {
            true => POINTER_BYTES,
            false => self.value_bytes,
        }
    }

    fn entry(&self, options: &Options) -> f64 {
        let estimate = self.key_bytes + self.payload(options) + ENTRY_OVERHEAD_BYTES;
        self.entry_bytes.unwrap_or(estimate)
    }

    /// Bytes that a commit of one put takes in the log.
    fn log_bytes(&self, options: &Options) -> f64 {
        let pad8 = |bytes: f64| (bytes / 8.0).ceil() * 8.0;
        match self.separates(options) {
            true => FRAME_BYTES + pad8(self.key_bytes + 9.0) + pad8(self.value_bytes),
            false => FRAME_BYTES + pad8(self.key_bytes + self.value_bytes + 4.0),
        }
    }

    /// Bytes that value GC moves for one put, if puts overwrite records at random.
    fn moved(&self, options: &Options) -> f64 {
        if !self.separates(options) || !options.experiments.value_gc {
            return 0.0;
        }
        let live = live_part(options);
        live / (1.0 - live) * self.log_bytes(options)
    }

    /// Average reads of a separated value, if values have `cache` bytes of the cache.
    fn value_reads(&self, options: &Options, cache: f64) -> f64 {
        let values = self.records * (self.value_bytes + CACHE_ENTRY_BYTES);
        match self.separates(options) {
            true => 1.0 - hits(cache, values),
            false => 0.0,
        }
    }

    /// Bytes that a flush writes. A memtable is sealed when it is full, or when half of
    /// `replay_bytes_max` was written to the log.
    fn run(&self, options: &Options) -> f64 {
        let in_memory = self.key_bytes + self.payload(options) + MEMTABLE_OVERHEAD_BYTES;
        let by_memory = options.memtable_seal_bytes() as f64 / in_memory;
        let by_log = options.replay_bytes_max as f64 / 2.0 / self.log_bytes(options);
        // A flush has one entry a key.
        let entries = by_memory.min(by_log).min(self.records);
        (entries * self.entry(options)).max(1.0)
    }
}

/// The part of a file that is still live when the file is emptied, if records are replaced at
/// random. Files are emptied about in the order in which they were written. Between the writing and
/// the emptying of a file, s times the live bytes are written (s is the space amplification). Of
/// these, the share 1 - v is new, where v is the live part. A record outlives that much with
/// probability v = exp(-s (1 - v)).
fn live_part(options: &Options) -> f64 {
    let space = 1.0 + (options.space_amp_max - 1.0) * GARBAGE_USED;
    (0..200).fold(0.5, |live: f64, _| (-space * (1.0 - live)).exp())
}

/// Predicts the costs of `workload` with an index of a keyspace with these options.
///
/// # Errors
/// `InvalidArgument`: a figure of the workload or an option is beyond its limits.
pub fn predict(
    workload: &Workload,
    options: &Options,
    keyspace: &KeyspaceOptions,
) -> Result<Prediction> {
    workload.check()?;
    index_kinds::validate(keyspace)?;
    let options = &options.clone().resolve()?;
    Ok(match keyspace.index {
        IndexKind::Lsm => lsm::Model::new(workload, options, keyspace).prediction(),
        IndexKind::BTree => btree::Model::new(workload, options, keyspace).prediction(),
    })
}

/// Compares LSM trees of every height with every number of pinned levels, a B+tree and a reshaped
/// B+tree, and recommends one. Other options are those of `keyspace`.
///
/// # Errors
/// `InvalidArgument` if a figure or option is outside its limits, or if no index fits the memory.
pub fn advise(
    workload: &Workload,
    options: &Options,
    keyspace: &KeyspaceOptions,
) -> Result<Advice> {
    let shapes = shapes(workload, options, keyspace)?;
    let mut kinds: Vec<Prediction> = choose(&shapes).cloned().into_iter().collect();
    for reshape in [false, true] {
        let btree = keyspace.btree.clone().reshape(reshape);
        let keyspace = KeyspaceOptions::default()
            .index(IndexKind::BTree)
            .btree(btree);
        kinds.push(predict(workload, options, &keyspace)?);
    }
    kinds.retain(|kind| kind.fits);
    let Some(best) = choose_kind(&kinds).cloned() else {
        return Err(Error::invalid(format!(
            "memory_budget_bytes (`--memory`) is {}: no index fits it, for filters and fences of \
             an LSM tree alone take {:.0}",
            options.memory_budget_bytes, shapes[0].filter_bytes
        )));
    };
    Ok(Advice {
        reason: reason(workload, &best, &kinds),
        best,
        kinds,
        shapes,
    })
}

/// LSM trees of every height with every number of pinned levels.
fn shapes(
    workload: &Workload,
    options: &Options,
    keyspace: &KeyspaceOptions,
) -> Result<Vec<Prediction>> {
    let mut all: Vec<Prediction> = Vec::new();
    for levels_max in 1..=LEVELS_BELOW_0_MAX {
        for size_ratio in [100, 30, 20, 16, 12, 10, 8, 7, 6, 5, 4, 3, 2] {
            let mut keyspace = KeyspaceOptions::default().lsm(keyspace.lsm.clone());
            let lsm = &mut keyspace.lsm;
            (lsm.levels_max, lsm.size_ratio) = (levels_max, size_ratio);
            lsm.pinned_levels = PinnedLevels::Levels(0);
            let unpinned = predict(workload, options, &keyspace)?;
            // Several size ratios give the same levels. The shape has the least one that is no less
            // than the steps between its levels.
            let mut same = (all.iter_mut())
                .filter(|seen| seen.level_bytes == unpinned.level_bytes)
                .peekable();
            if same.peek().is_some() {
                if f64::from(size_ratio) >= greatest_step(&unpinned.level_bytes) {
                    same.for_each(|seen| seen.options.lsm.size_ratio = size_ratio);
                }
                continue;
            }
            for pinned in 1..=unpinned.levels + 1 {
                let pinned = u8::try_from(pinned).unwrap_or(u8::MAX);
                keyspace.lsm.pinned_levels = PinnedLevels::Levels(pinned);
                all.push(predict(workload, options, &keyspace)?);
            }
            all.push(unpinned);
        }
    }
    all.sort_by_key(|shape| (shape.levels, shape.pinned_levels));
    Ok(all)
}

/// The greatest factor between a level and the one above it; with one level, no factor is great
/// enough.
fn greatest_step(level_bytes: &[f64]) -> f64 {
    let steps = level_bytes.windows(2).map(|pair| pair[1] / pair[0]);
    steps.reduce(f64::max).unwrap_or(f64::INFINITY)
}

/// Shapes whose device time is within this factor of the fastest one count as equally fast.
const EQUALLY_FAST: f64 = 1.01;
/// A simpler kind is recommended up to this factor of the device time of the fastest one: the model
/// is not more exact.
const SIMPLER_UP_TO: f64 = 1.1;
/// Less device time than this for an operation, in microseconds, is none.
const NO_TIME_US: f64 = 0.1;

/// The shape to recommend (see [`Advice::kinds`]); `None` if none fits the memory. Scans can take
/// so long that all shapes are equally fast; then reads and writes of the index decide.
fn choose(all: &[Prediction]) -> Option<&Prediction> {
    let fitting = || all.iter().filter(|shape| shape.fits);
    let fastest_us = fitting().map(|shape| shape.device_us).reduce(f64::min)?;
    let equally_fast = fitting().filter(|shape| shape.device_us <= EQUALLY_FAST * fastest_us);
    equally_fast.min_by(|a, b| {
        let written = |shape: &Prediction| shape.write_amplification_index;
        (a.reads_max.cmp(&b.reads_max))
            .then_with(|| written(a).total_cmp(&written(b)))
            .then_with(|| a.pinned_levels.cmp(&b.pinned_levels))
    })
}

/// The kind to recommend (see [`Advice::best`]).
fn choose_kind(kinds: &[Prediction]) -> Option<&Prediction> {
    let fastest_us = (kinds.iter().map(|kind| kind.device_us)).reduce(f64::min)?;
    kinds
        .iter()
        .find(|kind| kind.device_us <= SIMPLER_UP_TO * fastest_us + NO_TIME_US)
}

/// Why `best` is recommended: how much more device time the others take, and for what.
fn reason(workload: &Workload, best: &Prediction, kinds: &[Prediction]) -> String {
    let name = |kind: &Prediction| kind.options.index_name();
    let others = kinds.iter().filter(|kind| name(kind) != name(best));
    let compared: Vec<String> = others
        .map(|other| {
            let parts = [
                (
                    "lookups",
                    workload.read_percent,
                    other.lookup_us - best.lookup_us,
                ),
                ("scans", workload.scan_percent, other.scan_us - best.scan_us),
                (
                    "writes",
                    workload.write_percent(),
                    other.write_us - best.write_us,
                ),
            ];
            // The operations that make most of the difference.
            let sign = (other.device_us - best.device_us).signum();
            let weight = |&(_, percent, more): &(&str, f64, f64)| sign * percent * more;
            let most = parts
                .into_iter()
                .max_by(|a, b| weight(a).total_cmp(&weight(b)));
            let operations = most.map_or("operations", |(operations, ..)| operations);
            let compared = match best.device_us < NO_TIME_US {
                true => format!("{:.1} µs more", other.device_us - best.device_us),
                false => format!(
                    "{:.2} times the device time",
                    other.device_us / best.device_us
                ),
            };
            format!("{} takes {compared}, mostly for {operations}", name(other))
        })
        .collect();
    match compared.is_empty() {
        true => format!("{}: nothing else fits the memory", name(best)),
        false => format!("{}: {}", name(best), compared.join("; ")),
    }
}
