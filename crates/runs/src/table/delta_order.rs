//! Compares a key with ascending keys that are stored as deltas, without assembling them.
//!
//! A delta says how many bytes a key shares with the key before it, and gives the rest. Most
//! deltas are decided by their first number alone, so a walk over long keys that differ at their
//! ends costs little more than a walk over short ones.
//!
//! Not thread-safe: belongs to one search.

use glintdb_core::key::shared_prefix;
use glintdb_core::planted;
use std::cmp::Ordering;

/// The order of one key relative to the deltas passed so far.
pub(super) struct DeltaOrder<'a> {
    wanted: &'a [u8],
    /// Bytes that `wanted` has in common with the key passed last.
    matched: usize,
    order: Ordering,
}

impl<'a> DeltaOrder<'a> {
    /// Begins before the first key, which must be passed with `shared` 0.
    pub(super) fn new(wanted: &'a [u8]) -> Self {
        DeltaOrder {
            wanted,
            matched: 0,
            order: Ordering::Less,
        }
    }

    /// Passes the next key, which is the first `shared` bytes of the key before it, then `rest`.
    /// Returns how it compares to the wanted key.
    #[inline]
    pub(super) fn pass(&mut self, shared: usize, rest: &[u8]) -> Ordering {
        // If both keys share more than was matched, both differ from the wanted key in one byte.
        let decides = planted!(
            "lsm: a delta that shares as much as was found is passed over",
            shared <= self.matched,
            shared < self.matched
        );
        if decides {
            let wanted = self.wanted.get(shared..).unwrap_or(&[]);
            let common = shared_prefix(rest, wanted);
            self.matched = shared + common;
            self.order = rest.get(common).cmp(&wanted.get(common));
        }
        self.order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_deltas_compare_as_the_keys_do(
            keys in proptest::collection::btree_set(proptest::collection::vec(0u8..3, 0..12), 1..20),
            wanted in proptest::collection::vec(0u8..3, 0..12),
            less in 0usize..3,
        ) {
            let mut deltas = DeltaOrder::new(&wanted);
            let mut before: &[u8] = &[];
            for key in &keys {
                // A delta may share less than it could, as in a file of another writer.
                let shared = shared_prefix(before, key).saturating_sub(less);
                let order = deltas.pass(shared, &key[shared..]);
                prop_assert_eq!(order, key.cmp(&wanted));
                before = key;
            }
        }
    }
}
