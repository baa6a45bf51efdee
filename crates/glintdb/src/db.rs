//! The database handle: the public entry to everything.

use crate::batch::Batch;
use crate::engine::{Engine, Env};
use crate::handles;
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
use glintdb_flash::{ClosableVolume, DirOptions, DirVolume, SystemClock, Volume};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Name of the keyspace that always exists.
pub const DEFAULT_KEYSPACE: &str = "default";

/// What keeps a database open: the engine, its threads and its files. [`Db::close`] closes it, or the
/// last handle to go.
///
/// Every scan counts a reference of it, beside which what others read must not lie: so it is for [`KeyspaceState`](crate::version::KeyspaceState), versions, and tables.
#[repr(align(128))]
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    /// What the engine works on.
    volume: Arc<ClosableVolume>,
    /// The directory beneath it, where the database was opened by its path.
    directory: Option<Arc<DirVolume>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// How closing ended, once it has.
    closed: Mutex<Option<Result<()>>>,
}

impl Handle {
    /// Keeps the engine's memory for good, in a forked child: dropping it would take locks that are
    /// never free here and touch files that belong to the parent.
    fn leak(&mut self) {
        std::mem::forget(Arc::clone(&self.engine));
        let unused = Mutex::new(Vec::new());
        std::mem::forget(std::mem::replace(&mut self.threads, unused));
    }

    /// Closes the database, whatever handles there are: ends the background threads, makes the log durable,
    /// and gives the directory to the next opener. Once; a later call returns what the first one did.
    /// Does nothing in a forked child, and returns `Closed`.
    fn close(&self) -> Result<()> {
        self.engine.process.check()?;
        let mut closed = self.closed.lock();
        if let Some(closed) = &*closed {
            return closed.clone();
        }
        self.engine.begin_close();
        for thread in self.threads.lock().drain(..) {
            // Never this one: background threads hold no handle.
            if thread.join().is_err() {
                self.engine
                    .note_background_error(&Error::invalid("a background thread panicked"));
            }
        }
        let ended = self.engine.finish_close();
        // Before the lock goes: see `Engine::finish_close` for what is left to be ended.
        self.volume.close();
        if let Some(directory) = &self.directory {
            directory.release();
            handles::forget(&self.engine);
        }
        closed.insert(ended).clone()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.engine.is_forked() {
            return self.leak();
        }
        // Its error is in the stats of a database that nobody can ask any more; `Db::close` returns it.
        self.close().ok();
    }
}

/// An open database. `Send + Sync + Clone`: any number of threads read and write at once.
///
/// [`close`](Self::close) closes it, whatever handles there are. Else it is closed when the last clone,
/// keyspace, snapshot, transaction and iterator of it is gone; errors of that are lost. Closing makes the
/// log durable. It flushes no memtable, for the log holds everything.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = glintdb::Db::open(dir.path().join("db"))?;
/// db.put("key", "value")?;
/// assert_eq!(db.get("key")?.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), glintdb::Error>(())
/// ```
pub struct Db {
    pub(crate) handle: Arc<Handle>,
}

impl Clone for Db {
    fn clone(&self) -> Self {
        Db::new(Arc::clone(&self.handle))
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        self.handle.engine.dbs.fetch_sub(1, Ordering::Relaxed);
    }
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
        let directory = handles::open_directory(path, dir)?;
        let env = Env::new(Arc::new(SystemClock::new()), random_id()?);
        let volume = Arc::clone(&directory) as Arc<dyn Volume>;
        let db = Db::open_resolved(volume, Some(Arc::clone(&directory)), env, options)?;
        handles::register(directory.path(), &db.handle);
        Ok(db)
    }

    /// Opens the database on `volume`, and gives `directory`, where that is what `volume` is, to the next
    /// opener when it is closed.
    pub(crate) fn open_resolved(
        volume: Arc<dyn Volume>,
        directory: Option<Arc<DirVolume>>,
        env: Env,
        options: Options,
    ) -> Result<Db> {
        let threads = options.background_threads;
        let volume = ClosableVolume::new(volume);
        let engine = Engine::open(Arc::clone(&volume) as Arc<dyn Volume>, env, options)?;
        // From here on it is the handle that ends what was begun, where not all threads can be started too.
        let handle = Arc::new(Handle {
            engine: Arc::new(engine),
            volume,
            directory,
            threads: Mutex::default(),
            closed: Mutex::default(),
        });
        for number in 0..threads {
            let thread = start_thread(number, &handle.engine)
                .map_err(|error| Error::io("start a background thread", error))?;
            handle.threads.lock().push(thread);
        }
        handle.engine.schedule();
        Ok(Db::new(handle))
    }

    pub(crate) fn new(handle: Arc<Handle>) -> Db {
        handle.engine.dbs.fetch_add(1, Ordering::Relaxed);
        Db { handle }
    }

    /// The engine, for an operation that may begin.
    fn open_engine(&self) -> Result<&Engine> {
        self.handle.engine.check_open()?;
        Ok(&self.handle.engine)
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
        let state = self.open_engine()?.keyspace(name)?;
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
        let state = self.open_engine()?.create_keyspace(name, options)?;
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
        self.open_engine()?.drop_keyspace(name)
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
        self.open_engine()?.commit(&mut batch, durability)
    }

    /// Commits several batches in order, each atomic by itself, with one wait (and for `Sync` one sync) for all of them.
    ///
    /// # Errors
    /// As [`Keyspace::put`]; the batches before the one that failed are committed.
    pub fn write_group(&self, batches: Vec<Batch>, durability: Durability) -> Result<()> {
        self.open_engine()?.commit_group(batches, durability)
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
        self.open_engine()?.flush()
    }

    /// Raises everything committed so far to `durability`.
    ///
    /// # Errors
    /// `Poisoned`, I/O errors.
    pub fn flush_log(&self, durability: Durability) -> Result<()> {
        self.open_engine()?.flush_log(durability)
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
        self.open_engine()?.checkpoint(path.as_ref())
    }

    /// Reads every byte of every file and checks it. Writers and readers go on meanwhile.
    ///
    /// # Errors
    /// Where checking itself could not go on; what is wrong with the database is in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.open_engine()?.verify(&self.handle)
    }

    /// Figures of everything, as of now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.handle.engine.stats()
    }

    /// Closes the database: ends its background threads, makes everything committed durable, and gives the
    /// directory to the next opener, in this process or another.
    ///
    /// Other handles may live on. Each operation of a clone, keyspace, snapshot, transaction or iterator fails
    /// with `Closed` from then on, and their memory is freed when they go. An operation that another thread
    /// is in the middle of ends as it would have, or fails with `Closed`: a commit that returned `Ok` is
    /// durable, one that waited for room is woken and refused, and a scan ends at its next record.
    ///
    /// Waits for operations and background work to reach their next stop, which is short: memtables need no
    /// flush, for the log holds everything. A second call returns what the first one did.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use glintdb::{Db, ErrorKind};
    /// let db = Db::open(dir.path().join("db"))?;
    /// let users = db.keyspace_or_create("users", Default::default())?;
    /// users.put("ann", "1")?;
    /// db.close()?;
    /// let error = users.put("bob", "2").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Closed);
    /// let again = Db::open(dir.path().join("db"))?;
    /// assert_eq!(again.keyspace("users")?.get("ann")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), glintdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where the log could not be made durable; the database is closed all the same.
    pub fn close(self) -> Result<()> {
        self.handle.close()
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
