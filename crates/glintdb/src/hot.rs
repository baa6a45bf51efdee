//! Which keys' separated values are being read, and where they stand: what is written for such a key goes into the cache at once, in the place of the value that it hides. It will be read
//! again, and by then the ring may have handed it to the segment's file, from where every read is one of the device; and what is hidden would push out what is not, for nobody knows in the
//! cache that it will not be asked for again.
//!
//! A table of hashes and places without a list of keys: of each key a few bits, and of its value's place as many as fit beside them. Two keys may be taken for one another, so a value may be cached in
//! vain, or one that is wanted may leave, never wrongly: what is cached is found by its place in the log. Where a bucket is full a key takes the place of another one, so what is known is of keys read lately.
//!
//! Thread safety: any thread, without locks. A write pays one relaxed load while nobody reads separated values, a hash and a look at one cache line otherwise.

use foldhash::fast::FixedState;
use glintdb_core::{KeyspaceId, SegmentId, ValuePointer};
use glintdb_flash::CacheKey;
use std::hash::BuildHasher;
// Not those of the models: nothing depends on the order in which they are seen.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Keys of a bucket: a cache line of them.
const KEYS: usize = 8;
/// The budget holds a key for each so many bytes.
const BUDGET_BYTES_A_KEY: usize = 1024;
const BUCKETS_MIN: usize = 1 << 11;
/// 8 MiB of them.
const BUCKETS_MAX: usize = 1 << 17;
/// A word has a key's tag, then the low bits of the segment's number, then the offset.
const TAG_SHIFT: u32 = 52;
const SEGMENT_MASK: u64 = (1 << 20) - 1;

#[repr(align(64))]
#[derive(Default)]
struct Bucket([AtomicU64; KEYS]);

impl Bucket {
    fn words(&self) -> [u64; KEYS] {
        std::array::from_fn(|place| self.0[place].load(Ordering::Relaxed))
    }
}

/// See the module's page.
pub(crate) struct HotKeys {
    /// Empty: switched off.
    buckets: Box<[Bucket]>,
    any: AtomicBool,
}

impl HotKeys {
    /// A table without keys, of a size that fits a budget; one that stays empty where it is not `wanted`.
    pub(crate) fn new(wanted: bool, budget_bytes: usize) -> Self {
        let fitting = (budget_bytes / BUDGET_BYTES_A_KEY / KEYS).next_power_of_two();
        let buckets = match wanted {
            true => fitting.clamp(BUCKETS_MIN, BUCKETS_MAX),
            false => 0,
        };
        HotKeys {
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            any: AtomicBool::new(false),
        }
    }

    /// Memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// The separated value of `key` is being read, where `pointer` says.
    pub(crate) fn mark(&self, keyspace: KeyspaceId, key: &[u8], pointer: &ValuePointer) {
        let Some((bucket, hash)) = self.bucket(keyspace, key) else {
            return;
        };
        let word = word(hash, pointer);
        let there = bucket.words();
        // All are looked at, so that processors need not guess which one it is, and go on to the next key of a batch.
        let known = (there.iter()).fold(false, |known, &there| known | (there == word));
        if !known {
            self.put(bucket, &there, word, pointer);
        }
    }

    #[cold]
    fn put(&self, bucket: &Bucket, there: &[u64; KEYS], word: u64, pointer: &ValuePointer) {
        let find = |tag: u64| there.iter().position(|there| there >> TAG_SHIFT == tag);
        let place = find(word >> TAG_SHIFT).or_else(|| find(0));
        // Else some one: reads come in no order.
        let place = place.unwrap_or(pointer.checksum as usize % KEYS);
        bucket.0[place].store(word, Ordering::Relaxed);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Whether there is any key.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// If the value of `key` was read lately, as far as is known, where it stood: it stands where `pointer` says now.
    pub(crate) fn replace(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        pointer: &ValuePointer,
    ) -> Option<CacheKey> {
        let (bucket, hash) = self.bucket(keyspace, key)?;
        let word = word(hash, pointer);
        let mut there = bucket.words().into_iter().zip(&bucket.0);
        let (there, slot) = there.find(|(there, _)| there >> TAG_SHIFT == word >> TAG_SHIFT)?;
        slot.store(word, Ordering::Relaxed);
        Some(place(there, pointer))
    }

    fn bucket(&self, keyspace: KeyspaceId, key: &[u8]) -> Option<(&Bucket, u64)> {
        if self.buckets.is_empty() {
            return None;
        }
        let hash = FixedState::with_seed(keyspace.0.into()).hash_one(key);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the buckets are a power of two: the low bits are what is wanted"
        )]
        let index = hash as usize & (self.buckets.len() - 1);
        Some((&self.buckets[index], hash))
    }
}

/// Never 0, and its tag neither.
fn word(hash: u64, pointer: &ValuePointer) -> u64 {
    let tag = (hash >> TAG_SHIFT).max(1);
    (tag << TAG_SHIFT) | (pointer.segment.0 & SEGMENT_MASK) << 32 | u64::from(pointer.offset)
}

/// Where the value of `word` stands, or seems to: what lacks of the segment's number is taken to be as in a newer pointer of its key.
fn place(word: u64, newer: &ValuePointer) -> CacheKey {
    let segment = (newer.segment.0 & !SEGMENT_MASK) | (word >> 32 & SEGMENT_MASK);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low half is the offset"
    )]
    let offset = word as u32;
    CacheKey::Value(SegmentId(segment), offset)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn at(segment: u64, offset: u32) -> ValuePointer {
        ValuePointer {
            segment: SegmentId(segment),
            offset,
            length: 100,
            checksum: offset,
        }
    }

    #[test]
    fn of_a_key_that_is_read_it_is_known_where_its_value_stood() {
        let hot = HotKeys::new(true, 1 << 20);
        let (one, other) = (KeyspaceId(1), KeyspaceId(2));
        assert!(!hot.any() && hot.replace(one, b"a", &at(5, 0)).is_none());
        let far = at((1 << 40) + 7, u32::MAX);
        hot.mark(one, b"a", &at((1 << 40) + 3, 64));
        hot.mark(one, b"a", &at((1 << 40) + 3, 64));
        assert!(hot.any() && hot.replace(other, b"a", &far).is_none());
        let was = hot.replace(one, b"a", &far);
        assert_eq!(was, Some(CacheKey::of(&at((1 << 40) + 3, 64))));
        let was = hot.replace(one, b"a", &at((1 << 40) + 8, 0));
        assert_eq!(was, Some(CacheKey::of(&far)));
        let slots = hot.buckets.iter().flat_map(|bucket| &bucket.0);
        let taken = slots.filter(|slot| slot.load(Ordering::Relaxed) != 0);
        assert_eq!(taken.count(), 1, "a key has one place");
    }

    #[test]
    fn as_many_keys_are_known_as_there_is_room_for_and_those_read_lately() {
        let hot = HotKeys::new(true, 16 << 20);
        let keyspace = KeyspaceId(1);
        let room = u32::try_from(hot.buckets.len() * KEYS).unwrap();
        let knows = |n: u32| {
            let found = hot.replace(keyspace, &n.to_le_bytes(), &at(1, n));
            found == Some(CacheKey::of(&at(1, n)))
        };
        (0..room / 2).for_each(|n| hot.mark(keyspace, &n.to_le_bytes(), &at(1, n)));
        let known = (0..room / 2).filter(|&n| knows(n)).count();
        assert!(known * 100 > room as usize / 2 * 95, "{known} of {room}");
        (room..5 * room).for_each(|n| hot.mark(keyspace, &n.to_le_bytes(), &at(1, n)));
        assert!((room / 2..room).all(|n| !knows(n)));
        let late = (9 * room / 2..5 * room).filter(|&n| knows(n)).count();
        assert!(late * 2 > room as usize / 2, "{late} of {room}");
    }

    #[test]
    fn switched_off_it_knows_nothing() {
        let hot = HotKeys::new(false, 1 << 30);
        hot.mark(KeyspaceId(1), b"a", &at(1, 1));
        assert!(!hot.any() && hot.replace(KeyspaceId(1), b"a", &at(1, 2)).is_none());
        assert_eq!(hot.bytes(), 0);
    }
}
