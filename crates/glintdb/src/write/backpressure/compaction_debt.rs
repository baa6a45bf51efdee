//! Back-pressure by the debt of an index: writers of its keyspace slow down smoothly in proportion
//! to the debt, and stop only at its end. Writers of other keyspaces do not pay for it.
//!
//! The rate falls from [`RATE_MAX`] at the beginning of the debt to [`RATE_MIN`] at its end. It
//! counts the bytes that the index will have to take in, so separated values are free.
//!
//! Thread safety: any thread. A writer that is not slowed pays one relaxed load for each keyspace
//! that its commit names.

use super::rate_limiter::RateLimiter;
use glintdb_core::Padded;
use glintdb_core::index::Debt;
use glintdb_core::sync::atomic::{AtomicBool, Ordering};
use glintdb_core::sync::{Condvar, Mutex};
use std::time::Duration;

/// Bytes a second when the debt begins to count: about what one thread compacts.
const RATE_MAX: f64 = 160e6;
/// Bytes a second just before writers are stopped, unless an index takes in less than twice as
/// much.
const RATE_MIN: f64 = 4e6;
/// Writers go at [`RATE_MIN`] from this multiple of the debt at which slowing begins.
const DEBT_FACTOR: f64 = 4.0;

/// The rate of the writers of one keyspace, by the debt of its index.
#[derive(Default)]
pub(crate) struct IndexDebt {
    /// Slowed writers change it, so it shares no cache line with what every commit reads.
    pub(super) limiter: Padded<RateLimiter>,
    /// Whether the rate is only for puts, because deletions have not freed their space yet.
    only_puts: AtomicBool,
}

/// Changes the debts of all indexes, one change at a time.
#[derive(Default)]
pub(crate) struct CompactionDebts {
    /// Held while a debt is looked at; stopped writers sleep on it.
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

impl IndexDebt {
    /// Whether writers are slowed or stopped.
    #[inline]
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

    /// Whether a commit pays for the debt. `only_deletes`: it puts nothing.
    pub(crate) fn concerns(&self, only_deletes: bool) -> bool {
        !(only_deletes && self.only_puts.load(Ordering::Relaxed))
    }

    /// Sets the rate by what the index owes.
    fn set(&self, debt: Debt) {
        let stopped = debt.runs_stop > 0 && debt.runs >= debt.runs_stop;
        // How far each debt is between slowing writers and slowing them most; `None`: it is small.
        let by_runs = (debt.runs_slow > 0 && debt.runs >= debt.runs_slow).then(|| {
            let (slow, stop) = (f64::from(debt.runs_slow), f64::from(debt.runs_stop));
            part(f64::from(debt.runs), slow, stop)
        });
        let by_bytes = |bytes: u64, slow: u64| {
            let slow_at = slow as f64;
            (slow > 0 && bytes >= slow).then(|| part(bytes as f64, slow_at, DEBT_FACTOR * slow_at))
        };
        let by_compactions = by_bytes(debt.compaction_bytes, debt.compaction_bytes_slow);
        let by_deletions = by_bytes(debt.deleted_bytes, debt.deleted_bytes_slow);
        let only_puts = by_runs.or(by_compactions).is_none() && !stopped;
        self.only_puts.store(only_puts, Ordering::Relaxed);
        let debts = [by_runs, by_compactions, by_deletions];
        let worst = debts.into_iter().flatten().reduce(f64::max);
        let slowed = worst.is_some();
        let least = match debt.rate_bytes {
            0 => RATE_MIN,
            known => RATE_MIN.min(known as f64 / 2.0),
        };
        let rate = worst.map_or(0.0, |worst| RATE_MAX * (least / RATE_MAX).powf(worst));
        self.limiter.set(rate, stopped, slowed || stopped);
    }
}

impl CompactionDebts {
    /// Sets the rates of writers by what `looks` finds. The lock is held meanwhile, so of two
    /// threads that look at once, the later look decides. Otherwise writers could stay stopped by a
    /// debt that is paid.
    pub(crate) fn update<'a>(&self, looks: impl Iterator<Item = (&'a IndexDebt, Debt)>) {
        let lock = self.lock.lock();
        for (index, debt) in looks {
            index.set(debt);
        }
        drop(lock);
        self.changed.notify_all();
    }

    /// Wakes stopped writers, so that they look again.
    pub(crate) fn wake(&self) {
        drop(self.lock.lock());
        self.changed.notify_all();
    }

    /// Sleeps until a debt changes or `time` is over, if `stopped` returns true.
    pub(crate) fn wait_while(&self, stopped: impl Fn() -> bool, time: Duration) {
        let mut lock = self.lock.lock();
        // Debts change under the lock, so no wake-up is missed.
        if stopped() {
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
            ..Debt::default()
        }
    }

    #[derive(Default)]
    struct One {
        debts: CompactionDebts,
        index: IndexDebt,
    }

    impl One {
        fn update(&self, runs: impl Fn() -> u32) {
            self.debts
                .update([()].iter().map(|()| (&self.index, debt(runs()))));
        }
    }

    /// Waits of loom have no limit, so a missed wake-up is a deadlock.
    #[test]
    fn a_stopped_writer_is_woken() {
        explore("compaction debt: a stop ends", None, || {
            let one = Arc::new(One::default());
            one.update(|| 20);
            let compaction = {
                let one = Arc::clone(&one);
                thread::spawn(move || one.update(|| 0))
            };
            let stopped = || one.index.stopped();
            while stopped() {
                one.debts.wait_while(stopped, Duration::from_millis(5));
            }
            compaction.join().unwrap();
            assert!(!stopped());
        });
    }

    /// Of two looks at once, one of which began before the debt was paid, the later look decides.
    #[test]
    fn writers_are_not_stopped_by_a_debt_that_is_paid() {
        explore("compaction debt: paid under another look", None, || {
            let one = Arc::new(One::default());
            let runs = Arc::new(AtomicU32::new(20));
            let compaction = {
                let (one, runs) = (Arc::clone(&one), Arc::clone(&runs));
                thread::spawn(move || {
                    runs.store(0, Ordering::SeqCst);
                    one.update(|| runs.load(Ordering::SeqCst));
                })
            };
            one.update(|| runs.load(Ordering::SeqCst));
            compaction.join().unwrap();
            assert!(!one.index.stopped());
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
            ..Debt::default()
        }
    }

    #[test]
    fn the_rate_falls_smoothly_with_the_debt_and_ends_in_a_stop() {
        let index = IndexDebt::default();
        index.set(debt(7, 999));
        assert!(!index.engaged() && index.rate() == 0);
        let mut last = u64::MAX;
        for runs in 8..20 {
            index.set(debt(runs, 0));
            assert!(index.engaged() && !index.stopped());
            let rate = index.rate();
            assert!(
                rate < last && rate as f64 >= RATE_MIN * 0.99,
                "{runs}: {rate}"
            );
            last = rate;
        }
        index.set(debt(20, 0));
        assert!(index.stopped());
        index.set(debt(0, 1500));
        assert!(index.engaged() && !index.stopped());
    }

    #[test]
    fn writers_are_slowed_to_half_the_rate_of_a_slow_index() {
        let index = IndexDebt::default();
        index.set(debt(19, 4000));
        assert_eq!(index.rate(), 4_000_000);
        index.set(Debt {
            rate_bytes: 2_000_000,
            ..debt(19, 4000)
        });
        assert_eq!(index.rate(), 1_000_000);
    }

    #[test]
    fn only_the_writers_of_an_index_pay_its_debt() {
        let (debts, one, other) = <(CompactionDebts, IndexDebt, IndexDebt)>::default();
        debts.update([(&one, debt(20, 0)), (&other, debt(7, 0))].into_iter());
        assert!(one.stopped() && !other.engaged());
        debts.update([(&other, debt(8, 0))].into_iter());
        assert!(one.stopped() && other.engaged() && !other.stopped());
    }
}
