//! Bounds of ranges of keys.

use bytes::Bytes;
use glintdb_core::key;
use std::ops::{Bound, RangeBounds};

/// Returns owned bounds of a range.
pub(crate) fn owned_bounds<K: AsRef<[u8]>>(
    range: &impl RangeBounds<K>,
) -> (Bound<Bytes>, Bound<Bytes>) {
    let own = |bound: Bound<&K>| bound.map(|key| Bytes::copy_from_slice(key.as_ref()));
    (own(range.start_bound()), own(range.end_bound()))
}

/// Returns the bounds of all keys with a prefix.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> (Bound<Bytes>, Bound<Bytes>) {
    let upper = key::prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(Bytes::copy_from_slice(prefix)), upper)
}

/// Returns the bounds as slices of the keys that they hold.
pub(crate) fn bound_slices<'a>(
    lower: &'a Bound<Bytes>,
    upper: &'a Bound<Bytes>,
) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (
        lower.as_ref().map(AsRef::as_ref),
        upper.as_ref().map(AsRef::as_ref),
    )
}

/// Returns whether no key can be within the bounds.
pub(crate) fn is_empty((lower, upper): (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match (lower, upper) {
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}
