//! The directory of separated values: tables of their places, and the cache that holds some of
//! them.
//!
//! It unites three tables and a rule:
//! - [`HotKeys`] knows the place of the newest value of keys that are read often.
//! - [`ValueRuns`] has values that scans read together.
//! - The cache has values by key, and knows the place of each.
//! - [`CacheOnWrite`] decides which values enter the cache when they are written.
//!
//! Reads, commits and value GC tell the directory which values they find, write and move
//! ([`note_read`], [`note_write`], [`note_moved`]).
//!
//! Thread safety: any thread. It has no lock besides those of the tables.
//!
//! [`note_read`]: ValueDirectory::note_read
//! [`note_write`]: ValueDirectory::note_write
//! [`note_moved`]: ValueDirectory::note_moved

use super::cache_on_write::CacheOnWrite;
use super::hot_keys::{HotKeys, Look};
use super::key_hash::{Wanted, key_hash, with_second};
use super::value_runs::{ValueRuns, Values};
use crate::Result;
use crate::options::Options;
use crate::state::scattered::Misses;
use crate::write::operations::Operations;
use bytes::Bytes;
use glintdb_cache::{Cache, CacheKey, KeyHash, ValuePlace};
use glintdb_core::{Direction, KeyspaceId, SeqNum, ValuePointer, planted};
use glintdb_log::{Log, LogOp, LogValue, Reservation};
use std::sync::Arc;

/// A value takes at most this part of the cache.
const VALUE_PART: usize = 32;

/// The places of separated values, and the cache that holds some of the values.
pub(crate) struct ValueDirectory {
    log: Arc<Log>,
    cache: Arc<Cache>,
    hot: HotKeys,
    runs: ValueRuns,
    written: CacheOnWrite,
}

/// A hot key that a commit writes.
pub(crate) struct Hidden<'a> {
    key: KeyHash,
    /// Place and bytes of the separated value that the commit writes. `None` if it writes no
    /// separated value.
    by: Option<(ValuePlace, &'a [u8])>,
}

impl ValueDirectory {
    pub(crate) fn new(options: &Options, log: Arc<Log>, cache: Arc<Cache>) -> ValueDirectory {
        let budget = options.memory_budget_bytes;
        ValueDirectory {
            log,
            cache,
            hot: HotKeys::new(options.experiments.hot_keys, budget),
            runs: ValueRuns::new(options.experiments.range_cache, budget),
            written: CacheOnWrite::new(options.experiments.cache_written_min_bytes),
        }
    }

    /// Bytes of memory that its tables take beside the cache.
    pub(crate) fn table_bytes(&self) -> usize {
        self.hot.bytes() + self.runs.bytes()
    }

    /// Looks a key up among the hot ones. Returns `None` if hot keys are switched off. A key of a
    /// dropped keyspace must not be looked up.
    #[inline]
    pub(crate) fn look(&self, keyspace: KeyspaceId, key: &[u8]) -> Option<Look<'_>> {
        self.hot.look(keyspace, key)
    }

    /// Returns the newest value of a hot key at commit `at`, which is visible, if the cache has it.
    #[inline]
    pub(crate) fn get_hot(
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

    /// Looks up the newest values of many hot keys, like [`get_hot`](Self::get_hot). Calls `found`
    /// with the index and the value of each key that is found.
    pub(crate) fn get_each_hot<K: AsRef<[u8]>>(
        &self,
        at: SeqNum,
        keyspace: KeyspaceId,
        keys: &[K],
        looks: &[Option<Look<'_>>],
        mut found: impl FnMut(usize, Bytes),
    ) {
        let known = (looks.iter().zip(keys).enumerate()).filter_map(|(index, (look, key))| {
            let look = look.as_ref()?;
            let place = look.place(at)?;
            let key = with_second(look.first_hash(), keyspace, key.as_ref());
            Some((index, CacheKey::Value(key, place)))
        });
        let known: Vec<_> = known.collect();
        let mut indexes = known.iter().map(|&(index, _)| index);
        let keys = known.iter().map(|&(_, key)| key);
        self.cache.get_each_there(keys, |value| {
            if let (Some(index), Some(value)) = (indexes.next(), value) {
                found(index, value);
            }
        });
    }

    /// Notes that a read found the newest value of a key at `pointer`, among all commits up to
    /// `at`.
    ///
    /// `newest` returns the newest number that was given to a commit, or `None` if the lock that
    /// guards it is taken.
    #[inline]
    pub(crate) fn note_read(
        &self,
        look: Option<&Look<'_>>,
        at: SeqNum,
        pointer: &ValuePointer,
        newest: impl FnOnce() -> Option<SeqNum>,
    ) {
        if self.hot.is_closed() {
            self.hot.open(pointer.segment, newest);
        }
        if let Some(look) = look {
            self.hot.mark(look, at, pointer);
        }
    }

    /// Notes which keys commit `seqno` writes at `place`, before the commit is completed, so that
    /// no earlier place of them is sure. Returns the hot ones among them, for
    /// [`keep_written`](Self::keep_written).
    #[inline]
    pub(crate) fn note_write<'a>(
        &self,
        batch: &'a Operations,
        place: &Reservation,
        seqno: SeqNum,
    ) -> Vec<Hidden<'a>> {
        match self.hot.any() {
            true => self.hide_all(batch, place, seqno),
            false => Vec::new(),
        }
    }

    fn hide_all<'a>(
        &self,
        batch: &'a Operations,
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
                    planted!(
                        "glintdb: places stay sure when a range is deleted",
                        self.hot.close(),
                        ()
                    );
                    continue;
                }
            };
            let pointer = written.as_ref().map(|(pointer, _)| pointer);
            let is_hot = planted!(
                "glintdb: a place stays sure when its key is written",
                (self.hot).touch(entry.keyspace, key, seqno, pointer),
                false
            );
            if is_hot {
                let value = |(to, encoded)| (ValuePlace::of(&to), batch.frame.value_of(encoded));
                hidden.push(Hidden {
                    key: key_hash(entry.keyspace, key),
                    by: written.map(value),
                });
            }
        }
        hidden
    }

    /// Caches values that a commit at `place` wrote, after it is completed: those of hot keys, and,
    /// if `is_worth_caching` returns true, large ones. Evicts keys that it deleted.
    #[inline]
    pub(crate) fn keep_written(
        &self,
        hidden: Vec<Hidden<'_>>,
        batch: &Operations,
        place: &Reservation,
        is_worth_caching: impl FnOnce() -> bool,
    ) {
        if !hidden.is_empty() {
            self.keep_hot(hidden);
        }
        if batch.frame.has_value_of(self.written.bytes_min()) && is_worth_caching() {
            self.offer_all(batch, place);
        }
        if self.written.any() && batch.has_deletes() {
            self.forget_deleted(batch);
        }
    }

    #[cold]
    fn keep_hot(&self, hidden: Vec<Hidden<'_>>) {
        for Hidden { key, by } in hidden {
            match by.filter(|(_, value)| self.may_keep(value.len())) {
                Some((to, value)) => {
                    let value = planted!(
                        "glintdb: of a hot value all but its end is cached as it is written",
                        value,
                        &value[..value.len().saturating_sub(8)]
                    );
                    self.cache.put(CacheKey::Value(key, to), &[value]);
                }
                None => self.cache.forget(&key),
            }
        }
    }

    #[cold]
    fn offer_all(&self, batch: &Operations, place: &Reservation) {
        let mut pointers = batch.frame.pointers(place);
        for entry in batch.frame.entries() {
            if let LogOp::Put {
                key,
                value: LogValue::Pointer(encoded),
            } = entry.op
                && let Some(pointer) = pointers.next()
            {
                let value = batch.frame.value_of(encoded);
                if self.caches_on_write(value.len()) {
                    let key = key_hash(entry.keyspace, key);
                    self.written.offer(&self.cache, key, &pointer, value);
                }
            }
        }
    }

    #[cold]
    fn forget_deleted(&self, batch: &Operations) {
        for entry in batch.frame.entries() {
            if let LogOp::Delete { key } = entry.op {
                self.cache.forget(&key_hash(entry.keyspace, key));
            }
        }
    }

    /// Notes that value GC moved the value of a key to another place. All commits up to `visible`
    /// are visible.
    pub(crate) fn note_moved(
        &self,
        (keyspace, key): (KeyspaceId, &[u8]),
        from: &ValuePointer,
        to: &ValuePointer,
        visible: SeqNum,
    ) {
        let wanted = Wanted::scanned(keyspace, key, *from);
        // A value that moves leaves its run, so that its own place can be changed.
        self.runs.dissolve(&self.cache, &wanted);
        let (here, there) = (ValuePlace::of(from), ValuePlace::of(to));
        if self.cache.moved(&wanted.key, here, there)
            && let Some(look) = self.hot.look(keyspace, key)
        {
            look.moved(visible, from, to);
        }
    }

    /// Caches a large value that value GC has read to move it, because it may move again. Does
    /// nothing if a value of the key is cached, because that one may be newer.
    pub(crate) fn offer_moving(
        &self,
        (keyspace, key): (KeyspaceId, &[u8]),
        pointer: &ValuePointer,
        value: &[u8],
    ) {
        if !self.caches_on_write(value.len()) {
            return;
        }
        let key = key_hash(keyspace, key);
        if self.cache.place_of(&key).is_none() {
            self.written.offer(&self.cache, key, pointer, value);
        }
    }

    /// Returns the large value at `pointer` if it is cached and whole.
    pub(crate) fn get_large(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        pointer: &ValuePointer,
    ) -> Option<Bytes> {
        if !self.caches_on_write(pointer.length as usize) {
            return None;
        }
        let wanted = Wanted::scanned(keyspace, key, *pointer);
        let value = self.cache.peek(&wanted.cache_key())?;
        Log::verified(pointer, value).ok()
    }

    /// Updates the room that the cache has for large values. Called when the log or a round of
    /// value GC has made progress.
    pub(crate) fn update_room(&self) {
        self.written.update_room(&self.cache);
    }

    /// Returns a separated value from the cache. Otherwise reads it from the log and caches it.
    pub(crate) fn fetch(&self, wanted: &Wanted) -> Result<Bytes> {
        let key = wanted.cache_key();
        if let Some(value) = self.cache.get(&key) {
            return Ok(value);
        }
        match self.in_run(wanted) {
            Some(value) => Ok(value),
            None => Ok(self.keep(wanted, self.log.read(&wanted.pointer)?)),
        }
    }

    /// Returns separated values that are neighbours in key order, and counts of those that were not
    /// cached and were read from the log, in one batch.
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
        let (mut values, others) = self.runs.find(&self.cache, &wanted);
        let mut misses = Misses::default();
        if !others.is_empty() {
            let lacking: Vec<Wanted> = others.iter().map(|&at| wanted[at]).collect();
            let together = others.len() == wanted.len() && self.runs.take_read(&wanted);
            let fetched = self.fetch_each(&lacking, together);
            misses = Misses::of((fetched.1.iter()).map(|&at| (others[at], &lacking[at].pointer)));
            for (&at, value) in others.iter().zip(fetched.0) {
                match together && misses.count > 0 {
                    true => values.set_shared(at, value),
                    false => values.set(at, value),
                }
            }
            if misses.count == 0 {
                self.runs.keep(&self.cache, &wanted, &values, &others);
            }
        }
        if direction == Direction::Reverse {
            values.reverse();
        }
        (values, misses)
    }

    /// Returns many separated values, and the indexes of those that were not cached. These are read
    /// from the log in one batch. With `together`, values that are all read may be cached as runs,
    /// and may then share one piece of memory.
    pub(crate) fn fetch_each(
        &self,
        wanted: &[Wanted],
        together: bool,
    ) -> (Vec<Result<Bytes>>, Vec<usize>) {
        let (mut values, missing) = self.cached(wanted);
        if missing.is_empty() {
            return (values, missing);
        }
        let lacking: Vec<Wanted> = missing.iter().map(|&at| wanted[at]).collect();
        let together = together && lacking.len() == wanted.len();
        let pointers: Vec<ValuePointer> = lacking.iter().map(|one| one.pointer).collect();
        let read = self.log.read_batch(&pointers);
        let read = self.keep_each(&lacking, read, together);
        for (&at, value) in missing.iter().zip(read) {
            values[at] = value;
        }
        (values, missing)
    }

    /// Returns the values that are cached, and the indexes of the others.
    fn cached(&self, wanted: &[Wanted]) -> (Vec<Result<Bytes>>, Vec<usize>) {
        let mut values = Vec::with_capacity(wanted.len());
        let mut missing = Vec::new();
        let keys = wanted.iter().map(Wanted::cache_key);
        self.cache.get_each(keys, |value| {
            let at = values.len();
            let value = value.or_else(|| self.in_run(&wanted[at]));
            if value.is_none() {
                missing.push(at);
            }
            values.push(Ok(value.unwrap_or_default()));
        });
        (values, missing)
    }

    /// Caches values that were read. With `together`, caches them in runs if runs accept them.
    fn keep_each(
        &self,
        wanted: &[Wanted],
        read: Vec<Result<Bytes>>,
        together: bool,
    ) -> Vec<Result<Bytes>> {
        let in_runs = match together {
            true => self.runs.keep_read(&self.cache, wanted, &read),
            false => vec![false; read.len()],
        };
        (read.into_iter().zip(in_runs).zip(wanted))
            .map(|((value, in_run), wanted)| match in_run {
                true => value,
                false => value.map(|value| self.keep(wanted, value)),
            })
            .collect()
    }

    /// Returns a value that is cached in a run. If a get asks for it, it is cached by itself from
    /// then on.
    fn in_run(&self, wanted: &Wanted) -> Option<Bytes> {
        let value = self.runs.get(wanted, |run| self.cache.get_there(run))?;
        Some(match wanted.is_asked_for() {
            true => self.keep(wanted, value),
            // A copy, so that no caller keeps a dozen values in memory for one.
            false => Bytes::copy_from_slice(&value),
        })
    }

    /// Caches a value and returns it. If it is too large to be cached, the cache forgets the older
    /// value of its key, which no read asks for any more.
    fn keep(&self, wanted: &Wanted, value: Bytes) -> Bytes {
        if self.may_keep(value.len()) {
            return self.cache.insert(wanted.cache_key(), &[&value]);
        }
        self.cache.forget(&wanted.key);
        value
    }

    /// Whether a value of this many bytes may be cached.
    fn may_keep(&self, bytes: usize) -> bool {
        bytes <= self.cache.capacity_bytes() / VALUE_PART
    }

    /// Whether a value of this many bytes may be cached when it is written.
    fn caches_on_write(&self, bytes: usize) -> bool {
        bytes >= self.written.bytes_min() && self.may_keep(bytes)
    }
}
