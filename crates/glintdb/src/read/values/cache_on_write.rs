//! Values that are cached as they are written, before anybody has asked for them: large ones, as far as the cache has room that nobody else wants, while there is garbage for value GC or the device is behind.
//!
//! Value GC takes from there what it moves, instead of reading it (`docs/decisions/030-cache-written.md`).
//!
//! Thread safety: any thread. A commit without such a value looks at its lengths; one with them, at two or three words.

use crate::batch::Batch;
use crate::engine::Engine;
use crate::read::values::key_hash::{Wanted, key_hash};
use bytes::Bytes;
use glintdb_cache::{CacheKey, KeyHash, ValuePlace};
use glintdb_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use glintdb_core::{KeyspaceId, ValuePointer};
use glintdb_log::{Log, LogOp, LogValue, Reservation};

/// See the module's page.
pub(crate) struct WrittenValues {
    bytes_min: usize,
    /// Of the cache, as of the last look at it, less what was cached since.
    room: AtomicUsize,
    /// Somebody has asked for it since.
    asked: AtomicBool,
    /// Something was offered to the cache.
    any: AtomicBool,
}

impl WrittenValues {
    pub(crate) fn new(bytes_min: usize) -> WrittenValues {
        WrittenValues {
            bytes_min,
            room: AtomicUsize::new(0),
            asked: AtomicBool::new(false),
            any: AtomicBool::new(false),
        }
    }
}

/// Sets a flag that is mostly set.
fn raise(flag: &AtomicBool) {
    if !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Relaxed);
    }
}

impl Engine {
    /// Looks at how much room the cache has, each time the log or a round has gone on, for that takes locks; where somebody has asked since the last time.
    pub(crate) fn update_room_if_asked(&self) {
        if self.written.asked.load(Ordering::Relaxed) {
            self.written.asked.store(false, Ordering::Relaxed);
            let room = self.cache.room_bytes();
            self.written.room.store(room, Ordering::Relaxed);
        }
    }

    /// Whether values of so many bytes are cached without having been asked for.
    fn caches_written(&self, bytes: usize) -> bool {
        bytes >= self.written.bytes_min && self.may_keep(bytes)
    }

    /// Whether value GC has something to do, or soon will, or the device is behind with what it will do that with.
    fn is_worth_caching(&self) -> bool {
        self.options.value_gc && (self.backpressure.space.is_near() || self.log.spill_urgent())
    }

    /// Caches large values of a commit at `place`, and forgets what it deletes: nobody else would come by that.
    #[inline]
    pub(crate) fn keep_written(&self, batch: &Batch, place: &Reservation) {
        if batch.frame.has_value_of(self.written.bytes_min) && self.is_worth_caching() {
            self.offer_all(batch, place);
        }
        if self.written.any.load(Ordering::Relaxed) && batch.has_deletes() {
            self.forget_deleted(batch);
        }
    }

    #[cold]
    fn offer_all(&self, batch: &Batch, place: &Reservation) {
        let mut pointers = batch.frame.pointers(place);
        for entry in batch.frame.entries() {
            if let LogOp::Put {
                key,
                value: LogValue::Pointer(encoded),
            } = entry.op
                && let Some(pointer) = pointers.next()
            {
                let value = batch.frame.value_of(encoded);
                if self.caches_written(value.len()) {
                    self.offer(key_hash(entry.keyspace, key), &pointer, value);
                }
            }
        }
    }

    #[cold]
    fn forget_deleted(&self, batch: &Batch) {
        for entry in batch.frame.entries() {
            if let LogOp::Delete { key } = entry.op {
                self.cache.forget(&key_hash(entry.keyspace, key));
            }
        }
    }

    /// Caches a value that value GC has read to move it from where `pointer` says, for it may move again; unless something is cached of its key, which is newer, or nobody knows.
    pub(crate) fn offer_moving(
        &self,
        (keyspace, key): (KeyspaceId, &[u8]),
        pointer: &ValuePointer,
        value: &[u8],
    ) {
        if !self.caches_written(value.len()) {
            return;
        }
        let key = key_hash(keyspace, key);
        if self.cache.place_of(&key).is_none() {
            self.offer(key, pointer, value);
        }
    }

    /// Caches a large value that stands where `pointer` says, if there is room.
    fn offer(&self, key: KeyHash, pointer: &ValuePointer, mut value: &[u8]) {
        if glintdb_core::seeded::bug(
            "glintdb: of a large value all but its end is cached as it is written",
        ) {
            value = &value[..value.len().saturating_sub(8)];
        }
        let WrittenValues {
            room, asked, any, ..
        } = &self.written;
        [asked, any].into_iter().for_each(raise);
        let key = CacheKey::Value(key, ValuePlace::of(pointer));
        let taken = (self.cache).offer(key, value, room.load(Ordering::Relaxed));
        if taken > 0 {
            // Where others take some at the same time, that is not known before the next look.
            let left = room.load(Ordering::Relaxed).saturating_sub(taken);
            room.store(left, Ordering::Relaxed);
        }
    }

    /// A large value, if it is cached. One that is not what it was does not count: the log has it.
    pub(crate) fn cached_written(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        pointer: &ValuePointer,
    ) -> Option<Bytes> {
        if !self.caches_written(pointer.length as usize) {
            return None;
        }
        let wanted = Wanted::scanned(keyspace, key, *pointer);
        let value = self.cache.peek(&wanted.cache_key())?;
        Log::verified(pointer, value).ok()
    }
}
