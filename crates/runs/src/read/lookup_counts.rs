//! Counts point lookups by the number of blocks that they read.
//!
//! Thread-safe: relaxed counters, striped by thread so that lookups on different cores do not share
//! a cache line.

use glintdb_cache::{STRIPES, stripe_of_thread};
use glintdb_core::Padded;
use glintdb_core::index::LOOKUP_READS_PLACES;
use std::sync::atomic::{AtomicU64, Ordering};

/// Point lookups by the number of blocks they read from the medium. The last place counts those
/// with that many or more.
#[derive(Default)]
pub(crate) struct LookupCounts([Padded<[AtomicU64; LOOKUP_READS_PLACES]>; STRIPES]);

impl LookupCounts {
    /// Counts a lookup that read this many blocks.
    #[inline]
    pub(crate) fn count(&self, reads: u32) {
        let place = (reads as usize).min(LOOKUP_READS_PLACES - 1);
        self.0[stripe_of_thread() % STRIPES][place].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of all threads together.
    pub(crate) fn sum(&self) -> [u64; LOOKUP_READS_PLACES] {
        let mut sum = [0; LOOKUP_READS_PLACES];
        for stripe in &self.0 {
            for (sum, counter) in sum.iter_mut().zip(&stripe.0) {
                *sum += counter.load(Ordering::Relaxed);
            }
        }
        sum
    }
}
