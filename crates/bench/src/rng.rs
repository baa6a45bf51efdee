//! A small seeded generator and the integer mixer behind keys and values.
//!
//! A workload must be the same operations on every machine and in every version of a library, so
//! neither is taken from a crate. Not for cryptography.

/// Mixes all bits of `x`; a bijection on `u64` (finaliser of SplitMix64: Steele, Lea and Flood, OOPSLA 2014).
#[inline]
#[must_use]
pub fn mix64(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The high half of `x * range`: maps a uniform `x` to `0..range` without a division.
#[inline]
#[must_use]
pub fn scale(x: u64, range: u64) -> u64 {
    ((u128::from(x) * u128::from(range)) >> 64) as u64
}

/// SplitMix64 stream. One per thread.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A stream that differs from those of other seeds and streams.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        Self {
            state: mix64(seed ^ mix64(stream.wrapping_add(1))),
        }
    }

    /// Next 64 uniform bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let out = mix64(self.state);
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        out
    }

    /// Uniform in `0..range`; the bias is below `range / 2^64`.
    #[inline]
    pub fn below(&mut self, range: u64) -> u64 {
        scale(self.next_u64(), range)
    }

    /// Uniform in `[0, 1)` with 53 bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_repeatable_and_differ() {
        let take = |seed, stream| -> Vec<u64> {
            let mut rng = Rng::new(seed, stream);
            (0..8).map(|_| rng.next_u64()).collect()
        };
        assert_eq!(take(1, 0), take(1, 0));
        assert_ne!(take(1, 0), take(1, 1));
        assert_ne!(take(1, 0), take(2, 0));
    }

    #[test]
    fn below_is_uniform_enough() {
        let mut rng = Rng::new(7, 0);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
        }
        // 10,000 expected, standard deviation 95: five of them is generous and still a test.
        assert!(
            counts.iter().all(|&c| c.abs_diff(10_000) < 475),
            "{counts:?}"
        );
        let mean = (0..100_000).map(|_| rng.unit()).sum::<f64>() / 100_000.0;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
    }
}
