//! Options of a database, of a keyspace and of a transaction, with their defaults and limits.

mod derived;
mod experiments;
mod named;

use crate::index_kinds::btree::BTreeOptions;
use crate::index_kinds::lsm::LsmOptions;
use crate::{Error, Result};
pub use experiments::{Experiments, GcReads};
use glintdb_core::index::PinnedLevels;
pub use glintdb_flash::{DirectIo, Placement, READ_DEPTH_MAX, ReadEngine};
use glintdb_runs::Compression;
pub use named::parse_bytes;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What a commit survives. The levels are ordered: each also survives what the one before it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Durability {
    /// The commit may be lost until the next `Os` or `Sync` commit or
    /// [`flush_log`](crate::Db::flush_log).
    Buffered,
    /// The commit survives a killed process (`kill -9` at any instruction): its bytes have reached
    /// the kernel. The default.
    Os,
    /// The commit survives a power cut: its bytes are on the drive.
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
#[non_exhaustive]
pub enum Isolation {
    /// The transaction reads one snapshot. Of two transactions that write the same key, the first
    /// to commit succeeds. The default.
    #[default]
    Snapshot,
    /// Like `Snapshot`, and the commit also fails if a key or range that the transaction read has
    /// been written since. Keys that the transaction found absent count as read.
    Serializable,
}

/// Options of one transaction. Each option is a public field with a method of the same name.
///
/// ```
/// use glintdb::{Isolation, TransactionOptions};
/// let options = TransactionOptions::default().isolation(Isolation::Serializable);
/// assert_eq!(options.durability, None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// Isolation of the transaction. Default: [`Isolation::Snapshot`].
    pub isolation: Isolation,
    /// Durability of the transaction's commit. Default: that of the database.
    pub durability: Option<Durability>,
}

impl TransactionOptions {
    glintdb_core::setters! { isolation: Isolation }

    /// Gives the commit another [`durability`](Self#structfield.durability) than the database's.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }
}

/// Progress of the log replay while a database opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenProgress {
    /// Bytes of the log that have been replayed.
    pub replayed_bytes: u64,
    /// Bytes of the log to replay in total, approximately.
    pub total_bytes: u64,
}

/// A function that is called from time to time while opening a database replays its log.
pub type ProgressFn = Arc<dyn Fn(OpenProgress) + Send + Sync>;

/// Options of a database. Each option is a public field with a method of the same name.
/// [`set`](Self::set) sets an option by name.
///
/// Options are passed at each opening and are not stored. The page `docs/options.md` groups them by
/// purpose and starts with the five that matter most.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use glintdb::{Durability, Options};
/// let db = Options::default()
///     .durability(Durability::Sync)
///     .memory_budget_bytes(64 << 20)
///     .open(dir.path().join("db"))?;
/// db.put("key", "value")?;
/// # Ok::<(), glintdb::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// Whether to create the database if the directory is empty or missing. If false, opening fails
    /// with `NotFound`. Default: true.
    pub create_if_missing: bool,
    /// Whether opening fails with `AlreadyExists` if the directory holds a database. Default:
    /// false.
    pub error_if_exists: bool,
    /// Whether a database that was not closed opens although its file `ring` is missing or has
    /// another size. The newest commits that only this file held are then lost: at most
    /// [`log_ring_bytes`](Self::log_ring_bytes) bytes. If false, opening fails with `Corruption`.
    /// Default: false.
    pub accept_missing_ring: bool,
    /// What a commit survives if it does not choose a durability itself. Default:
    /// [`Durability::Os`].
    pub durability: Durability,
    /// Memory for memtables, log ring, fences, filters, buffers, pinned levels and cache together,
    /// in bytes. At least 8 MiB. Default: a quarter of RAM, at most 1 GiB.
    pub memory_budget_bytes: usize,
    /// Number of threads for flushes, compactions and value GC: 0 to 64. With 0, the threads that
    /// write run these jobs, in a repeatable order. Default: the number of cores, at most 4.
    pub background_threads: usize,
    /// Size in bytes from which a value stays in the log and the index holds a pointer to it. The
    /// index holds smaller values itself. At least 1. The option applies to values written from now
    /// on. Default: 512.
    pub separate_min_bytes: usize,
    /// Maximum size of a log file in bytes: 64 KiB to 1 GiB. Files are smaller, but at least 1 MiB,
    /// after few writes and with little data. Default: 64 MiB.
    pub log_segment_bytes: u64,
    /// Size in bytes of the ring that commits are copied into: a multiple of 4 KiB, 64 KiB to 1 GiB
    /// and at most a quarter of the memory budget. 0, the default, selects a sixteenth of the
    /// budget, clamped to [512 KiB, 32 MiB].
    pub log_ring_bytes: usize,
    /// Maximum number of log bytes that opening replays. At least `log_segment_bytes`. The engine
    /// seals the memtables when the log has grown by half of this since they were created. Default:
    /// 512 MiB.
    pub replay_bytes_max: u64,
    /// Memory in bytes that open snapshots, transactions and iterators may keep alive. Above it,
    /// the engine invalidates the oldest one, whose reads then fail with `SnapshotTooOld`. 0, the
    /// default, selects a quarter of the memory budget.
    pub snapshot_pin_bytes_max: usize,
    /// Whether files bypass the page cache. Default: [`DirectIo::Auto`], which bypasses it if the
    /// file system supports that.
    pub direct_io: DirectIo,
    /// Which of several directories a file goes to. An opening may give another placement:
    /// files that exist stay where they are. Default: [`Placement::Striping`], all directories in turn.
    pub placement: Placement,
    /// Maximum number of file bytes for each byte of live keys and values: 1.1 to 100. Value GC
    /// starts before the bound is reached, and near it the engine slows writers. Default: 1.5.
    pub space_amp_max: f64,
    /// Bytes of garbage that are always allowed, even if little data is live. The engine allows at
    /// most a quarter of the space that is free or holds garbage. 0, the default, selects four log
    /// segments.
    pub garbage_bytes_min: u64,
    /// A function that receives the progress of the replay while the database opens. Default: none.
    pub progress: Option<ProgressFn>,
    /// Options that only experiments change.
    #[doc(hidden)]
    pub experiments: Experiments,
}

/// Minimum of [`Options::memory_budget_bytes`]: 8 MiB.
pub const MEMORY_BUDGET_BYTES_MIN: usize = 8 << 20;
/// Default of [`Options::separate_min_bytes`]: 512 bytes.
pub const SEPARATE_MIN_BYTES: usize = 512;
/// Default of [`Options::log_segment_bytes`]: 64 MiB.
pub const LOG_SEGMENT_BYTES: u64 = 64 << 20;
/// Default of [`Options::log_ring_bytes`] if the memory budget is at least 512 MiB: 32 MiB.
pub const LOG_RING_BYTES: usize = 32 << 20;
/// Default of [`Options::replay_bytes_max`]: 512 MiB.
pub const REPLAY_BYTES_MAX: u64 = 512 << 20;
/// Default of [`Options::space_amp_max`].
const SPACE_AMP_MAX: f64 = 1.5;
/// Default of [`Options::garbage_bytes_min`], in segments.
const GARBAGE_SEGMENTS: u64 = 4;

impl Default for Options {
    fn default() -> Self {
        let ram = glintdb_flash::physical_memory_bytes().unwrap_or(4 << 30);
        let cores = glintdb_core::sync::processors();
        Options {
            create_if_missing: true,
            error_if_exists: false,
            accept_missing_ring: false,
            durability: Durability::Os,
            memory_budget_bytes: (ram / 4).clamp(MEMORY_BUDGET_BYTES_MIN, 1 << 30),
            background_threads: cores.clamp(1, 4),
            separate_min_bytes: SEPARATE_MIN_BYTES,
            log_segment_bytes: LOG_SEGMENT_BYTES,
            log_ring_bytes: 0,
            replay_bytes_max: REPLAY_BYTES_MAX,
            snapshot_pin_bytes_max: 0,
            direct_io: DirectIo::Auto,
            placement: Placement::default(),
            space_amp_max: SPACE_AMP_MAX,
            garbage_bytes_min: 0,
            progress: None,
            experiments: Experiments::default(),
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
            .field("log_segment_bytes", &self.log_segment_bytes)
            .field("log_ring_bytes", &self.log_ring_bytes)
            .field("experiments", &self.experiments)
            .finish_non_exhaustive()
    }
}

#[doc(hidden)]
impl Options {
    glintdb_core::setters! { experiments: Experiments }
}

impl Options {
    glintdb_core::setters! {
        create_if_missing: bool, error_if_exists: bool, accept_missing_ring: bool,
        durability: Durability, memory_budget_bytes: usize, background_threads: usize,
        separate_min_bytes: usize, log_segment_bytes: u64, log_ring_bytes: usize,
        replay_bytes_max: u64, snapshot_pin_bytes_max: usize, direct_io: DirectIo,
        placement: Placement, space_amp_max: f64, garbage_bytes_min: u64, progress: Option<ProgressFn>,
    }

    /// Replaces each 0 that selects a default by its value, and checks the limits of all options.
    pub(crate) fn resolve(mut self) -> Result<Self> {
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
        self.experiments.validate()?;
        Ok(self)
    }
}

fn check(ok: bool, message: impl FnOnce() -> String) -> Result<()> {
    if ok {
        Ok(())
    } else {
        Err(Error::invalid(message()))
    }
}

/// Kind of index of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum IndexKind {
    /// Log-structured merge tree. The default.
    #[default]
    Lsm,
    /// Copy-on-write B+tree below the runs of the last flushes.
    BTree,
}

impl IndexKind {
    /// Name of the kind, as in the option `index`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            IndexKind::Lsm => "lsm",
            IndexKind::BTree => "btree",
        }
    }
}

/// Options of a keyspace, stored with it. [`set`](Self::set) sets an option by name. Only the
/// options of the keyspace's own kind of index count, also when two values are compared.
///
/// ```
/// use glintdb::{Compression, KeyspaceOptions, LsmOptions};
/// let options = KeyspaceOptions::default().lsm(LsmOptions::default().size_ratio(6).levels_max(3));
/// assert_eq!(options.compression(Compression::Lz4).lsm.size_ratio, 6);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KeyspaceOptions {
    /// Kind of index. Default: [`IndexKind::Lsm`].
    pub index: IndexKind,
    /// Options of the index if it is an LSM tree.
    pub lsm: LsmOptions,
    /// Options of the index if it is a B+tree.
    pub btree: BTreeOptions,
}

impl PartialEq for KeyspaceOptions {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
            && match self.index {
                IndexKind::Lsm => self.lsm == other.lsm,
                IndexKind::BTree => self.btree == other.btree,
            }
    }
}

impl KeyspaceOptions {
    glintdb_core::setters! { index: IndexKind, lsm: LsmOptions, btree: BTreeOptions }

    /// Sets the compression of key blocks. Separated values are not compressed.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.lsm.compression = compression;
        self.btree.compression = compression;
        self
    }

    /// Sets how many levels of an LSM tree, from the top, keep their key blocks in memory.
    #[must_use]
    pub fn pinned_levels(mut self, levels: PinnedLevels) -> Self {
        self.lsm.pinned_levels = levels;
        self
    }
}
