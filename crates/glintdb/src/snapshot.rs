//! Snapshots: a version and a sequence number, kept readable until the last clone is dropped, or
//! until snapshots together pin too much memory ([`pins`](crate::read::pins)).
//!
//! Thread safety: a [`Snapshot`] is `Send + Sync + Clone`. Its reads take no lock.

use crate::engine::Engine;
use crate::handle::Handle;
use crate::iter::Iter;
use crate::keyspace::Keyspace;
use crate::read::bounds::{owned_bounds, prefix_bounds};
use crate::read::pins::{Kind, Registered};
use crate::state::version::{KeyspaceState, Version, is_there};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use glintdb_core::SeqNum;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// A registered read point of an open database.
pub(crate) struct Pin {
    pub(crate) handle: Arc<Handle>,
    pub(crate) registered: Registered,
}

impl Pin {
    /// Registers a read point of the present, for any number of handles.
    pub(crate) fn new(handle: &Arc<Handle>) -> Arc<Pin> {
        Pin::register(handle, false)
    }

    /// Registers a read point of the present, for one iterator.
    pub(crate) fn of_iterator(handle: &Arc<Handle>) -> Arc<Pin> {
        Pin::register(handle, true)
    }

    fn register(handle: &Arc<Handle>, one_iterator: bool) -> Arc<Pin> {
        let engine = &handle.engine;
        let now = || engine.shared.read_point();
        let registered =
            (engine.shared.pins).register(now, one_iterator, engine.shared.is_forked());
        Arc::new(Pin {
            handle: Arc::clone(handle),
            registered,
        })
    }

    /// Returns the newest commit that the read point shows.
    pub(crate) fn at(&self) -> SeqNum {
        self.registered.at
    }

    /// Returns the pin for one more handle of `kind`.
    pub(crate) fn share(self: &Arc<Self>, kind: Kind) -> Arc<Pin> {
        self.registered.add_reader(kind);
        Arc::clone(self)
    }

    /// Counts one handle of `kind` less.
    pub(crate) fn unshare(&self, kind: Kind) {
        self.registered.remove_reader(kind);
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.handle.engine
    }

    /// Returns the version, or `SnapshotTooOld` if it was given up.
    pub(crate) fn version(&self) -> Result<Arc<Version>> {
        self.registered.version().ok_or_else(|| {
            let bytes = self.engine().shared.options.snapshot_pin_bytes_max;
            let message = format!(
                "snapshots pinned more than snapshot_pin_bytes_max ({bytes} bytes), and this was \
                 the oldest"
            );
            Error::new(ErrorKind::SnapshotTooOld, message)
        })
    }

    /// Returns the value of `key` at the read point.
    pub(crate) fn get(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<Option<Bytes>> {
        let version = self.version()?;
        self.engine()
            .reader
            .get_at(&version, self.at(), keyspace, key)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let engine = &self.handle.engine;
        if engine.shared.is_forked() {
            return self.registered.leak();
        }
        if engine.shared.pins.remove(&self.registered) {
            engine.space.collect_garbage_if_waiting();
        }
    }
}

/// A view of the whole database at one commit. Later commits do not change it. `Send`, `Sync` and
/// cheap to clone.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = glintdb::Db::open(dir.path().join("db"))?;
/// let users = db.default_keyspace();
/// users.put("ann", "1")?;
/// let snapshot = db.snapshot();
/// users.put("ann", "2")?;
/// assert_eq!(snapshot.get(&users, "ann")?.as_deref(), Some(&b"1"[..]));
/// # Ok::<(), glintdb::Error>(())
/// ```
///
/// An open snapshot keeps old memtables in memory and old files on disk. If open snapshots,
/// transactions and iterators keep more memory alive than
/// [`Options::snapshot_pin_bytes_max`](crate::Options::snapshot_pin_bytes_max), the engine gives up
/// the oldest. Every read through it then fails with [`ErrorKind::SnapshotTooOld`].
pub struct Snapshot {
    pin: Arc<Pin>,
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        Snapshot {
            pin: self.pin.share(Kind::Snapshot),
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.pin.unshare(Kind::Snapshot);
    }
}

impl Snapshot {
    pub(crate) fn new(handle: &Arc<Handle>) -> Self {
        Snapshot {
            pin: Pin::new(handle).share(Kind::Snapshot),
        }
    }

    /// Returns the sequence number of the newest commit that the snapshot shows.
    #[must_use]
    pub fn seqno(&self) -> u64 {
        self.pin.at().0
    }

    /// Returns the value of `key`, or `None` if the key is absent.
    ///
    /// # Errors
    /// - `SnapshotTooOld`: the snapshot was given up.
    /// - `InvalidArgument`: the keyspace belongs to another open database.
    /// - `Corruption`: a file does not hold what was written.
    /// - `Closed`: the database is closed.
    /// - `Io`: the operating system refused a read.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        keyspace.check_same_db(&self.pin.handle)?;
        self.pin.get(&keyspace.state, key.as_ref())
    }

    /// Returns whether `key` exists. Does not read a separated value.
    ///
    /// # Errors
    /// The same as [`get`](Self::get).
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        keyspace.check_same_db(&self.pin.handle)?;
        let version = self.pin.version()?;
        let found = version.find(self.pin.at(), &keyspace.state, key.as_ref())?;
        Ok(is_there(&found))
    }

    /// Returns the values of many keys, one result per key, in the order of `keys`. Submits the
    /// reads that they need in batches. The errors are those of [`get`](Self::get).
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Vec<Result<Option<Bytes>>> {
        let version = keyspace
            .check_same_db(&self.pin.handle)
            .and_then(|()| self.pin.version());
        match version {
            Ok(version) => {
                self.pin
                    .engine()
                    .reader
                    .multi_get(&version, self.pin.at(), &keyspace.state, keys)
            }
            Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Returns an iterator over all keys and values of `keyspace`.
    #[must_use]
    pub fn iter(&self, keyspace: &Keyspace) -> Iter {
        Iter::new(
            self.pin.share(Kind::Iterator),
            keyspace,
            Bound::Unbounded,
            Bound::Unbounded,
            None,
        )
    }

    /// Returns an iterator over the keys in `range` and their values.
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Iter {
        let (lower, upper) = owned_bounds(&range);
        Iter::new(self.pin.share(Kind::Iterator), keyspace, lower, upper, None)
    }

    /// Returns an iterator over the keys that begin with `prefix` and their values.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Iter {
        let (lower, upper) = prefix_bounds(prefix.as_ref());
        Iter::new(self.pin.share(Kind::Iterator), keyspace, lower, upper, None)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot(seqno {})", self.pin.at())
    }
}
