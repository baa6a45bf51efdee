//! Expiry: which keys are due, and removing them.
//!
//! The expiry in a value's header ([`crate::value`]) decides: a read at or after that millisecond
//! finds nothing, whether the key is removed or not. So that keys which are never read are removed
//! too, the keyspace [`KEYSPACE`] holds an entry for every expiry that was ever set, ordered by
//! time. The server creates it before it stores its first header, so it also tells other programs
//! whether a database has values with headers:
//!
//! | OFFSET | SIZE | FIELD |
//! |---|---|---|
//! | 0 | 8 | second since 1970 UTC in which the key expires, big-endian |
//! | 8 | 4 | number of the database, big-endian |
//! | 12 | | the key |
//!
//! with an empty value. An entry is written in the same batch as the value, and is only a hint: a blind SET leaves the entry of the old value behind, which is dropped
//! when its second has passed. Seconds, not milliseconds, so that a key whose expiry is pushed on at every request has at most one entry a second.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;
use glintdb::{Batch, KeyCount, Keyspace, Result};

use super::locks::Held;
use super::{KEY_BYTES_MAX, Store};
use crate::value::StoredValue;

/// Name of the keyspace of expiries.
pub(crate) const KEYSPACE: &str = "redis-expiry";

const PREFIX_BYTES: usize = 12;

/// Longest key that can have an expiry, in bytes.
pub(crate) const EXPIRING_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - PREFIX_BYTES;

/// Most keys removed under one set of locks: about a millisecond.
const SWEEP_KEYS_MAX: usize = 128;

/// The index key of an expiry.
pub(super) fn index_key(db: u32, key: &[u8], expires_ms: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + key.len());
    bytes.extend_from_slice(&(expires_ms / 1000).to_be_bytes());
    bytes.extend_from_slice(&db.to_be_bytes());
    bytes.extend_from_slice(key);
    bytes
}

fn parse_index_key(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (_, rest) = bytes.split_at_checked(8)?;
    let (db, key) = rest.split_at_checked(4)?;
    Some((u32::from_be_bytes(db.try_into().ok()?), key))
}

/// INFO verifies at most this many entries of the index of expiries: milliseconds if the values are
/// in the cache.
const COUNTED_ENTRIES_MAX: usize = 4096;
/// Size of the sample from a larger index.
const SAMPLED_ENTRIES: usize = 1024;

impl Store {
    /// Counts the keys with an expiry, by database, for INFO. The counts are exact if the index of
    /// expiries has at most [`COUNTED_ENTRIES_MAX`] entries. Else a sample says what share of its
    /// entries is in force.
    pub(crate) fn count_expiring(&self) -> Result<Vec<KeyCount>> {
        let mut keys = vec![0; self.databases() as usize];
        let Some(index) = self.expiry.get() else {
            return Ok(keys.into_iter().map(KeyCount::Exact).collect());
        };
        let first = index.iter().keys().take(COUNTED_ENTRIES_MAX + 1);
        let mut entries = first.collect::<Result<Vec<_>>>()?;
        let sampled = entries.len() > COUNTED_ENTRIES_MAX;
        if sampled {
            entries = index.sample_keys(SAMPLED_ENTRIES)?;
        }
        for entry in &entries {
            if let Some(db) = self.in_force(entry)? {
                keys[db as usize] += 1;
            }
        }
        if !sampled {
            return Ok(keys.into_iter().map(KeyCount::Exact).collect());
        }
        let (all, seen) = (index.count()?.keys(), entries.len().max(1) as u64);
        let scaled = |keys: u64| KeyCount::About(all.saturating_mul(keys) / seen);
        Ok(keys.into_iter().map(scaled).collect())
    }

    /// The database of an index entry if the entry is the expiry that its key has now.
    fn in_force(&self, entry: &[u8]) -> Result<Option<u32>> {
        let Some((db, key)) = parse_index_key(entry) else {
            return Ok(None);
        };
        if db >= self.databases() {
            return Ok(None);
        }
        let Some(stored) = self
            .keyspace(db)
            .map(|keyspace| keyspace.get(key))
            .transpose()?
        else {
            return Ok(None);
        };
        let value = stored.and_then(|stored| StoredValue::decode(stored).ok());
        let expires_ms = value.and_then(|value| value.expires_ms).unwrap_or(0);
        let current = expires_ms != 0 && index_key(db, key, expires_ms) == entry;
        Ok(current.then_some(db))
    }

    /// Removes the next keys whose second has passed. `true` if there may be more.
    pub(crate) fn sweep(&self) -> Result<bool> {
        let Some(index) = self.expiry.get() else {
            return Ok(false);
        };
        let now_ms = self.now_ms();
        let end = (now_ms / 1000).to_be_bytes();
        let mut due = Vec::new();
        for entry in index
            .range::<&[u8]>(..end.as_slice())
            .keys()
            .take(SWEEP_KEYS_MAX)
        {
            due.push(entry?);
        }
        if due.is_empty() {
            return Ok(false);
        }
        let keys: Vec<(u32, &[u8])> = due
            .iter()
            .filter_map(|entry| parse_index_key(entry))
            .collect();
        let mut batch = Batch::new();
        for entry in &due {
            batch.delete(index, entry);
        }
        self.remove_expired_with(batch, &keys, now_ms)?;
        Ok(due.len() == SWEEP_KEYS_MAX)
    }

    /// Removes those of `keys` that have expired.
    pub(crate) fn remove_expired(&self, keys: &[(u32, Vec<u8>)], now_ms: u64) -> Result<()> {
        let keys: Vec<(u32, &[u8])> = keys.iter().map(|(db, key)| (*db, key.as_slice())).collect();
        self.remove_expired_with(Batch::new(), &keys, now_ms)
    }

    fn remove_expired_with(
        &self,
        mut batch: Batch,
        keys: &[(u32, &[u8])],
        now_ms: u64,
    ) -> Result<()> {
        let mut held: Held<'_> = self.locks.keys(keys.iter().copied());
        let mut removed = 0;
        let mut seen = HashSet::with_capacity_and_hasher(keys.len(), RandomState::default());
        for (db, key) in keys {
            // One MGET may come across a million expired keys, or a million times across one.
            if *db >= self.databases() || !seen.insert((*db, *key)) {
                continue;
            }
            let Some(keyspace) = self.keyspace(*db) else {
                continue;
            };
            let Some(stored) = keyspace.get(key)? else {
                continue;
            };
            // A value that cannot be decoded is not ours to remove.
            let Ok(value) = StoredValue::decode(stored) else {
                continue;
            };
            if value.expired(now_ms) {
                self.note_change(&mut held, *db, key);
                batch.delete(keyspace, key);
                if let Some(index) = self.expiry.get() {
                    let expires_ms = value.expires_ms.unwrap_or(0);
                    batch.delete(index, index_key(*db, key, expires_ms));
                }
                removed += 1;
            }
        }
        self.commit(batch)?;
        self.stats
            .expired_keys
            .fetch_add(removed, Ordering::Relaxed);
        Ok(())
    }

    /// May a key that has expired still be there? Then a scan has to read values to leave it out.
    pub(crate) fn expired_keys_may_be_there(&self, now_ms: u64) -> Result<bool> {
        let Some(index) = self.expiry.get() else {
            return Ok(self.expiry_used());
        };
        is_any_due(index, now_ms)
    }
}

/// Whether the index has an entry of the current second or of an earlier one.
pub(super) fn is_any_due(index: &Keyspace, now_ms: u64) -> Result<bool> {
    let end = (now_ms / 1000).saturating_add(1).to_be_bytes();
    match index.range::<&[u8]>(..end.as_slice()).keys().next() {
        Some(entry) => entry.map(|_| true),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_keys_are_ordered_by_second() {
        let entry = index_key(2, b"k", 1_000_999);
        assert_eq!(entry, b"\0\0\0\0\0\0\x03\xe8\0\0\0\x02k");
        assert_eq!(parse_index_key(&entry), Some((2, b"k".as_slice())));
        assert!(index_key(0, b"z", 255_000) < index_key(0, b"a", 256_000));
        assert_eq!(parse_index_key(b"short"), None);
    }
}
