//! Which keys' separated values are being read: what is written for such a key goes into the cache at once, for it will be read again, and by then the ring may have handed
//! it to the segment's file, from where every read is one of the device.
//!
//! A set of key hashes without a list of them: reads set a bit, writes look at one. Two keys may share a bit, so a value may be cached in vain, never wrongly: what is cached
//! is found by its place in the log. When a quarter of the bits are set all are forgotten, so the set is of keys read lately.
//!
//! Thread safety: any thread, without locks. A write pays one relaxed load while nobody reads separated values, a hash and a second load otherwise.

use foldhash::fast::FixedState;
use glintdb_core::KeyspaceId;
use std::hash::BuildHasher;
// Not those of the models: nothing depends on the order in which they are seen.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Words of 64 bits: 128 KiB, which stays in a core's own cache.
const WORDS: usize = 1 << 14;
/// Bits set at which all are forgotten.
const MARKS_MAX: usize = WORDS * 64 / 4;

/// See the module's page.
pub(crate) struct HotKeys {
    /// Empty: switched off.
    words: Box<[AtomicU64]>,
    marks: AtomicUsize,
}

impl HotKeys {
    /// A set without keys, which stays so where it is not `wanted`.
    pub(crate) fn new(wanted: bool) -> Self {
        let words = if wanted { WORDS } else { 0 };
        HotKeys {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            marks: AtomicUsize::new(0),
        }
    }

    /// The separated value of `key` is being read.
    pub(crate) fn mark(&self, keyspace: KeyspaceId, key: &[u8]) {
        let Some((word, bit)) = self.place(keyspace, key) else {
            return;
        };
        if word.load(Ordering::Relaxed) & bit != 0
            || word.fetch_or(bit, Ordering::Relaxed) & bit != 0
        {
            return;
        }
        // Exactly one thread meets the number.
        if self.marks.fetch_add(1, Ordering::Relaxed) + 1 == MARKS_MAX {
            self.words
                .iter()
                .for_each(|word| word.store(0, Ordering::Relaxed));
            self.marks.store(0, Ordering::Relaxed);
        }
    }

    /// Whether there is any key.
    pub(crate) fn any(&self) -> bool {
        self.marks.load(Ordering::Relaxed) != 0
    }

    /// Whether the value of `key` was read lately, as far as is known.
    pub(crate) fn contains(&self, keyspace: KeyspaceId, key: &[u8]) -> bool {
        self.place(keyspace, key)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    fn place(&self, keyspace: KeyspaceId, key: &[u8]) -> Option<(&AtomicU64, u64)> {
        let hash = FixedState::with_seed(keyspace.0.into()).hash_one(key);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the remainder is below a number of words"
        )]
        let word = self.words.get((hash >> 6) as usize % WORDS)?;
        Some((word, 1 << (hash % 64)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn keys_read_lately_are_known_and_older_ones_forgotten() {
        let hot = HotKeys::new(true);
        let (one, other) = (KeyspaceId(1), KeyspaceId(2));
        assert!(!hot.any() && !hot.contains(one, b"a"));
        hot.mark(one, b"a");
        hot.mark(one, b"a");
        assert!(hot.any() && hot.contains(one, b"a") && !hot.contains(other, b"a"));
        assert_eq!(hot.marks.load(Ordering::Relaxed), 1, "marked once");
        let mut marked = 0usize;
        while hot.contains(one, b"a") {
            hot.mark(other, &marked.to_le_bytes());
            marked += 1;
            assert!(marked < 2 * MARKS_MAX, "forgotten when a quarter is set");
        }
        assert!(marked >= MARKS_MAX - 1 && !hot.any());
    }

    #[test]
    fn switched_off_it_knows_nothing() {
        let hot = HotKeys::new(false);
        hot.mark(KeyspaceId(1), b"a");
        assert!(!hot.any() && !hot.contains(KeyspaceId(1), b"a"));
    }
}
