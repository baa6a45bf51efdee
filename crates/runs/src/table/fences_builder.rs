//! Collects the fences of a table that is being written, and encodes their section.
//!
//! Keeps each fence as a delta against the one before it, as the section does, so that long keys
//! that share most of their bytes take little memory.
//!
//! Not thread-safe: belongs to one writer.

use glintdb_core::checksum::FileSeed;
use glintdb_core::codec::{put_bytes, put_varint};
use glintdb_core::key::shared_prefix;
use glintdb_core::planted;

/// The shortest key that is above `last` and not above `first`, which is above `last`: a prefix of
/// `first` that is one byte longer than what both have in common.
pub(super) fn separator<'a>(last: &[u8], first: &'a [u8]) -> &'a [u8] {
    let common = shared_prefix(last, first);
    &first[..planted!(
        "lsm: a fence is as short as what two blocks have in common",
        common + 1,
        common
    )]
}

/// The fences of a table that is being written.
#[derive(Default)]
pub(super) struct FencesBuilder {
    /// The first fence: the table's first key.
    first: Vec<u8>,
    last: Vec<u8>,
    /// For each fence but the first, the bytes that it shares with the one before it, and the end
    /// of its other bytes in `rests`.
    deltas: Vec<(u32, usize)>,
    rests: Vec<u8>,
    /// Offset and length of each block.
    places: Vec<(u64, u32)>,
}

impl FencesBuilder {
    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Adds a block. `last_before` is the last key of the block before it.
    pub(super) fn add(&mut self, last_before: &[u8], first_key: &[u8], offset: u64, length: u32) {
        if self.places.is_empty() {
            self.first.extend_from_slice(first_key);
            self.last.extend_from_slice(first_key);
        } else {
            let fence = separator(last_before, first_key);
            let shared = shared_prefix(&self.last, fence);
            let rest = &fence[shared..];
            self.rests.extend_from_slice(rest);
            let shared_bytes = u32::try_from(shared).expect("a key is at most 64 KiB long");
            self.deltas.push((shared_bytes, self.rests.len()));
            self.last.truncate(shared);
            self.last.extend_from_slice(rest);
        }
        self.places.push((offset, length));
    }

    /// Approximate length of the section in bytes.
    pub(super) fn estimated_bytes(&self) -> usize {
        16 + self.first.len() + self.rests.len() + self.places.len() * 7
    }

    /// Bytes of memory in use.
    pub(super) fn memory_bytes(&self) -> usize {
        self.first.capacity()
            + self.last.capacity()
            + self.rests.capacity()
            + self.deltas.capacity() * size_of::<(u32, usize)>()
            + self.places.capacity() * size_of::<(u64, u32)>()
    }

    /// Returns the section for `offset` of the file. Blocks begin at `begin`, and `largest` is the
    /// table's last key.
    pub(super) fn encode(
        &self,
        seed: FileSeed,
        offset: u64,
        begin: u64,
        largest: &[u8],
    ) -> Vec<u8> {
        let mut out = vec![0; 4];
        let blocks = u32::try_from(self.len()).expect("a block takes at least a few bytes");
        out.extend_from_slice(&blocks.to_le_bytes());
        // All fences are between the first key and the last, and so begin with what these have in
        // common. The first fence is cut down to that.
        let prefix = shared_prefix(&self.first, largest);
        put_bytes(&mut out, &self.first[..prefix]);
        let mut position = begin;
        for (index, &(offset, length)) in self.places.iter().enumerate() {
            self.put_fence(&mut out, index, prefix);
            put_varint(&mut out, offset - position);
            put_varint(&mut out, u64::from(length));
            position = offset + u64::from(length);
        }
        let checksum = seed.checksum(offset, &out[4..]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Appends a fence without the first `prefix` bytes, as a delta.
    fn put_fence(&self, out: &mut Vec<u8>, index: usize, prefix: usize) {
        let Some(at) = index.checked_sub(1) else {
            put_varint(out, 0);
            return put_bytes(out, &[]);
        };
        let start = at.checked_sub(1).map_or(0, |before| self.deltas[before].1);
        let (shared, end) = self.deltas[at];
        let (shared, rest) = (shared as usize, &self.rests[start..end]);
        if index > 1 {
            put_varint(out, (shared - prefix) as u64);
            return put_bytes(out, rest);
        }
        // The first fence, which this one was compared with, is stored without these bytes.
        let between = &self.first[prefix..shared];
        put_varint(out, 0);
        put_varint(out, (between.len() + rest.len()) as u64);
        out.extend_from_slice(between);
        out.extend_from_slice(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_separators_separate_and_none_is_shorter(
            keys in proptest::collection::btree_set(proptest::collection::vec(0u8..3, 0..10), 2..3),
        ) {
            let keys: Vec<_> = keys.into_iter().collect();
            let (last, first) = (keys[0].as_slice(), keys[1].as_slice());
            let separator = separator(last, first);
            prop_assert!(last < separator && separator <= first);
            // Of all keys of one length that are not above `first`, its prefix is the greatest.
            for length in 0..separator.len() {
                prop_assert!(&first[..length] <= last);
            }
        }
    }

    #[test]
    fn long_fences_that_share_their_bytes_take_little_memory() {
        let mut fences = FencesBuilder::default();
        let key = |n: u32| [&vec![b'k'; 60_000][..], &n.to_be_bytes()].concat();
        for n in 0..1000 {
            fences.add(&key(2 * n), &key(2 * n + 1), u64::from(n) * 4096, 4096);
        }
        assert!(fences.memory_bytes() < 300_000, "{}", fences.memory_bytes());
    }
}
