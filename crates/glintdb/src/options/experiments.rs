//! Options of a database that only experiments change, with their defaults and limits. Thread-safe:
//! plain values.

use super::check;
use crate::Result;
use glintdb_flash::{READ_DEPTH_MAX, ReadEngine};

/// How value GC finds the live values of the segments that it empties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GcReads {
    /// Chooses the cheaper way for each round: the index if values are large or mostly cached. The
    /// default.
    #[default]
    Auto,
    /// Reads the segments from end to end and looks up their records in the index.
    Segments,
    /// Walks the index from end to end and reads only the live values of the segments.
    Index,
}

/// Options of a database that only experiments change: each measures what one mechanism brings.
/// Each option is a public field with a method of the same name, and
/// [`Options::set`](crate::Options::set) sets it by name. Any release may remove options here.
///
/// ```
/// use glintdb::{Experiments, Options};
/// let without = Options::default().experiments(Experiments::default().hot_keys(false));
/// assert!(!without.experiments.hot_keys);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Experiments {
    /// How batches of reads are submitted. Default: [`ReadEngine::Auto`].
    pub read_engine: ReadEngine,
    /// Maximum number of reads of one batch in flight: 1 to [`READ_DEPTH_MAX`]. Default: 128.
    pub read_depth: usize,
    /// Whether the reads of a batch are done in the order of their places. If false, they are done
    /// in the order in which they were requested. Default: true.
    pub sort_reads: bool,
    /// Whether neighbouring reads of a batch become one read of up to 256 KiB. Default: true.
    pub merge_reads: bool,
    /// Whether jobs go on while the medium reads their next batch. If false, they wait for each
    /// batch before they go on. Default: true.
    pub overlap_reads: bool,
    /// Whether the kernel may read ahead in files that go through the page cache. Default: false.
    pub kernel_read_ahead: bool,
    /// Maximum number of values that passes in key order ([`Db::compact_values`]) read in one
    /// batch: 1 to [`READ_DEPTH_MAX`]. A batch also ends when it has 1 MiB. Default: 256.
    ///
    /// [`Db::compact_values`]: crate::Db::compact_values
    pub value_batch: usize,
    /// Number of 256 KiB pieces of compaction input that are read together, ahead of the merge: 0
    /// to 256. With 0, each input reads its next MiB for itself. Default: 4.
    pub read_batch_max: usize,
    /// Whether threads that wait for something else begin reads of compactions meanwhile. Default:
    /// true.
    pub help: bool,
    /// Whether the engine remembers the places of the newest values of recently read keys, so that
    /// a get that hits the cache needs no index lookup. This takes 1/64 to 1/32 of the memory
    /// budget, clamped to [128 KiB, 16 MiB]. Default: true.
    pub hot_keys: bool,
    /// Size in bytes from which separated values are cached when they are written, while value GC
    /// has work or the device lags and the cache has room. Default: 4 KiB.
    pub cache_written_min_bytes: usize,
    /// Whether separated values that scans read together are cached as one entry. The hints for
    /// this take 1/64 to 1/32 of the memory budget, at most 32 MiB. Default: true.
    pub range_cache: bool,
    /// Whether level 0 is compacted once scans have spent as much on merging its runs as a
    /// compaction costs. Default: true.
    pub compact_for_scans: bool,
    /// Number of deleted entries in a row that a scan passes one by one before it seeks behind
    /// them. It remembers stretches of eight times as many, for later scans. 0: it passes all of
    /// them one by one. Default: 8.
    pub seek_after_deleted: usize,
    /// Whether separated values are rewritten in key order once scans have paid for it with twice
    /// as many reads. Needs `value_gc`. Default: true.
    pub order_for_scans: bool,
    /// Whether value GC moves live values out of segments that hold much garbage. If false, a
    /// segment is removed only when nothing in it is live. Default: true.
    pub value_gc: bool,
    /// How value GC finds live values. Default: [`GcReads::Auto`].
    pub value_gc_reads: GcReads,
    /// Whether the engine slows writers in steps of a few milliseconds during a flush. If false, it
    /// stops them at the end of the flush. Default: true.
    pub pace_writers: bool,
    /// Whether up to four dead log files are kept and written again, on file systems that overwrite
    /// in place. Default: true.
    pub recycle_files: bool,
}

impl Default for Experiments {
    fn default() -> Self {
        Experiments {
            read_engine: ReadEngine::Auto,
            read_depth: 128,
            sort_reads: true,
            merge_reads: true,
            overlap_reads: true,
            kernel_read_ahead: false,
            value_batch: 256,
            read_batch_max: 4,
            help: true,
            hot_keys: true,
            cache_written_min_bytes: 4096,
            range_cache: true,
            compact_for_scans: true,
            seek_after_deleted: 8,
            order_for_scans: true,
            value_gc: true,
            value_gc_reads: GcReads::Auto,
            pace_writers: true,
            recycle_files: true,
        }
    }
}

impl Experiments {
    glintdb_core::setters! {
        read_engine: ReadEngine, read_depth: usize, sort_reads: bool, merge_reads: bool,
        overlap_reads: bool, kernel_read_ahead: bool, value_batch: usize, read_batch_max: usize,
        help: bool, hot_keys: bool, cache_written_min_bytes: usize, range_cache: bool, compact_for_scans: bool,
        seek_after_deleted: usize,
        order_for_scans: bool, value_gc: bool, value_gc_reads: GcReads, pace_writers: bool,
        recycle_files: bool,
    }

    /// Checks the limits of all options.
    pub(super) fn validate(&self) -> Result<()> {
        let depth = self.read_depth;
        check((1..=READ_DEPTH_MAX).contains(&depth), || {
            format!("read_depth is {depth}; it must be from 1 to {READ_DEPTH_MAX}")
        })?;
        let values = self.value_batch;
        check((1..=READ_DEPTH_MAX).contains(&values), || {
            format!("value_batch is {values}; it must be from 1 to {READ_DEPTH_MAX}")
        })?;
        let batch = self.read_batch_max;
        check(batch <= READ_DEPTH_MAX, || {
            format!("read_batch_max is {batch}; at most {READ_DEPTH_MAX}")
        })
    }
}
