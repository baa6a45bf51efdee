//! Point reads: memtables newest first, then resident runs, then the index, then, for a separated value, the cache or the log.
//!
//! Thread safety: reads take no lock and write no shared counter but the cache's own.

use crate::Result;
use crate::batch::Batch;
use crate::engine::Engine;
use crate::version::{KeyspaceState, Version};
use bytes::Bytes;
use glintdb_core::{EntryValue, SeqNum, ValuePointer};
use glintdb_flash::CacheKey;
use glintdb_log::{BegunValues, LogOp, LogValue, Reservation};
use std::sync::Arc;

/// What is read: a version, and the newest commit that may be seen in it.
#[derive(Clone)]
pub(crate) struct ReadPoint {
    pub(crate) version: Arc<Version>,
    pub(crate) at: SeqNum,
}

/// The newest thing known of a key.
pub(crate) type Found = Option<(SeqNum, EntryValue)>;

/// Values that are being read; see [`Engine::begin_fetch`]. Dropped, it waits for what is under way.
pub(crate) struct BegunFetch {
    values: Vec<Result<Bytes>>,
    /// Places of what is read.
    missing: Vec<usize>,
    keys: Vec<CacheKey>,
    begun: Option<BegunValues>,
}

impl Engine {
    /// A consistent pair of version and sequence number: all commits up to `at` are in `version`.
    pub(crate) fn read_point(&self) -> ReadPoint {
        let (version, at) = self.version.read_point(|| self.pipeline.visible());
        ReadPoint { version, at }
    }

    /// What `version` knows of `key` at `at`, deleted or not.
    pub(crate) fn find(
        &self,
        version: &Version,
        at: SeqNum,
        keyspace: &KeyspaceState,
        key: &[u8],
    ) -> Result<Found> {
        for generation in version.generations() {
            let found = generation
                .keyspace(keyspace.id)
                .and_then(|mem| mem.get(key, at));
            if let Some((seqno, value)) = found {
                return Ok(Some((seqno, value.to_owned())));
            }
        }
        for view in version.views(keyspace.id) {
            if let Some(entry) = view.get(key)? {
                return Ok(Some((entry.seqno, entry.value)));
            }
        }
        Ok(None)
    }

    /// The newest visible value of `key`.
    pub(crate) fn get(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<Option<Bytes>> {
        // The version first: what is visible after that is in it, or came after this read began.
        let version = self.version.load();
        let at = self.pipeline.visible();
        let found = self.find(&version, at, keyspace, key)?;
        self.value_of(keyspace, key, found)
    }

    /// The value of what was found of `key`.
    pub(crate) fn value_of(
        &self,
        keyspace: &KeyspaceState,
        key: &[u8],
        found: Found,
    ) -> Result<Option<Bytes>> {
        match found {
            None | Some((_, EntryValue::Tombstone)) => Ok(None),
            Some((_, EntryValue::Inline(value))) => Ok(Some(value)),
            Some((_, EntryValue::Pointer(pointer))) => {
                self.hot.mark(keyspace.id, key, &pointer);
                self.fetch(pointer).map(Some)
            }
        }
    }

    /// A separated value: from the cache, else from the log, and then into the cache.
    pub(crate) fn fetch(&self, pointer: ValuePointer) -> Result<Bytes> {
        let key = CacheKey::of(&pointer);
        if let Some(value) = self.cache.get(&key) {
            return Ok(value);
        }
        self.cache.read_once(key, || {
            self.log.read(&pointer).map(|value| self.keep(key, value))
        })
    }

    /// Puts a value into the cache, unless it would push out too much else.
    fn keep(&self, key: CacheKey, value: Bytes) -> Bytes {
        match self.may_keep(value.len()) {
            true => self.cache.insert(key, &value),
            false => value,
        }
    }

    /// Whether a value of so many bytes may be cached.
    fn may_keep(&self, bytes: usize) -> bool {
        bytes <= self.cache.capacity_bytes() / 32
    }

    /// Caches what a commit at `place` has written for keys whose values are being read, instead of what it hides.
    #[cold]
    pub(crate) fn keep_hot(&self, batch: &Batch, place: &Reservation) {
        let mut pointers = batch.frame.pointers(place);
        for entry in batch.frame.entries() {
            let LogOp::Put {
                key,
                value: LogValue::Pointer(encoded),
            } = entry.op
            else {
                continue;
            };
            let Some(pointer) = pointers.next() else {
                return;
            };
            if self.may_keep(pointer.length as usize)
                && let Some(hidden) = self.hot.replace(entry.keyspace, key, &pointer)
            {
                let mut value = batch.frame.value_of(encoded);
                if glintdb_core::seeded::bug(
                    "glintdb: of a hot value all but its end is cached as it is written",
                ) {
                    value = &value[..value.len().saturating_sub(8)];
                }
                self.cache.replace(&hidden, CacheKey::of(&pointer), value);
            }
        }
    }

    /// Many separated values; those not cached are read from the log in one batch.
    pub(crate) fn fetch_batch(&self, pointers: &[ValuePointer]) -> Vec<Result<Bytes>> {
        self.fetch_counted(pointers).0
    }

    /// [`fetch_batch`](Self::fetch_batch), and how many were not cached.
    pub(crate) fn fetch_counted(&self, pointers: &[ValuePointer]) -> (Vec<Result<Bytes>>, usize) {
        let (mut values, missing) = self.cached(pointers);
        if missing.is_empty() {
            return (values, 0);
        }
        let keys: Vec<CacheKey> = (missing.iter())
            .map(|&at| CacheKey::of(&pointers[at]))
            .collect();
        let read = self.cache.read_each_once(&keys, |mine| {
            let wanted: Vec<_> = mine.iter().map(|&at| pointers[missing[at]]).collect();
            let read = self.log.read_batch(&wanted).into_iter().zip(mine);
            read.map(|(value, &at)| value.map(|value| self.keep(keys[at], value)))
                .collect()
        });
        let misses = missing.len();
        for (at, value) in missing.into_iter().zip(read) {
            values[at] = value;
        }
        (values, misses)
    }

    /// Begins [`fetch_batch`](Self::fetch_batch): what is not cached is read while the caller does something else. Claims nothing, for nobody knows when it is waited for: other
    /// threads that want the same read it themselves.
    pub(crate) fn begin_fetch(&self, pointers: &[ValuePointer]) -> BegunFetch {
        let (values, missing) = self.cached(pointers);
        let wanted: Vec<ValuePointer> = missing.iter().map(|&at| pointers[at]).collect();
        BegunFetch {
            keys: wanted.iter().map(CacheKey::of).collect(),
            begun: (!wanted.is_empty()).then(|| self.log.begin_read_batch(wanted)),
            values,
            missing,
        }
    }

    /// What [`begin_fetch`](Self::begin_fetch) has begun, and how much of it was not cached.
    pub(crate) fn end_fetch(&self, begun: BegunFetch) -> (Vec<Result<Bytes>>, usize) {
        let mut values = begun.values;
        let misses = begun.missing.len();
        let read = begun.begun.map_or_else(Vec::new, BegunValues::wait);
        for ((at, key), value) in begun.missing.into_iter().zip(begun.keys).zip(read) {
            values[at] = value.map(|value| self.keep(key, value));
        }
        (values, misses)
    }

    /// The values that are cached, in their places, and the places of the others.
    fn cached(&self, pointers: &[ValuePointer]) -> (Vec<Result<Bytes>>, Vec<usize>) {
        let mut values = Vec::with_capacity(pointers.len());
        let mut missing = Vec::new();
        let keys = pointers.iter().map(CacheKey::of);
        self.cache.get_each(keys, |value| {
            if value.is_none() {
                missing.push(values.len());
            }
            values.push(Ok(value.unwrap_or_default()));
        });
        (values, missing)
    }

    /// [`find`](Self::find) and the values of many keys, with the reads they need in batches.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        version: &Version,
        at: SeqNum,
        keyspace: &KeyspaceState,
        keys: &[K],
    ) -> Vec<Result<Option<Bytes>>> {
        self.multi_get_within(version, at, keyspace, keys, usize::MAX)
    }

    /// [`multi_get`](Self::multi_get) of the first of `keys`, as many as have no more than `bytes_max` of values together, but at least one. Nothing is read of a
    /// separated value that is left out: its length stands in its pointer.
    pub(crate) fn multi_get_within<K: AsRef<[u8]>>(
        &self,
        version: &Version,
        at: SeqNum,
        keyspace: &KeyspaceState,
        keys: &[K],
        bytes_max: usize,
    ) -> Vec<Result<Option<Bytes>>> {
        let mut found: Vec<Option<Result<Found>>> = Vec::with_capacity(keys.len());
        for key in keys {
            let in_memory = version
                .generations()
                .find_map(|generation| generation.keyspace(keyspace.id)?.get(key.as_ref(), at));
            found.push(in_memory.map(|(seqno, value)| Ok(Some((seqno, value.to_owned())))));
        }
        for view in version.views(keyspace.id) {
            let mut asked: Vec<usize> = (0..found.len()).collect();
            asked.retain(|&index| found[index].is_none());
            if asked.is_empty() {
                break;
            }
            let mut wanted: Vec<&[u8]> = asked.iter().map(|&index| keys[index].as_ref()).collect();
            if glintdb_core::seeded::bug("glintdb: multi_get mixes up its answers") {
                wanted.sort_unstable();
            }
            for (index, entry) in asked.into_iter().zip(view.get_batch(&wanted)) {
                let known = entry.map(|entry| entry.map(|entry| (entry.seqno, entry.value)));
                found[index] = known.transpose().map(|known| known.map(Some));
            }
        }
        let mut bytes = 0usize;
        let fitting = found.iter().take_while(|found| {
            let length = match found {
                Some(Ok(Some((_, EntryValue::Inline(value))))) => value.len(),
                Some(Ok(Some((_, EntryValue::Pointer(pointer))))) => pointer.length as usize,
                _ => 0,
            };
            bytes = bytes.saturating_add(length);
            bytes <= bytes_max
        });
        found.truncate(fitting.count().max(1));
        let pointers: Vec<ValuePointer> = (found.iter().zip(keys))
            .filter_map(|(found, key)| match found {
                Some(Ok(Some((_, EntryValue::Pointer(pointer))))) => {
                    self.hot.mark(keyspace.id, key.as_ref(), pointer);
                    Some(*pointer)
                }
                _ => None,
            })
            .collect();
        let mut values = self.fetch_batch(&pointers).into_iter();
        found
            .into_iter()
            .map(|found| match found {
                Some(Ok(Some((_, EntryValue::Pointer(_))))) => match values.next() {
                    Some(value) => value.map(Some),
                    None => Ok(None),
                },
                Some(Ok(Some((_, EntryValue::Inline(value))))) => Ok(Some(value)),
                Some(Err(error)) => Err(error),
                None | Some(Ok(None | Some((_, EntryValue::Tombstone)))) => Ok(None),
            })
            .collect()
    }
}
