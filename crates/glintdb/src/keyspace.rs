//! Keyspaces: named ordered maps that share one log, so that a batch over several is atomic.

use crate::batch::Batch;
use crate::db::Db;
use crate::handle::Handle;
use crate::iter::Iter;
use crate::options::{Durability, KeyspaceOptions};
use crate::read::bounds::{bound_slices, owned_bounds, prefix_bounds};
use crate::snapshot::Pin;
use crate::state::version::{Found, KeyspaceState, is_there};
use crate::{Error, Result};
use bytes::Bytes;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// A named ordered map of a database, from byte strings to byte strings. `Send`, `Sync` and cheap
/// to clone. A keyspace keeps its database open.
///
/// Keys are ordered by unsigned bytes; a prefix comes before longer keys.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = glintdb::Db::open(dir.path().join("db"))?;
/// let fruit = db.keyspace_or_create("fruit", Default::default())?;
/// fruit.put("apple", "green")?;
/// fruit.put("pear", "yellow")?;
/// assert_eq!(fruit.get("apple")?.as_deref(), Some(&b"green"[..]));
/// let names: Vec<_> = fruit.range("b"..).keys().collect::<glintdb::Result<_>>()?;
/// assert_eq!(names, ["pear"]);
/// # Ok::<(), glintdb::Error>(())
/// ```
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) handle: Arc<Handle>,
    pub(crate) state: Arc<KeyspaceState>,
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        if self.handle.engine.shared.is_forked() {
            std::mem::forget(Arc::clone(&self.state));
        }
    }
}

impl Keyspace {
    /// Returns the name of the keyspace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Returns a handle of the database.
    #[must_use]
    pub fn db(&self) -> Db {
        Db::new(Arc::clone(&self.handle))
    }

    /// Returns the options: those given when the keyspace was created, or later with
    /// [`set_options`](Self::set_options).
    #[must_use]
    pub fn options(&self) -> KeyspaceOptions {
        match self.state.options.try_lock() {
            Some(options) => options.clone(),
            // Another thread of the parent may have held the lock during the fork.
            None if self.handle.engine.shared.is_forked() => KeyspaceOptions::default(),
            None => self.state.options.lock().clone(),
        }
    }

    /// Changes the options, durably. `index` cannot change: see [`convert`](Self::convert).
    ///
    /// Existing data keeps its form until compactions rewrite it: blocks keep their size and
    /// compression, and tables their size. A tree that should have other levels gets them as it is
    /// written to. [`compact`](Self::compact) rewrites everything at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = glintdb::Db::open(dir.path().join("db"))?;
    /// let keyspace = db.default_keyspace();
    /// let mut options = keyspace.options();
    /// options.lsm.size_ratio = 6;
    /// keyspace.set_options(options.compression(glintdb::Compression::Lz4))?;
    /// # Ok::<(), glintdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `InvalidArgument`: an option is beyond its limits. The message names it.
    /// - `NotFound`: the keyspace was dropped.
    /// - `NoSpace`: the disk is full.
    /// - `Poisoned`: an earlier write or sync failed, or a background job panicked.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused a write or sync.
    pub fn set_options(&self, options: KeyspaceOptions) -> Result<()> {
        self.handle.engine.shared.check_open()?;
        self.handle
            .engine
            .durable
            .set_keyspace_options(&self.state, options)
    }

    /// Gives the keyspace an index of another kind, with these options, durably. Readers,
    /// snapshots, iterators, transactions and writers go on meanwhile. If it fails, or the process
    /// ends, the keyspace keeps its index.
    ///
    /// The time depends on the old kind:
    /// - An LSM tree becomes a B+tree at once. Background jobs then merge its tables into the tree,
    ///   which rewrites the index. Until they are done, a lookup may read one block for each former
    ///   level. Writers are slowed if they are faster than these jobs.
    /// - The tree of a B+tree is copied before an LSM tree takes its place. That needs free space
    ///   for the leaves, and one read and one write of them. Compactions of the keyspace wait.
    ///
    /// [`KeyspaceOptions::of_kind`] keeps the options that both kinds have.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = glintdb::Db::open(dir.path().join("db"))?;
    /// # let keyspace = db.default_keyspace();
    /// keyspace.put("apple", "green")?;
    /// keyspace.convert(keyspace.options().of_kind(glintdb::IndexKind::BTree))?;
    /// assert_eq!(keyspace.get("apple")?.as_deref(), Some(&b"green"[..]));
    /// # Ok::<(), glintdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `InvalidArgument`: the index is of this kind already, or is being converted; an option is
    ///   beyond its limits, or belongs to another kind of index alone.
    /// - `NotFound`: the keyspace was dropped.
    /// - `NoSpace`: the disk has no room for the copy, or for the record of the change.
    /// - `Corruption`: a file does not hold what was written.
    /// - `Poisoned`: an earlier write or sync failed, or a background job panicked.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused an operation.
    pub fn convert(&self, options: KeyspaceOptions) -> Result<()> {
        self.check_alive()?;
        (self.handle.engine.background).convert(&self.state, options)
    }

    /// Checks that a snapshot or transaction of `handle` may read this keyspace: it belongs to the
    /// same database, which is open.
    pub(crate) fn check_same_db(&self, handle: &Arc<Handle>) -> Result<()> {
        handle.engine.shared.check_open()?;
        if Arc::ptr_eq(&self.handle, handle) {
            Ok(())
        } else {
            Err(Error::invalid(format!(
                "keyspace {:?} belongs to another open database",
                self.state.name
            )))
        }
    }

    /// Checks that the database is open and that the keyspace was not dropped.
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.handle.engine.shared.check_open()?;
        self.state.check_there()
    }

    /// Stores `value` under `key`, with the database's durability. The key has 0 to 65,536 bytes,
    /// the value 0 to 1 GiB.
    ///
    /// # Errors
    /// - `InvalidArgument`: the key has more than 64 KiB or the value more than 1 GiB.
    /// - `NotFound`: the keyspace was dropped.
    /// - `NoSpace`: the disk is full. Reads and deletions still work.
    /// - `Poisoned`: an earlier write or sync failed, or a background job panicked. Open the
    ///   database again.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused a write or sync. Whether the commit survives is
    ///   unknown.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, self.handle.engine.shared.options.durability)
    }

    /// Stores `value` under `key`, with the durability given.
    ///
    /// # Errors
    /// The same as [`put`](Self::put).
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.handle
            .engine
            .writer
            .write_one(&self.state, durability, |operations| {
                operations.put(&self.state, key.as_ref(), value.as_ref())
            })
    }

    /// Removes `key`, with the database's durability. The key may be absent.
    ///
    /// # Errors
    /// The same as [`put`](Self::put). On a full disk, deletions work as long as the space reserved
    /// for them lasts.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let durability = self.handle.engine.shared.options.durability;
        self.handle
            .engine
            .writer
            .write_one(&self.state, durability, |operations| {
                operations.delete(&self.state, key.as_ref())
            })
    }

    /// Removes every key in `range` in one commit. The cost of the commit does not depend on the
    /// number of keys, nor on the number of earlier range deletions. Gets and scans pay one search
    /// among the range deletions that are still in memory.
    ///
    /// # Errors
    /// The same as [`delete`](Self::delete).
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete_range(self, range);
        let engine = &self.handle.engine;
        engine
            .writer
            .commit(&mut batch.operations, engine.shared.options.durability)
    }

    /// Returns the value of `key`, or `None` if the key is absent.
    ///
    /// # Errors
    /// - `NotFound`: the keyspace was dropped.
    /// - `Corruption`: a file does not hold what was written.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused a read.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.check_alive()?;
        self.handle.engine.reader.get(&self.state, key.as_ref())
    }

    /// Returns whether `key` exists. Does not read a separated value.
    ///
    /// # Errors
    /// The same as [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(is_there(&self.find(key.as_ref())?))
    }

    /// Returns the sequence number of the commit that last changed `key`; a deletion counts.
    /// Returns 0 if no commit of the key is known.
    ///
    /// # Errors
    /// The same as [`get`](Self::get).
    pub fn version_of(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        Ok(self.find(key.as_ref())?.map_or(0, |(seqno, _)| seqno.0))
    }

    fn find(&self, key: &[u8]) -> Result<Found> {
        self.check_alive()?;
        let engine = &self.handle.engine;
        let version = engine.shared.version.load();
        let at = engine.shared.pipeline.visible();
        version.find(at, &self.state, key)
    }

    /// Returns the values of many keys at one point in time, one result per key, in the order of
    /// `keys`. Submits the reads that they need in batches, so this is faster than single gets if
    /// values are not cached. The errors are those of [`get`](Self::get).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Bytes>>> {
        if let Err(error) = self.check_alive() {
            return keys.iter().map(|_| Err(error.clone())).collect();
        }
        let engine = &self.handle.engine;
        let point = engine.shared.read_point();
        engine
            .reader
            .multi_get(&point.version, point.at, &self.state, keys)
    }

    /// Returns the values of the first of `keys`, like [`multi_get`](Self::multi_get), up to
    /// `bytes_max` bytes of values together, and at least one. If there are fewer results than
    /// keys, the next value would exceed the limit and was not read. Use this to bound memory when
    /// the sizes of values are unknown.
    pub fn multi_get_within<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        bytes_max: usize,
    ) -> Vec<Result<Option<Bytes>>> {
        if let Err(error) = self.check_alive() {
            return keys.iter().map(|_| Err(error.clone())).collect();
        }
        let engine = &self.handle.engine;
        let point = engine.shared.read_point();
        engine
            .reader
            .multi_get_within(&point.version, point.at, &self.state, keys, bytes_max)
    }

    /// Returns an iterator over all keys and values, as they are now.
    #[must_use]
    pub fn iter(&self) -> Iter {
        self.scan(Bound::Unbounded, Bound::Unbounded)
    }

    fn scan(&self, lower: Bound<Bytes>, upper: Bound<Bytes>) -> Iter {
        Iter::new(Pin::of_iterator(&self.handle), self, lower, upper, None)
            .failing(self.check_alive())
    }

    /// Returns an iterator over the keys in `range` and their values, as they are now.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        let (lower, upper) = owned_bounds(&range);
        self.scan(lower, upper)
    }

    /// Returns an iterator over the keys that begin with `prefix` and their values, as they are
    /// now.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        let (lower, upper) = prefix_bounds(prefix.as_ref());
        self.scan(lower, upper)
    }

    /// Flushes the memtables and compacts the whole keyspace into the deepest level of its index.
    ///
    /// # Errors
    /// - `NotFound`: the keyspace was dropped.
    /// - `NoSpace`: the disk has no room for the new files.
    /// - `Corruption`: a file does not hold what was written.
    /// - `Poisoned`: an earlier write or sync failed, or a background job panicked.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused an operation.
    pub fn compact(&self) -> Result<()> {
        self.check_alive()?;
        self.handle.engine.background.flush()?;
        self.handle
            .engine
            .background
            .compact(&self.state, Bound::Unbounded, Bound::Unbounded)
    }

    /// Flushes the memtables and compacts the keys in `range` into the deepest level of the index.
    ///
    /// # Errors
    /// The same as [`compact`](Self::compact).
    pub fn compact_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.check_alive()?;
        self.handle.engine.background.flush()?;
        let (lower, upper) = owned_bounds(&range);
        let (lower, upper) = bound_slices(&lower, &upper);
        self.handle
            .engine
            .background
            .compact(&self.state, lower, upper)
    }

    /// Rewrites the separated values in key order and compacts the keyspace, so that long scans
    /// read consecutive bytes of a file.
    ///
    /// Values are stored in the order in which they were written. After writes in random order, a
    /// scan of uncached values therefore costs one device read for each. This function skips values
    /// that are in order already. Values written later are again stored in the order of their
    /// writes. Readers and writers go on meanwhile.
    ///
    /// The time is about that of reading each value once at random and writing the keyspace once.
    /// `space_amp_max` holds throughout.
    ///
    /// ```
    /// # fn main() -> glintdb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = glintdb::Db::open(dir.path().join("db"))?;
    /// let pages = db.default_keyspace();
    /// for n in [3, 1, 2] {
    ///     pages.put(format!("page{n}"), vec![n; 4000])?;
    /// }
    /// pages.compact_values()?;
    /// assert_eq!(pages.get("page2")?.as_deref(), Some(&[2; 4000][..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as [`compact`](Self::compact). Values moved before the error stay moved.
    pub fn compact_values(&self) -> Result<()> {
        self.check_alive()?;
        let engine = &self.handle.engine;
        engine
            .value_gc
            .compact_values(&self.state, Bound::Unbounded, Bound::Unbounded)
    }

    /// Rewrites the separated values of the keys in `range` in key order and compacts them, like
    /// [`compact_values`](Self::compact_values).
    ///
    /// # Errors
    /// The same as [`compact_values`](Self::compact_values).
    pub fn compact_values_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.check_alive()?;
        let (lower, upper) = owned_bounds(&range);
        let (lower, upper) = bound_slices(&lower, &upper);
        let engine = &self.handle.engine;
        engine.value_gc.compact_values(&self.state, lower, upper)
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyspace({:?})", self.state.name)
    }
}
