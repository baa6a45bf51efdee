//! Optimistic transactions: each reads a snapshot, keeps its writes aside and checks for conflicts
//! when it commits.
//!
//! Thread safety: a [`Transaction`] is `Send`, used by one thread at a time; any number run at
//! once.
//!
//! Invariants:
//! 1. A commit is checked against every commit before it in commit order, and no other is numbered
//!    between the check and its own number.
//! 2. While a transaction lives, no tombstone newer than its snapshot is dropped by a compaction,
//!    so that a deletion it must notice can be found.

use crate::batch::Batch;
use crate::db::Handle;
use crate::engine::Engine;
use crate::iter::Iter;
use crate::keyspace::{Keyspace, is_there, owned_bounds, prefix_bounds};
use crate::options::{Isolation, TransactionOptions};
use crate::snapshot::{Kind, Pin, merge_of};
use crate::state::version::{KeyspaceState, Version};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicU64, Ordering};
use glintdb_core::{Direction, EntryValue, KeyspaceId, RangeTombstone, SeqNum, key};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Sequence number that a transaction's own range deletions have while it runs: above every commit,
/// below its own puts.
const OWN_RANGE: SeqNum = SeqNum(SeqNum::MAX.0 - 1);

/// Snapshots of running transactions; keeps the floor below which tombstones may be dropped.
pub(crate) struct Transactions {
    running: Mutex<BTreeMap<SeqNum, usize>>,
    floor: Arc<AtomicU64>,
}

impl Transactions {
    pub(crate) fn new(floor: Arc<AtomicU64>) -> Self {
        Transactions {
            running: Mutex::new(BTreeMap::new()),
            floor,
        }
    }

    fn begin(&self, handle: &Arc<Handle>) -> Arc<Pin> {
        if handle.engine.is_forked() {
            return Pin::new(handle);
        }
        // Under the lock: a floor computed before or after is at or below this snapshot.
        let mut running = self.running.lock();
        let pin = Pin::new(handle);
        *running.entry(pin.at).or_default() += 1;
        pin
    }

    fn end(&self, at: SeqNum) {
        let mut running = self.running.lock();
        if let Some(count) = running.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                running.remove(&at);
            }
        }
    }

    /// Raises the floor to the oldest running transaction's snapshot, or to the present. Called
    /// before compactions are picked.
    pub(crate) fn raise_floor(&self, engine: &Engine) {
        let running = self.running.lock();
        let floor = running
            .keys()
            .next()
            .copied()
            .unwrap_or_else(|| engine.pipeline.visible());
        self.floor.fetch_max(floor.0, Ordering::AcqRel);
    }

    /// Transactions running now.
    pub(crate) fn count(&self) -> usize {
        self.running.lock().values().sum()
    }
}

/// Writes of a transaction to one keyspace.
struct Writes {
    keyspace: Arc<KeyspaceState>,
    entries: BTreeMap<Bytes, EntryValue>,
    ranges: Vec<RangeTombstone>,
}

/// A transaction's writes to one keyspace as an iterator sees them.
pub(crate) struct OwnView {
    pub(crate) entries: Vec<(Bytes, EntryValue)>,
    pub(crate) ranges: Vec<RangeTombstone>,
}

impl OwnView {
    /// What of it lies within bounds, in the order of `direction`.
    pub(crate) fn within(
        &self,
        lower: &Bound<Bytes>,
        upper: &Bound<Bytes>,
        direction: Direction,
    ) -> OwnView {
        let (lower, upper) = crate::snapshot::bound_slices(lower, upper);
        let mut entries: Vec<_> = self
            .entries
            .iter()
            .filter(|(key, _)| key::at_or_after(key, lower) && key::at_or_before(key, upper))
            .cloned()
            .collect();
        if direction == Direction::Reverse {
            entries.reverse();
        }
        OwnView {
            entries,
            ranges: self.ranges.clone(),
        }
    }
}

/// What a commit must not find changed since the transaction's snapshot.
pub(crate) struct Checks {
    since: SeqNum,
    keys: Vec<(Arc<KeyspaceState>, Bytes)>,
    ranges: Vec<(Arc<KeyspaceState>, Bound<Bytes>, Bound<Bytes>)>,
}

/// An optimistic transaction over any number of keyspaces. It reads a snapshot and its own writes,
/// keeps its writes in memory, and checks for conflicts when it [commits](Self::commit). Dropped
/// without a commit, it changes nothing.
///
/// No lock is taken: a transaction never blocks another one. Of two that write the same key, the
/// first to commit succeeds and the second fails with [`ErrorKind::Conflict`].
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
        let pin = handle.engine.transactions.begin(handle);
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
        self.pin.at.0
    }

    fn own(&self, keyspace: &Keyspace, key: &[u8]) -> Option<&EntryValue> {
        let writes = self.writes.get(&keyspace.state.id)?;
        let blind =
            glintdb_core::seeded::bug("glintdb: a transaction does not see its own range deletion");
        match writes.entries.get(key) {
            Some(value) => Some(value),
            None => writes
                .ranges
                .iter()
                .any(|range| range.covers(key) && !blind)
                .then_some(&EntryValue::Tombstone),
        }
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
        Ok(is_there(&self.pin.engine().find(
            &version,
            self.pin.at,
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
            .or_insert_with(|| Writes {
                keyspace: Arc::clone(&keyspace.state),
                entries: BTreeMap::new(),
                ranges: Vec::new(),
            }))
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
        crate::batch::check_limits(key.len(), value.len())?;
        let value = EntryValue::Inline(Bytes::copy_from_slice(value));
        self.writes(keyspace)?
            .entries
            .insert(Bytes::copy_from_slice(key), value);
        Ok(())
    }

    /// Adds a removal of `key`, which the commit applies. The key may be absent.
    ///
    /// # Errors
    /// The same as [`put`](Self::put).
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        crate::batch::check_limits(key.as_ref().len(), 0)?;
        self.writes(keyspace)?
            .entries
            .insert(Bytes::copy_from_slice(key.as_ref()), EntryValue::Tombstone);
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
        let (lower, upper) = crate::snapshot::bound_slices(&lower, &upper);
        let (start, end) = key::half_open(lower, upper);
        crate::batch::check_limits(start.len().saturating_sub(1), 0)?;
        crate::batch::check_limits(end.as_ref().map_or(0, |end| end.len().saturating_sub(1)), 0)?;
        if end.as_ref().is_some_and(|end| *end <= start) {
            return Ok(());
        }
        let range = RangeTombstone {
            start,
            end,
            seqno: OWN_RANGE,
        };
        let writes = self.writes(keyspace)?;
        writes.entries.retain(|key, _| !range.covers(key));
        writes.ranges.push(range);
        Ok(())
    }

    fn scan(&mut self, keyspace: &Keyspace, lower: Bound<Bytes>, upper: Bound<Bytes>) -> Iter {
        if self.options.isolation == Isolation::Serializable {
            self.read_ranges
                .push((Arc::clone(&keyspace.state), lower.clone(), upper.clone()));
        }
        let own = self.writes.get(&keyspace.state.id).map(|writes| OwnView {
            entries: writes
                .entries
                .iter()
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            ranges: writes.ranges.clone(),
        });
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
        self.pin.engine().check_open()?;
        let writes = std::mem::take(&mut self.writes);
        if writes.is_empty() {
            return Ok(());
        }
        let mut checks = Checks {
            since: self.pin.at,
            keys: std::mem::take(&mut self.read_keys),
            ranges: std::mem::take(&mut self.read_ranges),
        };
        if glintdb_core::seeded::bug("glintdb: a transaction does not check the keys it read") {
            checks.keys.clear();
        }
        if glintdb_core::seeded::bug("glintdb: a transaction does not check the ranges it read") {
            checks.ranges.clear();
        }
        let mut batch = Batch::new();
        for (_, of_keyspace) in writes {
            let state = &of_keyspace.keyspace;
            for range in of_keyspace.ranges {
                let upper = range.end.clone().map_or(Bound::Unbounded, Bound::Excluded);
                checks.ranges.push((
                    Arc::clone(state),
                    Bound::Included(range.start.clone()),
                    upper,
                ));
                batch.delete_range_raw(state, &range.start, range.end.as_deref());
            }
            for (key, value) in of_keyspace.entries {
                match &value {
                    EntryValue::Inline(value) => batch.put_raw(state, &key, value),
                    _ => batch.delete_raw(state, &key),
                }
                if !glintdb_core::seeded::bug(
                    "glintdb: a transaction does not check the keys it writes",
                ) {
                    checks.keys.push((Arc::clone(state), key));
                }
            }
        }
        let engine = self.pin.engine();
        let durability = self.options.durability.unwrap_or(engine.options.durability);
        engine.commit_checked(&mut batch, durability, &checks)
    }

    /// Discards the transaction. Dropping it does the same.
    pub fn rollback(self) {}
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let engine = self.pin.engine();
        if engine.is_forked() {
            std::mem::forget(std::mem::take(&mut self.writes));
            std::mem::forget(std::mem::take(&mut self.read_keys));
            std::mem::forget(std::mem::take(&mut self.read_ranges));
            return;
        }
        self.pin.unshare(Kind::Transaction);
        engine.transactions.end(self.pin.at);
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction(seqno {}, {:?})", self.pin.at, self.options)
    }
}

fn conflict(keyspace: &KeyspaceState, key: &[u8], seqno: SeqNum) -> Error {
    let shown = String::from_utf8_lossy(key.get(..64).unwrap_or(key));
    Error::new(
        ErrorKind::Conflict,
        format!(
            "keyspace {:?}, key {shown:?}: written by commit {seqno} since the transaction began",
            keyspace.name
        ),
    )
}

impl Checks {
    /// Whether every commit after `since` lies in the memtables of `version`.
    fn in_memory(version: &Version, since: SeqNum) -> bool {
        let oldest = version.sealed.last().unwrap_or(&version.active);
        oldest.first_seqno <= since.next()
    }

    /// Looks for writes newer than the snapshot in everything `version` holds, the index included
    /// where it must be.
    pub(crate) fn check_all(&self, engine: &Engine, version: &Version) -> Result<()> {
        self.check_memory(version, self.since)?;
        if Self::in_memory(version, self.since) {
            return Ok(());
        }
        let newest = SeqNum::MAX;
        for (keyspace, key) in &self.keys {
            if let Some((seqno, _)) = engine.find(version, newest, keyspace, key)?
                && seqno > self.since
            {
                return Err(conflict(keyspace, key, seqno));
            }
        }
        for (keyspace, lower, upper) in &self.ranges {
            let (lower, upper) = crate::snapshot::bound_slices(lower, upper);
            let mut tombstone = None;
            if let Some(view) = version.view(keyspace.id) {
                tombstone = tombstone.max(view.range_tombstone_seqno(lower, upper)?);
            }
            if let Some(seqno) = tombstone.filter(|seqno| *seqno > self.since) {
                return Err(conflict(keyspace, b"(a range)", seqno));
            }
            let mut merge = merge_of(
                version,
                newest,
                keyspace,
                lower,
                upper,
                Direction::Forward,
                None,
            )?
            .keep_deleted();
            while merge.advance()? {
                if merge.seqno() > self.since {
                    return Err(conflict(keyspace, merge.key(), merge.seqno()));
                }
            }
        }
        Ok(())
    }

    /// Looks for writes newer than `since` in the memtables of `version` alone.
    fn check_memory(&self, version: &Version, since: SeqNum) -> Result<()> {
        for generation in version.generations() {
            for (keyspace, key) in &self.keys {
                let Some(mem) = generation.keyspace(keyspace.id) else {
                    continue;
                };
                let newest = mem
                    .map
                    .latest_seqno(key)
                    .max(mem.ranges.newest_covering(key, SeqNum::MAX));
                if let Some(seqno) = newest.filter(|seqno| *seqno > since) {
                    return Err(conflict(keyspace, key, seqno));
                }
            }
            for (keyspace, lower, upper) in &self.ranges {
                let Some(mem) = generation.keyspace(keyspace.id) else {
                    continue;
                };
                let (lower, upper) = crate::snapshot::bound_slices(lower, upper);
                let newest = mem
                    .map
                    .latest_seqno_in(lower, upper, since)
                    .max(mem.ranges.newest_meeting(lower, upper));
                if let Some(seqno) = newest.filter(|seqno| *seqno > since) {
                    return Err(conflict(keyspace, b"(a range)", seqno));
                }
            }
        }
        Ok(())
    }

    /// The last look, under the sequencer's lock with every earlier commit in its memtable:
    /// `Ok(false)` where a flush since `checked_to` calls for another look at the index first.
    pub(crate) fn check_last(&self, version: &Version, checked_to: SeqNum) -> Result<bool> {
        if !Self::in_memory(version, checked_to) {
            return Ok(false);
        }
        self.check_memory(version, checked_to.max(self.since))?;
        Ok(true)
    }
}
