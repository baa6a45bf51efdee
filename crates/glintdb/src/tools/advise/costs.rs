//! What indexes of both kinds share: the rest of the memory budget, and the device time of
//! operations that read and write so much.
//!
//! Thread-safe: plain values.

use super::{Prediction, Workload};
use crate::options::{KeyspaceOptions, Options};

/// Device time of a 4 KiB read among many, in microseconds: `docs/decisions/003-io.md`.
pub(super) const READ_US: f64 = 13.0;
/// Device time of 4 KiB written or read in sequence, in microseconds.
pub(super) const SEQUENTIAL_US: f64 = 4.0;
pub(super) const PAGE_BYTES: f64 = 4096.0;
/// Bytes of memory of a fence, besides its key.
const FENCE_BYTES: f64 = 24.0;

/// Bytes of memory for each entry of a table: its part of the filter and of the fences.
pub(super) fn tail_bytes(
    workload: &Workload,
    entry: f64,
    filter_bits: u32,
    block_bytes: u32,
) -> f64 {
    let fences = entry / f64::from(block_bytes) * (workload.key_bytes + FENCE_BYTES);
    f64::from(filter_bits) / 8.0 + fences
}

/// Share of lookups for which a filter errs.
pub(super) fn false_positives(filter_bits: u32) -> f64 {
    0.6185_f64.powf(filter_bits.into())
}

/// The divided memory budget, in bytes.
pub(super) struct Memory {
    pub(super) memtables: f64,
    pub(super) filters: f64,
    pub(super) pinned_bytes: f64,
    pub(super) cache: f64,
    pub(super) fits: bool,
    /// The least that the cache needs.
    pub(super) cache_min: f64,
}

impl Memory {
    /// Divides the budget as the engine does. The index has `filters` bytes in memory, whatever it
    /// pins.
    pub(super) fn new(workload: &Workload, options: &Options, filters: f64) -> Self {
        let budget = options.memory_budget_bytes as f64;
        let cache_min = budget / 16.0;
        // The cache borrows the memory that memtables do not use.
        let memtables = match workload.write_percent() > 0.0 {
            true => options.memtable_share_bytes() as f64,
            false => cache_min,
        };
        let memtables = memtables + options.log_ring_bytes as f64;
        let rest = (budget - memtables - filters).max(0.0);
        Memory {
            memtables,
            filters,
            pinned_bytes: 0.0,
            cache: rest,
            fits: rest >= cache_min,
            cache_min,
        }
    }

    /// Takes `bytes` of the cache for pinned levels.
    pub(super) fn pin(&mut self, bytes: f64) {
        self.pinned_bytes = bytes;
        self.cache = (self.cache - bytes).max(0.0);
    }
}

/// Share of uniform lookups in `all` bytes that hit a cache of `cache` bytes.
pub(super) fn hits(cache: f64, all: f64) -> f64 {
    match all > 0.0 {
        true => (cache / all).clamp(0.0, 1.0),
        false => 1.0,
    }
}

/// What the operations read and write.
pub(super) struct Costs {
    /// Average reads of a lookup in the index.
    pub(super) index_reads: f64,
    /// Average reads of a value.
    pub(super) value_reads: f64,
    /// Average reads of a scan in the index.
    pub(super) scan_blocks: f64,
    /// Bytes that flushes and jobs write for each byte that is flushed.
    pub(super) writes: f64,
    /// Device time that jobs read for one put, in microseconds.
    pub(super) compaction_read_us: f64,
}

impl Costs {
    /// The prediction, but for the shape of the index.
    pub(super) fn prediction(
        &self,
        workload: &Workload,
        options: &Options,
        memory: &Memory,
        keyspace: &KeyspaceOptions,
    ) -> Prediction {
        let record = workload.key_bytes + workload.value_bytes;
        let log_bytes = workload.log_bytes(options);
        let moved = workload.moved(options);
        let index_bytes = self.writes * workload.entry(options);
        // One read returns all pages of a value.
        let value_pages = (workload.value_bytes / PAGE_BYTES).ceil().max(1.0);
        let value_us = self.value_reads * (READ_US + (value_pages - 1.0) * SEQUENTIAL_US);
        // Value GC reads about as much as it writes.
        let sequential = log_bytes + 2.0 * moved + index_bytes;
        let lookup_us = self.index_reads * READ_US + value_us;
        let scan_us = self.scan_blocks * READ_US + workload.scan_records * value_us;
        let write_us = sequential / PAGE_BYTES * SEQUENTIAL_US + self.compaction_read_us;
        let device_us = workload.read_percent * lookup_us
            + workload.scan_percent * scan_us
            + workload.write_percent() * write_us;
        Prediction {
            levels: 0,
            level_bytes: Vec::new(),
            ratio: 1.0,
            pinned_levels: 0,
            reads_max: 0,
            reads_mean: self.index_reads + self.value_reads,
            write_amplification_log: log_bytes / record.max(1.0),
            write_amplification_gc: moved / record.max(1.0),
            write_amplification_index: index_bytes / record.max(1.0),
            writes_of_a_flushed_byte: self.writes,
            memtable_bytes: memory.memtables,
            filter_bytes: memory.filters,
            pinned_bytes: memory.pinned_bytes,
            cache_bytes: memory.cache,
            fits: memory.fits,
            lookup_us,
            scan_us,
            write_us,
            device_us: device_us / 100.0,
            options: keyspace.clone(),
        }
    }
}
