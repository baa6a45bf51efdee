//! Which key is record number `i`, and in which order a fill visits the records.
//!
//! One key set serves every workload of a run, so that `fillseq` (ascending) and `fillrandom` (each
//! record once, in random order) fill the same database and any read can follow either. Record
//! numbers are dense, keys are not: record `i` of `n` lies at a hashed place inside the `i`-th of `n`
//! equal stretches of the 62-bit key space, so keys ascend with `i` and still look hashed.
//!
//! Invariants:
//! 1. Keys of different records differ; missing keys equal no record's key. The two lowest bits of the
//!    64-bit position tell loaded (0), inserted later (1) and missing (2) apart.
//! 2. Keys of loaded records ascend with the record number; inserted ones fall anywhere among them.
//! 3. All keys have the same length, and depend on `(num, key_size, seed)` alone.
//!
//! Keys of another set share all but their last 20 bytes ([`KeySet::sharing`]).

use crate::rng::{mix64, scale};

/// Shortest key that can hold a 64-bit position.
pub const KEY_SIZE_MIN: usize = 8;

/// Bytes at the end of a key that a set of keys that share the others does not share.
const APART_BYTES: usize = 20;

/// From this length on a position is written as 16 hexadecimal digits, below as 8 bytes.
const KEY_SIZE_HEX: usize = 16;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The keys of a database of `num` loaded records.
#[derive(Debug, Clone)]
pub struct KeySet {
    num: u64,
    key_size: usize,
    /// Bytes at the front that all keys share.
    shared: usize,
    stride: u64,
    seed: u64,
}

impl KeySet {
    /// # Panics
    /// If `num` is 0 or above 2^48, or `key_size` is below [`KEY_SIZE_MIN`].
    #[must_use]
    pub fn new(num: u64, key_size: usize, seed: u64) -> Self {
        assert!(num > 0 && num <= 1 << 48, "num {num} out of 1..=2^48");
        assert!(key_size >= KEY_SIZE_MIN, "key size {key_size} below 8");
        Self {
            num,
            key_size,
            shared: 0,
            stride: (u64::MAX / num) & !3,
            seed: mix64(seed),
        }
    }

    /// The set of keys that share all but their last 20 bytes.
    #[must_use]
    pub fn sharing(mut self) -> Self {
        self.shared = self.key_size.saturating_sub(APART_BYTES);
        self
    }

    /// The first bytes of a key that tell it from all others, or all bytes if it has fewer.
    #[must_use]
    pub fn head<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        let behind = key.get(self.shared..).unwrap_or(&[]);
        behind.get(..KEY_SIZE_HEX).unwrap_or(behind)
    }

    /// Records loaded at first; higher record numbers are inserted later.
    #[must_use]
    pub fn num(&self) -> u64 {
        self.num
    }

    /// Bytes of every key.
    #[must_use]
    pub fn key_size(&self) -> usize {
        self.key_size
    }

    /// Writes the key of record `index` over `key`, which must have [`key_size`](Self::key_size) bytes.
    #[inline]
    pub fn write(&self, index: u64, key: &mut [u8]) {
        let position = if index < self.num {
            self.loaded(index)
        } else {
            // `mix62` is a bijection on 62 bits, so inserted keys are unique too.
            (mix62(index - self.num) << 2) | 1
        };
        self.encode(position, key);
    }

    /// Writes a key beside that of loaded record `index` which no record has.
    #[inline]
    pub fn write_missing(&self, index: u64, key: &mut [u8]) {
        self.encode(self.loaded(index) | 2, key);
    }

    #[inline]
    fn encode(&self, position: u64, key: &mut [u8]) {
        let (shared, apart) = key.split_at_mut(self.shared);
        shared.fill(b's');
        encode(position, apart);
    }

    #[inline]
    fn loaded(&self, index: u64) -> u64 {
        (index * self.stride + scale(mix64(index ^ self.seed), self.stride)) & !3
    }
}

#[inline]
fn mix62(x: u64) -> u64 {
    const MASK: u64 = (1 << 62) - 1;
    let mut z = x.wrapping_mul(0xBF58_476D_1CE4_E5B9) & MASK;
    z ^= z >> 31;
    z = z.wrapping_mul(0x94D0_49BB_1331_11EB) & MASK;
    z ^ (z >> 29)
}

#[inline]
fn encode(position: u64, key: &mut [u8]) {
    let bytes = position.to_be_bytes();
    if key.len() < KEY_SIZE_HEX {
        key[..8].copy_from_slice(&bytes);
        key[8..].fill(0);
        return;
    }
    for (pair, byte) in key[..KEY_SIZE_HEX].chunks_exact_mut(2).zip(bytes) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    for (digits, i) in key[KEY_SIZE_HEX..].chunks_mut(16).zip(1u64..) {
        let mut bits = mix64(position ^ (i << 56));
        for digit in digits {
            *digit = HEX[(bits & 15) as usize];
            bits >>= 4;
        }
    }
}

/// A random order of `0..len` without memory: rounds of odd multiplications and shifts permute the next
/// power of two, and results beyond `len` are permuted again until they fall inside (fewer than two
/// rounds on average).
#[derive(Debug, Clone)]
pub struct Permutation {
    len: u64,
    mask: u64,
    shift: u32,
    offset: u64,
}

impl Permutation {
    /// A permutation of `0..len` that `seed` chooses.
    ///
    /// # Panics
    /// If `len` is 0.
    #[must_use]
    pub fn new(len: u64, seed: u64) -> Self {
        assert!(len > 0, "a permutation of nothing");
        let bits = (u64::BITS - (len - 1).leading_zeros()).max(2);
        Self {
            len,
            mask: u64::MAX >> (u64::BITS - bits),
            shift: bits.div_ceil(2),
            offset: mix64(seed),
        }
    }

    /// The record in place `i`, both in `0..len`.
    #[inline]
    #[must_use]
    pub fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.len);
        let mut x = i;
        loop {
            x = x.wrapping_add(self.offset) & self.mask;
            for multiplier in [
                0xBF58_476D_1CE4_E5B9_u64,
                0x94D0_49BB_1331_11EB,
                0xD6E8_FEB8_6659_FD93,
            ] {
                x ^= x >> self.shift;
                x = x.wrapping_mul(multiplier) & self.mask;
            }
            x ^= x >> self.shift;
            if x < self.len {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn key(set: &KeySet, index: u64) -> Vec<u8> {
        let mut key = vec![0; set.key_size()];
        set.write(index, &mut key);
        key
    }

    #[test]
    fn loaded_keys_ascend_and_all_keys_are_unique() {
        for (num, size) in [(1, 16), (1000, 8), (20_000, 16), (5000, 12), (3000, 40)] {
            let set = KeySet::new(num, size, 42);
            let mut seen = HashSet::new();
            let mut last = Vec::new();
            for i in 0..num {
                let this = key(&set, i);
                assert_eq!(this.len(), size);
                assert!(this > last, "record {i} of {num}");
                last.clone_from(&this);
                assert!(seen.insert(this));
            }
            for i in num..num + 20_000 {
                assert!(seen.insert(key(&set, i)), "inserted {i}");
            }
            for i in 0..num {
                let mut missing = vec![0; size];
                set.write_missing(i, &mut missing);
                assert!(seen.insert(missing), "missing {i}");
            }
        }
    }

    #[test]
    fn keys_that_share_their_front_differ_at_their_ends_and_ascend() {
        let set = KeySet::new(1000, 4096, 42).sharing();
        let keys: Vec<_> = (0..1100).map(|i| key(&set, i)).collect();
        assert!(keys[..1000].is_sorted());
        for one in &keys {
            assert_eq!((one.len(), &one[..4076]), (4096, &keys[0][..4076]));
        }
        let heads: HashSet<_> = keys.iter().map(|key| set.head(key)).collect();
        assert_eq!(heads.len(), keys.len());
        // Short keys share nothing.
        let short = KeySet::new(1000, 16, 42);
        assert_eq!(key(&short.clone().sharing(), 7), key(&short, 7));
    }

    #[test]
    fn keys_are_spread_and_depend_on_the_seed() {
        let (a, b) = (KeySet::new(1000, 16, 1), KeySet::new(1000, 16, 2));
        assert_eq!(key(&a, 500), key(&a, 500));
        assert_ne!(key(&a, 500), key(&b, 500));
        let set = KeySet::new(100, 8, 1);
        let mut first_bytes = HashSet::new();
        for i in 100..2100 {
            first_bytes.insert(key(&set, i)[0]);
        }
        assert!(first_bytes.len() > 250, "{}", first_bytes.len());
    }

    #[test]
    fn a_permutation_visits_each_record_once_in_no_order() {
        for len in [1, 2, 3, 5, 64, 1000, 65_537] {
            let order = Permutation::new(len, 9);
            let seen: HashSet<u64> = (0..len).map(|i| order.at(i)).collect();
            assert_eq!(seen.len() as u64, len);
            assert!(seen.iter().all(|&x| x < len));
        }
        let order = Permutation::new(100_000, 9);
        let ascents = (1..100_000)
            .filter(|&i| order.at(i) > order.at(i - 1))
            .count();
        assert!(ascents.abs_diff(50_000) < 1500, "{ascents}");
        // Neighbours in the order must not be neighbours in the key space.
        let near = (1..100_000)
            .filter(|&i| order.at(i).abs_diff(order.at(i - 1)) < 100)
            .count();
        assert!(near < 400, "{near}");
        let other = Permutation::new(100_000, 10);
        assert!((0..1000).filter(|&i| order.at(i) == other.at(i)).count() < 10);
    }
}
