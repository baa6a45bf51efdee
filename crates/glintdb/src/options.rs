//! Options of a database, of a keyspace and of a transaction: few, each with a default the engine can justify, each checked at open.

mod named;

use crate::{Error, Result};
use glintdb_core::codec::{Reader, put_varint};
pub use glintdb_flash::{DirectIo, READ_DEPTH_MAX, ReadEngine};
use glintdb_lsm::{Compression, LsmOptions, PinnedLevels};
pub use named::parse_bytes;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// What a commit survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Durability {
    /// Nothing is promised until the next `Os` or `Sync` commit, or [`flush_log`](crate::Db::flush_log).
    Buffered,
    /// `kill -9` of the process at any instruction: the bytes have reached the kernel. The default.
    Os,
    /// Power loss: the bytes are on the medium.
    Sync,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Buffered => "buffered",
            Durability::Os => "os",
            Durability::Sync => "sync",
        })
    }
}

impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "buffered" => Ok(Durability::Buffered),
            "os" => Ok(Durability::Os),
            "sync" => Ok(Durability::Sync),
            _ => Err(Error::invalid(format!(
                "durability is buffered, os or sync, not {text:?}"
            ))),
        }
    }
}

/// Isolation of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Reads one snapshot; of two transactions that write the same key, the first to commit wins.
    #[default]
    Snapshot,
    /// As `Snapshot`, and what was read (keys, absent ones too, and ranges) must not have been written since.
    Serializable,
}

/// How the newest runs of an index stay safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PinMode {
    /// Each flush writes a run, which is kept in memory beside, as far as levels are pinned.
    #[default]
    WrittenThrough,
    /// A flush makes a run that is only in memory. Several are written together, as one; until then the log holds what is in them, and opening replays it.
    LogBacked,
}

/// What value GC reads to find what is live in the segments that it is going to empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GcReads {
    /// Whatever costs less: the index where values are large.
    #[default]
    Auto,
    /// The segments, from end to end; records are looked up in the index.
    Segments,
    /// The index, from end to end; of the segments what is live.
    Index,
}

/// Options of one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionOptions {
    /// Isolation; default [`Isolation::Snapshot`].
    pub isolation: Isolation,
    /// Durability of its commit; default: the database's.
    pub durability: Option<Durability>,
}

/// How far opening a database has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenProgress {
    /// Bytes of log replayed.
    pub replayed_bytes: u64,
    /// Bytes of log there are to replay.
    pub total_bytes: u64,
}

/// Called now and then while a long replay goes on.
pub type ProgressFn = Arc<dyn Fn(OpenProgress) + Send + Sync>;

/// Options of a database. Public fields, and a method of the same name for each.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use glintdb::{Durability, Options};
/// let db = Options::default().durability(Durability::Sync).memory_budget_bytes(64 << 20).open(dir.path().join("db"))?;
/// db.put("key", "value")?;
/// # Ok::<(), glintdb::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    /// Make the database where there is none. Default: true.
    pub create_if_missing: bool,
    /// Refuse a database that exists. Default: false.
    pub error_if_exists: bool,
    /// Open a database that was not closed although the file `ring` is missing or has another size.
    /// The newest commits, at most [`log_ring_bytes`](Self::log_ring_bytes) of them, are lost then if
    /// only that file had them. Default: false, which refuses with `Corruption`.
    pub accept_missing_ring: bool,
    /// What commits survive unless they say otherwise. Default: [`Durability::Os`].
    pub durability: Durability,
    /// Memory for everything, in bytes: memtables, log ring, fences, filters, cache, buffers. At least 8 MiB. Default: a quarter of RAM, at most 1 GiB.
    pub memory_budget_bytes: usize,
    /// Threads for flush and compaction, 0 to 64. 0: jobs run on the threads that call, in a fixed order. Default: cores, at most 4.
    pub background_threads: usize,
    /// Values of at least this many bytes stay in the log, and the index holds a pointer; smaller ones are held by the index. Default: 512.
    pub separate_min_bytes: usize,
    /// Size of a log segment in bytes, 64 KiB to 1 GiB; with `value_gc` the largest: of little data they are smaller. Default: 64 MiB.
    pub log_segment_bytes: u64,
    /// Size of the log's ring in bytes, a multiple of 4 KiB, 64 KiB to 1 GiB and at most a quarter of the memory budget. 0, the
    /// default: a sixteenth of the budget, at most 32 MiB.
    pub log_ring_bytes: usize,
    /// Log that opening may have to replay, in bytes, at least one segment: a memtable is flushed before more gathers. Default: 512 MiB.
    pub replay_bytes_max: u64,
    /// Memory that snapshots may pin beyond the live memtables, in bytes; past it the oldest snapshot fails with `SnapshotTooOld`. 0, the default: a quarter of the
    /// memory budget.
    pub snapshot_pin_bytes_max: usize,
    /// Direct or buffered I/O. Default: direct where the file system takes it.
    pub direct_io: DirectIo,
    /// How batches of reads are done. Default: io_uring where the kernel allows it, else libaio for direct I/O, else threads.
    pub read_engine: ReadEngine,
    /// Most reads of one batch in flight, 1 to [`READ_DEPTH_MAX`]. Default: 128.
    pub read_depth: usize,
    /// Pieces of 256 KiB of a compaction's input that are read together, ahead of the merge, 1 to 256. 0: each input reads its next MiB for itself, and no other thread can. Default: 4.
    pub read_batch_max: usize,
    /// Whether threads that wait (writers that are slowed or stopped, or whose memtables are full, commits that another thread syncs) take part in compactions meanwhile. Default: true.
    pub help: bool,
    /// Whether it is known of keys whose separated values are being read where the newest value is. Then a get that finds it in the cache needs no index, and what is written for such a key is cached at once.
    /// A 64th to a 32nd of the budget, 128 KiB to 16 MiB. Default: true.
    pub hot_keys: bool,
    /// Separated values of this many bytes or more are cached as they are written, while there is garbage for value GC or the device is behind, as far as the cache has room that nobody else wants; value GC takes
    /// from there what it moves (`docs/decisions/030-cache-written.md`). More than any value has: none are. Default: 4 KiB.
    pub cache_written_min_bytes: usize,
    /// Whether separated values that scans come by together are cached together instead of one by one. Hints to them take a 64th to a 32nd of the budget, 32 MiB at most. Default: true.
    pub range_cache: bool,
    /// Whether threads that want the same block or value at the same time do one read for it. Default: true.
    pub coalesce_reads: bool,
    /// Whether long scans read the next values while those before them are taken. Default: true.
    pub scan_read_ahead: bool,
    /// Whether the runs of level 0 are compacted before there are many, where scans have spent as much on merging them as that costs. Default: true.
    pub compact_for_scans: bool,
    /// Whether values are put in the order of their keys where scans have paid as much for their disorder as that costs; only with `value_gc`. Default: true.
    pub order_for_scans: bool,
    /// Whether values move so that the space of dead ones can be used again. Without it a segment of the log goes when nothing in it is live. Default: true.
    pub value_gc: bool,
    /// What value GC reads to find what is live. Default: [`GcReads::Auto`].
    pub value_gc_reads: GcReads,
    /// Space that the files may take, for what is live in them, 1.1 to 100: value GC begins before there is more. Default: 1.5.
    pub space_amp_max: f64,
    /// Garbage that there may be in any case, in bytes: what is small needs no collecting. 0, the default: four segments of the log.
    pub garbage_bytes_min: u64,
    /// Whether flushes are written at once, or held in memory until several are written together. Default: [`PinMode::WrittenThrough`].
    pub pin_mode: PinMode,
    /// Whether writers go no faster than memtables are flushed, once they are ahead of that: instead of one long wait at the end. Default: true.
    pub pace_writers: bool,
    /// Whether up to four files of the log that are dead are kept to be written again, where the file system overwrites in place. Default: true.
    pub recycle_files: bool,
    /// Told how far a replay has come. Default: nobody.
    pub progress: Option<ProgressFn>,
}

/// Smallest memory budget, in bytes.
pub const MEMORY_BUDGET_BYTES_MIN: usize = 8 << 20;
/// Default of [`Options::cache_written_min_bytes`].
const CACHE_WRITTEN_MIN_BYTES: usize = 4096;
/// Default of [`Options::separate_min_bytes`].
pub const SEPARATE_MIN_BYTES: usize = 512;
/// Default of [`Options::log_segment_bytes`].
pub const LOG_SEGMENT_BYTES: u64 = 64 << 20;
/// Default of [`Options::log_ring_bytes`] where the budget allows it.
pub const LOG_RING_BYTES: usize = 32 << 20;
/// Default of [`Options::replay_bytes_max`].
pub const REPLAY_BYTES_MAX: u64 = 512 << 20;
/// Default of [`Options::space_amp_max`].
const SPACE_AMP_MAX: f64 = 1.5;
/// Most memory for input of compactions that is read ahead.
const READ_AHEAD_BYTES_MAX: usize = 64 << 20;
/// Default of [`Options::garbage_bytes_min`], in segments.
const GARBAGE_SEGMENTS: u64 = 4;

impl Default for Options {
    fn default() -> Self {
        let ram = glintdb_flash::physical_memory_bytes().unwrap_or(4 << 30);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            create_if_missing: true,
            error_if_exists: false,
            accept_missing_ring: false,
            durability: Durability::Os,
            memory_budget_bytes: (ram / 4).clamp(MEMORY_BUDGET_BYTES_MIN, 1 << 30),
            background_threads: cores.clamp(1, 4),
            separate_min_bytes: SEPARATE_MIN_BYTES,
            cache_written_min_bytes: CACHE_WRITTEN_MIN_BYTES,
            log_segment_bytes: LOG_SEGMENT_BYTES,
            log_ring_bytes: 0,
            replay_bytes_max: REPLAY_BYTES_MAX,
            snapshot_pin_bytes_max: 0,
            direct_io: DirectIo::Auto,
            read_engine: ReadEngine::Auto,
            read_depth: 128,
            read_batch_max: 4,
            help: true,
            hot_keys: true,
            range_cache: true,
            coalesce_reads: true,
            scan_read_ahead: true,
            compact_for_scans: true,
            order_for_scans: true,
            value_gc: true,
            value_gc_reads: GcReads::Auto,
            space_amp_max: SPACE_AMP_MAX,
            garbage_bytes_min: 0,
            pin_mode: PinMode::WrittenThrough,
            pace_writers: true,
            recycle_files: true,
            progress: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("durability", &self.durability)
            .field("memory_budget_bytes", &self.memory_budget_bytes)
            .field("background_threads", &self.background_threads)
            .field("separate_min_bytes", &self.separate_min_bytes)
            .field("cache_written_min_bytes", &self.cache_written_min_bytes)
            .field("log_segment_bytes", &self.log_segment_bytes)
            .field("log_ring_bytes", &self.log_ring_bytes)
            .finish_non_exhaustive()
    }
}

macro_rules! setters {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("Sets [`", stringify!($name), "`](Self#structfield.", stringify!($name), ").")]
            #[must_use]
            pub fn $name(mut self, value: $type) -> Self {
                self.$name = value;
                self
            }
        )*
    };
}

impl Options {
    setters! {
        create_if_missing: bool, error_if_exists: bool, accept_missing_ring: bool, durability: Durability, memory_budget_bytes: usize, background_threads: usize, separate_min_bytes: usize,
        log_segment_bytes: u64, log_ring_bytes: usize, replay_bytes_max: u64, snapshot_pin_bytes_max: usize, direct_io: DirectIo, read_engine: ReadEngine, read_depth: usize,
        read_batch_max: usize, help: bool, hot_keys: bool, cache_written_min_bytes: usize, range_cache: bool, coalesce_reads: bool, scan_read_ahead: bool, compact_for_scans: bool, order_for_scans: bool, value_gc: bool, value_gc_reads: GcReads, space_amp_max: f64, garbage_bytes_min: u64, pin_mode: PinMode, pace_writers: bool, recycle_files: bool, progress: Option<ProgressFn>,
    }

    /// Opens the database in the directory `path`.
    ///
    /// A new database is made only in an empty directory, or in one that does not exist yet: a
    /// directory with other files is refused. A database that exists opens with other files beside
    /// its own, and leaves them alone. Where
    /// [`create_if_missing`](Self#structfield.create_if_missing) is false and there is no database,
    /// nothing is made: no directory, and no file in it.
    ///
    /// # Errors
    /// - `Locked` where the database is open already.
    /// - `NotFound` where there is no database and `create_if_missing` is false.
    /// - `AlreadyExists` where there is one and `error_if_exists` is true.
    /// - `InvalidArgument` where `path` holds no database but other files, or is not a directory;
    ///   where an option is beyond its limits.
    /// - `Corruption`, `UnsupportedFormat`, `NoSpace`, `Io`.
    pub fn open(self, path: impl AsRef<Path>) -> Result<crate::Db> {
        crate::Db::open_path(path.as_ref(), self)
    }

    /// Fills in what depends on the budget, and checks every field.
    pub(crate) fn resolve(mut self) -> Result<Self> {
        fn check(ok: bool, message: impl FnOnce() -> String) -> Result<()> {
            if ok {
                Ok(())
            } else {
                Err(Error::invalid(message()))
            }
        }
        let budget = self.memory_budget_bytes;
        check(budget >= MEMORY_BUDGET_BYTES_MIN, || {
            format!(
                "memory_budget_bytes is {budget}, at least {MEMORY_BUDGET_BYTES_MIN} are needed"
            )
        })?;
        if self.log_ring_bytes == 0 {
            self.log_ring_bytes = (budget / 16).clamp(512 << 10, LOG_RING_BYTES) & !4095;
        }
        if self.snapshot_pin_bytes_max == 0 {
            self.snapshot_pin_bytes_max = budget / 4;
        }
        let ring = self.log_ring_bytes;
        check(
            ring.is_multiple_of(4096) && (64 << 10..=1 << 30).contains(&ring),
            || {
                format!(
                    "log_ring_bytes is {ring}; it must be a multiple of 4096 from 65536 to 1073741824"
                )
            },
        )?;
        check(ring <= budget / 4, || {
            format!("log_ring_bytes is {ring}; at most a quarter of memory_budget_bytes ({budget})")
        })?;
        let segment = self.log_segment_bytes;
        check((64 << 10..=1 << 30).contains(&segment), || {
            format!("log_segment_bytes is {segment}; it must be from 65536 to 1073741824")
        })?;
        if self.garbage_bytes_min == 0 {
            self.garbage_bytes_min = GARBAGE_SEGMENTS * segment;
        }
        let replay = self.replay_bytes_max;
        check(replay >= segment, || {
            format!("replay_bytes_max is {replay}; at least one segment ({segment}) is needed")
        })?;
        let depth = self.read_depth;
        check((1..=READ_DEPTH_MAX).contains(&depth), || {
            format!("read_depth is {depth}; it must be from 1 to {READ_DEPTH_MAX}")
        })?;
        let batch = self.read_batch_max;
        check(batch <= READ_DEPTH_MAX, || {
            format!("read_batch_max is {batch}; at most {READ_DEPTH_MAX}")
        })?;
        let amp = self.space_amp_max;
        check((1.1..=100.0).contains(&amp), || {
            format!("space_amp_max is {amp}; it must be from 1.1 to 100")
        })?;
        let threads = self.background_threads;
        check(threads <= 64, || {
            format!("background_threads is {threads}; at most 64")
        })?;
        check(self.separate_min_bytes >= 1, || {
            "separate_min_bytes is 0; at least 1 (an empty value has nothing to separate)"
                .to_owned()
        })?;
        Ok(self)
    }

    /// Memory that memtables may take, active and sealed ones together.
    pub(crate) fn memtable_share_bytes(&self) -> usize {
        self.memory_budget_bytes / 4
    }

    /// Memory of read buffers that may be kept for the next reads. A round of value GC takes twice as much where there is that much to collect, and fresh memory for each would have to be cleared.
    pub(crate) fn idle_buffer_bytes_max(&self) -> usize {
        (self.memory_budget_bytes / 16).clamp(1 << 20, 64 << 20)
    }

    /// Size at which the active memtables are sealed: with one being flushed and one being filled, the share holds both and some slack.
    pub(crate) fn memtable_seal_bytes(&self) -> usize {
        self.memtable_share_bytes() / 2
    }

    /// Memory for input of compactions that is read ahead.
    pub(crate) fn read_ahead_bytes_max(&self) -> usize {
        (self.memory_budget_bytes / 16).min(READ_AHEAD_BYTES_MAX)
    }

    /// What a flush brings to an index, about, before any has shown it: tables are half as large as memtables, or less.
    pub(crate) fn run_bytes_expected(&self) -> u64 {
        self.memtable_seal_bytes() as u64 / 2
    }
}

/// Kind of index a keyspace has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum IndexKind {
    /// Log-structured merge tree.
    #[default]
    Lsm,
}

/// Options of a keyspace, kept with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyspaceOptions {
    /// Kind of index. Default: LSM.
    pub index: IndexKind,
    /// Shape of the LSM index.
    pub lsm: LsmOptions,
}

impl KeyspaceOptions {
    /// Compression of key blocks.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.lsm.compression = compression;
        self
    }

    /// How many of the index's top levels are pinned in memory.
    #[must_use]
    pub fn pinned_levels(mut self, levels: PinnedLevels) -> Self {
        self.lsm.pinned_levels = levels;
        self
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, 0);
        glintdb_core::codec::put_bytes(out, &self.encoded_index());
    }

    /// The index's part, in its own encoding.
    pub(crate) fn encoded_index(&self) -> Vec<u8> {
        let mut lsm = Vec::new();
        self.lsm.encode(&mut lsm);
        lsm
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Result<Self>> {
        let kind = reader.varint()?;
        let mut lsm = Reader::new(reader.bytes()?);
        Some(match kind {
            0 => match LsmOptions::decode(&mut lsm) {
                Some(options) if lsm.is_empty() => Ok(KeyspaceOptions {
                    index: IndexKind::Lsm,
                    lsm: options,
                }),
                // The record's checksum was right, so another version wrote this.
                _ => Err(Error::new(
                    crate::ErrorKind::UnsupportedFormat,
                    "options of an LSM index are not ones that this build knows",
                )),
            },
            other => Err(Error::new(
                crate::ErrorKind::UnsupportedFormat,
                format!("index kind {other} is not known to this build"),
            )),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the "Memory" section of `docs/options.md`, and the defaults there that follow from
    /// the budget, with the code.
    #[test]
    fn budget_shares_are_as_documented() {
        let page = include_str!("../../../docs/options.md");
        for row in [
            "| memtables | 1/4; a memtable is sealed at 1/8,",
            "| compaction input read ahead | at most 1/16 and at most 64M |",
            "| idle read buffers | at most 1/16, clamped to [1M, 64M] |",
        ] {
            assert!(page.contains(row), "{row}");
        }
        for (budget, ring) in [
            (8 << 20, 512 << 10),
            (64 << 20, 4 << 20),
            (1 << 30, LOG_RING_BYTES),
        ] {
            let options = Options::default().memory_budget_bytes(budget);
            let options = options.resolve().unwrap();
            assert_eq!(options.memtable_share_bytes(), budget / 4);
            assert_eq!(options.memtable_seal_bytes(), budget / 8);
            assert_eq!(options.log_ring_bytes, ring);
            assert_eq!(options.snapshot_pin_bytes_max, budget / 4);
            let sixteenth = budget / 16;
            assert_eq!(options.read_ahead_bytes_max(), sixteenth.min(64 << 20));
            let idle = options.idle_buffer_bytes_max();
            assert_eq!(idle, sixteenth.clamp(1 << 20, 64 << 20));
        }
    }
}
