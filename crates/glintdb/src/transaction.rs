//! Optimistic transactions: each reads a snapshot, keeps its writes aside and checks for conflicts
//! when it commits.
//!
//! Thread safety: a [`Transaction`] is `Send`, used by one thread at a time; any number run at
//! once.
//!
//! The check is in [`conflicts`](crate::write::conflicts), the floor of tombstones in
//! [`transactions`](crate::state::transactions).

use crate::Result;
use crate::handle::Handle;
use crate::iter::Iter;
use crate::keyspace::Keyspace;
use crate::options::{Isolation, TransactionOptions};
use crate::read::bounds::{bound_slices, is_empty, owned_bounds, prefix_bounds};
use crate::read::own_writes::Writes;
use crate::read::pins::Kind;
use crate::snapshot::Pin;
use crate::state::version::{KeyspaceState, is_there};
use crate::write::conflicts::Checks;
use crate::write::operations::{Operations, check_limits};
use bytes::Bytes;
use glintdb_core::{EntryValue, KeyspaceId, key, planted};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// An optimistic transaction over any number of keyspaces. It reads a snapshot and its own writes,
/// keeps its writes in memory, and checks for conflicts when it [commits](Self::commit). Dropped
/// without a commit, it changes nothing.
///
/// No lock is taken: a transaction never blocks another one. Of two that write the same key, the
/// first to commit succeeds and the second fails with [`Conflict`](crate::ErrorKind::Conflict).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use glintdb::{Db, ErrorKind};
/// let db = Db::open(dir.path().join("db"))?;
/// let counters = db.default_keyspace();
/// loop {
///     let mut transaction = db.transaction();
///     let visits = transaction.get(&counters, "visits")?.map_or(0, |value| value[0]);
///     transaction.put(&counters, "visits", [visits + 1])?;
///     match transaction.commit() {
///         Err(error) if error.kind() == ErrorKind::Conflict => continue,
///         result => break result?,
///     }
/// }
/// # Ok::<(), glintdb::Error>(())
/// ```
pub struct Transaction {
    pin: Arc<Pin>,
    options: TransactionOptions,
    writes: BTreeMap<KeyspaceId, Writes>,
    read_keys: Vec<(Arc<KeyspaceState>, Bytes)>,
    read_ranges: Vec<(Arc<KeyspaceState>, Bound<Bytes>, Bound<Bytes>)>,
}

impl Transaction {
    pub(crate) fn new(handle: &Arc<Handle>, options: TransactionOptions) -> Self {
        let engine = &handle.engine;
        let pin = match engine.shared.is_forked() {
            true => Pin::new(handle),
            false => (engine.shared.transactions).begin(|| Pin::new(handle), |pin| pin.at()),
        };
        Transaction {
            pin: pin.share(Kind::Transaction),
            options,
            writes: BTreeMap::new(),
            read_keys: Vec::new(),
            read_ranges: Vec::new(),
        }
    }

    /// Returns the sequence number of the newest commit that the transaction sees.
    #[must_use]
    pub fn seqno(&self) -> u64 {
        self.pin.at().0
    }

    fn own(&self, keyspace: &Keyspace, key: &[u8]) -> Option<&EntryValue> {
        self.writes.get(&keyspace.state.id)?.get(key)
    }

    fn note_read(&mut self, keyspace: &Keyspace, key: &[u8]) {
        if self.options.isolation == Isolation::Serializable {
            self.read_keys
                .push((Arc::clone(&keyspace.state), Bytes::copy_from_slice(key)));
        }
    }

    /// Returns the value of `key`: the transaction's own write, else the snapshot's value, or
    /// `None` if the key is absent.
    ///
    /// # Errors
    /// - `SnapshotTooOld`: the transaction was given up; see [`Snapshot`](crate::Snapshot).
    /// - `InvalidArgument`: the keyspace belongs to another open database.
    /// - `Corruption`: a file does not hold what was written.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused a read.
    pub fn get(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let key = key.as_ref();
        keyspace.check_same_db(&self.pin.handle)?;
        match self.own(keyspace, key) {
            Some(EntryValue::Inline(value)) => return Ok(Some(value.clone())),
            Some(_) => return Ok(None),
            None => {}
        }
        self.note_read(keyspace, key);
        self.pin.get(&keyspace.state, key)
    }

    /// Returns whether `key` exists in the transaction's own writes or the snapshot. Does not read
    /// a separated value.
    ///
    /// # Errors
    /// The same as [`get`](Self::get).
    pub fn contains(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        keyspace.check_same_db(&self.pin.handle)?;
        if let Some(value) = self.own(keyspace, key) {
            return Ok(!matches!(value, EntryValue::Tombstone));
        }
        self.note_read(keyspace, key);
        let version = self.pin.version()?;
        Ok(is_there(&version.find(
            self.pin.at(),
            &keyspace.state,
            key,
        )?))
    }

    fn writes(&mut self, keyspace: &Keyspace) -> Result<&mut Writes> {
        keyspace.check_same_db(&self.pin.handle)?;
        keyspace.check_alive()?;
        Ok(self
            .writes
            .entry(keyspace.state.id)
            .or_insert_with(|| Writes::new(&keyspace.state)))
    }

    /// Adds a write of `value` under `key`, which the commit applies.
    ///
    /// # Errors
    /// - `InvalidArgument`: the key has more than 64 KiB or the value more than 1 GiB, or the
    ///   keyspace belongs to another open database.
    /// - `NotFound`: the keyspace was dropped.
    /// - `Closed`: the database is closed.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_limits(key.len(), value.len())?;
        let value = EntryValue::Inline(Bytes::copy_from_slice(value));
        self.writes(keyspace)?
            .put(Bytes::copy_from_slice(key), value);
        Ok(())
    }

    /// Adds a removal of `key`, which the commit applies. The key may be absent.
    ///
    /// # Errors
    /// The same as [`put`](Self::put).
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        check_limits(key.len(), 0)?;
        self.writes(keyspace)?
            .put(Bytes::copy_from_slice(key), EntryValue::Tombstone);
        Ok(())
    }

    /// Adds a removal of every key in `range`, which the commit applies. It conflicts with every
    /// commit to that range since the snapshot.
    ///
    /// # Errors
    /// The same as [`put`](Self::put).
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        let (lower, upper) = owned_bounds(&range);
        let (lower, upper) = bound_slices(&lower, &upper);
        let (start, end) = key::half_open(lower, upper);
        check_limits(start.len().saturating_sub(1), 0)?;
        check_limits(end.as_ref().map_or(0, |end| end.len().saturating_sub(1)), 0)?;
        if end.as_ref().is_some_and(|end| *end <= start) {
            return Ok(());
        }
        self.writes(keyspace)?.delete_range(start, end);
        Ok(())
    }

    fn scan(&mut self, keyspace: &Keyspace, lower: Bound<Bytes>, upper: Bound<Bytes>) -> Iter {
        let is_read = self.options.isolation == Isolation::Serializable
            && !is_empty(bound_slices(&lower, &upper));
        if is_read {
            self.read_ranges
                .push((Arc::clone(&keyspace.state), lower.clone(), upper.clone()));
        }
        let own = self.writes.get(&keyspace.state.id).map(Writes::view);
        Iter::new(self.pin.share(Kind::Iterator), keyspace, lower, upper, own)
    }

    /// Returns an iterator over all keys and values that the transaction sees. A
    /// [`Serializable`](crate::Isolation::Serializable) transaction counts the whole keyspace as
    /// read, even if the iterator is not taken to its end.
    pub fn iter(&mut self, keyspace: &Keyspace) -> Iter {
        self.scan(keyspace, Bound::Unbounded, Bound::Unbounded)
    }

    /// Returns an iterator over the keys in `range`, and their values, that the transaction sees. A
    /// [`Serializable`](crate::Isolation::Serializable) transaction counts the whole range as read.
    pub fn range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Iter {
        let (lower, upper) = owned_bounds(&range);
        self.scan(keyspace, lower, upper)
    }

    /// Returns an iterator over the keys that begin with `prefix`, and their values, that the
    /// transaction sees. A [`Serializable`](crate::Isolation::Serializable) transaction counts all
    /// keys with the prefix as read.
    pub fn prefix(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Iter {
        let (lower, upper) = prefix_bounds(prefix.as_ref());
        self.scan(keyspace, lower, upper)
    }

    /// Commits all writes atomically. A transaction without writes succeeds without a check.
    ///
    /// # Errors
    /// - `Conflict`: a key or range that the transaction wrote was changed since its snapshot; with
    ///   [`Serializable`](crate::Isolation::Serializable), also one that it read. Nothing was
    ///   applied. Run the transaction again.
    ///
    /// Otherwise the same as [`Db::write`](crate::Db::write).
    pub fn commit(mut self) -> Result<()> {
        self.pin.engine().shared.check_open()?;
        let writes = std::mem::take(&mut self.writes);
        if writes.is_empty() {
            return Ok(());
        }
        let mut checks = Checks {
            since: self.pin.at(),
            keys: planted!(
                "glintdb: a transaction does not check the keys it read",
                std::mem::take(&mut self.read_keys),
                Vec::new()
            ),
            ranges: planted!(
                "glintdb: a transaction does not check the ranges it read",
                std::mem::take(&mut self.read_ranges),
                Vec::new()
            ),
        };
        let mut operations = Operations::default();
        for (_, of_keyspace) in writes {
            let state = &of_keyspace.keyspace;
            for range in of_keyspace.deleted_ranges() {
                let upper = range.end.clone().map_or(Bound::Unbounded, Bound::Excluded);
                checks.ranges.push((
                    Arc::clone(state),
                    Bound::Included(range.start.clone()),
                    upper,
                ));
                operations.delete_range(state, &range.start, range.end.as_deref());
            }
            for (key, value) in of_keyspace.entries() {
                match value {
                    EntryValue::Inline(value) => operations.put(state, key, value),
                    _ => operations.delete(state, key),
                }
                planted!(
                    "glintdb: a transaction does not check the keys it writes",
                    checks.keys.push((Arc::clone(state), key.clone())),
                    ()
                );
            }
        }
        let engine = self.pin.engine();
        let durability = self
            .options
            .durability
            .unwrap_or(engine.shared.options.durability);
        engine
            .writer
            .commit_checked(&mut operations, durability, &checks)
    }

    /// Discards the transaction. Dropping it does the same.
    pub fn rollback(self) {}
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let engine = self.pin.engine();
        if engine.shared.is_forked() {
            std::mem::forget(std::mem::take(&mut self.writes));
            std::mem::forget(std::mem::take(&mut self.read_keys));
            std::mem::forget(std::mem::take(&mut self.read_ranges));
            return;
        }
        self.pin.unshare(Kind::Transaction);
        engine.shared.transactions.end(self.pin.at());
        // Compactions may drop what it has kept.
        engine.shared.ask_for_look();
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Transaction(seqno {}, {:?})",
            self.pin.at(),
            self.options
        )
    }
}
