//! Sums the bytes of values that become live or dead in each log segment.
//!
//! Not thread-safe: belongs to one flush or merge. Neighbouring entries mostly point to the same
//! segment, so the sum of the last segment is kept apart.

use glintdb_core::index::LivenessDelta;
use glintdb_core::{EntryRef, SegmentId, ValuePointer, planted};
use std::collections::HashMap;

/// The change of live bytes in each segment.
#[derive(Default)]
pub struct Liveness {
    last: Option<(SegmentId, i64)>,
    others: HashMap<SegmentId, i64>,
}

impl Liveness {
    /// Counts a pointer that is new in the index.
    #[inline]
    pub(crate) fn live(&mut self, pointer: ValuePointer) {
        self.add(pointer.segment, i64::from(pointer.length));
    }

    /// Counts a pointer that was dropped.
    #[inline]
    pub(crate) fn dead(&mut self, pointer: ValuePointer) {
        self.add(pointer.segment, -i64::from(pointer.length));
    }

    /// Counts a value that a merge has dropped.
    #[inline]
    pub fn lose(&mut self, value: EntryRef<'_>) {
        if let EntryRef::Pointer(pointer) = value {
            self.dead(pointer);
            planted!(
                "lsm: a value that dies is counted twice",
                (),
                self.dead(pointer)
            );
        }
    }

    /// Adds the sums of another one.
    pub fn merge(&mut self, other: Liveness) {
        for delta in other.deltas() {
            self.add(delta.segment, delta.bytes);
        }
    }

    /// One delta for each segment whose sum is not 0, in order of segments.
    #[must_use]
    pub fn deltas(mut self) -> Vec<LivenessDelta> {
        if let Some((segment, bytes)) = self.last.take() {
            *self.others.entry(segment).or_default() += bytes;
        }
        let others = self.others.into_iter().filter(|(_, bytes)| *bytes != 0);
        let mut deltas: Vec<LivenessDelta> = others
            .map(|(segment, bytes)| LivenessDelta { segment, bytes })
            .collect();
        deltas.sort_by_key(|delta| delta.segment);
        deltas
    }

    #[inline]
    fn add(&mut self, segment: SegmentId, bytes: i64) {
        match &mut self.last {
            Some((last, sum)) if *last == segment => *sum += bytes,
            _ => {
                if let Some((last, sum)) = self.last.replace((segment, bytes)) {
                    *self.others.entry(last).or_default() += sum;
                }
            }
        }
    }
}
