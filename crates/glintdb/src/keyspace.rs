//! Keyspaces: named ordered maps that share one log, so that a batch over several is atomic.

use crate::batch::Batch;
use crate::db::{Db, Handle};
use crate::iter::Iter;
use crate::options::{Durability, KeyspaceOptions};
use crate::read::Found;
use crate::resident::Resident;
use crate::snapshot::Pin;
use crate::version::KeyspaceState;
use crate::{Error, Result};
use bytes::Bytes;
use glintdb_core::{EntryValue, key};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Longest name of a keyspace, in bytes.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;

/// A named ordered map of a database. `Send + Sync + Clone`; keeps the database open.
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
        if self.handle.engine.is_forked() {
            std::mem::forget(Arc::clone(&self.state));
        }
    }
}

/// Whether what was found is a value.
pub(crate) fn is_there(found: &Found) -> bool {
    !matches!(found, None | Some((_, EntryValue::Tombstone)))
}

/// Bounds of a range, owned.
pub(crate) fn owned_bounds<K: AsRef<[u8]>>(
    range: &impl RangeBounds<K>,
) -> (Bound<Bytes>, Bound<Bytes>) {
    let own = |bound: Bound<&K>| bound.map(|key| Bytes::copy_from_slice(key.as_ref()));
    (own(range.start_bound()), own(range.end_bound()))
}

/// Bounds of all keys with a prefix.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> (Bound<Bytes>, Bound<Bytes>) {
    let upper = key::prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(Bytes::copy_from_slice(prefix)), upper)
}

impl Keyspace {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The database it belongs to.
    #[must_use]
    pub fn db(&self) -> Db {
        Db::new(Arc::clone(&self.handle))
    }

    /// Its options: those it was created with, or was [given](Self::set_options) since.
    #[must_use]
    pub fn options(&self) -> KeyspaceOptions {
        self.state.options.lock().clone()
    }

    /// Gives it other options, durably: they count from now on and at every opening. What was written by the old ones stays as it is until compactions come by: blocks keep their
    /// size and compression, tables theirs, and a tree that is to have other levels gets them as it is written to. [`compact`](Self::compact) rewrites everything by the new ones.
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
    /// `InvalidArgument` with the name of an option that is beyond its limits; `NotFound` (the keyspace was dropped), `NoSpace`, `Poisoned`, I/O errors.
    pub fn set_options(&self, options: KeyspaceOptions) -> Result<()> {
        self.handle.engine.check_open()?;
        self.handle
            .engine
            .set_keyspace_options(&self.state, options)
    }

    /// Whether a snapshot or transaction of `handle` may be asked for this keyspace: it is of the same
    /// database, and that is open.
    pub(crate) fn check_same_db(&self, handle: &Arc<Handle>) -> Result<()> {
        handle.engine.check_open()?;
        if Arc::ptr_eq(&self.handle, handle) {
            Ok(())
        } else {
            Err(Error::invalid(format!(
                "keyspace {:?} belongs to another open database",
                self.state.name
            )))
        }
    }

    /// Whether the database is open and the keyspace was not dropped.
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.handle.engine.check_open()?;
        match self.state.dropped.load(Ordering::Acquire) {
            true => Err(self.state.gone()),
            false => Ok(()),
        }
    }

    /// Stores `value` under `key`.
    ///
    /// # Errors
    /// `InvalidArgument` beyond 64 KiB of key or 1 GiB of value; `NoSpace`, `Poisoned`, `Closed`, `NotFound` (the keyspace was dropped), I/O errors.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, self.handle.engine.options.durability)
    }

    /// [`put`](Self::put) with a durability of its own.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.handle
            .engine
            .write_one(&self.state, durability, |batch| {
                batch.put_raw(&self.state, key.as_ref(), value.as_ref())
            })
    }

    /// Removes `key`, which may be absent.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let durability = self.handle.engine.options.durability;
        self.handle
            .engine
            .write_one(&self.state, durability, |batch| {
                batch.delete_raw(&self.state, key.as_ref())
            })
    }

    /// Removes every key within bounds, in one commit whose cost does not depend on how many there are.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete_range(self, range);
        let engine = &self.handle.engine;
        engine.commit(&mut batch, engine.options.durability)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// `Corruption`, I/O errors, `NotFound` (the keyspace was dropped).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.check_alive()?;
        self.handle.engine.get(&self.state, key.as_ref())
    }

    /// Whether `key` is there; reads no separated value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(is_there(&self.find(key.as_ref())?))
    }

    /// Number of the commit that last changed `key` (a deletion counts), 0 where none is known.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn version_of(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        Ok(self.find(key.as_ref())?.map_or(0, |(seqno, _)| seqno.0))
    }

    fn find(&self, key: &[u8]) -> Result<Found> {
        self.check_alive()?;
        let engine = &self.handle.engine;
        let version = engine.version.load();
        let at = engine.pipeline.visible();
        engine.find(&version, at, &self.state, key)
    }

    /// The values of many keys at one point in time, with the reads they need submitted in batches; one answer a key, in their order.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Bytes>>> {
        if let Err(error) = self.check_alive() {
            return keys.iter().map(|_| Err(error.clone())).collect();
        }
        let engine = &self.handle.engine;
        let point = engine.read_point();
        engine.multi_get(&point.version, point.at, &self.state, keys)
    }

    /// [`multi_get`](Self::multi_get) of the first of `keys`: as many as have no more than `bytes_max` bytes of values together, but at least one. Fewer answers than
    /// keys mean that the next value would have been too much; it was not read. For whoever must bound memory and does not know the values.
    pub fn multi_get_within<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        bytes_max: usize,
    ) -> Vec<Result<Option<Bytes>>> {
        if let Err(error) = self.check_alive() {
            return keys.iter().map(|_| Err(error.clone())).collect();
        }
        let engine = &self.handle.engine;
        let point = engine.read_point();
        engine.multi_get_within(&point.version, point.at, &self.state, keys, bytes_max)
    }

    /// All keys and values, as they are now.
    #[must_use]
    pub fn iter(&self) -> Iter {
        self.scan(Bound::Unbounded, Bound::Unbounded)
    }

    fn scan(&self, lower: Bound<Bytes>, upper: Bound<Bytes>) -> Iter {
        Iter::new(Pin::of_iterator(&self.handle), self, lower, upper, None)
            .failing(self.check_alive())
    }

    /// Keys and values within bounds, as they are now.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        let (lower, upper) = owned_bounds(&range);
        self.scan(lower, upper)
    }

    /// Keys that begin with `prefix`, and their values, as they are now.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        let (lower, upper) = prefix_bounds(prefix.as_ref());
        self.scan(lower, upper)
    }

    /// Flushes, and compacts the whole keyspace to the bottom of its index.
    ///
    /// # Errors
    /// `NoSpace`, `Corruption`, I/O errors.
    pub fn compact(&self) -> Result<()> {
        self.check_alive()?;
        self.handle.engine.flush()?;
        self.handle
            .engine
            .compact(&self.state, Bound::Unbounded, Bound::Unbounded)
    }

    /// Flushes, and compacts the keys within bounds to the bottom of the index.
    ///
    /// # Errors
    /// As [`compact`](Self::compact).
    pub fn compact_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.check_alive()?;
        self.handle.engine.flush()?;
        let (lower, upper) = owned_bounds(&range);
        let (lower, upper) = crate::snapshot::bound_slices(&lower, &upper);
        self.handle.engine.compact(&self.state, lower, upper)
    }

    /// Writes the values that lie apart from the index anew in the order of their keys, where they do not lie so, and [compacts](Self::compact): long scans then read whole stretches of a
    /// file, where after writes in random order each value is a read of its own. Readers and writers go on meanwhile. What has been in order already is not written again, and what is
    /// written later lies where it was written.
    ///
    /// Takes about the time of reading each value once from a random place, and writes the keyspace once more; `space_amp_max` holds all the while.
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
    /// As [`compact`](Self::compact). What was moved so far stays.
    pub fn compact_values(&self) -> Result<()> {
        self.check_alive()?;
        let engine = &self.handle.engine;
        engine.compact_values(&self.state, Bound::Unbounded, Bound::Unbounded)
    }

    /// [`compact_values`](Self::compact_values) of the keys within bounds.
    ///
    /// # Errors
    /// As [`compact_values`](Self::compact_values).
    pub fn compact_values_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.check_alive()?;
        let (lower, upper) = owned_bounds(&range);
        let (lower, upper) = crate::snapshot::bound_slices(&lower, &upper);
        let engine = &self.handle.engine;
        engine.compact_values(&self.state, lower, upper)
    }

    /// About how many keys there are: entries of memtables and index, less twice the index's tombstones; keys deleted or overwritten since the last compaction count more than once.
    #[must_use]
    pub fn approximate_len(&self) -> u64 {
        let version = self.handle.engine.version.load();
        let in_memory: u64 = version
            .generations()
            .filter_map(|generation| generation.keyspace(self.state.id))
            .map(|mem| mem.map.len() as u64)
            .sum();
        let resident = version.resident(self.state.id);
        let in_memory = in_memory + resident.map_or(0, Resident::entries);
        let stats = version
            .keyspace(self.state.id)
            .map(|keyspace| keyspace.view.stats())
            .unwrap_or_default();
        in_memory + stats.entries.saturating_sub(2 * stats.tombstones)
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyspace({:?})", self.state.name)
    }
}
