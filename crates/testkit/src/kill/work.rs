//! What the kill test writes: commit `number` of writer `writer` is a function of the two and of the campaign's seed.
//!
//! Writers have keys of their own, so that the state after *n* commits of each does not depend on how they interleave. Both keyspaces hold a record `pair` of each writer
//! that only batches write, always in both: whoever sees them differ has seen half a batch.
//!
//! Thread safety: none is needed.

use crate::rng::Rng;
use std::collections::BTreeMap;
use std::ops::Bound;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Keys of a writer in each keyspace.
const KEYS: u64 = 300;

/// A write to one of the two keyspaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// Put.
    Put(usize, Vec<u8>, Vec<u8>),
    /// Delete.
    Delete(usize, Vec<u8>),
    /// Delete from the first key to before the second.
    DeleteRange(usize, Vec<u8>, Vec<u8>),
}

/// How it is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Through the keyspace, one write.
    Single,
    /// As a batch.
    Batch,
    /// In a transaction that reads first.
    Transaction,
}

/// A commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// How.
    pub way: Way,
    /// What.
    pub writes: Vec<Write>,
    /// At `Sync` instead of `Os`.
    pub sync: bool,
}

/// Key `index` of a writer.
#[must_use]
pub fn key(writer: u32, index: u64) -> Vec<u8> {
    format!("{writer:02}/{index:05}").into_bytes()
}

/// Key of the record that batches keep the same in both keyspaces.
#[must_use]
pub fn pair_key(writer: u32) -> Vec<u8> {
    format!("{writer:02}/pair").into_bytes()
}

fn value(rng: &mut Rng, writer: u32, number: u64) -> Vec<u8> {
    let length = match rng.below(100) {
        0 => 40_000 + rng.below(60_000),
        1..=5 => 4_000 + rng.below(4_000),
        6..=35 => 256 + rng.below(800),
        36..=40 => 0,
        _ => rng.below(120),
    };
    let mut value = format!("{writer}:{number}:").into_bytes();
    value.extend(rng.bytes(length as usize));
    value
}

/// Commit `number` (from 1) of a writer.
#[must_use]
pub fn commit(seed: u64, writer: u32, number: u64) -> Commit {
    let rng = &mut Rng::of(&[seed, u64::from(writer), number]);
    let some_key = |rng: &mut Rng| key(writer, rng.below(KEYS));
    let kind = rng.below(100);
    let sync = rng.one_in(64);
    let (way, writes) = match kind {
        0..55 => (
            Way::Single,
            vec![Write::Put(0, some_key(rng), value(rng, writer, number))],
        ),
        55..68 => (Way::Single, vec![Write::Delete(0, some_key(rng))]),
        68..71 => {
            let start = rng.below(KEYS);
            let end = start + 1 + rng.below(12);
            (
                Way::Single,
                vec![Write::DeleteRange(0, key(writer, start), key(writer, end))],
            )
        }
        _ => {
            let mut writes = Vec::new();
            for space in [0, 1] {
                for _ in 0..1 + rng.below(5) {
                    writes.push(if rng.one_in(4) {
                        Write::Delete(space, some_key(rng))
                    } else {
                        Write::Put(space, some_key(rng), value(rng, writer, number))
                    });
                }
                writes.push(Write::Put(
                    space,
                    pair_key(writer),
                    number.to_string().into_bytes(),
                ));
            }
            (
                if kind < 95 {
                    Way::Batch
                } else {
                    Way::Transaction
                },
                writes,
            )
        }
    };
    Commit { way, writes, sync }
}

/// The records of one writer in both keyspaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Records {
    spaces: [BTreeMap<Vec<u8>, Vec<u8>>; 2],
    /// Of all records, so that many states are compared with one that was found at no cost.
    fingerprint: u64,
}

/// What a record adds to the fingerprint; taking it away is the same.
fn mark(space: usize, key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, xxh3_64_with_seed(key, space as u64))
}

impl Records {
    /// Applies a commit.
    pub fn apply(&mut self, commit: &Commit) {
        for write in &commit.writes {
            match write {
                Write::Put(space, key, value) => self.insert(*space, key, value),
                Write::Delete(space, key) => self.remove(*space, key),
                Write::DeleteRange(space, start, end) => {
                    let range = (Bound::Included(start), Bound::Excluded(end));
                    let keys = self.spaces[*space].range::<Vec<u8>, _>(range);
                    let keys: Vec<Vec<u8>> = keys.map(|(key, _)| key.clone()).collect();
                    for key in keys {
                        self.remove(*space, &key);
                    }
                }
            }
        }
    }

    /// Adds a record, or replaces it.
    pub fn insert(&mut self, space: usize, key: &[u8], value: &[u8]) {
        self.fingerprint ^= mark(space, key, value);
        if let Some(old) = self.spaces[space].insert(key.to_vec(), value.to_vec()) {
            self.fingerprint ^= mark(space, key, &old);
        }
    }

    fn remove(&mut self, space: usize, key: &[u8]) {
        if let Some(old) = self.spaces[space].remove(key) {
            self.fingerprint ^= mark(space, key, &old);
        }
    }

    /// The same for the same records, and else hardly ever.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Where two differ first, for messages.
    #[must_use]
    pub fn difference(&self, found: &Records) -> Option<String> {
        for (space, (wanted, found)) in self.spaces.iter().zip(&found.spaces).enumerate() {
            for key in wanted.keys().chain(found.keys()) {
                let shown = |records: &BTreeMap<Vec<u8>, Vec<u8>>| match records.get(key) {
                    Some(value) => {
                        let head = &value[..value.len().min(16)];
                        format!("{} bytes \"{}…\"", value.len(), head.escape_ascii())
                    }
                    None => "no value".to_string(),
                };
                if wanted.get(key) != found.get(key) {
                    return Some(format!(
                        "keyspace {space}, key {}: {} expected, {} found",
                        key.escape_ascii(),
                        shown(wanted),
                        shown(found)
                    ));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_a_function_of_its_number_and_batches_carry_both_pairs() {
        for number in 1..500 {
            let one = commit(7, 2, number);
            assert_eq!(one, commit(7, 2, number));
            if one.way != Way::Single {
                let mut records = Records::default();
                records.apply(&one);
                let pair = |space: usize| records.spaces[space].get(&pair_key(2)).cloned();
                assert!(pair(0).is_some() && pair(0) == pair(1));
            }
        }
    }

    #[test]
    fn the_fingerprint_is_that_of_the_records_however_they_came_about() {
        let mut records = Records::default();
        for number in 1..300 {
            records.apply(&commit(7, 2, number));
        }
        let mut copy = Records::default();
        for (space, found) in records.spaces.iter().enumerate() {
            for (key, value) in found.iter().rev() {
                copy.insert(space, key, value);
            }
        }
        assert_eq!(records.fingerprint(), copy.fingerprint());
        copy.insert(0, b"another", b"");
        assert_ne!(records.fingerprint(), copy.fingerprint());
    }
}
