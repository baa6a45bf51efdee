//! Back-pressure by the debt of the indexes: writers slow down smoothly in proportion to the debt,
//! and stop only at its end.
//!
//! The rate falls from [`RATE_MAX`] at the beginning of the debt to [`RATE_MIN`] at its end. It
//! counts the bytes that indexes will have to take in, so separated values are free.
//!
//! Thread safety: any thread. A writer that is not slowed pays one relaxed load.

use super::rate_limiter::RateLimiter;
use glintdb_core::index::Debt;
use glintdb_core::sync::{Condvar, Mutex};
use std::time::Duration;

/// Bytes a second when the debt begins to count: about what one thread compacts.
const RATE_MAX: f64 = 160e6;
/// Bytes a second just before writers are stopped, unless an index takes in less than twice as
/// much.
const RATE_MIN: f64 = 4e6;
/// Writers go at [`RATE_MIN`] from this multiple of the debt at which slowing begins.
const DEBT_FACTOR: f64 = 4.0;

/// The debt of the indexes.
#[derive(Default)]
pub(crate) struct CompactionDebt {
    pub(super) limiter: RateLimiter,
    /// Held while the debt is looked at; stopped writers sleep on it.
    lock: Mutex<()>,
    changed: Condvar,
}

/// Returns the position of `value` between `from` (0) and `to` (1).
fn part(value: f64, from: f64, to: f64) -> f64 {
    if to <= from {
        0.0
    } else {
        ((value - from) / (to - from)).clamp(0.0, 1.0)
    }
}

impl CompactionDebt {
    /// Sets the rate by the debts of all indexes, of which the worst counts. The lock is held
    /// meanwhile, so of two threads that look at once, the later look decides. Otherwise writers
    /// could stay stopped by a debt that is paid.
    pub(crate) fn update(&self, debts: impl FnOnce() -> Vec<Debt>) {
        let lock = self.lock.lock();
        let (mut worst, mut slowed, mut stopped) = (0.0f64, false, false);
        let mut least = RATE_MIN;
        for debt in debts() {
            if debt.rate_bytes > 0 {
                least = least.min(debt.rate_bytes as f64 / 2.0);
            }
            stopped |= debt.runs_stop > 0 && debt.runs >= debt.runs_stop;
            if debt.runs_slow > 0 && debt.runs >= debt.runs_slow {
                slowed = true;
                worst = worst.max(part(
                    f64::from(debt.runs),
                    f64::from(debt.runs_slow),
                    f64::from(debt.runs_stop),
                ));
            }
            if debt.compaction_bytes_slow > 0 && debt.compaction_bytes >= debt.compaction_bytes_slow
            {
                slowed = true;
                let (bytes, from) = (
                    debt.compaction_bytes as f64,
                    debt.compaction_bytes_slow as f64,
                );
                worst = worst.max(part(bytes, from, DEBT_FACTOR * from));
            }
        }
        let rate = match slowed {
            true => RATE_MAX * (least / RATE_MAX).powf(worst),
            false => 0.0,
        };
        self.limiter.set(rate, stopped, slowed || stopped);
        drop(lock);
        if !stopped {
            self.changed.notify_all();
        }
    }

    /// Whether writers are slowed or stopped.
    pub(crate) fn engaged(&self) -> bool {
        self.limiter.engaged()
    }

    /// Whether writers wait until compactions have caught up.
    pub(crate) fn stopped(&self) -> bool {
        self.limiter.stopped()
    }

    /// Bytes a second that writers may go; 0 if there is no limit.
    pub(crate) fn rate(&self) -> u64 {
        self.limiter.rate()
    }

    /// Wakes stopped writers, so that they look again.
    pub(crate) fn wake(&self) {
        drop(self.lock.lock());
        self.changed.notify_all();
    }

    /// Sleeps until something changes or `time` is over, if writers are stopped.
    pub(crate) fn wait_while_stopped(&self, time: Duration) {
        let mut lock = self.lock.lock();
        // The flag changes under the lock, so no wake-up is missed.
        if self.stopped() {
            self.changed.wait_for(&mut lock, time);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use glintdb_core::sync::atomic::{AtomicU32, Ordering};
    use glintdb_core::sync::{explore, thread};
    use std::sync::Arc;

    fn debt(runs: u32) -> Debt {
        Debt {
            runs,
            runs_slow: 8,
            runs_stop: 20,
            compaction_bytes: 0,
            compaction_bytes_slow: 0,
            rate_bytes: 0,
        }
    }

    /// Waits of loom have no limit, so a missed wake-up is a deadlock.
    #[test]
    fn a_stopped_writer_is_woken() {
        explore("compaction debt: a stop ends", None, || {
            let debts = Arc::new(CompactionDebt::default());
            debts.update(|| vec![debt(20)]);
            let compaction = {
                let debts = Arc::clone(&debts);
                thread::spawn(move || debts.update(|| vec![debt(0)]))
            };
            while debts.stopped() {
                debts.wait_while_stopped(Duration::from_millis(5));
            }
            compaction.join().unwrap();
            assert!(!debts.stopped());
        });
    }

    /// Of two looks at once, one of which began before the debt was paid, the later look decides.
    #[test]
    fn writers_are_not_stopped_by_a_debt_that_is_paid() {
        explore("compaction debt: paid under another look", None, || {
            let debts = Arc::new(CompactionDebt::default());
            let runs = Arc::new(AtomicU32::new(20));
            let compaction = {
                let (debts, runs) = (Arc::clone(&debts), Arc::clone(&runs));
                thread::spawn(move || {
                    runs.store(0, Ordering::SeqCst);
                    debts.update(|| vec![debt(runs.load(Ordering::SeqCst))]);
                })
            };
            debts.update(|| vec![debt(runs.load(Ordering::SeqCst))]);
            compaction.join().unwrap();
            assert!(!debts.stopped());
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn debt(runs: u32, compaction_bytes: u64) -> Debt {
        Debt {
            runs,
            runs_slow: 8,
            runs_stop: 20,
            compaction_bytes,
            compaction_bytes_slow: 1000,
            rate_bytes: 0,
        }
    }

    #[test]
    fn the_rate_falls_smoothly_with_the_debt_and_ends_in_a_stop() {
        let debts = CompactionDebt::default();
        debts.update(|| vec![debt(7, 999)]);
        assert!(!debts.engaged() && debts.rate() == 0);
        let mut last = u64::MAX;
        for runs in 8..20 {
            debts.update(|| vec![debt(0, 0), debt(runs, 0)]);
            assert!(debts.engaged() && !debts.stopped());
            assert!(
                debts.rate() < last && debts.rate() as f64 >= RATE_MIN * 0.99,
                "{runs}: {}",
                debts.rate()
            );
            last = debts.rate();
        }
        debts.update(|| vec![debt(20, 0)]);
        assert!(debts.stopped());
        debts.update(|| vec![debt(0, 1500)]);
        assert!(debts.engaged() && !debts.stopped());
    }

    #[test]
    fn writers_are_slowed_to_half_the_rate_of_a_slow_index() {
        let debts = CompactionDebt::default();
        let slow = Debt {
            rate_bytes: 2_000_000,
            ..debt(19, 4000)
        };
        debts.update(|| vec![debt(19, 4000)]);
        assert_eq!(debts.rate(), 4_000_000);
        debts.update(|| vec![debt(0, 0), slow]);
        assert_eq!(debts.rate(), 1_000_000);
    }
}
