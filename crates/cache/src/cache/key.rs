//! What things are cached for: as callers name it, and in two words as the cache's table has it.

use glintdb_core::{FileId, SegmentId, ValuePointer};
use std::hash::{BuildHasher, Hasher};

/// Where a separated value stands: in a segment of the log, at an offset in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ValuePlace(pub SegmentId, pub u32);

impl ValuePlace {
    /// Of what has no place of its own.
    const NONE: ValuePlace = ValuePlace(SegmentId(0), 0);

    /// Where the value of `pointer` stands.
    #[must_use]
    #[inline]
    pub fn of(pointer: &ValuePointer) -> ValuePlace {
        ValuePlace(pointer.segment, pointer.offset)
    }
}

/// A key by two of its hashes: by the first its value is found, and the second, which has a seed that nobody knows, says that it is its. [`UNKNOWN`](KeyHash::UNKNOWN) as the second: that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyHash(pub u64, pub u64);

impl KeyHash {
    /// Of a key of which the first hash alone is at hand.
    pub const UNKNOWN: u64 = 0;
}

/// What is cached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CacheKey {
    /// A block of a file, by its offset in bytes.
    Block(FileId, u64),
    /// A separated value: its key, and where it stands. Of values of one key, or of keys with the same first hash, one is cached: the one that came last.
    Value(KeyHash, ValuePlace),
    /// Values that scans come by one after the other, by the hash of the first one's key.
    Range(u64),
}

impl CacheKey {
    #[inline]
    pub(super) fn slot(&self) -> Slot {
        match *self {
            CacheKey::Block(file, offset) => Slot((file.kind as u64) << 56 | file.number, offset),
            CacheKey::Value(key, _) => Slot::of_value(&key),
            CacheKey::Range(first) => Slot(Slot::RANGES, first),
        }
    }

    /// Where the value stands; of what is no value, nowhere.
    #[inline]
    pub(super) fn place(&self) -> ValuePlace {
        match *self {
            CacheKey::Value(_, place) => place,
            CacheKey::Block(..) | CacheKey::Range(_) => ValuePlace::NONE,
        }
    }

    /// The second hash of a value's key.
    #[inline]
    pub(super) fn whose(&self) -> u64 {
        match *self {
            CacheKey::Value(key, _) => key.1,
            CacheKey::Block(..) | CacheKey::Range(_) => KeyHash::UNKNOWN,
        }
    }
}

/// What there is one entry for, in two words, so that an entry is hardly more than a line of memory: kind and number of a file with an offset, or what no file has with a hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Slot(pub(crate) u64, pub(crate) u64);

impl Slot {
    const VALUES: u64 = u64::MAX;
    pub(super) const RANGES: u64 = u64::MAX - 1;

    #[inline]
    pub(super) fn of_value(key: &KeyHash) -> Slot {
        Slot(Slot::VALUES, key.0)
    }
}

/// Hash of a few numbers by folded multiplication: our own file numbers and offsets, and hashes of keys.
#[derive(Clone, Default)]
pub(crate) struct Mixer;

pub(crate) struct MixState(u64);

impl BuildHasher for Mixer {
    type Hasher = MixState;
    fn build_hasher(&self) -> MixState {
        MixState(0x243f_6a88_85a3_08d3)
    }
}

impl MixState {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the two halves of a product are what is folded"
    )]
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

impl Hasher for MixState {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.mix(u64::from(byte)));
    }
    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }
    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }
    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }
    fn write_isize(&mut self, word: isize) {
        self.mix(word.cast_unsigned() as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
