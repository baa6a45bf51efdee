//! Back-pressure: writers slow down, and in the end stop, when background work falls behind.
//!
//! There are three debts: of each index ([`compaction_debt`]), of the flush under way
//! ([`flush_debt`]) and of value GC ([`space_debt`]). Each sets a rate that writers share
//! ([`rate_limiter`]): the writers of one keyspace that of its index, all writers the other two. A
//! commit pays for its bytes at the slowest of them, in one place:
//! [`pay_debts`](crate::write::pay_debts).

pub(crate) mod compaction_debt;
pub(crate) mod flush_debt;
mod rate_limiter;
pub(crate) mod space_debt;
pub(crate) mod waits;

use compaction_debt::{CompactionDebts, IndexDebt};
use flush_debt::FlushDebt;
use glintdb_core::clock::Clock;
use space_debt::SpaceDebt;
use std::sync::Arc;
use std::time::Duration;
use waits::Wait;

/// Longest single sleep. Later commits sleep off the rest.
const SLEEP_MAX: Duration = Duration::from_millis(8);

/// The debts of background work.
pub(crate) struct Backpressure {
    pub(crate) compaction: CompactionDebts,
    pub(crate) flush: FlushDebt,
    pub(crate) space: SpaceDebt,
}

/// The bytes that a commit pays for.
pub(crate) struct Charge<'a, I: Iterator<Item = (&'a IndexDebt, u64)>> {
    /// The debt of each index, and the bytes that it will hold.
    pub(crate) indexes: I,
    /// Bytes that all indexes will hold.
    pub(crate) index_bytes: u64,
    /// Bytes of log, if the commit pays for space.
    pub(crate) log_bytes: Option<u64>,
    /// Whether the commit sleeps for debts that all keyspaces share.
    pub(crate) pays_shared: bool,
}

impl Backpressure {
    /// Creates debts of 0. `full_bytes` is the expected size of a full generation.
    pub(crate) fn new(clock: Arc<dyn Clock>, full_bytes: usize) -> Self {
        Backpressure {
            compaction: CompactionDebts::default(),
            flush: FlushDebt::new(clock, full_bytes),
            space: SpaceDebt::default(),
        }
    }

    /// Whether a commit must pay a debt that all keyspaces share. Costs two relaxed loads.
    #[inline]
    pub(crate) fn engaged(&self) -> bool {
        self.flush.limiter.engaged() || self.space.limiter.engaged()
    }

    /// Admits a commit at the rate of each debt. Returns the longest sleep that one of the debts
    /// asks for.
    pub(crate) fn admit<'a>(
        &self,
        commit: Charge<'a, impl Iterator<Item = (&'a IndexDebt, u64)>>,
        clock: &dyn Clock,
    ) -> Option<(Duration, Wait)> {
        let indexes = (commit.indexes)
            .filter_map(|(index, bytes)| index.limiter.admit(bytes, clock))
            .max();
        let space = (commit.log_bytes).and_then(|bytes| self.space.limiter.admit(bytes, clock));
        let flush = self.flush.limiter.admit(commit.index_bytes, clock);
        // The bytes count for the writers that pay.
        let shared = |owed| if commit.pays_shared { owed } else { None };
        let owed = [
            (indexes, Wait::CompactionDebt),
            (shared(flush), Wait::MemtableDebt),
            (shared(space), Wait::Space),
        ];
        (owed.into_iter())
            .filter_map(|(time, wait)| Some((time?, wait)))
            .max_by_key(|(time, _)| *time)
            .map(|(time, wait)| (time.min(SLEEP_MAX), wait))
    }
}

#[cfg(all(test, not(loom)))]
mod keyspace_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_bounded_and_is_for_the_slowest_debt() {
        let clock = crate::test_clock();
        let debts = Backpressure::new(Arc::clone(&clock), 64 << 20);
        let indexes = [IndexDebt::default(), IndexDebt::default()];
        let admit_as = |log_bytes, pays_shared| {
            let commit = Charge {
                indexes: indexes.iter().map(|index| (index, 1 << 30)),
                index_bytes: 1 << 30,
                log_bytes,
                pays_shared,
            };
            debts.admit(commit, &*clock)
        };
        let admit = |log_bytes| admit_as(log_bytes, true);
        assert_eq!(admit(Some(1 << 30)), None);
        indexes[1].limiter.set(1e6, false, true);
        debts.flush.limiter.set(4e6, false, true);
        debts.space.limiter.set(2e6, false, true);
        let by = |wait| Some((SLEEP_MAX, wait));
        assert_eq!(admit(Some(1 << 30)), by(Wait::CompactionDebt));
        indexes[1].limiter.set(0.0, false, false);
        assert_eq!(admit(Some(1 << 30)), by(Wait::Space));
        assert_eq!(admit(None), by(Wait::MemtableDebt), "a deletion");
        assert_eq!(admit_as(Some(1 << 30), false), None);
        debts.flush.limiter.set(1e9, false, true);
        debts.space.limiter.set(0.0, false, false);
        assert_eq!(
            admit(None),
            by(Wait::MemtableDebt),
            "others pay for what is admitted without a sleep"
        );
    }
}
