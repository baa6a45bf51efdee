//! Values: slices of one pool made beforehand, so that making one costs nothing, and each can be
//! checked against the key it was stored under.
//!
//! The pool is 1 MiB of 64-byte chunks whose second half repeats the first: LZ4 halves it. A value of
//! record `i` is the slice at one of [`GENERATIONS`] places that depend on `i`; an overwrite takes
//! another generation. A value that belongs to another record passes [`ValuePool::matches`] with
//! probability 4 in 65,536.

use crate::rng::{Rng, mix64};

/// How many values a record can have.
pub const GENERATIONS: u64 = 4;

const POOL_BYTES: usize = 1 << 20;
const CHUNK: usize = 64;
const SLOT: usize = 16;
const SLOTS: u64 = (POOL_BYTES / SLOT) as u64;

/// The values of a database. Immutable, shared by all threads.
#[derive(Debug)]
pub struct ValuePool {
    bytes: Vec<u8>,
    value_size: usize,
    seed: u64,
}

impl ValuePool {
    /// Values of `value_size` bytes each.
    #[must_use]
    pub fn new(value_size: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed, 0x7661_6c75);
        let mut bytes = Vec::with_capacity(POOL_BYTES + value_size + CHUNK);
        while bytes.len() < POOL_BYTES + value_size {
            let start = bytes.len();
            for _ in 0..CHUNK / 16 {
                bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
            }
            bytes.extend_from_within(start..);
        }
        Self {
            bytes,
            value_size,
            seed: mix64(seed ^ 0x5eed),
        }
    }

    /// Bytes of every value.
    #[must_use]
    pub fn value_size(&self) -> usize {
        self.value_size
    }

    /// The value of record `index` in a generation (taken modulo [`GENERATIONS`]).
    #[inline]
    #[must_use]
    pub fn get(&self, index: u64, generation: u64) -> &[u8] {
        let hash = mix64(index ^ self.seed);
        let slot = (hash >> (16 * (generation % GENERATIONS))) % SLOTS;
        let start = slot as usize * SLOT;
        &self.bytes[start..start + self.value_size]
    }

    /// Whether `value` is one of the values that record `index` can have.
    #[must_use]
    pub fn matches(&self, index: u64, value: &[u8]) -> bool {
        (0..GENERATIONS).any(|generation| self.get(index, generation) == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_matches_its_own_record_and_hardly_any_other() {
        for size in [0, 1, 100, 1024, 70_000] {
            let pool = ValuePool::new(size, 3);
            for index in 0..200 {
                for generation in 0..GENERATIONS {
                    let value = pool.get(index, generation);
                    assert_eq!(value.len(), size);
                    assert!(pool.matches(index, value));
                }
            }
        }
        let pool = ValuePool::new(100, 3);
        let wrong = (0..20_000)
            .filter(|&i| pool.matches(i, pool.get(i + 1, 0)))
            .count();
        assert!(wrong < 10, "{wrong}");
        assert!(!pool.matches(1, &pool.get(1, 0)[..99]));
    }

    #[test]
    fn half_of_a_pool_repeats() {
        let pool = ValuePool::new(1024, 3);
        let value = &pool.bytes[..1024];
        let repeated = value
            .chunks_exact(CHUNK)
            .filter(|c| c[..CHUNK / 2] == c[CHUNK / 2..])
            .count();
        assert_eq!(repeated, 16);
        assert_ne!(value[..32], value[64..96]);
    }
}
