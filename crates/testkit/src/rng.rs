//! SplitMix64: numbers from a seed, the same on every machine and for ever.

/// A generator. Not for anything secret.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From a seed; near seeds give unrelated numbers.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// From several numbers.
    #[must_use]
    pub fn of(parts: &[u64]) -> Rng {
        let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
        for part in parts {
            rng.0 = rng.number() ^ part;
        }
        rng
    }

    /// The next number, all 64 bits of it.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// `length` bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut rng = Rng::new(1_234_567);
        // From the reference implementation of SplitMix64.
        assert_eq!(rng.number(), 6_457_827_717_110_365_317);
        assert_eq!(rng.number(), 3_203_168_211_198_807_973);
        assert!((0..1000).all(|_| rng.below(10) < 10));
        assert_eq!(rng.bytes(13).len(), 13);
    }
}
