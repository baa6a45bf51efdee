//! Values that are cached as they are written, before anybody has asked for them: large ones, by commits that would wait otherwise, as far as the cache has room that nobody else wants.
//!
//! Where writers wait for the device, or for value GC, which reads there what it moves, a copy in memory costs nobody anything, and spares value GC that read
//! (`docs/decisions/030-cache-written.md`). Who fills a database faster than a processor copies is let go on.
//!
//! Thread safety: any thread. A commit without such a value looks at its lengths; one with them, at two or three words.

use crate::batch::Batch;
use crate::engine::Engine;
use crate::wanted::{Wanted, key_hash};
use bytes::Bytes;
use glintdb_core::sync::atomic::{AtomicUsize, Ordering};
use glintdb_core::{KeyspaceId, ValuePointer};
use glintdb_flash::{CacheKey, ValuePlace};
use glintdb_log::{Log, LogOp, LogValue, Reservation};

/// See the module's page.
pub(crate) struct WrittenValues {
    bytes_min: usize,
    /// Of the cache, as of the last look at it, less what was cached since.
    room: AtomicUsize,
}

impl WrittenValues {
    pub(crate) fn new(bytes_min: usize) -> WrittenValues {
        WrittenValues {
            bytes_min,
            room: AtomicUsize::new(0),
        }
    }
}

impl Engine {
    /// Looks at how much room the cache has: each time the log has gone on, for that takes locks.
    pub(crate) fn update_room(&self) {
        let room = self.cache.room_bytes();
        self.written.room.store(room, Ordering::Relaxed);
    }

    /// Whether values of so many bytes are cached without having been asked for.
    fn caches_written(&self, bytes: usize) -> bool {
        bytes >= self.written.bytes_min && self.may_keep(bytes)
    }

    /// Whether writers wait for something else than a processor.
    fn writers_wait(&self) -> bool {
        self.gc.brake.is_near() || self.log.spill_urgent()
    }

    /// Caches large values of a commit at `place`.
    #[inline]
    pub(crate) fn keep_written(&self, batch: &Batch, place: &Reservation) {
        if batch.frame.has_value_of(self.written.bytes_min) && self.writers_wait() {
            self.offer_all(batch, place);
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
                self.offer_written((entry.keyspace, key), &pointer, value);
            }
        }
    }

    /// Caches a value that value GC has read to move it from where `pointer` says, as what is written: it may move again. Not instead of a newer one of its key.
    pub(crate) fn offer_moving(
        &self,
        (keyspace, key): (KeyspaceId, &[u8]),
        pointer: &ValuePointer,
        value: &[u8],
    ) {
        if self.caches_written(value.len()) {
            let place = self.cache.place_of(&key_hash(keyspace, key));
            if place.is_none_or(|place| place < ValuePlace::of(pointer)) {
                self.offer_written((keyspace, key), pointer, value);
            }
        }
    }

    /// Caches the newest value of a key, which stands where `pointer` says, if it is a large one, where nothing has to go for it.
    fn offer_written(
        &self,
        (keyspace, key): (KeyspaceId, &[u8]),
        pointer: &ValuePointer,
        value: &[u8],
    ) {
        if self.caches_written(value.len()) {
            let key = CacheKey::Value(key_hash(keyspace, key), ValuePlace::of(pointer));
            let room = &self.written.room;
            let mut value = value;
            if glintdb_core::seeded::bug(
                "glintdb: of a large value all but its end is cached as it is written",
            ) {
                value = &value[..value.len().saturating_sub(8)];
            }
            let taken = (self.cache).offer(key, value, room.load(Ordering::Relaxed));
            if taken > 0 {
                // Others may have taken some meanwhile; it is looked at anew soon.
                let left = room.load(Ordering::Relaxed).saturating_sub(taken);
                room.store(left, Ordering::Relaxed);
            }
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
