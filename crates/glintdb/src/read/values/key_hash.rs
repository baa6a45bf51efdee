//! The hash of a key that the cache and the tables of this folder share, and [`Wanted`]: the hash
//! and the place of a value that a read looks for.
//!
//! The cache has one value of a key, with its place. A read that has the place from an index never
//! gets another value, because a place is never used twice. A read that has it from the table of
//! hot keys, which tells keys apart by their hashes alone, gets the value of a key with the same
//! 128 bits of hash; half of them have a seed of this process.

use foldhash::{fast, quality};
use glintdb_cache::{CacheKey, KeyHash, ValuePlace};
use glintdb_core::{KeyspaceId, ValuePointer};
use std::hash::BuildHasher;
use std::sync::LazyLock;

/// Seed of the second hash. Each process has another one, so that no client can choose keys that
/// are taken for each other; in virtual time, equal runs need an equal one.
static SECOND: LazyLock<Seed> = LazyLock::new(Seed::default);
#[cfg(not(virtual_time))]
type Seed = quality::RandomState;
#[cfg(virtual_time)]
type Seed = quality::FixedState;

/// A value that a read looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) key: KeyHash,
    pub(crate) pointer: ValuePointer,
}

impl Wanted {
    /// The value of a key that is asked for.
    pub(crate) fn new(keyspace: KeyspaceId, key: &[u8], pointer: ValuePointer) -> Wanted {
        Wanted {
            key: key_hash(keyspace, key),
            pointer,
        }
    }

    /// The value of a key in a scan. It has no second hash, which costs more than it is worth for
    /// many keys; a later get of the key adds it.
    #[inline]
    pub(crate) fn scanned(keyspace: KeyspaceId, key: &[u8], pointer: ValuePointer) -> Wanted {
        Wanted {
            key: KeyHash(first_hash(keyspace, key), KeyHash::UNKNOWN),
            pointer,
        }
    }

    /// The key under which it is cached.
    #[inline]
    pub(crate) fn cache_key(&self) -> CacheKey {
        CacheKey::Value(self.key, ValuePlace::of(&self.pointer))
    }

    /// Whether it is asked for by its key, and not part of a scan.
    #[inline]
    pub(crate) fn is_asked_for(&self) -> bool {
        self.key.1 != KeyHash::UNKNOWN
    }

    /// Bytes of the value.
    pub(crate) fn len(&self) -> usize {
        self.pointer.length as usize
    }
}

/// Returns the hash under which the cache has the value of a key.
#[inline]
pub(crate) fn key_hash(keyspace: KeyspaceId, key: &[u8]) -> KeyHash {
    with_second(first_hash(keyspace, key), keyspace, key)
}

/// Returns [`key_hash`] of a key whose first hash is known.
#[inline]
pub(crate) fn with_second(first: u64, keyspace: KeyspaceId, key: &[u8]) -> KeyHash {
    let second = SECOND.hash_one((keyspace.0, key));
    KeyHash(first, second.max(KeyHash::UNKNOWN + 1))
}

/// Returns the first hash, which the table of hot keys uses too. It is the same in every process.
#[inline]
pub(crate) fn first_hash(keyspace: KeyspaceId, key: &[u8]) -> u64 {
    // Spread over all bits. With small seeds, each key of 15 or 16 bytes has a partner in the next
    // keyspace that differs in one byte and has the same hash.
    let seed = u64::from(keyspace.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    fast::FixedState::with_seed(seed).hash_one(key)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Keys of two keyspaces that differ in one byte have different hashes, at every length of the
    /// key.
    #[test]
    fn keys_of_neighbouring_keyspaces_have_different_hashes() {
        for length in 1..40 {
            for n in 0..200_u64 {
                let mut key = vec![b'0'; length];
                let digits = n.to_be_bytes();
                let low = digits.len().min(length);
                key[length - low..].copy_from_slice(&digits[digits.len() - low..]);
                let own = first_hash(KeyspaceId(0), &key);
                for keyspace in 1..4 {
                    for at in 0..length {
                        for bits in 0..8 {
                            let mut other = key.clone();
                            other[at] ^= bits;
                            assert_ne!(own, first_hash(KeyspaceId(keyspace), &other), "{key:?}");
                        }
                    }
                }
            }
        }
    }
}
