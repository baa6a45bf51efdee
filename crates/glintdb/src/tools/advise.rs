//! Predicts what a shape of the LSM index costs: reads of a lookup, bytes written for each byte
//! stored, and memory. [`advise`](advise()) compares all shapes for a [`Workload`]; [`predict`]
//! predicts one.
//!
//! The model follows "LSM-Tree-Based Key-Value SSDs", §4.4. There, in a tree of *n* levels whose
//! top *k* are pinned, a lookup reads at most n − k − 1 blocks, a byte is written about (n − k − 1)
//! · R^(1/(n − 1)) times for *R* blocks in all, and the pinned levels take the sum of their sizes
//! in memory. This model differs where the engine does:
//!
//! - Level 0 holds runs that wait for a compaction, and counts as a level.
//! - Pinned levels are written as well.
//! - Tables have filters, so a lookup seldom reads more than one block.
//! - The rest of the memory is a cache.
//! - Separated values are written once to the log, and again by value GC.
//!
//! The functions do no I/O.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "predicted sizes: only three digits matter, and none is negative"
)]

use crate::index_kinds::lsm::{LEVELS_BELOW_0_MAX, LsmOptions, level_bytes};
use crate::options::{KeyspaceOptions, Options};
use crate::{Error, Result};
use glintdb_core::index::PinnedLevels;

/// What a keyspace stores, and the mix of operations on it. The model assumes that all keys are
/// used equally often; with skewed use, the cache does better than predicted.
///
/// ```
/// use glintdb::advise::{Workload, advise};
/// let workload = Workload::new(100e6, 16.0, 1000.0).mix(90.0, 5.0);
/// let options = glintdb::Options::default().memory_budget_bytes(8 << 30);
/// let advice = advise(&workload, &options, &Default::default())?;
/// assert!(advice.best.reads_max <= 2);
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

/// Predicted costs of one shape.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Prediction {
    /// Number of levels below level 0 (the paper's n − 1).
    pub levels: u32,
    /// Bytes of each level below level 0, from the top.
    pub level_bytes: Vec<f64>,
    /// Average size ratio of a level to the one above it.
    pub ratio: f64,
    /// Number of pinned levels, level 0 included (the paper's k).
    pub pinned_levels: u32,
    /// Most key blocks that a lookup reads, with the most runs at level 0 that do not slow writers.
    /// A separated value is one more read.
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
    /// Memory of the filters and fences of all tables, in bytes.
    pub filter_bytes: f64,
    /// Memory of pinned levels, in bytes.
    pub pinned_bytes: f64,
    /// Memory left for the cache, in bytes.
    pub cache_bytes: f64,
    /// Whether these parts fit the memory budget.
    pub fits: bool,
    /// Device time of one operation of the mix on average, in microseconds.
    pub device_us: f64,
    /// Keyspace options that select this shape.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub options: KeyspaceOptions,
}

/// The recommended shape, and all shapes that were compared.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Advice {
    /// The recommended shape. Of all shapes that fit the memory and take at most 1 % more of the
    /// device's time than the fastest one, it has the lowest `reads_max`; ties are broken by the
    /// lowest `write_amplification_index`, then by the fewest pinned levels.
    pub best: Prediction,
    /// Every shape that was compared, sorted by levels and pinned levels.
    pub all: Vec<Prediction>,
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
/// Share of their target sizes that levels above the deepest one hold on average: a compaction
/// moves the excess down before the next one adds more.
const UPPER_FILL: f64 = 0.75;
/// Share of the ratio of two levels that moving a byte down rewrites. Less than 1, because tables
/// with the least overlap are compacted first.
const OVERLAP: f64 = 0.6;
/// Device time of a 4 KiB read among many, in microseconds: `docs/decisions/003-io.md`.
const READ_US: f64 = 13.0;
/// Device time of 4 KiB written or read in sequence, in microseconds.
const SEQUENTIAL_US: f64 = 4.0;
const PAGE_BYTES: f64 = 4096.0;
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

    /// Bytes that value GC moves for one put, if puts overwrite records at random. Segments are
    /// emptied about in the order in which they were written. Between the writing and the emptying
    /// of a segment, s times the bytes of the live values are written (s is the space
    /// amplification). Of these, the share 1 - v are puts, where v is the share of a segment that
    /// is still live when it is emptied. A record outlives that many puts with probability v =
    /// exp(-s (1 - v)).
    fn moved(&self, options: &Options) -> f64 {
        if !self.separates(options) || !options.experiments.value_gc {
            return 0.0;
        }
        let space = 1.0 + (options.space_amp_max - 1.0) * GARBAGE_USED;
        let live = (0..200).fold(0.5, |live: f64, _| (-space * (1.0 - live)).exp());
        live / (1.0 - live) * self.log_bytes(options)
    }

    /// Bytes that a flush writes. A memtable is sealed when it is full, or when half of
    /// `replay_bytes_max` was written to the log.
    fn run(&self, options: &Options) -> f64 {
        let in_memory = self.key_bytes + self.payload(options) + MEMTABLE_OVERHEAD_BYTES;
        let by_memory = options.memtable_seal_bytes() as f64 / in_memory;
        let by_log = options.replay_bytes_max as f64 / 2.0 / self.log_bytes(options);
        (by_memory.min(by_log) * self.entry(options)).max(1.0)
    }
}

/// Predicts the costs of `workload` with the options `options` and `lsm`.
///
/// # Errors
/// `InvalidArgument`: a figure of the workload or an option is beyond its limits.
pub fn predict(workload: &Workload, options: &Options, lsm: &LsmOptions) -> Result<Prediction> {
    workload.check()?;
    lsm.validate()?;
    let options = &options.clone().resolve()?;
    Ok(Model::new(workload, options, lsm).prediction())
}

/// Compares trees of every height with every number of pinned levels and recommends one.
///
/// # Errors
/// `InvalidArgument` if a figure or option is outside its limits, or if no shape fits the memory.
pub fn advise(
    workload: &Workload,
    options: &Options,
    keyspace: &KeyspaceOptions,
) -> Result<Advice> {
    let mut all: Vec<Prediction> = Vec::new();
    for levels_max in 1..=LEVELS_BELOW_0_MAX {
        for size_ratio in [100, 30, 20, 16, 12, 10, 8, 7, 6, 5, 4, 3, 2] {
            let mut lsm = keyspace.lsm.clone();
            (lsm.levels_max, lsm.size_ratio) = (levels_max, size_ratio);
            lsm.pinned_levels = PinnedLevels::Levels(0);
            let unpinned = predict(workload, options, &lsm)?;
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
                lsm.pinned_levels = PinnedLevels::Levels(u8::try_from(pinned).unwrap_or(u8::MAX));
                all.push(predict(workload, options, &lsm)?);
            }
            all.push(unpinned);
        }
    }
    all.sort_by_key(|shape| (shape.levels, shape.pinned_levels));
    let Some(best) = choose(&all).cloned() else {
        return Err(Error::invalid(format!(
            "memory_budget_bytes (`--memory`) is {}: no shape of the index fits it, for filters and fences alone take {:.0}",
            options.memory_budget_bytes, all[0].filter_bytes
        )));
    };
    Ok(Advice { best, all })
}

/// The greatest factor between a level and the one above it; with one level, no factor is great
/// enough.
fn greatest_step(level_bytes: &[f64]) -> f64 {
    let steps = level_bytes.windows(2).map(|pair| pair[1] / pair[0]);
    steps.reduce(f64::max).unwrap_or(f64::INFINITY)
}

/// Shapes whose device time is within this factor of the fastest one count as equally fast.
const EQUALLY_FAST: f64 = 1.01;

/// The shape to recommend (see [`Advice::best`]); `None` if none fits the memory. Scans can take so
/// long that all shapes are equally fast; then reads and writes of the index decide.
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

/// One shape of the tree with one workload.
struct Model<'a> {
    workload: &'a Workload,
    options: &'a Options,
    lsm: &'a LsmOptions,
    entry: f64,
    run: f64,
    /// Bytes of the levels below level 0.
    levels: Vec<f64>,
}

impl<'a> Model<'a> {
    fn new(workload: &'a Workload, options: &'a Options, lsm: &'a LsmOptions) -> Self {
        let entry = workload.entry(options);
        let run = workload.run(options);
        let deepest = workload.records * entry;
        let levels = level_bytes(lsm, run as u64, deepest as u64);
        Model {
            workload,
            options,
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

    /// Divides the memory budget as the engine does.
    fn memory(&self, sizes: &[f64]) -> Memory {
        let Model {
            workload,
            options,
            lsm,
            ..
        } = *self;
        let budget = options.memory_budget_bytes as f64;
        let least = budget / 16.0;
        let index: f64 = sizes.iter().sum();
        let filters = index / self.entry * f64::from(lsm.filter_bits_per_key) / 8.0;
        let fences = index / f64::from(lsm.block_bytes) * (workload.key_bytes + 24.0);
        // The cache borrows the memory that memtables do not use.
        let memtables = match workload.write_percent() > 0.0 {
            true => options.memtable_share_bytes() as f64,
            false => least,
        };
        let memtables = memtables + options.log_ring_bytes as f64;
        let rest = (budget - memtables - filters - fences).max(0.0);
        let fitting = |bytes: f64| {
            let mut sum = 0.0;
            let fits = |size: &&f64| {
                sum += **size;
                sum <= bytes
            };
            sizes.iter().take_while(fits).count()
        };
        let (pinned, asked) = match lsm.pinned_levels {
            PinnedLevels::Auto => (fitting(rest / 2.0), 0),
            PinnedLevels::Levels(levels) => {
                let asked = usize::from(levels).min(sizes.len());
                (fitting(rest - least).min(asked), asked)
            }
        };
        let pinned_bytes = sizes[..pinned].iter().sum();
        Memory {
            memtables,
            filters: filters + fences,
            pinned,
            pinned_bytes,
            cache: (rest - pinned_bytes).max(0.0),
            fits: rest >= least && pinned >= asked,
        }
    }

    fn prediction(&self) -> Prediction {
        let Model { workload, lsm, .. } = *self;
        let sizes = self.sizes();
        let memory = self.memory(&sizes);
        let pinned = memory.pinned;

        // Key blocks are used far more often than values, so the cache holds them first.
        let unpinned: f64 = sizes[pinned..].iter().sum();
        let unpinned = unpinned * (1.0 + CACHE_ENTRY_BYTES / f64::from(lsm.block_bytes));
        let misses = 1.0 - hits(memory.cache, unpinned);
        let values = workload.records * (workload.value_bytes + CACHE_ENTRY_BYTES);
        let value_reads = match workload.separates(self.options) {
            true => 1.0 - hits(memory.cache - unpinned, values),
            false => 0.0,
        };
        let false_positives = 0.6185_f64.powf(lsm.filter_bits_per_key.into());
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

        let record = workload.key_bytes + workload.value_bytes;
        let (log_bytes, writes) = (workload.log_bytes(self.options), self.writes());
        let moved = workload.moved(self.options);
        let index_bytes = writes * self.entry;
        // One read returns all pages of a value.
        let value_pages = (workload.value_bytes / PAGE_BYTES).ceil().max(1.0);
        let value_us = value_reads * (READ_US + (value_pages - 1.0) * SEQUENTIAL_US);
        let scan_blocks = sources + workload.scan_records * self.entry / PAGE_BYTES;
        // Compactions and value GC read about as much as they write; a flush reads nothing.
        let sequential = log_bytes + 2.0 * moved + index_bytes + (writes - 1.0) * self.entry;
        let device_us = workload.read_percent * (index_reads * READ_US + value_us)
            + workload.scan_percent
                * (scan_blocks * misses * READ_US + workload.scan_records * value_us)
            + workload.write_percent() * sequential / PAGE_BYTES * SEQUENTIAL_US;
        let deepest = self.levels[self.levels.len() - 1];
        let ratio = (deepest / self.batch()).max(1.0);
        Prediction {
            levels: self.levels.len() as u32,
            ratio: ratio.powf(1.0 / self.levels.len() as f64),
            level_bytes: self.levels.clone(),
            pinned_levels: pinned as u32,
            reads_max,
            reads_mean: index_reads + value_reads,
            write_amplification_log: log_bytes / record.max(1.0),
            write_amplification_gc: moved / record.max(1.0),
            write_amplification_index: index_bytes / record.max(1.0),
            writes_of_a_flushed_byte: writes,
            memtable_bytes: memory.memtables,
            filter_bytes: memory.filters,
            pinned_bytes: memory.pinned_bytes,
            cache_bytes: memory.cache,
            fits: memory.fits,
            device_us: device_us / 100.0,
            options: KeyspaceOptions {
                lsm: lsm.clone(),
                ..KeyspaceOptions::default()
            },
        }
    }
}

/// The divided memory budget, in bytes.
struct Memory {
    memtables: f64,
    filters: f64,
    /// Number of pinned levels.
    pinned: usize,
    pinned_bytes: f64,
    cache: f64,
    fits: bool,
}

/// Share of uniform lookups in `all` bytes that hit a cache of `cache` bytes.
fn hits(cache: f64, all: f64) -> f64 {
    match all > 0.0 {
        true => (cache / all).clamp(0.0, 1.0),
        false => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options(memory: usize) -> Options {
        Options::default().memory_budget_bytes(memory)
    }

    #[test]
    fn pins_and_heights_trade_reads_for_writes_and_memory_as_in_the_paper() {
        let workload = Workload::new(500e6, 32.0, 1000.0);
        let advice = advise(&workload, &options(64 << 30), &KeyspaceOptions::default()).unwrap();
        for a in &advice.all {
            for b in &advice.all {
                if a.levels == b.levels
                    && a.level_bytes == b.level_bytes
                    && a.pinned_levels < b.pinned_levels
                {
                    assert!(a.reads_max > b.reads_max && a.pinned_bytes < b.pinned_bytes);
                    assert!(a.writes_of_a_flushed_byte == b.writes_of_a_flushed_byte);
                }
            }
        }
        let least_writes = |levels| {
            let of = advice.all.iter().filter(|shape| shape.levels == levels);
            of.map(|shape| shape.writes_of_a_flushed_byte)
                .fold(f64::MAX, f64::min)
        };
        assert!(least_writes(1) > 4.0 * least_writes(2));
        assert!(least_writes(2) > least_writes(3));
        // With all but the last level pinned never more than one read (Table 1).
        let pinned: Vec<_> = advice
            .all
            .iter()
            .filter(|shape| shape.fits && shape.pinned_levels == shape.levels)
            .collect();
        assert!(!pinned.is_empty() && pinned.iter().all(|shape| shape.reads_max == 1));
    }

    #[test]
    fn who_reads_gets_pins_and_who_writes_gets_a_higher_tree() {
        let workload = Workload::new(200e6, 16.0, 100.0);
        let best = |read| {
            let workload = workload.clone().mix(read, 0.0);
            advise(&workload, &options(1 << 30), &KeyspaceOptions::default())
                .unwrap()
                .best
        };
        let (reads, writes) = (best(99.0), best(0.0));
        assert!(
            reads.reads_mean <= writes.reads_mean,
            "{reads:?} {writes:?}"
        );
        assert!(writes.writes_of_a_flushed_byte <= reads.writes_of_a_flushed_byte);
    }

    /// Long scans take so much of the device that nothing else seems to matter: the shape that was
    /// named then wrote 17 times more than another one.
    #[test]
    fn where_scans_hide_the_rest_what_is_written_decides() {
        let mut workload = Workload::new(1e9, 16.0, 1000.0).mix(50.0, 30.0);
        workload.scan_records = 1000.0;
        let advice = advise(&workload, &options(4 << 30), &KeyspaceOptions::default()).unwrap();
        let best = &advice.best;
        let as_good = |shape: &&Prediction| {
            shape.fits
                && shape.reads_max <= best.reads_max
                && shape.device_us < best.device_us * 1.005
        };
        let written = |shape: &Prediction| shape.write_amplification_index;
        let least = (advice.all.iter().filter(as_good).map(written)).fold(f64::MAX, f64::min);
        assert!(written(best) < 1.5 * least, "{best:?}");
    }

    /// The example of `glintdb advise --help`.
    #[test]
    fn recommended_shape_of_the_help_example_is_within_one_percent_of_the_fastest() {
        let options = options(16 << 30);
        let workload = Workload::of_capacity(1e12_f64, 16.0, 1000.0, &options).mix(90.0, 5.0);
        let advice = advise(&workload, &options, &KeyspaceOptions::default()).unwrap();
        assert_recommended_is_right(&workload, &options, &advice);
        // The size ratio of the recommended shape is that of its levels, rounded up.
        let step = greatest_step(&advice.best.level_bytes);
        let ratio = f64::from(advice.best.options.lsm.size_ratio);
        assert!(step <= ratio && ratio < step + 2.0, "{step} {ratio}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 48 }))]

        #[test]
        fn prop_recommended_shape_is_within_one_percent_of_the_fastest(
            records in 1e3..1e10_f64,
            key_bytes in 1.0..200.0_f64,
            value_bytes in 0.0..20_000.0_f64,
            memory_mib in 64..65_536_usize,
            read_percent in 0.0..100.0_f64,
            scan_share in 0.0..1.0_f64,
            scan_records in 1.0..2000.0_f64,
        ) {
            let scan_percent = (100.0 - read_percent) * scan_share;
            let workload = Workload {
                scan_records,
                ..Workload::new(records, key_bytes, value_bytes).mix(read_percent, scan_percent)
            };
            let options = options(memory_mib << 20);
            if let Ok(advice) = advise(&workload, &options, &KeyspaceOptions::default()) {
                assert_recommended_is_right(&workload, &options, &advice);
            }
        }
    }

    fn assert_recommended_is_right(workload: &Workload, options: &Options, advice: &Advice) {
        let best = &advice.best;
        let fitting = || advice.all.iter().filter(|shape| shape.fits);
        let fastest_us = fitting()
            .map(|shape| shape.device_us)
            .fold(f64::MAX, f64::min);
        assert!(
            best.fits && best.device_us <= 1.01 * fastest_us,
            "{} µs is recommended, {fastest_us} µs is possible",
            best.device_us
        );
        // Among the shapes that are as fast, none is cheaper.
        let cost = |shape: &Prediction| (shape.reads_max, shape.write_amplification_index);
        for shape in fitting().filter(|shape| shape.device_us <= 1.01 * fastest_us) {
            assert!(
                cost(shape) >= cost(best),
                "{shape:?} is cheaper than {best:?}"
            );
        }
        // The options of every shape lead to that shape.
        for shape in fitting() {
            let lsm = &shape.options.lsm;
            assert_eq!(lsm.levels_max, shape.levels);
            assert_eq!(
                lsm.pinned_levels.to_string(),
                shape.pinned_levels.to_string()
            );
            assert_eq!(&predict(workload, options, lsm).unwrap(), shape);
        }
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        type Spoil = fn(&mut Workload);
        let bad: [(&str, Spoil); 5] = [
            ("records", |w| w.records = 0.0),
            ("key_bytes", |w| w.key_bytes = f64::NAN),
            ("value_bytes", |w| w.value_bytes = -1.0),
            ("read_percent", |w| w.read_percent = 101.0),
            ("together", |w| {
                (w.read_percent, w.scan_percent) = (60.0, 60.0)
            }),
        ];
        for (words, spoil) in bad {
            let mut workload = Workload::new(1e6, 16.0, 100.0);
            spoil(&mut workload);
            let error =
                advise(&workload, &options(1 << 30), &KeyspaceOptions::default()).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
        let error = advise(
            &Workload::new(1e12, 16.0, 100.0),
            &options(8 << 20),
            &KeyspaceOptions::default(),
        )
        .unwrap_err();
        assert!(error.to_string().contains("no shape"), "{error}");
    }
}
