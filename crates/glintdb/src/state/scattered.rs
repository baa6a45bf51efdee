//! The cost of scans over values that are not in key order: how many reads scans spent on it.
//!
//! Thread safety: any thread.

use glintdb_core::ValuePointer;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64};

/// Bytes of values that one read of a scan covers.
const PLACE_BYTES: u64 = 64 << 10;
/// Most bytes between two values that one read covers, such as the keys of a frame.
const GAP_BYTES: u32 = 16 << 10;

/// Values that a scan read from the log.
#[derive(Clone, Copy, Default)]
pub(crate) struct Misses {
    pub(crate) count: usize,
    pub(crate) bytes: u64,
    /// Number of reads that were needed because neighbours are far apart.
    pub(crate) apart: u64,
}

impl Misses {
    /// Counts the missing values of a scan in one direction. Each has its number in key order.
    pub(crate) fn of<'a>(
        missing: impl Iterator<Item = (usize, &'a ValuePointer)> + Clone,
    ) -> Misses {
        let lengths = missing.clone().map(|(_, one)| u64::from(one.length));
        Misses {
            count: lengths.clone().count(),
            bytes: lengths.sum(),
            apart: apart(missing),
        }
    }
}

/// Reads that scans of a keyspace have spent on values that are far apart.
#[derive(Default)]
pub(crate) struct Scattered {
    pub(crate) reads: AtomicU64,
    /// Set when values could not be put in order, until the database is opened again.
    pub(crate) given_up: AtomicBool,
}

/// Returns how many more reads the values need than they would in key order. Neighbours have
/// consecutive numbers, in either direction; each pair that no read covers counts.
pub(crate) fn apart<'a>(values: impl Iterator<Item = (usize, &'a ValuePointer)>) -> u64 {
    let (mut steps, mut bytes) = (0, 0);
    let mut last: Option<(usize, &ValuePointer)> = None;
    for (number, pointer) in values {
        let steps_away = last
            .is_some_and(|(before, last)| before.abs_diff(number) == 1 && !beside(last, pointer));
        steps += u64::from(steps_away);
        bytes += u64::from(pointer.length);
        last = Some((number, pointer));
    }
    // The first and the last value may continue in values beyond them.
    u64::saturating_sub(steps, 1 + bytes / PLACE_BYTES)
}

/// Returns whether one read covers both values.
pub(crate) fn beside(one: &ValuePointer, other: &ValuePointer) -> bool {
    let gap = one.gap_before(other).or_else(|| other.gap_before(one));
    gap.is_some_and(|gap| gap <= GAP_BYTES)
}
