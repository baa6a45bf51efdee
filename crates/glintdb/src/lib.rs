//! GlintDB: an embeddable, crash-safe, ordered key-value engine shaped for flash.
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! use glintdb::{Batch, Db};
//!
//! let db = Db::open(dir.path().join("db"))?;
//! let users = db.keyspace_or_create("users", Default::default())?;
//! users.put("ann", "admin")?;
//! users.put("bob", "guest")?;
//!
//! let mut batch = Batch::new();
//! batch.put(&users, "cy", "guest").delete(&users, "bob");
//! db.write(batch)?;
//!
//! for entry in users.range("a"..="c") {
//!     let (name, role) = entry?;
//!     println!("{name:?}: {role:?}");
//! }
//! # Ok::<(), glintdb::Error>(())
//! ```
//!
//! Where things are: a write goes through [`Batch`] and `commit` into the data log (crate `glintdb-log`) and the memtables; `flush` moves memtables to the index of
//! their keyspace (crate `glintdb-lsm`); `read`, `merge` and `iter` bring it all together again. `recovery` opens a database, `manifest` says which files it is.
//!
//! **Architecture invariants:** no `unsafe`; no file is opened by path (all I/O goes through a `Volume`); no clock is read but the one given.

#![forbid(unsafe_code)]

mod admission;
pub mod advise;
mod batch;
mod budget;
mod change;
mod check;
mod checkpoint;
mod commit;
mod compaction;
mod db;
mod drain;
mod engine;
mod flush;
#[doc(hidden)]
pub mod fuzzing;
mod garbage;
mod gc;
mod help;
mod hot;
pub mod inspect;
mod iter;
mod jobs;
mod keyspace;
mod keyspaces;
mod log_jobs;
mod manifest;
mod merge;
mod numbers;
mod options;
mod pace;
mod pipeline;
mod place_word;
mod range_cache;
mod range_set;
mod read;
mod recovery;
mod reserve;
mod resident;
mod salvage;
mod snapshot;
mod space;
mod stats;
mod throttle;
mod transaction;
mod verify;
mod version;
mod versions;
mod waits;
mod wanted;
mod written;

pub use batch::{BATCH_BYTES_MAX, Batch};
pub use bytes::Bytes;
pub use check::{check, check_volume};
pub use db::{DEFAULT_KEYSPACE, Db};
pub use engine::Env;
pub use glintdb_core::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use glintdb_core::{Error, ErrorKind, Result};
pub use glintdb_lsm::{Compression, LsmOptions, PinnedLevels};
pub use iter::{Iter, Keys};
pub use keyspace::{KEYSPACE_NAME_BYTES_MAX, Keyspace};
pub use options::{
    DirectIo, Durability, GcReads, IndexKind, Isolation, KeyspaceOptions, LOG_RING_BYTES,
    LOG_SEGMENT_BYTES, MEMORY_BUDGET_BYTES_MIN, OpenProgress, Options, PinMode, ProgressFn,
    READ_DEPTH_MAX, REPLAY_BYTES_MAX, ReadEngine, SEPARATE_MIN_BYTES, TransactionOptions,
    parse_bytes,
};
pub use salvage::{
    SalvageOptions, SalvageProgress, SalvageProgressFn, SalvageReport, SalvagedFile, salvage,
};
pub use snapshot::Snapshot;
pub use stats::{
    KeyspaceStats, LevelFigures, LogFigures, MemoryStats, Stats, ValueGcFigures, VolumeFigures,
};
pub use transaction::Transaction;
pub use verify::VerifyReport;
pub use waits::WaitStats;

impl Options {
    /// Opens the database on a volume other than a directory: for tests and simulation.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open_volume(
        self,
        volume: std::sync::Arc<dyn glintdb_flash::Volume>,
        env: Env,
    ) -> Result<Db> {
        Db::open_resolved(volume, env, self.resolve()?)
    }
}

/// A clock for unit tests that moves only by hand.
#[cfg(test)]
fn test_clock() -> std::sync::Arc<dyn glintdb_core::clock::Clock> {
    std::sync::Arc::new(glintdb_flash::ManualClock::new(std::time::Duration::ZERO))
}
