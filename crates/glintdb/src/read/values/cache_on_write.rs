//! Values that are cached when they are written, before any read asks for them: large ones, while
//! value GC has work or the device lags, as far as the cache has room that nothing else needs.
//!
//! Value GC takes the values that it moves from the cache instead of reading them
//! (`docs/decisions/030-cache-written.md`).
//!
//! Thread safety: any thread. A commit without a large value looks at the lengths of its values
//! only; a commit with one reads two or three words.

use glintdb_cache::{Cache, CacheKey, KeyHash, ValuePlace};
use glintdb_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use glintdb_core::{ValuePointer, planted};

/// Which values are cached on write, and how much room they may take.
pub(super) struct CacheOnWrite {
    /// Values of at least this many bytes are large.
    bytes_min: usize,
    /// Room in the cache at the last look, less what was cached since.
    room: AtomicUsize,
    /// Whether a value was offered since the last look.
    asked: AtomicBool,
    /// Whether a value was ever offered.
    any: AtomicBool,
}

/// Sets a flag that is mostly set already.
fn raise(flag: &AtomicBool) {
    if !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Relaxed);
    }
}

impl CacheOnWrite {
    pub(super) fn new(bytes_min: usize) -> CacheOnWrite {
        CacheOnWrite {
            bytes_min,
            room: AtomicUsize::new(0),
            asked: AtomicBool::new(false),
            any: AtomicBool::new(false),
        }
    }

    pub(super) fn bytes_min(&self) -> usize {
        self.bytes_min
    }

    /// Whether the cache may have a value that was cached on write.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Updates the room that the cache has, which takes locks, if a value was offered since the
    /// last look.
    pub(super) fn update_room(&self, cache: &Cache) {
        if self.asked.load(Ordering::Relaxed) {
            self.asked.store(false, Ordering::Relaxed);
            self.room.store(cache.room_bytes(), Ordering::Relaxed);
        }
    }

    /// Caches a large value, which is at `pointer`, if there is room.
    pub(super) fn offer(&self, cache: &Cache, key: KeyHash, pointer: &ValuePointer, value: &[u8]) {
        let value = planted!(
            "glintdb: of a large value all but its end is cached as it is written",
            value,
            &value[..value.len().saturating_sub(8)]
        );
        raise(&self.asked);
        raise(&self.any);
        let key = CacheKey::Value(key, ValuePlace::of(pointer));
        let taken = cache.offer(key, value, self.room.load(Ordering::Relaxed));
        if taken > 0 {
            // Other threads may take some at the same time; the next look corrects that.
            let left = self.room.load(Ordering::Relaxed).saturating_sub(taken);
            self.room.store(left, Ordering::Relaxed);
        }
    }
}
