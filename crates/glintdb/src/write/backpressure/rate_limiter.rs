//! A rate that writers keep together: what they owe for their bytes is slept off, in few sleeps.
//!
//! Thread safety: any thread. A writer that is not slowed pays one relaxed load.

use glintdb_core::clock::Clock;
use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A delay is slept when this much of it has gathered. A sleep delays the commit that takes it, so few long ones spare more commits than many short ones: with this, fewer than one commit in a thousand
/// of a writer that is let do 200,000 and more a second.
const SLEEP_MIN: Duration = Duration::from_millis(4);
/// Longest single sleep; what is owed beyond it is slept by the next commits.
const SLEEP_MAX: Duration = Duration::from_millis(8);
/// What was slept too long is not owed again, up to this.
const CREDIT_MAX: Duration = Duration::from_millis(20);

/// See the module's page.
#[derive(Default)]
pub(crate) struct Pace {
    /// Bytes a second; 0: as fast as they can.
    rate: AtomicU64,
    account: Mutex<Account>,
}

#[derive(Default)]
struct Account {
    /// Time at which everything admitted so far has been paid for, at `rate`.
    paid_until: Duration,
    rate: u64,
}

impl Account {
    /// What is owed at `now` is bytes: at another rate it takes another time.
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

impl Pace {
    /// Bytes a second that writers may go; 0: as fast as they can.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Sets the rate, in bytes a second; 0: as fast as they can.
    pub(crate) fn set_rate(&self, rate: f64) {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "bytes a second of a medium"
        )]
        self.rate.store(rate as u64, Ordering::Relaxed);
    }

    /// Admits `bytes`, and tells how long their writer must sleep for them.
    pub(crate) fn admit(&self, bytes: u64, clock: &dyn Clock) -> Option<Duration> {
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
        (owed >= SLEEP_MIN).then(|| owed.min(SLEEP_MAX))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn small_writes_are_not_slept_for_one_by_one_and_a_sleep_is_bounded() {
        let (pace, clock) = (Pace::default(), crate::test_clock());
        assert_eq!(pace.admit(1 << 30, &*clock), None);
        pace.set_rate(100e6);
        assert_eq!(pace.admit(100, &*clock), None);
        assert_eq!(pace.admit(1 << 30, &*clock), Some(SLEEP_MAX));
    }

    #[test]
    fn what_is_owed_is_bytes_and_takes_less_time_at_a_higher_rate() {
        let (pace, clock) = (Pace::default(), crate::test_clock());
        pace.set_rate(1e6);
        assert_eq!(pace.admit(1_000_000, &*clock), Some(SLEEP_MAX));
        pace.set_rate(1e9);
        assert_eq!(pace.admit(1, &*clock), None);
        pace.set_rate(100e6);
        assert!(pace.admit(1, &*clock).is_some());
    }
}
