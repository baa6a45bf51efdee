//! Where values lie in memory, so that many are waited for together.

use super::key::{Mixer, Slot};
use crate::prefetch::prefetch;
use crate::slabs::{COUNT_BEFORE_BYTES, Held, LINE_BYTES};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lines of a range of values that are fetched from memory at once.
const RANGE_LINES: usize = 4;

/// Addresses of values in the cache, by a hash of what they are cached for, only to have them fetched from memory ahead: an address may be that of another value, or of one that
/// left long ago, and is never looked at.
pub(super) struct PrefetchHints(Box<[AtomicUsize]>);

impl PrefetchHints {
    /// A place for so many bytes of capacity.
    const BYTES_A_PLACE: usize = 1024;
    const PLACES_MAX: usize = 1 << 20;

    pub(super) fn new(capacity_bytes: usize) -> PrefetchHints {
        let places = (capacity_bytes / Self::BYTES_A_PLACE).min(Self::PLACES_MAX);
        let places = places.next_power_of_two();
        PrefetchHints((0..places).map(|_| AtomicUsize::new(0)).collect())
    }

    /// What is left for entries of a capacity.
    pub(super) fn rest_of(&self, capacity_bytes: usize) -> u64 {
        capacity_bytes.saturating_sub(size_of_val(&*self.0)) as u64
    }

    #[inline]
    fn place(&self, slot: &Slot) -> &AtomicUsize {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the places are a power of two: the low bits are what is wanted"
        )]
        let hash = Mixer.hash_one(slot) as usize;
        &self.0[hash & (self.0.len() - 1)]
    }

    pub(super) fn note(&self, slot: &Slot, bytes: &Held) {
        if slot.0 >= Slot::RANGES {
            self.place(slot)
                .store(bytes.as_ptr() as usize, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn fetch_place(&self, slot: &Slot) {
        prefetch(std::ptr::from_ref(self.place(slot)) as usize);
    }

    #[inline]
    pub(super) fn fetch_entry(&self, slot: &Slot) {
        let address = self.place(slot).load(Ordering::Relaxed);
        // The count of references stands before the bytes; of a range, who is in it first among them.
        let start = address.wrapping_sub(COUNT_BEFORE_BYTES);
        prefetch(start);
        // A cell that is no line of its own may begin in one and have its first bytes in the next.
        prefetch(start.wrapping_add(LINE_BYTES - 1));
        if slot.0 == Slot::RANGES {
            (1..RANGE_LINES).for_each(|line| prefetch(start.wrapping_add(line * LINE_BYTES)));
        }
    }
}
