//! A rate limit that writers share. A writer sleeps off what it owes for its bytes, in few
//! sleeps.
//!
//! Thread safety: any thread. A writer that is not limited pays one relaxed load.

use glintdb_core::clock::Clock;
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A writer sleeps when it owes this much. A sleep delays one commit, so a few long sleeps delay
/// fewer commits than many short ones: at 200,000 commits a second fewer than one in a thousand
/// sleeps.
const SLEEP_MIN: Duration = Duration::from_millis(4);
/// Most time that is credited to writers for sleeping too long.
const CREDIT_MAX: Duration = Duration::from_millis(20);

/// A rate limit for writers, which can also stop them.
#[derive(Default)]
pub(super) struct RateLimiter {
    /// Whether writers must ask the limit: they are limited or stopped, or may soon be.
    engaged: AtomicBool,
    stopped: AtomicBool,
    /// Bytes a second; 0 if there is no limit.
    rate: AtomicU64,
    account: Mutex<Account>,
}

#[derive(Default)]
struct Account {
    /// Time at which all bytes admitted so far are paid for, at `rate`.
    paid_until: Duration,
    rate: u64,
}

impl Account {
    /// Changes the rate. The bytes owed at `now` stay the same, so they take another time.
    fn take_rate(&mut self, rate: u64, now: Duration) {
        if self.rate != rate {
            let owed = self.paid_until.saturating_sub(now);
            if !owed.is_zero() && self.rate > 0 {
                self.paid_until = now + owed.mul_f64(self.rate as f64 / rate as f64);
            }
            self.rate = rate;
        }
    }
}

impl RateLimiter {
    /// Whether writers must ask this limit before they commit.
    #[inline]
    pub(super) fn engaged(&self) -> bool {
        self.engaged.load(Ordering::Relaxed)
    }

    /// Whether writers must wait until the limit changes.
    pub(super) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// The rate in bytes a second; 0 if there is no limit.
    pub(super) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Sets the rate in bytes a second (0 for no limit), whether writers are stopped, and whether
    /// they must ask.
    pub(super) fn set(&self, rate: f64, stopped: bool, engaged: bool) {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "bytes a second of a medium"
        )]
        self.rate.store(rate as u64, Ordering::Relaxed);
        self.stopped.store(stopped, Ordering::Relaxed);
        self.engaged.store(engaged, Ordering::Relaxed);
    }

    /// Admits `bytes`. Returns how long their writer should sleep for all that is owed.
    pub(super) fn admit(&self, bytes: u64, clock: &dyn Clock) -> Option<Duration> {
        let rate = self.rate();
        if rate == 0 {
            return None;
        }
        let now = clock.monotonic();
        let mut account = self.account.lock();
        account.take_rate(rate, now);
        account.paid_until = account.paid_until.max(now.saturating_sub(CREDIT_MAX))
            + Duration::from_secs_f64(bytes as f64 / rate as f64);
        let owed = account.paid_until.saturating_sub(now);
        (owed >= SLEEP_MIN).then_some(owed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn small_writes_share_few_sleeps() {
        let (limiter, clock) = (RateLimiter::default(), crate::test_clock());
        assert_eq!(limiter.admit(1 << 30, &*clock), None);
        limiter.set(100e6, false, true);
        assert_eq!(limiter.admit(100, &*clock), None);
        let owed = limiter.admit(1_000_000_000 - 100, &*clock).unwrap();
        assert!(
            owed.abs_diff(Duration::from_secs(10)) < Duration::from_millis(50),
            "{owed:?}"
        );
    }

    #[test]
    fn bytes_that_are_owed_take_less_time_at_a_higher_rate() {
        let (limiter, clock) = (RateLimiter::default(), crate::test_clock());
        limiter.set(1e6, false, true);
        assert!(limiter.admit(1_000_000, &*clock).is_some());
        limiter.set(1e9, false, true);
        assert_eq!(limiter.admit(1, &*clock), None);
        limiter.set(100e6, false, true);
        assert!(limiter.admit(1, &*clock).is_some());
    }
}
