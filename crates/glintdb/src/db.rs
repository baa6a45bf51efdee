//! The database handle: the public entry to everything.

use crate::batch::Batch;
use crate::engine::{Engine, Env};
use crate::keyspace::Keyspace;
use crate::options::{Durability, KeyspaceOptions, Options, TransactionOptions};
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::transaction::Transaction;
use crate::verify::VerifyReport;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use glintdb_core::sync::Mutex;
use glintdb_core::sync::thread::{self, JoinHandle};
use glintdb_flash::{DirOptions, DirVolume, SystemClock, Volume};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Name of the keyspace that always exists.
pub const DEFAULT_KEYSPACE: &str = "default";

/// What keeps a database open: the engine and its threads. The last handle to go closes it.
///
/// Every scan counts a reference of it, beside which what others read must not lie: so it is for [`KeyspaceState`](crate::version::KeyspaceState), versions, and tables.
#[repr(align(128))]
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Handle {
    /// Keeps the engine's memory for good, in a forked child: dropping it would take locks that are
    /// never free here and touch files that belong to the parent.
    fn leak(&mut self) {
        std::mem::forget(Arc::clone(&self.engine));
        let unused = Mutex::new(Vec::new());
        std::mem::forget(std::mem::replace(&mut self.threads, unused));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.engine.is_forked() {
            return self.leak();
        }
        self.engine.begin_close();
        for thread in self.threads.lock().drain(..) {
            // Never this one: background threads hold no handle.
            if thread.join().is_err() {
                self.engine
                    .note_background_error(&Error::invalid("a background thread panicked"));
            }
        }
        self.engine.finish_close();
    }
}

/// An open database. `Send + Sync + Clone`: any number of threads read and write at once. Closed when the last clone, keyspace, snapshot, transaction and
/// iterator of it is gone; closing makes the log durable, and flushes no memtable, for the log holds everything.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = glintdb::Db::open(dir.path().join("db"))?;
/// db.put("key", "value")?;
/// assert_eq!(db.get("key")?.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), glintdb::Error>(())
/// ```
#[derive(Clone)]
pub struct Db {
    pub(crate) handle: Arc<Handle>,
}

impl Db {
    /// Opens the database in the directory `path` with default [`Options`]. Creates it where the
    /// directory is empty or missing.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::default().open(path)
    }

    pub(crate) fn open_path(path: &Path, options: Options) -> Result<Db> {
        let options = options.resolve()?;
        let dir = DirOptions {
            direct: options.direct_io,
            read_engine: options.read_engine,
            read_depth: options.read_depth,
            recycle: options.recycle_files,
            create: options.create_if_missing,
            idle_buffer_bytes_max: options.idle_buffer_bytes_max(),
            ..DirOptions::default()
        };
        crate::directory::check(path, options.create_if_missing)?;
        let volume = DirVolume::open(path, dir)?;
        Db::open_resolved(
            volume,
            Env::new(Arc::new(SystemClock::new()), random_id()?),
            options,
        )
    }

    pub(crate) fn open_resolved(volume: Arc<dyn Volume>, env: Env, options: Options) -> Result<Db> {
        let threads = options.background_threads;
        // From here on it is the handle that ends what was begun, where not all threads can be started too.
        let handle = Arc::new(Handle {
            engine: Arc::new(Engine::open(volume, env, options)?),
            threads: Mutex::default(),
        });
        for number in 0..threads {
            let thread = start_thread(number, &handle.engine)
                .map_err(|error| Error::io("start a background thread", error))?;
            handle.threads.lock().push(thread);
        }
        handle.engine.schedule();
        Ok(Db { handle })
    }

    /// The keyspace [`DEFAULT_KEYSPACE`].
    ///
    /// # Panics
    /// Never: the engine does not open a database without it and refuses to drop it.
    #[must_use]
    pub fn default_keyspace(&self) -> Keyspace {
        Keyspace {
            handle: Arc::clone(&self.handle),
            state: Arc::clone(&self.handle.engine.default_keyspace),
        }
    }

    /// Stores `value` under `key` in the default keyspace.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default_keyspace().put(key, value)
    }

    /// The value of `key` in the default keyspace.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.default_keyspace().get(key)
    }

    /// Removes `key` from the default keyspace.
    ///
    /// # Errors
    /// As [`Keyspace::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default_keyspace().delete(key)
    }

    /// The keyspace `name`.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let state = self.handle.engine.keyspace(name)?;
        Ok(Keyspace {
            handle: Arc::clone(&self.handle),
            state,
        })
    }

    /// Creates the keyspace `name` (1 to 255 bytes); durable when this returns.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` where the name or the options are out of their limits; `NoSpace`, I/O errors.
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let state = self.handle.engine.create_keyspace(name, options)?;
        Ok(Keyspace {
            handle: Arc::clone(&self.handle),
            state,
        })
    }

    /// The keyspace `name`, created with `options` if there is none.
    ///
    /// A keyspace that exists keeps its options. Each of `options` that differs from its default must be
    /// the keyspace's own, or the call fails; one that has its default value asks for nothing. So
    /// `KeyspaceOptions::default()` opens the keyspace whatever its options are, and a program may pass the
    /// same options at every start. After a change of the program's options, or a call of
    /// [`set_options`](Keyspace::set_options) with others, the error names the options that differ: call
    /// [`keyspace`](Self::keyspace), and then `set_options` to change them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use glintdb::{Compression, ErrorKind, KeyspaceOptions};
    /// let db = glintdb::Db::open(dir.path().join("db"))?;
    /// let plain = db.keyspace_or_create("logs", KeyspaceOptions::default())?;
    /// let compressed = KeyspaceOptions::default().compression(Compression::Lz4);
    /// let error = db.keyspace_or_create("logs", compressed.clone()).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    /// assert!(error.to_string().contains("compression is none, not lz4"));
    /// plain.set_options(compressed.clone())?;
    /// db.keyspace_or_create("logs", compressed)?;
    /// db.keyspace_or_create("logs", KeyspaceOptions::default())?;
    /// # Ok::<(), glintdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` where the keyspace exists with other options, or the name or the options are out of
    /// their limits; `NoSpace`, I/O errors.
    pub fn keyspace_or_create(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let keyspace = match self.keyspace(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match self.create_keyspace(name, options.clone()) {
                    // Another thread was faster.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        self.keyspace(name)?
                    }
                    created => return created,
                }
            }
            found => found?,
        };
        let different = options.unmet_by(&keyspace.options());
        match different.is_empty() {
            true => Ok(keyspace),
            false => Err(Error::invalid(format!(
                "keyspace {name:?} exists with other options: {}; call Keyspace::set_options to change them",
                different.join(", ")
            ))),
        }
    }

    /// Drops the keyspace `name` and all its data; durable when this returns. Handles to it answer `NotFound` from then on; snapshots keep what they show.
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` for the default keyspace; I/O errors.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.handle.engine.drop_keyspace(name)
    }

    /// Names of all keyspaces, in the order they were created.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<String> {
        self.handle
            .engine
            .version
            .load()
            .live_keyspaces()
            .map(|keyspace| keyspace.state.name.clone())
            .collect()
    }

    /// Commits a batch: atomic and isolated, over all its keyspaces. One without operations raises what was committed before it to the durability, as [`flush_log`](Self::flush_log).
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn write(&self, batch: Batch) -> Result<()> {
        self.write_with(batch, self.handle.engine.options.durability)
    }

    /// [`write`](Self::write) with a durability of its own.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn write_with(&self, mut batch: Batch, durability: Durability) -> Result<()> {
        self.handle.engine.commit(&mut batch, durability)
    }

    /// Commits several batches in order, each atomic by itself, with one wait (and for `Sync` one sync) for all of them.
    ///
    /// # Errors
    /// As [`Keyspace::put`]; the batches before the one that failed are committed.
    pub fn write_group(&self, batches: Vec<Batch>, durability: Durability) -> Result<()> {
        self.handle.engine.commit_group(batches, durability)
    }

    /// A repeatable view of the whole database as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.handle)
    }

    /// A transaction with snapshot isolation and the database's durability.
    #[must_use]
    pub fn transaction(&self) -> Transaction {
        self.transaction_with(TransactionOptions::default())
    }

    /// A transaction.
    #[must_use]
    pub fn transaction_with(&self, options: TransactionOptions) -> Transaction {
        Transaction::new(&self.handle, options)
    }

    /// Writes all memtables to their indexes, durably.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors.
    pub fn flush(&self) -> Result<()> {
        self.handle.engine.flush()
    }

    /// Raises everything committed so far to `durability`.
    ///
    /// # Errors
    /// `Poisoned`, I/O errors.
    pub fn flush_log(&self, durability: Durability) -> Result<()> {
        self.handle.engine.flush_log(durability)
    }

    /// Flushes, and compacts every keyspace to the bottom of its index.
    ///
    /// # Errors
    /// `NoSpace`, `Corruption`, I/O errors.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        self.each_keyspace(Keyspace::compact)
    }

    /// [Puts the values](Keyspace::compact_values) of all keyspaces in key order, and compacts them.
    ///
    /// # Errors
    /// As [`compact`](Self::compact).
    pub fn compact_values(&self) -> Result<()> {
        self.each_keyspace(Keyspace::compact_values)
    }

    fn each_keyspace(&self, work: impl Fn(&Keyspace) -> Result<()>) -> Result<()> {
        for name in self.keyspaces() {
            match self.keyspace(&name).and_then(|keyspace| work(&keyspace)) {
                // Dropped meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Makes a copy of the database in the new directory `path`, as of now: files are hard-linked where the file system can, else copied. It opens as a database.
    ///
    /// # Errors
    /// `AlreadyExists` where there is a file or directory `path`; `NoSpace`, I/O errors.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.handle.engine.checkpoint(path.as_ref())
    }

    /// Reads every byte of every file and checks it. Writers and readers go on meanwhile.
    ///
    /// # Errors
    /// Where checking itself could not go on; what is wrong with the database is in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.handle.engine.verify(&self.handle)
    }

    /// Figures of everything, as of now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.handle.engine.stats()
    }

    /// Makes everything committed durable and lets go of this handle; the last one to go closes the database (which does the same, but cannot tell errors). Waits for
    /// running job steps only: memtables need no flush, for the log holds everything.
    ///
    /// # Errors
    /// Where the log could not be made durable.
    pub fn close(self) -> Result<()> {
        self.flush_log(Durability::Sync)
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.handle.engine.volume.describe())
    }
}

/// Starts a background thread, which lives until the queue is stopped.
fn start_thread(number: usize, engine: &Arc<Engine>) -> io::Result<JoinHandle<()>> {
    #[cfg(test)]
    if number >= tests::THREADS_MAX.get() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let engine = Arc::clone(engine);
    thread::Builder::new()
        .name(format!("glintdb-{number}"))
        .spawn(move || engine.jobs.work(&engine))
}

/// A random database identity, from the operating system.
fn random_id() -> Result<glintdb_core::DbId> {
    glintdb_flash::random_bytes().map(glintdb_core::DbId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    std::thread_local! {
        /// As many background threads can be started by this thread.
        pub(super) static THREADS_MAX: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// The threads that had been started were left alone where a later one could not be: they kept the database for ever, and the next opening said `Locked`.
    #[test]
    fn threads_that_were_started_end_where_another_one_cannot_be() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default()
            .memory_budget_bytes(8 << 20)
            .log_segment_bytes(64 << 10)
            .background_threads(3);
        for most in 0..3 {
            THREADS_MAX.set(most);
            let error = options.clone().open(directory.path()).map(drop);
            let error = error.unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Io, "{error}");
        }
        THREADS_MAX.set(3);
        let db = options.open(directory.path()).unwrap();
        db.put("key", "value").unwrap();
    }
}
