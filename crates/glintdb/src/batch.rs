//! Batches: operations over any number of keyspaces that are committed together.

use crate::keyspace::Keyspace;
use crate::read::bounds::{bound_slices, owned_bounds};
use crate::write::operations::Operations;
use glintdb_core::key::half_open;
use std::ops::RangeBounds;

/// A list of operations, over any number of keyspaces, that [`Db::write`](crate::Db::write) commits
/// atomically. If two operations affect one key, the later one wins.
///
/// A batch checks the limits of each operation when it is added ([`KEY_BYTES_MAX`],
/// [`VALUE_BYTES_MAX`], [`BATCH_BYTES_MAX`]). It keeps the first error; `write` returns that error
/// and applies nothing.
///
/// [`KEY_BYTES_MAX`]: crate::KEY_BYTES_MAX
/// [`VALUE_BYTES_MAX`]: crate::VALUE_BYTES_MAX
/// [`BATCH_BYTES_MAX`]: crate::BATCH_BYTES_MAX
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = glintdb::Db::open(dir.path().join("db"))?;
/// let accounts = db.keyspace_or_create("accounts", Default::default())?;
/// let log = db.keyspace_or_create("log", Default::default())?;
/// let mut batch = glintdb::Batch::new();
/// batch
///     .put(&accounts, "ann", "90")
///     .put(&accounts, "bob", "110")
///     .put(&log, "1", "ann pays bob 10");
/// db.write(batch)?;
/// # Ok::<(), glintdb::Error>(())
/// ```
#[derive(Default)]
pub struct Batch {
    pub(crate) operations: Operations,
}

impl Batch {
    /// Returns an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Batch::default()
    }

    /// Returns the number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns whether the batch has no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns the bytes of all keys and values.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.operations.size_bytes()
    }

    /// Removes all operations and any error, and keeps the memory for reuse.
    pub fn clear(&mut self) {
        self.operations.clear();
    }

    /// Adds an operation that stores `value` under `key`.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        (self.operations).put(&keyspace.state, key.as_ref(), value.as_ref());
        self
    }

    /// Adds an operation that removes `key`. The key may be absent.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> &mut Self {
        self.operations.delete(&keyspace.state, key.as_ref());
        self
    }

    /// Adds an operation that removes every key in `range`. Its cost does not depend on the number
    /// of keys.
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> &mut Self {
        let (lower, upper) = owned_bounds(&range);
        let (lower, upper) = bound_slices(&lower, &upper);
        let (start, end) = half_open(lower, upper);
        if end.as_ref().is_none_or(|end| start < *end) {
            (self.operations).delete_range(&keyspace.state, &start, end.as_deref());
        }
        self
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Batch({} operations, {} bytes)",
            self.len(),
            self.size_bytes()
        )
    }
}
