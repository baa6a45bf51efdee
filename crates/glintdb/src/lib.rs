//! GlintDB is an embeddable, crash-safe, ordered key-value store for flash drives.
//!
//! A database is a directory. It contains *keyspaces*: named ordered maps from byte strings to byte
//! strings. All keyspaces share one log, so a [`Batch`] over several of them is atomic. Values of
//! 512 bytes or more stay in the log. Each keyspace has an LSM tree, or a B+tree, with its keys, its
//! small values and pointers to its large values.
//!
//! # Example
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("db");
//! use glintdb::{Batch, Db, KeyspaceOptions};
//!
//! let db = Db::open(path)?;
//! let users = db.keyspace_or_create("users", KeyspaceOptions::default())?;
//! users.put("ann", "admin")?;
//! users.put("bob", "guest")?;
//! assert_eq!(users.get("ann")?.as_deref(), Some(&b"admin"[..]));
//!
//! let mut batch = Batch::new();
//! batch.put(&users, "cy", "guest").delete(&users, "bob");
//! db.write(batch)?;
//!
//! for entry in users.range("a"..="c") {
//!     let (name, role) = entry?;
//!     println!("{name:?}: {role:?}");
//! }
//! db.close()?;
//! # Ok::<(), glintdb::Error>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | change single keys | [`Keyspace::put`], [`delete`](Keyspace::delete), [`delete_range`](Keyspace::delete_range) |
//! | change several keys or keyspaces at once | [`Batch`] and [`Db::write`] |
//! | read | [`Keyspace::get`], [`multi_get`](Keyspace::multi_get), [`range`](Keyspace::range), [`prefix`](Keyspace::prefix) |
//! | read a consistent view while others write | [`Db::snapshot`] |
//! | read and write atomically (serializable, if writes depend on keys that are only read) | [`Db::transaction`] |
//! | make a copy that opens as a database | [`Db::checkpoint`] |
//! | look inside | [`Db::stats`], [`Db::verify`] |
//! | predict costs and choose the options of an index | [`advise`](mod@advise) |
//! | examine or rescue a database that does not open | [`check`](check()), [`inspect`], [`salvage`] |
//!
//! # Memory
//!
//! All caches and buffers share [`Options::memory_budget_bytes`], by default a quarter of RAM and
//! at most 1 GiB. [`Stats::memory`] shows each part.
//!
//! # Durability
//!
//! [`Options::durability`] is the default level. [`Keyspace::put_with`] and [`Db::write_with`] set
//! the level of one commit.
//!
//! | level | survives a killed process | survives a power cut | costs |
//! |---|---|---|---|
//! | [`Buffered`](Durability::Buffered) | not promised | not promised | a copy in memory |
//! | [`Os`](Durability::Os), the default | yes | not promised | a copy into a memory-mapped file, or one write system call if the file cannot be mapped |
//! | [`Sync`](Durability::Sync) | yes | yes, if the drive honours flush requests | a sync, shared by commits that wait at the same time |
//!
//! - After a crash the database contains a prefix of the commit order. After a killed process the
//!   prefix includes every commit acknowledged at `Os` or `Sync`. After a power cut it includes
//!   every commit acknowledged at `Sync`.
//! - A batch or transaction is applied completely or not at all.
//! - [`Db::flush_log`] makes all earlier commits durable at the level that you give.
//! - If the sync of a commit fails, the commit may or may not be applied. The next open shows
//!   which.
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = glintdb::Db::open(dir.path().join("db"))?;
//! use glintdb::Durability;
//!
//! let orders = db.default_keyspace();
//! orders.put("draft", "…")?; // survives a kill
//! orders.put_with("order 1", "paid", Durability::Sync)?; // survives a power cut
//! # Ok::<(), glintdb::Error>(())
//! ```
//!
//! # Opening and closing
//!
//! [`Db::open`] opens the database of a directory with default [`Options`] and creates it if there
//! is none. [`Options::open`] opens it with others. Only one process can open a directory, and only
//! once: a second open fails with [`ErrorKind::Locked`]. In the same process, the message lists the
//! open handles. Clone the [`Db`] instead.
//!
//! Call [`Db::close`] at the end: it makes every commit durable against a power cut, unlocks the
//! directory and reports errors. The remaining handles then return [`ErrorKind::Closed`]. [`Db`],
//! [`Keyspace`], [`Snapshot`], [`Transaction`], [`Iter`] and [`Keys`] are handles. If you do not
//! call `close`, the database closes when the last handle is dropped, and errors are not reported.
//! Closing does not flush memtables. The next open replays their log records, at most
//! [`Options::replay_bytes_max`].
//!
//! After a kill the database needs no repair: opening it recovers it.
//!
//! # Errors
//!
//! Every fallible function returns one opaque [`Error`]. Its [`kind`](Error::kind) says what the
//! caller can do. Its message names the operation, and for damage the file and offset.
//!
//! | kind | what happened | what to do |
//! |---|---|---|
//! | [`InvalidArgument`](ErrorKind::InvalidArgument) | An argument or option is beyond its limits. Nothing changed. | Correct the call. |
//! | [`AlreadyExists`](ErrorKind::AlreadyExists) | A keyspace, database or directory of this name already exists. Nothing changed. | Open it, or choose another name. |
//! | [`NotFound`](ErrorKind::NotFound) | There is no such keyspace or database. | Create it, or correct the name. |
//! | [`Conflict`](ErrorKind::Conflict) | Another commit changed a key that the transaction wrote or, with serializable isolation, read. Nothing changed. | Run the transaction again. |
//! | [`Locked`](ErrorKind::Locked) | The directory is open already. | Close the other handle, or clone it. |
//! | [`NoSpace`](ErrorKind::NoSpace) | The disk is full. Acknowledged commits are safe; reads and deletions work. | Delete keys or make room, then write again. |
//! | [`Unavailable`](ErrorKind::Unavailable) | The operating system refused a file: no free file descriptor, or no permission. Nothing changed; reads of open files work. | Raise the limit, close files or restore the permission, then try again. |
//! | [`SnapshotTooOld`](ErrorKind::SnapshotTooOld) | Open snapshots kept more memory alive than [`Options::snapshot_pin_bytes_max`]. | Take a new snapshot. |
//! | [`Poisoned`](ErrorKind::Poisoned) | A write or sync failed, or a background job panicked. Reads work; commits fail. | Close the database, fix the cause and open it again. |
//! | [`Io`](ErrorKind::Io) | The operating system refused an operation. | See [`source`](std::error::Error::source). |
//! | [`Corruption`](ErrorKind::Corruption) | A file is damaged. Other keys stay readable. | Restore a copy, or run [`salvage`](salvage()). |
//! | [`UnsupportedFormat`](ErrorKind::UnsupportedFormat) | A file has a format, or uses a feature, that this build does not know. | Use a build that does. |
//! | [`Closed`](ErrorKind::Closed) | The database is closed or closing, or this process is a forked child. | Open it again. A forked child must `exec` first. |
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = glintdb::Db::open(dir.path().join("db"))?;
//! # let log = db.default_keyspace();
//! use glintdb::ErrorKind;
//!
//! match log.put("entry", "text") {
//!     Err(error) if error.kind() == ErrorKind::NoSpace => log.delete_range("a".."b")?,
//!     result => result?,
//! }
//! # Ok::<(), glintdb::Error>(())
//! ```
//!
//! # Limits
//!
//! | | limit |
//! |---|---|
//! | key | 0 to [`KEY_BYTES_MAX`]: 64 KiB |
//! | value | 0 to [`VALUE_BYTES_MAX`]: 1 GiB |
//! | keys and values of one batch or transaction | [`BATCH_BYTES_MAX`]: 2 GiB |
//! | name of a keyspace | 1 to [`KEYSPACE_NAME_BYTES_MAX`]: 255 bytes of UTF-8 |
//! | keyspaces | 2^32 per database, including dropped ones |
//! | memory budget | at least [`MEMORY_BUDGET_BYTES_MIN`]: 8 MiB |
//! | file descriptors | at most half of `RLIMIT_NOFILE`, which must be at least 20 |
//! | platform | Linux, 64 bits |
//!
//! ```
//! assert_eq!(glintdb::KEY_BYTES_MAX, 64 << 10);
//! assert_eq!(glintdb::VALUE_BYTES_MAX, 1 << 30);
//! assert_eq!(glintdb::BATCH_BYTES_MAX, 2 << 30);
//! assert_eq!(glintdb::KEYSPACE_NAME_BYTES_MAX, 255);
//! assert_eq!(glintdb::MEMORY_BUDGET_BYTES_MIN, 8 << 20);
//! ```
//!
//! # Threads
//!
//! [`Db`], [`Keyspace`] and [`Snapshot`] are `Send`, `Sync` and cheap to clone: any number of
//! threads read and write at once. A [`Batch`], [`Transaction`], [`Iter`] or [`Keys`] is `Send`,
//! and one thread uses it at a time. A read never waits for a commit, a flush or a compaction.
//!
//! ```
//! fn shared<T: Send + Sync + Clone>() {}
//! shared::<glintdb::Db>();
//! shared::<glintdb::Keyspace>();
//! shared::<glintdb::Snapshot>();
//! fn sent<T: Send>() {}
//! sent::<glintdb::Batch>();
//! sent::<glintdb::Transaction>();
//! sent::<glintdb::Iter>();
//! sent::<glintdb::Keys>();
//! ```
//!
//! An open database has [`Options::background_threads`] threads, named `glintdb-0`, `glintdb-1` and
//! so on. They write the log from its in-memory ring buffer to files, flush memtables, compact the
//! indexes and free the space of dead values. With 0 threads, the threads that write do this work.
//! If the kernel offers neither io_uring nor libaio, up to sixteen further threads, named
//! `glint-read`, do batches of reads.
//!
//! A writer waits when background work falls behind. [`Stats::waits`] lists each cause with the
//! number of waits and their times.
//!
//! ## Fork
//!
//! After `fork` (for example by Python's `multiprocessing`), the child cannot use the handles of
//! its parent: every operation returns [`ErrorKind::Closed`], and dropping a handle changes
//! nothing. The parent is not affected. A child that wants a database must run a program of its own
//! (`exec`; in Python the start method `spawn`), because locks of the parent's threads may never be
//! free in the child. If the parent is killed, its directory stays locked until its children have
//! ended.
//!
//! # Features
//!
//! | cargo feature | adds |
//! |---|---|
//! | `serde` | `serde::Serialize` for [`Stats`] and its parts, [`Durability`] and the types of [`advise`](mod@advise) |
//! | `zstd` | [`Compression::Zstd`], which compiles C. Without it, keyspaces with Zstandard compression cannot be created or opened. |
//!
//! Neither is on by default. The default build compiles no C.

// How the crate works inside: a write goes through `Batch` and `commit` into the data log (crate
// `glintdb-log`) and the memtables. `flush` moves memtables to the index of their keyspace (crate
// `glintdb-lsm`). `read`, `merge` and `iter` combine all of them. `recovery` opens a database;
// `manifest` says which files belong to it.
//
// Architecture invariants: no `unsafe`; no file is opened by path (all I/O goes through a
// `Volume`); no clock is read but the one given.

#![forbid(unsafe_code)]

/// Compiles the examples of the page of options as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/options.md")]
struct OptionsPage;

mod background;
mod batch;
mod db;
mod durable;
mod engine;
mod env;
mod handle;
mod handles;
mod index_kinds;
mod iter;
mod keyspace;
mod options;
mod read;
mod shared;
mod snapshot;
mod space;
mod state;
mod stats;
mod tools;
mod transaction;
mod write;

pub use batch::Batch;
pub use bytes::Bytes;
pub use db::Db;
pub use durable::catalog::{DEFAULT_KEYSPACE, KEYSPACE_NAME_BYTES_MAX};
pub use env::Env;
pub use glintdb_core::index::PinnedLevels;
pub use glintdb_core::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use glintdb_core::{Error, ErrorKind, Result};
pub use glintdb_runs::Compression;
pub use index_kinds::btree::BTreeOptions;
pub use index_kinds::lsm::LsmOptions;
#[doc(hidden)]
pub use index_kinds::{btree::BTreeExperiments, lsm::LsmExperiments};
pub use iter::{Iter, Keys};
pub use keyspace::Keyspace;
pub use options::{
    DirectIo, Durability, IndexKind, Isolation, KeyspaceOptions, LOG_RING_BYTES, LOG_SEGMENT_BYTES,
    MEMORY_BUDGET_BYTES_MIN, OpenProgress, Options, Placement, ProgressFn, REPLAY_BYTES_MAX,
    SEPARATE_MIN_BYTES, TransactionOptions, parse_bytes,
};
#[doc(hidden)]
pub use options::{Experiments, GcReads, READ_DEPTH_MAX, ReadEngine};
pub use read::count::KeyCount;
pub use snapshot::Snapshot;
pub use stats::{
    ClassFigures, DeviceFigures, KeyspaceStats, LevelFigures, LogFigures, MemoryStats,
    PlacementChangeFigures, Stats, UnitFigures, ValueGcFigures, VolumeFigures,
};
pub use tools::check::{CheckProgress, check, check_volume, check_with};
#[doc(hidden)]
pub use tools::fuzzing;
pub use tools::salvage::{
    SalvageOptions, SalvageProgress, SalvageProgressFn, SalvageReport, SalvagedFile, salvage,
};
pub use tools::verify::VerifyReport;
pub use tools::{advise, inspect};
pub use transaction::Transaction;
pub use write::backpressure::waits::WaitStats;
pub use write::operations::BATCH_BYTES_MAX;

impl Options {
    /// Opens the database in the directory `path`, or creates it there.
    ///
    /// `path` may also be `dirs:PATH,PATH`: several directories of one database, as for
    /// [`open_units`](Self::open_units). So may the paths that [`check`], [`salvage()`] and
    /// [`inspect`] take.
    ///
    /// A database is created only in a directory that is empty or missing; one that holds only
    /// other files is refused. A database that exists opens with other files beside its own and
    /// leaves them alone. If [`create_if_missing`](Self#structfield.create_if_missing) is false and
    /// there is no database, no directory or file is created.
    ///
    /// # Errors
    /// - `Locked`: the database is open already.
    /// - `NotFound`: there is no database, and `create_if_missing` is false.
    /// - `AlreadyExists`: there is a database, and `error_if_exists` is true.
    /// - `InvalidArgument`: `path` is not a directory or holds only other files; or an option is
    ///   beyond its limits, and the message names it.
    /// - `Corruption`: a file is damaged or missing.
    /// - `UnsupportedFormat`: a file is of a version that this build does not know.
    /// - `NoSpace`: the disk is full.
    /// - `Io`: the operating system refused an operation.
    pub fn open(self, path: impl AsRef<std::path::Path>) -> Result<Db> {
        let directories = handles::directories(path.as_ref())?;
        handle::Handle::open_directories(&directories, self).map(Db::new)
    }

    /// Opens the database in these directories, or creates it there: 2 to 64, best each on a drive
    /// of its own. [`placement`](Self#structfield.placement) says which files go to which.
    ///
    /// All of them must be given at each opening, in any order. A new database keeps what cannot be
    /// divided in the first one: the ring of newest commits, and the manifest. If one drive fails,
    /// the database is lost; a [checkpoint](Db::checkpoint) is one directory with everything.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (fast, large) = (dir.path().join("fast"), dir.path().join("large"));
    /// use glintdb::{Options, Placement};
    /// // The log on the first drive, tables on the second.
    /// let options = Options::default().placement(Placement::parse("isolation:1:1")?);
    /// let db = options.open_units(&[&fast, &large])?;
    /// db.put("key", "value")?;
    /// db.flush()?;
    /// assert_eq!(db.stats().volume.units.len(), 2);
    /// # Ok::<(), glintdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and:
    /// - `InvalidArgument`: a directory is given twice, one is missing among those given, one
    ///   belongs to another database, or `placement` has more groups than there are directories.
    /// - `NotFound`: a directory of the database is not there.
    pub fn open_units<P: AsRef<std::path::Path>>(self, paths: &[P]) -> Result<Db> {
        let paths = paths.iter().map(|path| path.as_ref().to_owned()).collect();
        let directories = handles::Directories::Several(paths);
        handle::Handle::open_directories(&directories, self).map(Db::new)
    }

    /// Opens the database on a volume other than a directory, for tests and simulation. `env` gives
    /// the clock, the identity of a new database and the order of jobs.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open_volume(
        self,
        volume: std::sync::Arc<dyn glintdb_flash::Volume>,
        env: Env,
    ) -> Result<Db> {
        handle::Handle::open_resolved(volume, Vec::new(), env, self.resolve()?).map(Db::new)
    }
}

/// A clock for unit tests that moves only by hand.
#[cfg(test)]
fn test_clock() -> std::sync::Arc<dyn glintdb_core::clock::Clock> {
    std::sync::Arc::new(glintdb_flash::ManualClock::new(std::time::Duration::ZERO))
}
