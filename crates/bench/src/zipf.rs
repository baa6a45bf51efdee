//! Zipfian ranks as YCSB draws them (Gray et al., "Quickly Generating Billion-Record Synthetic Databases",
//! SIGMOD 1994): rank 0 is the most popular.

use crate::rng::Rng;

/// YCSB's skew.
pub const THETA: f64 = 0.99;

/// `1 / (1 - THETA)`: a whole number, so that a power by it is a few multiplications.
const ALPHA: i32 = 100;

/// Terms of zeta added one by one; the rest is an integral (Euler-Maclaurin, error below 1e-9).
const EXACT_TERMS: u64 = 10_000;

/// Ranks `0..n` with probability proportional to `1 / (rank + 1)^THETA`. Immutable, shared by threads.
#[derive(Debug, Clone)]
pub struct Zipfian {
    n: u64,
    eta: f64,
    zeta_n: f64,
    second: f64,
}

impl Zipfian {
    /// # Panics
    /// If `n` is 0.
    #[must_use]
    pub fn new(n: u64) -> Self {
        assert!(n > 0, "zipfian over nothing");
        let zeta_n = zeta(n);
        let zeta_2 = zeta(2.min(n));
        Self {
            n,
            eta: (1.0 - (2.0 / n as f64).powf(1.0 - THETA)) / (1.0 - zeta_2 / zeta_n),
            zeta_n,
            second: 1.0 + 0.5f64.powf(THETA),
        }
    }

    /// A rank in `0..n`.
    #[inline]
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit();
        let uz = u * self.zeta_n;
        if uz < 1.0 {
            return 0;
        }
        if uz < self.second {
            return 1.min(self.n - 1);
        }
        let rank = self.n as f64 * (self.eta * u - self.eta + 1.0).powi(ALPHA);
        (rank as u64).min(self.n - 1)
    }
}

fn zeta(n: u64) -> f64 {
    let exact = n.min(EXACT_TERMS);
    let sum: f64 = (1..=exact).map(|i| (i as f64).powf(-THETA)).sum();
    if n == exact {
        return sum;
    }
    let (a, b) = (exact as f64, n as f64);
    let integral = (b.powf(1.0 - THETA) - a.powf(1.0 - THETA)) / (1.0 - THETA);
    let ends = (b.powf(-THETA) - a.powf(-THETA)) / 2.0;
    sum + integral + ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_by_integral_equals_the_sum() {
        let n = 300_000u64;
        let sum: f64 = (1..=n).map(|i| (i as f64).powf(-THETA)).sum();
        assert!((zeta(n) - sum).abs() < 1e-6, "{} {sum}", zeta(n));
    }

    #[test]
    fn popular_ranks_have_their_share() {
        let n = 100_000;
        let zipf = Zipfian::new(n);
        let mut rng = Rng::new(5, 0);
        let draws = 1_000_000;
        let (mut first, mut top, mut top_tenth) = (0u64, 0u64, 0u64);
        for _ in 0..draws {
            let rank = zipf.rank(&mut rng);
            assert!(rank < n);
            first += u64::from(rank == 0);
            top += u64::from(rank < 100);
            top_tenth += u64::from(rank < n / 10);
        }
        let share = |k: u64| zeta(k) / zeta(n);
        let near = |count: u64, expected: f64| {
            let got = count as f64 / draws as f64;
            assert!((got - expected).abs() < 0.02, "{got} for {expected}");
        };
        near(first, share(1));
        near(top, share(100));
        near(top_tenth, share(n / 10));
    }

    #[test]
    fn tiny_sets_stay_inside() {
        for n in 1..4 {
            let zipf = Zipfian::new(n);
            let mut rng = Rng::new(n, 0);
            assert!((0..1000).all(|_| zipf.rank(&mut rng) < n));
        }
    }
}
