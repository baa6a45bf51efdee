//! Separators: keys in order that divide a sorted sequence into parts, in memory.
//!
//! In memory are the separators' common prefix, once, and for each one an 8-byte head (the
//! big-endian value of the bytes behind the prefix, zeros behind the end) and its length up to 8.
//! What does not fit the head is in one arena: whole for one separator in eight, for the others as
//! a delta against the separator before. So long keys that share most of their bytes take little
//! memory, and a search compares a few of them.
//!
//! Thread-safe: immutable.

use super::delta_order::DeltaOrder;
use bytes::Bytes;
use glintdb_core::codec::{Reader, put_varint};
use glintdb_core::key::{key_head, shared_prefix};
use glintdb_core::planted;
use std::cmp::Ordering;

const HEAD_BYTES: usize = 8;
/// Separators from one whose tail is stored whole to the next.
const GROUP: usize = 8;

/// Keys in order that divide a sorted sequence into parts: each part has the keys from its
/// separator on.
pub struct Separators {
    /// In a table mostly a part of the first key, whose memory it shares.
    prefix: Bytes,
    heads: Box<[u64]>,
    /// Where the tail of each separator begins in the arena; one more than separators.
    starts: Box<[u32]>,
    /// For each separator the number of its bytes in the head, a byte; then, if it has more, the
    /// number of these that it shares with the tail of the separator before (a varint), and the
    /// others.
    arena: Box<[u8]>,
}

/// A separator but for its head.
#[derive(Clone, Copy)]
struct Tail<'a> {
    /// Bytes of the separator that are in its head.
    in_head: usize,
    /// Bytes behind the head that are those of the separator before it.
    shared: usize,
    /// The bytes behind these.
    rest: &'a [u8],
}

impl Separators {
    /// Separators of these ascending keys. The first one counts as below every key, so it is cut
    /// down to what the others have in common.
    ///
    /// # Panics
    /// If the keys do not ascend, or take 4 GiB together.
    #[must_use]
    pub fn new<'a>(keys: impl Iterator<Item = &'a [u8]> + Clone) -> Separators {
        let mut others = keys.clone().skip(1);
        let prefix = match (others.next(), others.last()) {
            (Some(second), last) => {
                let shared = last.map_or(second.len(), |last| shared_prefix(second, last));
                // Something is left of the second one, so that the first one is below it.
                &second[..shared.min(second.len().saturating_sub(1))]
            }
            (None, _) => &[],
        };
        let mut builder = SeparatorsBuilder::default();
        for key in keys {
            let rest = match builder.is_empty() {
                true => &[],
                false => &key[prefix.len()..],
            };
            let shared = shared_prefix(&builder.last, rest);
            let pushed = builder.push(shared, &rest[shared..]);
            assert!(pushed.is_some(), "separators ascend");
        }
        let separators = builder.finish(Bytes::copy_from_slice(prefix));
        separators.expect("separators take less than 4 GiB")
    }

    /// Number of separators.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Bytes in memory, without the common prefix.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.heads) + size_of_val(&*self.starts) + self.arena.len()
    }

    /// Index of the last separator at or below `key`. 0 if there is none: the first part begins
    /// wherever its whole begins.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> usize {
        let Some(rest) = self.behind_prefix(key) else {
            let before = *key < self.prefix[..];
            return if before {
                0
            } else {
                self.len().saturating_sub(1)
            };
        };
        let wanted = key_head(rest, 0);
        planted!(
            "lsm: a key that equals a fence is looked for a block too early",
            self.at_or_below(wanted, rest),
            self.heads.partition_point(|&head| head < wanted)
        )
        .saturating_sub(1)
    }

    /// The bytes of `key` behind the common prefix. `None`: it does not begin with that.
    #[inline]
    fn behind_prefix<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let (head, rest) = key.split_at_checked(self.prefix.len())?;
        (*head == self.prefix[..]).then_some(rest)
    }

    /// The number of separators at or below the key whose head is `wanted`, and that is `rest`
    /// behind the common prefix.
    #[inline]
    fn at_or_below(&self, wanted: u64, rest: &[u8]) -> usize {
        let found = self.heads.partition_point(|&head| head <= wanted);
        if found > 0 && self.heads[found - 1] == wanted {
            let ties = self.heads[..found].partition_point(|&head| head < wanted);
            return self.partition_ties(ties, found, rest);
        }
        found
    }

    /// Whether a separator is at or below `key`.
    #[must_use]
    pub fn is_at_or_below(&self, index: usize, key: &[u8]) -> bool {
        let Some(rest) = self.behind_prefix(key) else {
            return *key > self.prefix[..];
        };
        let order = self.heads[index].cmp(&key_head(rest, 0));
        order.then_with(|| self.compare_tie(index, rest)) != Ordering::Greater
    }

    /// The number of separators at or below `rest`: all before `from`, none from `to` on, and some
    /// of those in between, which have the head of `rest`.
    fn partition_ties(&self, from: usize, to: usize, rest: &[u8]) -> usize {
        // Among the separators that begin a group, the first one that is greater.
        let (mut low, mut high) = (from.div_ceil(GROUP), to.div_ceil(GROUP));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.compare_tie(middle * GROUP, rest) == Ordering::Greater {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let group = low.saturating_sub(1) * GROUP;
        let mut order = DeltaOrder::new(tail_of(rest));
        for index in group..to.min(group + GROUP) {
            let above = self.pass(index, rest, &mut order) == Ordering::Greater;
            if index >= from && above {
                return index;
            }
        }
        to.min(group + GROUP)
    }

    /// How a separator compares to `rest`, whose head is equal.
    fn compare_tie(&self, index: usize, rest: &[u8]) -> Ordering {
        let mut order = DeltaOrder::new(tail_of(rest));
        let group = index - index % GROUP;
        let compared = (group..=index).map(|index| self.pass(index, rest, &mut order));
        compared.last().unwrap_or(Ordering::Equal)
    }

    /// How a separator compares to `rest`, if their heads are equal: bytes that both have in the
    /// head are equal, and those that one has not are zero. Fences are passed from the first one of
    /// a group on.
    #[inline]
    fn pass(&self, index: usize, rest: &[u8], order: &mut DeltaOrder<'_>) -> Ordering {
        let tail = self.tail(index);
        let tails = order.pass(tail.shared, tail.rest);
        tail.in_head.cmp(&rest.len().min(HEAD_BYTES)).then(tails)
    }

    fn tail(&self, index: usize) -> Tail<'_> {
        let range = self.starts[index] as usize..self.starts[index + 1] as usize;
        let mut reader = Reader::new(&self.arena[range]);
        let in_head = reader.u8().map_or(0, usize::from);
        let shared = reader.varint32().map_or(0, |shared| shared as usize);
        Tail {
            in_head,
            shared,
            rest: reader.rest(),
        }
    }

    /// A separator, whole. The first one may be shorter than the one that was given.
    #[must_use]
    pub fn key(&self, index: usize) -> Vec<u8> {
        let mut key = self.prefix.to_vec();
        let head = self.heads[index].to_be_bytes();
        key.extend_from_slice(&head[..self.tail(index).in_head]);
        let tail_at = key.len();
        for index in index - index % GROUP..=index {
            let tail = self.tail(index);
            key.truncate(tail_at + tail.shared);
            key.extend_from_slice(tail.rest);
        }
        key
    }
}

/// Collects separators, without their common prefix.
#[derive(Default)]
pub(super) struct SeparatorsBuilder {
    heads: Vec<u64>,
    starts: Vec<u32>,
    arena: Vec<u8>,
    /// The separator that was added last.
    pub(super) last: Vec<u8>,
}

impl SeparatorsBuilder {
    /// Room for this many separators.
    pub(super) fn with_capacity(separators: usize) -> Self {
        SeparatorsBuilder {
            heads: Vec::with_capacity(separators),
            starts: Vec::with_capacity(separators + 1),
            ..SeparatorsBuilder::default()
        }
    }

    /// Whether there is none yet.
    fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Adds the separator that has the first `shared` bytes of the one before it, and then
    /// `suffix`. `None`: it is not above the one before, or all take 4 GiB together.
    pub(super) fn push(&mut self, shared: usize, suffix: &[u8]) -> Option<()> {
        let index = self.heads.len();
        if index > 0 && suffix <= self.last.get(shared..)? || shared > self.last.len() {
            return None;
        }
        self.last.truncate(shared);
        self.last.extend_from_slice(suffix);
        self.starts.push(u32::try_from(self.arena.len()).ok()?);
        self.heads.push(key_head(&self.last, 0));
        (self.arena).push(u8::try_from(self.last.len().min(HEAD_BYTES)).ok()?);
        put_tail(&mut self.arena, index, shared, &self.last);
        Some(())
    }

    /// The separators, each with `prefix` before it. `None`: they take 4 GiB together.
    pub(super) fn finish(mut self, prefix: Bytes) -> Option<Separators> {
        self.starts.push(u32::try_from(self.arena.len()).ok()?);
        Some(Separators {
            prefix,
            heads: self.heads.into(),
            starts: self.starts.into(),
            arena: self.arena.into(),
        })
    }
}

/// The bytes behind the head.
fn tail_of(bytes: &[u8]) -> &[u8] {
    bytes.get(HEAD_BYTES..).unwrap_or(&[])
}

/// Appends the tail of a separator, which shares its first `shared` bytes with the separator before
/// it.
fn put_tail(arena: &mut Vec<u8>, index: usize, shared: usize, separator: &[u8]) {
    let tail = tail_of(separator);
    if tail.is_empty() {
        return;
    }
    let shared = match index.is_multiple_of(GROUP) {
        true => 0,
        false => shared.saturating_sub(HEAD_BYTES),
    };
    put_varint(arena, shared as u64);
    arena.extend_from_slice(tail.get(shared..).unwrap_or(&[]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Keys with long common beginnings, so that heads are equal.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        (0usize..4, proptest::collection::vec(0u8..3, 0..12))
            .prop_map(|(same, rest)| [&b"abcdefghijkl"[..4 * same], &rest[..]].concat())
    }

    proptest! {
        #[test]
        fn prop_a_search_finds_the_last_separator_at_or_below_a_key(
            keys in proptest::collection::btree_set(key(), 1..40),
            wanted in proptest::collection::vec(key(), 1..40),
        ) {
            let keys: Vec<Vec<u8>> = BTreeSet::into_iter(keys).collect();
            let separators = Separators::new(keys.iter().map(Vec::as_slice));
            prop_assert_eq!(separators.len(), keys.len());
            for (index, key) in keys.iter().enumerate().skip(1) {
                prop_assert_eq!(&separators.key(index), key);
            }
            prop_assert!(separators.key(0) <= keys.get(1).cloned().unwrap_or_default());
            for key in wanted.iter().chain(&keys) {
                let expected = keys.partition_point(|separator| separator <= key);
                prop_assert_eq!(separators.find(key), expected.saturating_sub(1));
                for (index, separator) in keys.iter().enumerate().skip(1) {
                    prop_assert_eq!(separators.is_at_or_below(index, key), separator <= key);
                }
            }
        }
    }
}
