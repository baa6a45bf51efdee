//! Iterators: double-ended, over a pinned read point, with separated values fetched ahead in batches.
//!
//! Thread safety: `Send`; used by one thread at a time.
//!
//! Invariants:
//! 1. The two ends never pass each other: each yields only keys that the other has not.
//! 2. After an error an iterator is at its end.

use crate::keyspace::Keyspace;
use crate::snapshot::{Pin, PinnedMerge, bound_slices};
use crate::transaction::OwnView;
use crate::version::KeyspaceState;
use crate::{Error, Result};
use bytes::{Bytes, BytesMut};
use glintdb_core::{Direction, EntryRef, ValuePointer};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// Entries fetched at first, and at most, in one go. Doubling in between: a scan fetches less than twice what it yields, and a long one keeps many reads in flight. From 8,
/// a scan of 50 fetches 8 + 16 + 32 = 56 values.
const BATCH_FIRST: usize = 8;
const BATCH_MAX: usize = 256;
/// What is set aside for keys: they may be longer.
const KEY_BYTES_TYPICAL: usize = 32;
/// A batch ends at this many bytes of values.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Iterator over keys and values in key order: `Iterator<Item = Result<(Bytes, Bytes)>>` from both ends.
///
/// It owns what it reads and keeps the database open. Made by [`Keyspace::range`] and its like.
pub struct Iter {
    scan: Scan,
}

/// Iterator over keys alone; reads no separated value. Made by [`Iter::keys`].
pub struct Keys {
    scan: Scan,
}

struct Scan {
    pin: Arc<Pin>,
    keyspace: Arc<KeyspaceState>,
    lower: Bound<Bytes>,
    upper: Bound<Bytes>,
    own: Option<Arc<OwnView>>,
    with_values: bool,
    batch_first: usize,
    front: End,
    back: End,
    failed: Option<Error>,
    done: bool,
}

#[derive(Default)]
struct End {
    merge: Option<Arc<PinnedMerge>>,
    /// Fetched, not yielded.
    ready: VecDeque<(Bytes, Result<Bytes>)>,
    batch: usize,
    exhausted: bool,
    /// The key yielded last, if there was one.
    last_key: Vec<u8>,
    has_yielded: bool,
}

impl Iter {
    pub(crate) fn new(
        pin: Arc<Pin>,
        keyspace: &Keyspace,
        lower: Bound<Bytes>,
        upper: Bound<Bytes>,
        own: Option<OwnView>,
    ) -> Self {
        let failed = keyspace.check_same_db(&pin.handle).err();
        let empty = match (&lower, &upper) {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
            _ => false,
        };
        Iter {
            scan: Scan {
                pin,
                keyspace: Arc::clone(&keyspace.state),
                lower,
                upper,
                own: own.map(Arc::new),
                with_values: true,
                batch_first: BATCH_FIRST,
                front: End::default(),
                back: End::default(),
                failed,
                done: empty,
            },
        }
    }

    /// Its first answer is the error, if there is one.
    pub(crate) fn failing(mut self, checked: Result<()>) -> Self {
        if let Err(error) = checked {
            self.scan.failed.get_or_insert(error);
        }
        self
    }

    /// Says about how many records will be taken: that many are fetched together at first, where it would otherwise be few and then ever more. Nothing is lost where it is wrong:
    /// the iterator goes on, and what was fetched too much was read in vain.
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
        self.scan.batch_first = records.clamp(1, BATCH_MAX);
        self
    }

    /// The keys alone, without reading their separated values. Keys already taken from this iterator are not yielded again.
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

    fn next_from(&mut self, direction: Direction) -> Option<Result<(Bytes, Bytes)>> {
        if let Some(error) = self.failed.take() {
            self.done = true;
            return Some(Err(error));
        }
        if self.done {
            return None;
        }
        if self.end(direction).ready.is_empty()
            && !self.end(direction).exhausted
            && let Err(error) = self.fill(direction)
        {
            self.done = true;
            return Some(Err(error));
        }
        let Some((key, value)) = self.end(direction).ready.pop_front() else {
            self.done = true;
            return None;
        };
        let met = match direction {
            Direction::Forward => self.back.has_yielded && key >= self.back.last_key,
            Direction::Reverse => self.front.has_yielded && key <= self.front.last_key,
        };
        if met && !glintdb_core::seeded::bug("glintdb: the ends of an iterator pass each other") {
            self.done = true;
            return None;
        }
        match value {
            Ok(value) => {
                let end = self.end(direction);
                end.has_yielded = true;
                // Copied: to count another reference of it takes longer.
                end.last_key.clear();
                end.last_key.extend_from_slice(&key);
                Some(Ok((key, value)))
            }
            Err(error) => {
                self.done = true;
                Some(Err(error))
            }
        }
    }

    /// Fetches the next batch from one end.
    fn fill(&mut self, direction: Direction) -> Result<()> {
        // Also where the pin was given up meanwhile: its memory is to be freed.
        let pinned = self.pin.version();
        let _version = match pinned {
            // Held until the values are fetched: segments go when no version names them.
            Ok(version) => version,
            Err(error) => {
                self.front.merge = None;
                self.back.merge = None;
                return Err(error);
            }
        };
        if self.end(direction).merge.is_none() {
            let own = self
                .own
                .as_ref()
                .map(|own| own.within(&self.lower, &self.upper, direction));
            let (lower, upper) = bound_slices(&self.lower, &self.upper);
            let merge = self
                .pin
                .merge(&self.keyspace, lower, upper, direction, own)?;
            let merge = self.pin.keep(merge);
            let batch_first = self.batch_first;
            let end = self.end(direction);
            end.merge = Some(merge);
            end.batch = batch_first;
        }
        let with_values = self.with_values;
        let pin = &self.pin;
        let end = match direction {
            Direction::Forward => &mut self.front,
            Direction::Reverse => &mut self.back,
        };
        let Some(shared) = end.merge.clone() else {
            return Ok(());
        };
        let mut locked = shared.lock();
        let Some(merge) = locked.as_mut() else {
            // Given up since the look above.
            return pin.version().map(drop);
        };
        // One buffer for the keys of a batch and one for its inline values, cut up by reference: two allocations a batch, not two an entry.
        let mut keys = BytesMut::with_capacity(end.batch * KEY_BYTES_TYPICAL);
        let mut values = BytesMut::new();
        let mut pointers: Vec<ValuePointer> =
            Vec::with_capacity(if with_values { end.batch } else { 0 });
        let mut cuts: Vec<(usize, Option<usize>)> = Vec::with_capacity(end.batch);
        let mut value_bytes = 0;
        while cuts.len() < end.batch && value_bytes < BATCH_BYTES_MAX {
            if !merge.advance()? {
                end.exhausted = true;
                break;
            }
            keys.extend_from_slice(merge.key());
            match merge.value() {
                EntryRef::Inline(value) if with_values => {
                    values.extend_from_slice(value);
                    value_bytes += value.len();
                    cuts.push((keys.len(), Some(values.len())));
                }
                EntryRef::Pointer(pointer) if with_values => {
                    value_bytes += pointer.length as usize;
                    pointers.push(pointer);
                    cuts.push((keys.len(), None));
                }
                _ => cuts.push((keys.len(), Some(values.len()))),
            }
        }
        end.batch = (end.batch * 2).min(BATCH_MAX);
        drop(locked);
        if end.exhausted || pin.version().is_err() {
            // Where the pin was given up while this thread had the lock, nobody else could free it.
            shared.lock().take();
        }
        if end.exhausted {
            end.merge = None;
        }
        let (mut keys, mut values) = (keys.freeze(), values.freeze());
        let mut fetched = if pointers.is_empty() {
            Vec::new()
        } else {
            self.pin.engine().fetch_batch(&pointers)
        }
        .into_iter();
        let (mut key_start, mut value_start) = (0, 0);
        for (key_end, value_end) in cuts {
            let key = keys.split_to(key_end - key_start);
            key_start = key_end;
            let value = match value_end {
                Some(value_end) => {
                    let value = values.split_to(value_end - value_start);
                    value_start = value_end;
                    Ok(value)
                }
                None => fetched
                    .next()
                    .unwrap_or_else(|| Err(Error::invalid("a value was not fetched"))),
            };
            end.ready.push_back((key, value));
        }
        Ok(())
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
