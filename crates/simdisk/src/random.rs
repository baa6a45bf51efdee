//! SplitMix64: small, seeded, the same everywhere; good enough to choose what survives a power cut.

/// A seeded sequence of numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0);
        // The remainder is as wide as `bound`, a usize; the bias (bound / 2^64) does not matter here.
        usize::try_from(self.next() % bound as u64).unwrap_or(0)
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}
