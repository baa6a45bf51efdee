//! Writers are slowed down by what the indexes owe: smoothly, in proportion to the debt, and stopped only at its end.
//!
//! Thread safety: any thread. A writer that is not slowed pays one relaxed load.
//!
//! The allowed rate falls from [`RATE_MAX`] at the beginning of the debt to [`RATE_MIN`] at its end, in bytes of what the indexes will have to take in (separated
//! values are not among them). Rates are shared by all writers.

use crate::write::backpressure::rate_limiter::Pace;
use glintdb_core::clock::Clock;
use glintdb_core::index::Debt;
use glintdb_core::sync::atomic::{AtomicBool, Ordering};
use glintdb_core::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Bytes a second at which writers go when the debt begins to count: about what one thread compacts.
const RATE_MAX: f64 = 160e6;
/// Bytes a second just before writers are stopped.
const RATE_MIN: f64 = 4e6;
pub(crate) struct Throttle {
    clock: Arc<dyn Clock>,
    engaged: AtomicBool,
    stopped: AtomicBool,
    pace: Pace,
    bed: Mutex<()>,
    moved: Condvar,
}

/// How far `value` is from `from` to `to`, 0 to 1.
fn part(value: f64, from: f64, to: f64) -> f64 {
    if to <= from {
        0.0
    } else {
        ((value - from) / (to - from)).clamp(0.0, 1.0)
    }
}

impl Throttle {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Throttle {
            clock,
            engaged: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            pace: Pace::default(),
            bed: Mutex::new(()),
            moved: Condvar::new(),
        }
    }

    /// Takes over the indexes' debts: the worst one counts. They are asked for under a lock: of two threads that do this at once, the one that asked later has the last word,
    /// or writers would stay stopped by a debt that is paid.
    pub(crate) fn update(&self, debts: impl FnOnce() -> Vec<Debt>) {
        let bed = self.bed.lock();
        let (mut worst, mut slowed, mut stopped) = (0.0f64, false, false);
        for debt in debts() {
            stopped |= debt.level0_runs_stop > 0 && debt.level0_runs >= debt.level0_runs_stop;
            if debt.level0_runs_slow > 0 && debt.level0_runs >= debt.level0_runs_slow {
                slowed = true;
                worst = worst.max(part(
                    f64::from(debt.level0_runs),
                    f64::from(debt.level0_runs_slow),
                    f64::from(debt.level0_runs_stop),
                ));
            }
            if debt.compaction_bytes_slow > 0 && debt.compaction_bytes >= debt.compaction_bytes_slow
            {
                slowed = true;
                // At four times the debt where slowing begins, writers go at the lowest rate.
                let (bytes, from) = (
                    debt.compaction_bytes as f64,
                    debt.compaction_bytes_slow as f64,
                );
                worst = worst.max(part(bytes, from, 4.0 * from));
            }
        }
        let rate = if slowed {
            RATE_MAX * (RATE_MIN / RATE_MAX).powf(worst)
        } else {
            0.0
        };
        self.pace.set_rate(rate);
        self.stopped.store(stopped, Ordering::Relaxed);
        self.engaged.store(slowed || stopped, Ordering::Relaxed);
        drop(bed);
        if !stopped {
            self.moved.notify_all();
        }
    }

    /// Whether writers are slowed or stopped at all.
    pub(crate) fn engaged(&self) -> bool {
        self.engaged.load(Ordering::Relaxed)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Bytes a second that writers may go; 0: as fast as they can.
    pub(crate) fn rate(&self) -> u64 {
        self.pace.rate()
    }

    /// Admits `bytes`, and tells how long their writer must sleep for them.
    pub(crate) fn admit(&self, bytes: u64) -> Option<Duration> {
        self.pace.admit(bytes, &*self.clock)
    }

    pub(crate) fn wake(&self) {
        drop(self.bed.lock());
        self.moved.notify_all();
    }

    /// Sleeps until something changes, or `time` is over; not at all where writers are no longer stopped.
    pub(crate) fn wait_while_stopped(&self, time: Duration) {
        let mut bed = self.bed.lock();
        // Under the lock under which the flag changes: a wake-up is not missed.
        if self.stopped() {
            self.moved.wait_for(&mut bed, time);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use glintdb_core::sync::atomic::AtomicU32;
    use glintdb_core::sync::{explore, thread};

    fn debt(level0_runs: u32) -> Debt {
        Debt {
            level0_runs,
            level0_runs_slow: 8,
            level0_runs_stop: 20,
            compaction_bytes: 0,
            compaction_bytes_slow: 0,
        }
    }

    /// loom's waits have no limit, so a wake-up that is missed is a deadlock.
    #[test]
    fn a_stopped_writer_is_woken() {
        explore("throttle: a stop ends", None, || {
            let throttle = Arc::new(Throttle::new(crate::test_clock()));
            throttle.update(|| vec![debt(20)]);
            let compaction = {
                let throttle = Arc::clone(&throttle);
                thread::spawn(move || throttle.update(|| vec![debt(0)]))
            };
            while throttle.stopped() {
                throttle.wait_while_stopped(Duration::from_millis(5));
            }
            compaction.join().unwrap();
            assert!(!throttle.stopped());
        });
    }

    /// Two looks at once, one of them from before the debt was paid: the later one has the last word.
    #[test]
    fn writers_are_not_stopped_by_a_debt_that_is_paid() {
        explore("throttle: a debt is paid under another look", None, || {
            let throttle = Arc::new(Throttle::new(crate::test_clock()));
            let runs = Arc::new(AtomicU32::new(20));
            let compaction = {
                let (throttle, runs) = (Arc::clone(&throttle), Arc::clone(&runs));
                thread::spawn(move || {
                    runs.store(0, Ordering::SeqCst);
                    throttle.update(|| vec![debt(runs.load(Ordering::SeqCst))]);
                })
            };
            throttle.update(|| vec![debt(runs.load(Ordering::SeqCst))]);
            compaction.join().unwrap();
            assert!(!throttle.stopped());
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn debt(level0_runs: u32, compaction_bytes: u64) -> Debt {
        Debt {
            level0_runs,
            level0_runs_slow: 8,
            level0_runs_stop: 20,
            compaction_bytes,
            compaction_bytes_slow: 1000,
        }
    }

    #[test]
    fn the_rate_falls_smoothly_with_the_debt_and_ends_in_a_stop() {
        let throttle = Throttle::new(crate::test_clock());
        throttle.update(|| vec![debt(7, 999)]);
        assert!(!throttle.engaged() && throttle.admit(1 << 20).is_none());
        let mut last = u64::MAX;
        for runs in 8..20 {
            throttle.update(|| vec![debt(0, 0), debt(runs, 0)]);
            assert!(throttle.engaged() && !throttle.stopped());
            assert!(
                throttle.rate() < last && throttle.rate() as f64 >= RATE_MIN * 0.99,
                "{runs}: {}",
                throttle.rate()
            );
            last = throttle.rate();
        }
        throttle.update(|| vec![debt(20, 0)]);
        assert!(throttle.stopped());
        throttle.update(|| vec![debt(0, 1500)]);
        assert!(throttle.engaged() && !throttle.stopped());
    }
}
