//! A separated value that is wanted: by what the cache has it, and where it stands.
//!
//! The cache has one value of a key, and says where that stands: who has the place from an index is given no other, for nothing else ever stood there. Who has it from the table of hot keys, which tells keys apart
//! by their hashes alone, is given what was cached for a key with the same 128 bits of them, of which half have a seed of this process.

use foldhash::{fast, quality};
use glintdb_cache::{CacheKey, KeyHash, ValuePlace};
use glintdb_core::{KeyspaceId, ValuePointer};
use std::hash::BuildHasher;
use std::sync::LazyLock;

/// Seed of the second hash: another one in each process, so that nobody can choose keys that are taken for one another.
static SECOND: LazyLock<quality::RandomState> = LazyLock::new(quality::RandomState::default);

/// See the module's page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) key: KeyHash,
    pub(crate) pointer: ValuePointer,
}

impl Wanted {
    /// Of a key that is asked for.
    pub(crate) fn new(keyspace: KeyspaceId, key: &[u8], pointer: ValuePointer) -> Wanted {
        Wanted {
            key: key_hash(keyspace, key),
            pointer,
        }
    }

    /// Of a key that a scan comes by: the second hash costs more than it is worth to many of them, and whoever asks for one of them tells it.
    #[inline]
    pub(crate) fn scanned(keyspace: KeyspaceId, key: &[u8], pointer: ValuePointer) -> Wanted {
        Wanted {
            key: KeyHash(first_hash(keyspace, key), KeyHash::UNKNOWN),
            pointer,
        }
    }

    /// What it is cached for.
    #[inline]
    pub(crate) fn cache_key(&self) -> CacheKey {
        CacheKey::Value(self.key, ValuePlace::of(&self.pointer))
    }

    /// Whether it is asked for by its key, and not come by in a scan.
    #[inline]
    pub(crate) fn is_asked_for(&self) -> bool {
        self.key.1 != KeyHash::UNKNOWN
    }

    /// Bytes of the value.
    pub(crate) fn len(&self) -> usize {
        self.pointer.length as usize
    }
}

/// By what the cache has the value of a key.
#[inline]
pub(crate) fn key_hash(keyspace: KeyspaceId, key: &[u8]) -> KeyHash {
    with_second(first_hash(keyspace, key), keyspace, key)
}

/// [`key_hash`] of a key whose first hash is at hand.
#[inline]
pub(crate) fn with_second(first: u64, keyspace: KeyspaceId, key: &[u8]) -> KeyHash {
    let second = SECOND.hash_one((keyspace.0, key));
    KeyHash(first, second.max(KeyHash::UNKNOWN + 1))
}

/// The first of them, by which the table of hot keys has it too. The same in every process: what is found where depends on nothing else.
#[inline]
pub(crate) fn first_hash(keyspace: KeyspaceId, key: &[u8]) -> u64 {
    // Spread over all bits: with small numbers for seeds, each key of 15 or 16 bytes has one in the next keyspace that differs from it in one byte and has the same hash.
    let seed = u64::from(keyspace.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    fast::FixedState::with_seed(seed).hash_one(key)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Keys of two keyspaces that differ in one byte, of whatever length: they took each other's place in the cache at every get.
    #[test]
    fn keys_of_neighbouring_keyspaces_have_hashes_of_their_own() {
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
