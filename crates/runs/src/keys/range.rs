//! Half-open ranges of keys. The range of a table contains its entries *and* its range tombstones,
//! so two tables whose ranges do not overlap never affect each other's keys.
//!
//! Thread-safe: plain values.

use bytes::Bytes;
pub(crate) use glintdb_core::key::before_end;
use glintdb_core::key::{half_open, successor};
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// The keys from `start` (inclusive) to `end` (exclusive; `None`: no end).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// First key.
    pub start: Bytes,
    /// First key behind the range.
    pub end: Option<Bytes>,
}

/// The bounds of a cursor, shared with the cursors that it merges.
#[derive(Debug)]
pub(crate) struct Bounds {
    lower: Bound<Box<[u8]>>,
    upper: Bound<Box<[u8]>>,
}

impl Bounds {
    pub(crate) fn new(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Arc<Bounds> {
        Arc::new(Bounds {
            lower: lower.map(Box::from),
            upper: upper.map(Box::from),
        })
    }

    /// The keys within these bounds from `start` on.
    pub(crate) fn from(self: &Arc<Bounds>, start: &[u8]) -> Arc<Bounds> {
        let is_below = match self.lower() {
            Bound::Included(lower) | Bound::Excluded(lower) => lower < start,
            Bound::Unbounded => true,
        };
        match is_below {
            true => Bounds::new(Bound::Included(start), self.upper()),
            false => Arc::clone(self),
        }
    }

    #[inline]
    pub(crate) fn lower(&self) -> Bound<&[u8]> {
        self.lower.as_ref().map(AsRef::as_ref)
    }

    #[inline]
    pub(crate) fn upper(&self) -> Bound<&[u8]> {
        self.upper.as_ref().map(AsRef::as_ref)
    }
}

/// The key of a bound, if there is one.
pub(crate) fn key_of(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

impl KeyRange {
    /// All keys.
    #[must_use]
    pub fn all() -> KeyRange {
        KeyRange {
            start: Bytes::new(),
            end: None,
        }
    }

    /// The keys between two bounds.
    #[must_use]
    pub fn from_bounds(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> KeyRange {
        let (start, end) = half_open(lower, upper);
        KeyRange { start, end }
    }

    /// From `first` to `last`, both inclusive.
    pub(crate) fn inclusive(first: &[u8], last: &[u8]) -> KeyRange {
        KeyRange {
            start: Bytes::copy_from_slice(first),
            end: Some(successor(last)),
        }
    }

    /// Whether it contains no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Whether a key may be in both.
    #[must_use]
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        before_end(&self.start, &other.end) && before_end(&other.start, &self.end)
    }

    /// Whether it contains `key`.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_ref() <= key && before_end(key, &self.end)
    }

    /// The smallest range that contains both.
    #[must_use]
    pub fn hull(&self, other: &KeyRange) -> KeyRange {
        KeyRange {
            start: self.start.clone().min(other.start.clone()),
            end: later_end(&self.end, &other.end).clone(),
        }
    }

    /// The keys in both. `None`: there are none.
    pub(crate) fn intersection(&self, other: &KeyRange) -> Option<KeyRange> {
        let start = (&self.start).max(&other.start).clone();
        let end = if compare_ends(&self.end, &other.end) == Ordering::Less {
            self.end.clone()
        } else {
            other.end.clone()
        };
        let range = KeyRange { start, end };
        (!range.is_empty()).then_some(range)
    }
}

/// The order of exclusive ends. No end comes last.
#[must_use]
pub fn compare_ends(a: &Option<Bytes>, b: &Option<Bytes>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

fn later_end<'a>(a: &'a Option<Bytes>, b: &'a Option<Bytes>) -> &'a Option<Bytes> {
    if compare_ends(a, b) == Ordering::Less {
        b
    } else {
        a
    }
}

/// The smallest range that contains all. `None`: there are no ranges.
pub fn hull_of<'a>(ranges: impl IntoIterator<Item = &'a KeyRange>) -> Option<KeyRange> {
    let mut ranges = ranges.into_iter();
    let first = ranges.next()?.clone();
    Some(ranges.fold(first, |hull, range| hull.hull(range)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &'static str, end: Option<&'static str>) -> KeyRange {
        KeyRange {
            start: Bytes::from(start),
            end: end.map(Bytes::from),
        }
    }

    #[test]
    fn touching_ranges_do_not_overlap() {
        let ab = range("a", Some("b"));
        let bc = range("b", Some("c"));
        let rest = range("b", None);
        assert!(!ab.overlaps(&bc) && !bc.overlaps(&ab));
        assert!(bc.overlaps(&rest) && rest.overlaps(&bc) && !rest.overlaps(&ab));
        assert!(KeyRange::inclusive(b"a", b"b").overlaps(&bc));
        assert_eq!(ab.hull(&rest), range("a", None));
        assert_eq!(ab.intersection(&bc), None);
        assert_eq!(bc.intersection(&rest), Some(bc.clone()));
        assert!(bc.contains(b"b") && !bc.contains(b"c"));
    }
}
