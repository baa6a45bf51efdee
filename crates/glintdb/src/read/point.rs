//! Point reads: memtables newest first, then the index, then, for a separated value, the cache or the log. Where a key is known to be read often, the cache alone.
//!
//! Thread safety: reads take no lock and write no shared counter but the caches' own, and what they find into the table of hot keys.

use crate::Result;
use crate::batch::Batch;
use crate::engine::Engine;
use crate::read::values::hot_keys::Look;
use crate::read::values::key_hash::{Wanted, key_hash, with_second};
use crate::read::values::value_runs::Values;
use crate::space::value_gc::Misses;
use crate::state::version::{KeyspaceState, Version};
use bytes::Bytes;
use glintdb_cache::{CacheKey, KeyHash, ValuePlace};
use glintdb_core::{Direction, EntryValue, KeyspaceId, SeqNum, ValuePointer};
use glintdb_log::{LogOp, LogValue, Reservation};
use std::sync::Arc;

/// What is read: a version, and the newest commit that may be seen in it.
#[derive(Clone)]
pub(crate) struct ReadPoint {
    pub(crate) version: Arc<Version>,
    pub(crate) at: SeqNum,
}

/// The newest thing known of a key.
pub(crate) type Found = Option<(SeqNum, EntryValue)>;

/// A value that was being read, and is hidden by a commit.
pub(crate) struct Hidden<'a> {
    key: KeyHash,
    /// The separated value that hides it, if one does, and where that stands.
    by: Option<(ValuePlace, &'a [u8])>,
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
        let Some(view) = version.view(keyspace.id) else {
            return Ok(None);
        };
        let entry = view.get(key)?;
        Ok(entry.map(|entry| (entry.seqno, entry.value)))
    }

    /// The newest visible value of `key`.
    pub(crate) fn get(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<Option<Bytes>> {
        let look = self.hot.look(keyspace.id, key);
        let before = self.pipeline.visible();
        if let Some(value) = self.get_hot(look.as_ref(), before, (keyspace.id, key)) {
            return Ok(Some(value));
        }
        // The version first: what is visible after that is in it, or came after this read began.
        let version = self.version.load();
        let at = self.pipeline.visible();
        let found = self.find(&version, at, keyspace, key)?;
        // Not `at`: a commit in between may be in a memtable that `version` does not have.
        self.value_of(found, before, look.as_ref(), (keyspace.id, key))
    }

    /// What `version` knows of `key` at `at`, the value of it.
    pub(crate) fn get_at(
        &self,
        version: &Version,
        at: SeqNum,
        keyspace: &KeyspaceState,
        key: &[u8],
    ) -> Result<Option<Bytes>> {
        let look = self.look_in(version, keyspace, key);
        if let Some(value) = self.get_hot(look.as_ref(), at, (keyspace.id, key)) {
            return Ok(Some(value));
        }
        let found = self.find(version, at, keyspace, key)?;
        self.value_of(found, at, look.as_ref(), (keyspace.id, key))
    }

    /// Looks for a key among the hot ones, unless its keyspace is not in `version`: the table is not told of keyspaces that are dropped.
    fn look_in(&self, version: &Version, keyspace: &KeyspaceState, key: &[u8]) -> Option<Look<'_>> {
        version.keyspace(keyspace.id)?;
        self.hot.look(keyspace.id, key)
    }

    /// The newest value of a key at `at`, which is visible, if that is cached and known to be it.
    #[inline]
    fn get_hot(
        &self,
        look: Option<&Look<'_>>,
        at: SeqNum,
        (keyspace, key): (KeyspaceId, &[u8]),
    ) -> Option<Bytes> {
        let look = look?;
        let place = look.place(at)?;
        let key = with_second(look.first_hash(), keyspace, key);
        self.cache.get_there(&CacheKey::Value(key, place))
    }

    /// The value of what was found of a key in all that is visible at `at`.
    fn value_of(
        &self,
        found: Found,
        at: SeqNum,
        look: Option<&Look<'_>>,
        (keyspace, key): (KeyspaceId, &[u8]),
    ) -> Result<Option<Bytes>> {
        match found {
            None | Some((_, EntryValue::Tombstone)) => Ok(None),
            Some((_, EntryValue::Inline(value))) => Ok(Some(value)),
            Some((_, EntryValue::Pointer(pointer))) => {
                self.open_hot(&pointer);
                if let Some(look) = look {
                    self.hot.mark(look, at, &pointer);
                }
                self.fetch(&Wanted::new(keyspace, key, pointer)).map(Some)
            }
        }
    }

    /// Separated values are being read: that is when keys are hot.
    #[inline]
    fn open_hot(&self, pointer: &ValuePointer) {
        if self.hot.is_closed() {
            let newest = || Some(self.sequencer.try_lock()?.newest());
            self.hot.open(pointer.segment, newest);
        }
    }

    /// A separated value: from the cache, else from the log, and then into the cache.
    fn fetch(&self, wanted: &Wanted) -> Result<Bytes> {
        let key = wanted.cache_key();
        if let Some(value) = self.cache.get(&key) {
            return Ok(value);
        }
        match self.in_range(wanted) {
            Some(value) => Ok(value),
            None => Ok(self.keep(wanted, self.log.read(&wanted.pointer)?)),
        }
    }

    /// A value that is not cached by itself but in a range of those that scans come by: from now on by itself too, where it is asked for by its key.
    fn in_range(&self, wanted: &Wanted) -> Option<Bytes> {
        let value = self
            .ranges
            .get(wanted, |range| self.cache.get_there(range))?;
        Some(match wanted.is_asked_for() {
            true => self.keep(wanted, value),
            // Nobody should hold a dozen values for one.
            false => Bytes::copy_from_slice(&value),
        })
    }

    /// Puts a value into the cache, unless it would push out too much else: then what the cache has of its key goes, which nobody asks for.
    fn keep(&self, wanted: &Wanted, value: Bytes) -> Bytes {
        if self.may_keep(value.len()) {
            return self.cache.insert(wanted.cache_key(), &[&value]);
        }
        self.cache.forget(&wanted.key);
        value
    }

    /// Whether a value of so many bytes may be cached.
    pub(crate) fn may_keep(&self, bytes: usize) -> bool {
        bytes <= self.cache.capacity_bytes() / 32
    }

    /// What was known of the keys that commit `seqno`, which is not completed yet, writes at `place` is no more true. Answers what it hides of that.
    pub(crate) fn tell_hot<'a>(
        &self,
        batch: &'a Batch,
        place: &Reservation,
        seqno: SeqNum,
    ) -> Vec<Hidden<'a>> {
        let mut hidden = Vec::new();
        let mut pointers = batch.frame.pointers(place);
        for entry in batch.frame.entries() {
            let (key, written) = match entry.op {
                LogOp::Put {
                    key,
                    value: LogValue::Pointer(encoded),
                } => (key, pointers.next().map(|pointer| (pointer, encoded))),
                LogOp::Put { key, .. } | LogOp::Delete { key } => (key, None),
                LogOp::DeleteRange { .. } => {
                    if !glintdb_core::seeded::bug(
                        "glintdb: places stay sure when a range is deleted",
                    ) {
                        self.hot.close();
                    }
                    continue;
                }
            };
            let pointer = written.as_ref().map(|(pointer, _)| pointer);
            if (self.hot).touch(entry.keyspace, key, seqno, pointer) {
                let value = |(to, encoded)| (ValuePlace::of(&to), batch.frame.value_of(encoded));
                hidden.push(Hidden {
                    key: key_hash(entry.keyspace, key),
                    by: written.map(value),
                });
            }
        }
        hidden
    }

    /// Caches what a commit has written for keys whose values are being read, instead of what it has hidden.
    #[cold]
    pub(crate) fn keep_hot(&self, hidden: Vec<Hidden<'_>>) {
        for Hidden { key, by } in hidden {
            match by.filter(|(_, value)| self.may_keep(value.len())) {
                Some((to, mut value)) => {
                    if glintdb_core::seeded::bug(
                        "glintdb: of a hot value all but its end is cached as it is written",
                    ) {
                        value = &value[..value.len().saturating_sub(8)];
                    }
                    self.cache.put(CacheKey::Value(key, to), &[value]);
                }
                None => self.cache.forget(&key),
            }
        }
    }

    /// Many separated values, beside one another in key order, and what of them was not cached: that is read from the log in one batch.
    pub(crate) fn fetch_in_order(
        &self,
        mut wanted: Vec<Wanted>,
        direction: Direction,
    ) -> (Values, Misses) {
        if wanted.is_empty() {
            return (Values::default(), Misses::default());
        }
        if direction == Direction::Reverse {
            wanted.reverse();
        }
        let (mut values, others) = self.ranges.find(&self.cache, &wanted);
        let mut misses = Misses::default();
        if !others.is_empty() {
            let lacking: Vec<Wanted> = others.iter().map(|&at| wanted[at]).collect();
            let together = others.len() == wanted.len() && self.ranges.take_read(&wanted);
            let fetched = self.fetch_each(&lacking, together);
            misses = Misses::of((fetched.1.iter()).map(|&at| (others[at], &lacking[at].pointer)));
            for (&at, value) in others.iter().zip(fetched.0) {
                match together && misses.count > 0 {
                    true => values.set_shared(at, value),
                    false => values.set(at, value),
                }
            }
            if misses.count == 0 {
                self.ranges.keep(&self.cache, &wanted, &values, &others);
            }
        }
        if direction == Direction::Reverse {
            values.reverse();
        }
        (values, misses)
    }

    /// Returns many separated values, and the indexes of those that were not cached: these are read
    /// from the log in one batch. With `together`, values that are all read may be cached as one
    /// range, and may then share one piece of memory.
    fn fetch_each(&self, wanted: &[Wanted], together: bool) -> (Vec<Result<Bytes>>, Vec<usize>) {
        let (mut values, missing) = self.cached(wanted);
        if missing.is_empty() {
            return (values, missing);
        }
        let lacking: Vec<Wanted> = missing.iter().map(|&at| wanted[at]).collect();
        let together = together && lacking.len() == wanted.len();
        let read = self.log.read_batch(&pointers_of(&lacking));
        let read = self.keep_each(&lacking, read, together);
        for (&at, value) in missing.iter().zip(read) {
            values[at] = value;
        }
        (values, missing)
    }

    /// Puts what was read into the cache, `together` in ranges where ranges take it.
    fn keep_each(
        &self,
        wanted: &[Wanted],
        read: Vec<Result<Bytes>>,
        together: bool,
    ) -> Vec<Result<Bytes>> {
        let in_ranges = match together {
            true => self.ranges.keep_read(&self.cache, wanted, &read),
            false => vec![false; read.len()],
        };
        (read.into_iter().zip(in_ranges).zip(wanted))
            .map(|((value, in_range), wanted)| match in_range {
                true => value,
                false => value.map(|value| self.keep(wanted, value)),
            })
            .collect()
    }

    /// The values that are cached, in their places, and the places of the others.
    fn cached(&self, wanted: &[Wanted]) -> (Vec<Result<Bytes>>, Vec<usize>) {
        let mut values = Vec::with_capacity(wanted.len());
        let mut missing = Vec::new();
        let keys = wanted.iter().map(Wanted::cache_key);
        self.cache.get_each(keys, |value| {
            let at = values.len();
            let value = value.or_else(|| self.in_range(&wanted[at]));
            if value.is_none() {
                missing.push(at);
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
        let looks: Vec<_> = (keys.iter())
            .map(|key| self.look_in(version, keyspace, key.as_ref()))
            .collect();
        // Of each key: `None` as long as nothing is known.
        let mut found: Vec<Option<Result<Option<EntryValue>>>> =
            self.get_each_hot(at, keyspace, keys, &looks);
        for (found, key) in found.iter_mut().zip(keys) {
            if found.is_none() {
                let in_memory = version
                    .generations()
                    .find_map(|generation| generation.keyspace(keyspace.id)?.get(key.as_ref(), at));
                *found = in_memory.map(|(_, value)| Ok(Some(value.to_owned())));
            }
        }
        let mut asked: Vec<usize> = (0..found.len()).collect();
        asked.retain(|&index| found[index].is_none());
        if let Some(view) = version.view(keyspace.id).filter(|_| !asked.is_empty()) {
            let mut wanted: Vec<&[u8]> = asked.iter().map(|&index| keys[index].as_ref()).collect();
            if glintdb_core::seeded::bug("glintdb: multi_get mixes up its answers") {
                wanted.sort_unstable();
            }
            for (index, entry) in asked.into_iter().zip(view.get_batch(&wanted)) {
                let known = entry.map(|entry| entry.map(|entry| entry.value));
                found[index] = known.transpose().map(|known| known.map(Some));
            }
        }
        let mut bytes = 0usize;
        let fitting = found.iter().take_while(|found| {
            let length = match found {
                Some(Ok(Some(EntryValue::Inline(value)))) => value.len(),
                Some(Ok(Some(EntryValue::Pointer(pointer)))) => pointer.length as usize,
                _ => 0,
            };
            bytes = bytes.saturating_add(length);
            bytes <= bytes_max
        });
        found.truncate(fitting.count().max(1));
        let wanted: Vec<Wanted> = (found.iter().zip(&looks).zip(keys))
            .filter_map(|((found, look), key)| match found {
                Some(Ok(Some(EntryValue::Pointer(pointer)))) => {
                    self.open_hot(pointer);
                    if let Some(look) = look {
                        self.hot.mark(look, at, pointer);
                    }
                    Some(Wanted::new(keyspace.id, key.as_ref(), *pointer))
                }
                _ => None,
            })
            .collect();
        let values = self.fetch_each(&wanted, false).0;
        let mut values = values.into_iter();
        found
            .into_iter()
            .map(|found| match found {
                Some(Ok(Some(EntryValue::Pointer(_)))) => match values.next() {
                    Some(value) => value.map(Some),
                    None => Ok(None),
                },
                Some(Ok(Some(EntryValue::Inline(value)))) => Ok(Some(value)),
                Some(Err(error)) => Err(error),
                None | Some(Ok(None | Some(EntryValue::Tombstone))) => Ok(None),
            })
            .collect()
    }

    /// Of each key the value that it has at `at`, as if it lay beside the key, if that is cached and known to be it.
    fn get_each_hot<K: AsRef<[u8]>>(
        &self,
        at: SeqNum,
        keyspace: &KeyspaceState,
        keys: &[K],
        looks: &[Option<Look<'_>>],
    ) -> Vec<Option<Result<Option<EntryValue>>>> {
        let mut found = Vec::new();
        found.resize_with(looks.len(), || None);
        let known = (looks.iter().zip(keys).enumerate()).filter_map(|(index, (look, key))| {
            let look = look.as_ref()?;
            let place = look.place(at)?;
            let key = with_second(look.first_hash(), keyspace.id, key.as_ref());
            Some((index, CacheKey::Value(key, place)))
        });
        let known: Vec<_> = known.collect();
        let mut indices = known.iter().map(|&(index, _)| index);
        let keys = known.iter().map(|&(_, key)| key);
        self.cache.get_each_there(keys, |value| {
            if let (Some(index), Some(value)) = (indices.next(), value) {
                found[index] = Some(Ok(Some(EntryValue::Inline(value))));
            }
        });
        found
    }
}

fn pointers_of(wanted: &[Wanted]) -> Vec<ValuePointer> {
    wanted.iter().map(|one| one.pointer).collect()
}
