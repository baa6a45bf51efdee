//! Back-pressure: writers slow down, and in the end stop, when background work falls behind.
//!
//! There are three debts: of the indexes ([`compaction_debt`]), of the flush under way
//! ([`flush_debt`]) and of value GC ([`space_debt`]). Each sets a rate that all writers share
//! ([`rate_limiter`]). A commit pays for its bytes at the slowest of the three, in one place:
//! [`pay_debts`](crate::write::pay_debts).

pub(crate) mod compaction_debt;
pub(crate) mod flush_debt;
mod rate_limiter;
pub(crate) mod space_debt;
pub(crate) mod waits;

use compaction_debt::CompactionDebt;
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
    pub(crate) compaction: CompactionDebt,
    pub(crate) flush: FlushDebt,
    pub(crate) space: SpaceDebt,
}

impl Backpressure {
    /// Creates debts of 0. `full_bytes` is the expected size of a full generation.
    pub(crate) fn new(clock: Arc<dyn Clock>, full_bytes: usize) -> Self {
        Backpressure {
            compaction: CompactionDebt::default(),
            flush: FlushDebt::new(clock, full_bytes),
            space: SpaceDebt::default(),
        }
    }

    /// Whether a commit must pay. Costs three relaxed loads.
    #[inline]
    pub(crate) fn engaged(&self) -> bool {
        self.compaction.limiter.engaged()
            || self.flush.limiter.engaged()
            || self.space.limiter.engaged()
    }

    /// Admits a commit at the rate of each debt; the debt of space counts only if the commit pays
    /// for `log_bytes`. Returns the longest sleep that one of the debts asks for.
    pub(crate) fn admit(
        &self,
        index_bytes: u64,
        log_bytes: Option<u64>,
        clock: &dyn Clock,
    ) -> Option<(Duration, Wait)> {
        let space = log_bytes.and_then(|bytes| self.space.limiter.admit(bytes, clock));
        let owed = [
            (
                self.compaction.limiter.admit(index_bytes, clock),
                Wait::CompactionDebt,
            ),
            (
                self.flush.limiter.admit(index_bytes, clock),
                Wait::MemtableDebt,
            ),
            (space, Wait::Space),
        ];
        (owed.into_iter())
            .filter_map(|(time, wait)| Some((time?, wait)))
            .max_by_key(|(time, _)| *time)
            .map(|(time, wait)| (time.min(SLEEP_MAX), wait))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_bounded_and_is_for_the_slowest_debt() {
        let clock = crate::test_clock();
        let debts = Backpressure::new(Arc::clone(&clock), 64 << 20);
        let admit = |index_bytes, log_bytes| debts.admit(index_bytes, log_bytes, &*clock);
        assert_eq!(admit(1 << 30, Some(1 << 30)), None);
        debts.compaction.limiter.set(1e6, false, true);
        debts.flush.limiter.set(4e6, false, true);
        debts.space.limiter.set(2e6, false, true);
        assert_eq!(
            admit(1 << 30, Some(1 << 30)),
            Some((SLEEP_MAX, Wait::CompactionDebt))
        );
        debts.compaction.limiter.set(0.0, false, false);
        assert_eq!(
            admit(1 << 30, Some(1 << 30)),
            Some((SLEEP_MAX, Wait::Space))
        );
        assert_eq!(
            admit(1 << 30, None),
            Some((SLEEP_MAX, Wait::MemtableDebt)),
            "a deletion does not pay for space"
        );
    }
}
