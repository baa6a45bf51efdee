//! The handle of an open database, from which all other handles come.

use crate::batch::Batch;
use crate::engine::Engine;
use crate::handle::Handle;
use crate::keyspace::Keyspace;
use crate::options::{Durability, KeyspaceOptions, Options, TransactionOptions};
use crate::snapshot::{Pin, Snapshot};
use crate::stats::Stats;
use crate::tools::verify::{VerifyReport, verify};
use crate::transaction::Transaction;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An open database. `Send`, `Sync` and cheap to clone: any number of threads read and write at
/// once.
///
/// [`close`](Self::close) closes it, whatever other handles exist. Otherwise it closes when its
/// last [`Db`], [`Keyspace`], [`Snapshot`], [`Transaction`] and [`Iter`](crate::Iter) is dropped;
/// errors are then lost. Closing makes the log durable. It writes no memtable, because the log
/// holds every commit.
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
    /// Opens the database in the directory `path` with default [`Options`], and creates it if the
    /// directory is empty or missing.
    ///
    /// # Errors
    /// The same as [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::default().open(path)
    }

    pub(crate) fn new(handle: Arc<Handle>) -> Db {
        handle.engine.dbs.fetch_add(1, Ordering::Relaxed);
        Db { handle }
    }

    /// The engine, for an operation that may begin.
    fn open_engine(&self) -> Result<&Engine> {
        self.handle.engine.shared.check_open()?;
        Ok(&self.handle.engine)
    }

    /// Returns the keyspace [`DEFAULT_KEYSPACE`], which always exists.
    #[must_use]
    pub fn default_keyspace(&self) -> Keyspace {
        Keyspace {
            handle: Arc::clone(&self.handle),
            state: Arc::clone(&self.handle.engine.shared.default_keyspace),
        }
    }

    /// Stores `value` under `key` in the default keyspace.
    ///
    /// # Errors
    /// The same as [`Keyspace::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default_keyspace().put(key, value)
    }

    /// Returns the value of `key` in the default keyspace, or `None` if the key is absent.
    ///
    /// # Errors
    /// The same as [`Keyspace::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.default_keyspace().get(key)
    }

    /// Removes `key` from the default keyspace. The key may be absent.
    ///
    /// # Errors
    /// The same as [`Keyspace::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default_keyspace().delete(key)
    }

    /// Returns the keyspace `name`.
    ///
    /// # Errors
    /// - `NotFound`: there is no keyspace of this name.
    /// - `Closed`: the database is closed.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let state = self.open_engine()?.durable.keyspace(name)?;
        Ok(Keyspace {
            handle: Arc::clone(&self.handle),
            state,
        })
    }

    /// Creates the keyspace `name`, of 1 to 255 bytes. The keyspace is durable when this returns.
    ///
    /// # Errors
    /// - `AlreadyExists`: there is a keyspace of this name.
    /// - `InvalidArgument`: the name or an option is beyond its limits.
    /// - `NoSpace`: the disk is full.
    /// - `Poisoned`: an earlier write or sync failed, or a background job panicked.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused a write or sync.
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let state = self.open_engine()?.durable.create_keyspace(name, options)?;
        Ok(Keyspace {
            handle: Arc::clone(&self.handle),
            state,
        })
    }

    /// Returns the keyspace `name`, or creates it with `options` if there is none.
    ///
    /// An existing keyspace keeps its options. Each of `options` that is not the default must be
    /// equal to the keyspace's own, or the call fails. So `KeyspaceOptions::default()` opens a
    /// keyspace whatever its options are, and a program can pass the same options at every start.
    /// To change the options of an existing keyspace, call [`keyspace`](Self::keyspace) and then
    /// [`set_options`](Keyspace::set_options).
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
    /// - `InvalidArgument`: the keyspace exists with other options, and the message names them; or
    ///   the name or an option is beyond its limits.
    /// - `NoSpace`: the disk is full.
    /// - `Poisoned`: an earlier write or sync failed, or a background job panicked.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused a write or sync.
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
        let changes = match options.index == keyspace.options().index {
            true => "set_options",
            false => "convert",
        };
        match different.is_empty() {
            true => Ok(keyspace),
            false => Err(Error::invalid(format!(
                "keyspace {name:?} exists with other options: {}; call Keyspace::{changes} to change them",
                different.join(", ")
            ))),
        }
    }

    /// Drops the keyspace `name` with all its data. The drop is durable when this returns.
    ///
    /// Other handles of the keyspace return `NotFound` from then on. Open snapshots keep showing
    /// its data.
    ///
    /// # Errors
    /// - `NotFound`: there is no keyspace of this name.
    /// - `InvalidArgument`: the default keyspace cannot be dropped.
    /// - `Poisoned`: an earlier write or sync failed, or a background job panicked.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused a write or sync.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.open_engine()?.durable.drop_keyspace(name)
    }

    /// Returns the names of all keyspaces, in the order in which they were created.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<String> {
        self.handle
            .engine
            .shared
            .version
            .load()
            .live_keyspaces()
            .map(|keyspace| keyspace.state.name.clone())
            .collect()
    }

    /// Commits all operations of `batch` atomically, with the database's durability.
    ///
    /// An empty batch raises all earlier commits to that durability, like
    /// [`flush_log`](Self::flush_log).
    ///
    /// # Errors
    /// - `InvalidArgument`: an operation is beyond the limits of [`Batch`].
    /// - `NotFound`: a keyspace of the batch was dropped or belongs to another open database.
    /// - `NoSpace`: the disk is full. Reads and deletions still work.
    /// - `Poisoned`: an earlier write or sync failed, or a background job panicked. Open the
    ///   database again.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused a write or sync. Whether the commit survives is
    ///   unknown.
    pub fn write(&self, batch: Batch) -> Result<()> {
        self.write_with(batch, self.handle.engine.shared.options.durability)
    }

    /// Commits all operations of `batch` atomically, with the durability given.
    ///
    /// # Errors
    /// The same as [`write`](Self::write).
    pub fn write_with(&self, mut batch: Batch, durability: Durability) -> Result<()> {
        self.open_engine()?
            .writer
            .commit(&mut batch.operations, durability)
    }

    /// Commits several batches in order. Each batch is atomic by itself. All of them share one
    /// wait, and with `Sync` one sync.
    ///
    /// # Errors
    /// The same as [`write`](Self::write). The batches before the one that failed are committed.
    pub fn write_group(&self, batches: Vec<Batch>, durability: Durability) -> Result<()> {
        self.open_engine()?.writer.commit_group(
            batches.into_iter().map(|batch| batch.operations),
            durability,
        )
    }

    /// Returns a snapshot: a view of the whole database as it is now, which later commits do not
    /// change.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.handle)
    }

    /// Begins a transaction with snapshot isolation and the database's durability.
    #[must_use]
    pub fn transaction(&self) -> Transaction {
        self.transaction_with(TransactionOptions::default())
    }

    /// Begins a transaction with the options given.
    #[must_use]
    pub fn transaction_with(&self, options: TransactionOptions) -> Transaction {
        Transaction::new(&self.handle, options)
    }

    /// Writes all memtables to the indexes, durably. Commits need no flush to be durable: this only
    /// shortens the next open. Gives log and preallocated space back to the file system where 4 MiB
    /// or more of it is not needed any more.
    ///
    /// # Errors
    /// - `NoSpace`: the disk has no room for the tables.
    /// - `Poisoned`: an earlier write or sync failed, or a background job panicked.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused a write or sync.
    pub fn flush(&self) -> Result<()> {
        let engine = self.open_engine()?;
        engine.background.flush()?;
        engine.background.trim()
    }

    /// Raises all earlier commits to the durability given.
    ///
    /// # Errors
    /// - `Poisoned`: an earlier write or sync failed, or a background job panicked.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused a write or sync.
    pub fn flush_log(&self, durability: Durability) -> Result<()> {
        self.open_engine()?.writer.flush_log(durability)
    }

    /// Flushes the memtables and compacts every keyspace into the deepest level of its index.
    ///
    /// # Errors
    /// - `NoSpace`: the disk has no room for the new files.
    /// - `Corruption`: a file does not hold what was written.
    /// - `Poisoned`: an earlier write or sync failed, or a background job panicked.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused an operation.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        self.each_keyspace(Keyspace::compact)
    }

    /// Rewrites the separated values of every keyspace in key order and compacts it. See
    /// [`Keyspace::compact_values`].
    ///
    /// # Errors
    /// The same as [`compact`](Self::compact).
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

    /// Makes a copy of the database, as it is now, in the new directory `path`. The copy opens as a
    /// database.
    ///
    /// Files are hard-linked if `path` is on the same file system and it supports links, else
    /// copied. Copy a checkpoint of hard links to another drive to have a backup. A directory in
    /// which a checkpoint did not end does not open.
    ///
    /// Other threads read and write meanwhile, and create and drop keyspaces. Space that they free
    /// is given back when the checkpoint ends.
    ///
    /// # Errors
    /// - `AlreadyExists`: `path` exists.
    /// - `NoSpace`: the disk is full.
    /// - `Poisoned`: an earlier write or sync failed, or a background job panicked.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused an operation.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.open_engine()?.durable.checkpoint(path.as_ref())
    }

    /// Reads and checks every byte of every file, while readers and writers go on. Damage is in the
    /// report and is not an error of this function. [`check`](crate::tools::check()) does
    /// the same for a
    /// database that is not open.
    ///
    /// # Errors
    /// Any error that keeps the verification from continuing.
    pub fn verify(&self) -> Result<VerifyReport> {
        let shared = &self.open_engine()?.shared;
        // Taken before the snapshot, so that no live entry of it is in these segments.
        let retired = shared.manifest.lock().state().retired.clone();
        let pin = Pin::new(&self.handle);
        verify(shared, &pin.version()?, pin.at(), &retired)
    }

    /// Returns figures of all parts of the database, as they are now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.handle.engine.stats()
    }

    /// Closes the database: ends its background threads, makes every commit durable against a power
    /// cut and unlocks the directory.
    ///
    /// Other handles may still exist. From now on each operation on a clone, keyspace, snapshot,
    /// transaction or iterator fails with `Closed`. An operation that another thread has begun
    /// either completes or fails with `Closed`: a commit that returned `Ok` is durable, a writer
    /// that waits is woken and refused, and a scan fails at its next record.
    ///
    /// Closing waits until running operations and background jobs reach their next step. It writes
    /// no memtable, because the log holds every commit. A second call returns the result of the
    /// first.
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
    /// - `Poisoned` or `Io`: the log could not be made durable. The database is closed all the
    ///   same.
    pub fn close(self) -> Result<()> {
        self.handle.close()
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.handle.engine.shared.volume.describe())
    }
}
