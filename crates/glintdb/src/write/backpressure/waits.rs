//! Every wait of a thread has a name, a counter and a start time.
//!
//! Thread safety: any thread. Counters are relaxed. A wait costs two reads of the clock, which only
//! threads that wait pay.

use glintdb_core::clock::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Why a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A commit waits for earlier commits, which may be syncing.
    CommitOrder,
    /// A commit waits for its sync.
    LogSync,
    /// A commit waits for room in the log's ring, or for the next segment.
    LogSpace,
    /// A commit waits for a sealed memtable to be flushed.
    MemtableFull,
    /// A commit is slowed down so that memtables do not fill faster than they are flushed.
    MemtableDebt,
    /// A commit is slowed down because the indexes owe compactions.
    CompactionDebt,
    /// A commit is stopped until a compaction has reduced the number of runs.
    RunsStop,
    /// A commit is slowed down, or waits, until value GC has given space back.
    Space,
    /// `flush`, `compact` or `close` waits for jobs.
    Jobs,
}

const ALL: [(Wait, &str); 9] = [
    (Wait::CommitOrder, "commit_order"),
    (Wait::LogSync, "log_sync"),
    (Wait::LogSpace, "log_space"),
    (Wait::MemtableFull, "memtable_full"),
    (Wait::MemtableDebt, "memtable_debt"),
    (Wait::CompactionDebt, "compaction_debt"),
    (Wait::RunsStop, "runs_stop"),
    (Wait::Space, "space"),
    (Wait::Jobs, "jobs"),
];

#[derive(Default)]
struct Counter {
    count: AtomicU64,
    total_us: AtomicU64,
    max_us: AtomicU64,
    waiting: AtomicU64,
    /// Start of the oldest wait that may still be going on, in microseconds of the clock; 0 if no
    /// thread waits.
    since_us: AtomicU64,
}

/// Counters of all waits.
pub(crate) struct Waits {
    clock: Arc<dyn Clock>,
    counters: [Counter; ALL.len()],
}

/// A wait that is going on. It is counted when it is dropped.
pub(crate) struct Timed<'a> {
    waits: &'a Waits,
    wait: Wait,
    start: Duration,
}

/// A thread that waits, looks and waits again. This is one wait for each cause, however often the
/// thread looks.
pub(crate) struct Waiting<'a> {
    waits: &'a Waits,
    timed: Option<Timed<'a>>,
}

impl Waiting<'_> {
    /// Begins a wait for `wait`, which lasts until another one begins or until the end.
    pub(crate) fn on(&mut self, wait: Wait) {
        if self.timed.as_ref().is_none_or(|timed| timed.wait != wait) {
            // The wait before ends first.
            self.timed = None;
            self.timed = Some(self.waits.start(wait));
        }
    }
}

/// Waits of threads for one cause, since the database was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WaitStats {
    /// Name of the cause.
    pub name: &'static str,
    /// Number of waits that ended.
    pub count: u64,
    /// Total time of the waits that ended, in microseconds.
    pub total_us: u64,
    /// Time of the longest wait that ended, in microseconds.
    pub max_us: u64,
    /// Number of threads that wait now.
    pub waiting: u64,
    /// Time that the longest current wait has lasted, at most, in microseconds.
    pub waiting_us: u64,
}

impl Waits {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Waits {
            clock,
            counters: Default::default(),
        }
    }

    /// Begins a wait.
    pub(crate) fn start(&self, wait: Wait) -> Timed<'_> {
        let start = self.clock.monotonic();
        let counter = &self.counters[wait as usize];
        if counter.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
            counter
                .since_us
                .store(micros(start).max(1), Ordering::Relaxed);
        }
        Timed {
            waits: self,
            wait,
            start,
        }
    }

    /// Returns a guard for a wait with several looks. It begins with no wait.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        Waiting {
            waits: self,
            timed: None,
        }
    }

    pub(crate) fn stats(&self) -> Vec<WaitStats> {
        let now = micros(self.clock.monotonic());
        ALL.iter()
            .map(|&(wait, name)| {
                let counter = &self.counters[wait as usize];
                let waiting = counter.waiting.load(Ordering::Relaxed);
                WaitStats {
                    name,
                    count: counter.count.load(Ordering::Relaxed),
                    total_us: counter.total_us.load(Ordering::Relaxed),
                    max_us: counter.max_us.load(Ordering::Relaxed),
                    waiting,
                    waiting_us: if waiting == 0 {
                        0
                    } else {
                        now.saturating_sub(counter.since_us.load(Ordering::Relaxed))
                    },
                }
            })
            .collect()
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let time_us = micros(self.waits.clock.monotonic().saturating_sub(self.start));
        let counter = &self.waits.counters[self.wait as usize];
        counter.count.fetch_add(1, Ordering::Relaxed);
        counter.total_us.fetch_add(time_us, Ordering::Relaxed);
        counter.max_us.fetch_max(time_us, Ordering::Relaxed);
        counter.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_counted_under_its_name() {
        let waits = Waits::new(crate::test_clock());
        drop(waits.start(Wait::MemtableFull));
        let running = waits.start(Wait::LogSync);
        for stats in waits.stats() {
            assert_eq!(
                stats.count,
                u64::from(stats.name == "memtable_full"),
                "{stats:?}"
            );
            assert_eq!(
                stats.waiting,
                u64::from(stats.name == "log_sync"),
                "{stats:?}"
            );
        }
        drop(running);
        // Looks at a full memtable every 2 ms count as one wait, so the longest wait is not
        // reported as 2 ms.
        let mut waiting = waits.waiting();
        for wait in [Wait::LogSpace, Wait::LogSpace, Wait::MemtableDebt] {
            waiting.on(wait);
        }
        drop(waiting);
        let counted = |wait: Wait| waits.stats()[wait as usize].count;
        assert_eq!(
            (counted(Wait::LogSpace), counted(Wait::MemtableDebt)),
            (1, 1)
        );
        for (position, (wait, _)) in ALL.iter().enumerate() {
            assert_eq!(
                *wait as usize, position,
                "the table is in the order of the enum"
            );
        }
    }
}
