//! Iterators: double-ended, over a pinned read point, with separated values fetched in batches.
//!
//! Thread safety: `Send`; used by one thread at a time.
//!
//! Invariants:
//! 1. The two ends never pass each other: each yields only keys that the other has not.
//! 2. After an error an iterator is at its end.

mod batch;

use self::batch::{Batch, Gathering};
use crate::keyspace::Keyspace;
use crate::read::bounds::{bound_slices, is_empty};
use crate::read::merge::merge_of;
use crate::read::own_writes::OwnView;
use crate::read::pins::{Kind, PinnedMerge};
use crate::read::values::key_hash::Wanted;
use crate::snapshot::Pin;
use crate::state::scattered::Misses;
use crate::state::version::{KeyspaceState, Version};
use crate::{Error, Result};
use bytes::Bytes;
use glintdb_core::memory::MemoryPart;
use glintdb_core::sync::{Work, charge};
use glintdb_core::{Direction, planted};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of entries in the first batch. Later batches double, so a scan fetches less than twice
/// the entries that it yields, and a long one keeps many reads in flight. From 8, a scan of 50
/// fetches 8 + 16 + 32 = 56 values.
const BATCH_FIRST: usize = 8;
/// Most entries in a batch.
const BATCH_MAX: usize = 256;
/// From this size on, the memory budget is charged for batches. Those of short records are smaller,
/// so that scans write to no counter that threads share.
const CHARGED_BYTES_MIN: usize = 128 << 10;

/// An iterator over keys and values in key order: `Iterator<Item = Result<(Bytes, Bytes)>>`. It can
/// be taken from both ends.
///
/// [`Keyspace::range`] and the similar methods of [`Keyspace`], [`Snapshot`](crate::Snapshot) and
/// [`Transaction`](crate::Transaction) return one. An iterator shows the data as of its creation.
/// It owns what it returns and keeps the database open. After an error it ends.
pub struct Iter {
    scan: Scan,
}

/// An iterator over keys in key order: `Iterator<Item = Result<Bytes>>`. It can be taken from both
/// ends and reads no separated values. [`Iter::keys`] returns one.
pub struct Keys {
    scan: Scan,
}

struct Scan {
    pin: Arc<Pin>,
    keyspace: Arc<KeyspaceState>,
    lower: Bound<Bytes>,
    upper: Bound<Bytes>,
    own: Option<OwnView>,
    with_values: bool,
    /// Number of records that the caller said it will take; 0 if it did not say.
    limit: usize,
    front: End,
    back: End,
    /// Bytes that the memory budget is charged for.
    charged_bytes: usize,
    failed: Option<Error>,
    done: bool,
}

#[derive(Default)]
struct End {
    /// Whether the caller owns the records that it takes, so that no value is lent by a block.
    owned: bool,
    merge: Option<Arc<PinnedMerge>>,
    /// The batch that was fetched, and is yielded in part.
    ready: Batch,
    /// Number of records of the next batch.
    batch: usize,
    /// Number of records of all batches so far.
    records: usize,
    /// Whether the merge is at its end.
    exhausted: bool,
    /// The last key of the batches before `ready`, if `has_yielded`.
    last_key: Vec<u8>,
    has_yielded: bool,
}

impl End {
    /// Returns the key that was yielded last.
    fn last_key(&self) -> Option<&[u8]> {
        let before = self.has_yielded.then_some(self.last_key.as_slice());
        self.ready.last_key().or(before)
    }

    /// Replaces the batch, all of which was yielded, with the next one.
    fn take_batch(&mut self, batch: Batch) {
        if let Some(key) = self.ready.last_key() {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            self.has_yielded = true;
        }
        self.ready = batch;
    }
}

impl Iter {
    pub(crate) fn new(
        pin: Arc<Pin>,
        keyspace: &Keyspace,
        lower: Bound<Bytes>,
        upper: Bound<Bytes>,
        own: Option<OwnView>,
    ) -> Self {
        charge(Work::Get, 1);
        let failed = keyspace.check_same_db(&pin.handle).err();
        let done = is_empty(bound_slices(&lower, &upper));
        Iter {
            scan: Scan {
                pin,
                keyspace: Arc::clone(&keyspace.state),
                lower,
                upper,
                own,
                with_values: true,
                limit: 0,
                front: End::default(),
                back: End::default(),
                charged_bytes: 0,
                failed,
                done,
            },
        }
    }

    /// Makes the iterator fail at its first call if `checked` is an error.
    pub(crate) fn failing(mut self, checked: Result<()>) -> Self {
        if let Err(error) = checked {
            self.scan.failed.get_or_insert(error);
        }
        self
    }

    /// Sets how many records the caller will take, about. The iterator then fetches that many
    /// together, instead of few at first and more with each batch.
    ///
    /// A wrong hint does no harm: the iterator goes on past it, and records that are fetched and
    /// not taken only cost their reads.
    ///
    /// ```
    /// # fn main() -> glintdb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = glintdb::Db::open(dir.path().join("db"))?;
    /// # let users = db.keyspace_or_create("users", Default::default())?;
    /// let page: glintdb::Result<Vec<_>> = users.range("k".."m").limit_hint(50).take(50).collect();
    /// # assert!(page?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn limit_hint(mut self, records: usize) -> Self {
        self.scan.limit = records.max(1);
        self
    }

    /// Returns the next record as borrowed slices, or `None` at the end. Faster than
    /// [`next`](Iterator::next), which counts references and copies values that are stored beside
    /// their keys.
    ///
    /// ```
    /// # fn main() -> glintdb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = glintdb::Db::open(dir.path().join("db"))?;
    /// # db.put("ann", "1")?;
    /// # let mut bytes = 0;
    /// let mut records = db.default_keyspace().iter();
    /// while let Some((key, value)) = records.next_ref()? {
    ///     bytes += key.len() + value.len();
    /// }
    /// # assert_eq!(bytes, 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as those that `next` returns: `SnapshotTooOld`, `Corruption`, `NotFound`, `Closed`
    /// and `Io`.
    #[inline]
    pub fn next_ref(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.scan.front.owned = false;
        if !self.scan.step(Direction::Forward)? {
            return Ok(None);
        }
        let batch = &self.scan.front.ready;
        let key = batch.last_key().unwrap_or_default();
        Ok(Some((key, batch.value(batch.yielded - 1)?)))
    }

    /// Returns an iterator over the remaining keys alone, which does not read separated values.
    #[must_use]
    pub fn keys(mut self) -> Keys {
        self.scan.with_values = false;
        Keys { scan: self.scan }
    }
}

impl Scan {
    fn end(&mut self, direction: Direction) -> &mut End {
        match direction {
            Direction::Forward => &mut self.front,
            Direction::Reverse => &mut self.back,
        }
    }

    /// Advances to the next record from one end. Returns false if there is none.
    fn step(&mut self, direction: Direction) -> Result<bool> {
        if let Some(error) = self.failed.take() {
            self.done = true;
            return Err(error);
        }
        if self.done {
            return Ok(false);
        }
        let open = self.pin.engine().shared.check_open();
        let stepped = open.and_then(|()| self.step_on(direction));
        self.done = !matches!(stepped, Ok(true));
        stepped
    }

    #[inline]
    fn step_on(&mut self, direction: Direction) -> Result<bool> {
        let end = self.end(direction);
        if end.ready.is_over() {
            self.fill(direction)?;
        }
        let (end, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Reverse => (&mut self.back, &self.front),
        };
        let Some(key) = end.ready.key(end.ready.yielded) else {
            return Ok(false);
        };
        let met = other.last_key().is_some_and(|last| match direction {
            Direction::Forward => key >= last,
            Direction::Reverse => key <= last,
        });
        if planted!(
            "glintdb: the ends of an iterator pass each other",
            met,
            false
        ) {
            return Ok(false);
        }
        end.ready.check(end.ready.yielded)?;
        end.ready.yielded += 1;
        Ok(true)
    }

    fn next_from(&mut self, direction: Direction) -> Option<Result<(Bytes, Bytes)>> {
        self.end(direction).owned = true;
        match self.step(direction) {
            Ok(true) => Some(Ok(self.end(direction).ready.take())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Fetches the next batch from one end.
    fn fill(&mut self, direction: Direction) -> Result<()> {
        // Held until the values are fetched, because segments are removed when no version names
        // them.
        let version = self.version()?;
        let (mut batch, wanted) = self.gather(&version, direction)?;
        let (fetched, misses) = self
            .pin
            .engine()
            .shared
            .values
            .fetch_in_order(wanted, direction);
        batch.fetched = fetched;
        self.end(direction).take_batch(batch);
        self.charge();
        self.note_misses(direction, misses);
        Ok(())
    }

    /// Charges the memory budget for the batches.
    fn charge(&mut self) {
        let bytes = self.front.ready.copied_bytes() + self.back.ready.copied_bytes();
        let bytes = match bytes < CHARGED_BYTES_MIN {
            true => 0,
            false => bytes,
        };
        let memory = &self.pin.engine().shared.memory;
        memory.recharge(MemoryPart::Buffers, &mut self.charged_bytes, bytes);
    }

    /// Reports the values that the batch had to read from the log. Scans of values that are far
    /// apart pay for putting them in key order.
    fn note_misses(&self, direction: Direction, misses: Misses) {
        let lowest = match direction {
            Direction::Forward => self.front.ready.key(0),
            Direction::Reverse => {
                let batch = &self.back.ready;
                batch.key(batch.records.len().saturating_sub(1))
            }
        };
        if let Some(key) = lowest {
            (self.pin.engine().value_gc).note_scattered(&self.keyspace, misses, key);
        }
    }

    /// Returns the pin's version. If it was given up, frees the memory of the merges.
    fn version(&mut self) -> Result<Arc<Version>> {
        let version = self.pin.version();
        if version.is_err() {
            for end in [&mut self.front, &mut self.back] {
                end.merge = None;
            }
        }
        version
    }

    /// Returns the records of the next batch from one end, with inline values, and the separated
    /// values that are to be fetched.
    fn gather(&mut self, version: &Version, direction: Direction) -> Result<(Batch, Vec<Wanted>)> {
        let nothing = || (Batch::default(), Vec::new());
        if self.end(direction).exhausted {
            return Ok(nothing());
        }
        if self.end(direction).merge.is_none() {
            let own = self.own.as_ref();
            let (lower, upper) = bound_slices(&self.lower, &self.upper);
            let (at, keyspace) = (self.pin.at(), &self.keyspace);
            let merge = merge_of(version, at, keyspace, lower, upper, direction, own)?;
            let experiments = &self.pin.engine().shared.options.experiments;
            let seek_after = experiments.seek_after_deleted;
            let merge = merge.with_gaps(keyspace, (lower, upper), at, seek_after);
            let merge = self.pin.registered.keep(merge);
            let batch = match self.limit {
                0 => BATCH_FIRST,
                limit => limit.min(BATCH_MAX),
            };
            let end = self.end(direction);
            end.merge = Some(merge);
            end.batch = batch;
        }
        let (limit, with_values, keyspace) = (self.limit, self.with_values, self.keyspace.id);
        let pin = &self.pin;
        let end = match direction {
            Direction::Forward => &mut self.front,
            Direction::Reverse => &mut self.back,
        };
        let Some(shared) = end.merge.clone() else {
            return Ok(nothing());
        };
        let mut locked = shared.lock();
        let Some(merge) = locked.as_mut() else {
            // The pin was given up since the check above.
            return pin.version().map(|_| nothing());
        };
        // At most as many as the caller has said, until it takes more.
        let wanted = match limit.saturating_sub(end.records) {
            0 => end.batch,
            left => end.batch.min(left),
        };
        let mut gathering = Gathering::new(keyspace, wanted, with_values, !end.owned);
        let more = merge.walk(|key, value, memory| gathering.push(key, value, memory))?;
        let gathered = gathering.finish();
        let (passed, dead_stretches) = merge.take_dead();
        end.exhausted = !more;
        end.records += gathered.0.records.len();
        end.batch = (end.batch * 2).min(BATCH_MAX);
        drop(locked);
        if end.exhausted || pin.registered.is_given_up() {
            // If the pin was given up while this thread had the lock, no other thread could free
            // the merge.
            shared.lock().take();
        }
        if end.exhausted {
            end.merge = None;
        }
        if passed > 0 {
            let counters = &pin.engine().shared.counters;
            counters.deleted_passed.fetch_add(passed, Ordering::Relaxed);
        }
        for stretch in &dead_stretches {
            let reader = &pin.engine().reader;
            reader.keep_gap(&self.keyspace, stretch, pin.at());
        }
        Ok(gathered)
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.pin.unshare(Kind::Iterator);
        let engine = self.pin.engine();
        if engine.shared.is_forked() {
            // Cursors belong to the parent.
            std::mem::forget(std::mem::take(&mut self.front));
            std::mem::forget(std::mem::take(&mut self.back));
            std::mem::forget(Arc::clone(&self.keyspace));
            return;
        }
        let memory = &engine.shared.memory;
        memory.recharge(MemoryPart::Buffers, &mut self.charged_bytes, 0);
        let entries = (self.front.records + self.back.records) as u64;
        if entries > 0
            && engine.shared.options.experiments.compact_for_scans
            && self.keyspace.index().note_scanned(entries)
        {
            engine.shared.schedule();
        }
    }
}

impl Iterator for Iter {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.scan.next_from(Direction::Forward)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.scan.next_from(Direction::Reverse)
    }
}

impl Iterator for Keys {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        self.scan
            .next_from(Direction::Forward)
            .map(|item| item.map(|(key, _)| key))
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.scan
            .next_from(Direction::Reverse)
            .map(|item| item.map(|(key, _)| key))
    }
}

impl std::iter::FusedIterator for Iter {}
impl std::iter::FusedIterator for Keys {}
