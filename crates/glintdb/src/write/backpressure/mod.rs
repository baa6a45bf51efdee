//! Back-pressure: writers slow down, and in the end stop, when background work falls behind.
//!
//! There are three debts: of the indexes ([`compaction_debt`]), of the flush under way
//! ([`flush_debt`]) and of value GC ([`space_debt`]). Each sets a rate that all writers share
//! ([`rate_limiter`]). A commit pays for its bytes at the slowest of the three, in one place:
//! `Engine::pay_debts`.

pub(crate) mod compaction_debt;
pub(crate) mod flush_debt;
mod rate_limiter;
pub(crate) mod space_debt;
pub(crate) mod waits;

use crate::engine::Engine;
use crate::options::Durability;
use crate::write::commit::Outstanding;
use crate::write::operations::Operations;
use crate::{ErrorKind, Result};
use compaction_debt::CompactionDebt;
use flush_debt::FlushDebt;
use glintdb_core::clock::Clock;
use space_debt::SpaceDebt;
use std::sync::Arc;
use std::time::Duration;
use waits::Wait;

/// Longest single sleep. Later commits sleep off the rest.
const SLEEP_MAX: Duration = Duration::from_millis(8);
/// A stopped writer looks again after this time.
const LOOK: Duration = Duration::from_millis(5);

/// What background work owes.
pub(crate) struct Backpressure {
    pub(crate) compaction: CompactionDebt,
    pub(crate) flush: FlushDebt,
    pub(crate) space: SpaceDebt,
}

impl Backpressure {
    /// `full_bytes`: expected bytes of a full generation.
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

    /// Admits a commit at the rate of each debt: of space only if it pays for `log_bytes`. Returns
    /// the longest sleep that one of them asks for.
    fn admit(
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

impl Engine {
    /// Before a commit: waits while a debt stops writers, and sleeps off what the commit owes.
    ///
    /// # Errors
    /// `Closed`; the error that keeps background jobs from going on.
    #[cold]
    pub(crate) fn pay_debts(
        &self,
        batch: &Operations,
        durability: Durability,
        outstanding: &mut Option<Outstanding>,
    ) -> Result<()> {
        let debts = &self.backpressure;
        if debts.compaction.stopped() {
            self.settle(outstanding, durability)?;
            self.wait_for_compactions()?;
        }
        if debts.space.concerns(batch) {
            self.update_space_debt_if_stale();
            if debts.space.stopped() {
                self.settle(outstanding, durability)?;
                self.wait_for_space()?;
            }
        }
        let log_bytes = (debts.space.concerns(batch)).then_some(batch.size_bytes() as u64);
        let owed = debts.admit(batch.index_bytes(), log_bytes, &*self.clock);
        let Some((time, wait)) = owed else {
            return Ok(());
        };
        self.settle(outstanding, durability)?;
        self.sleep_off(time, wait);
        if debts.flush.limiter.engaged() {
            self.update_flush_debt();
        }
        Ok(())
    }

    /// Waits until compactions have caught up.
    fn wait_for_compactions(&self) -> Result<()> {
        let debt = &self.backpressure.compaction;
        let _timed = self.waits.start(Wait::RunsStop);
        while debt.stopped() {
            // A job that gave up did not queue itself again.
            self.schedule();
            match self.check_background() {
                // No compaction runs before there is more space. A wait would refuse deletions,
                // which make space, and puts that there is space for.
                Err(error) if error.kind() == ErrorKind::NoSpace => break,
                checked => checked?,
            }
            if self.run_inline() {
                self.update_compaction_debt();
            } else {
                self.help_while(|| !debt.stopped());
                debt.wait_while_stopped(LOOK);
            }
        }
        Ok(())
    }

    /// Waits until a round of value GC has given space back.
    fn wait_for_space(&self) -> Result<()> {
        let debt = &self.backpressure.space;
        let _timed = self.waits.start(Wait::Space);
        while debt.stopped() {
            self.pipeline.check()?;
            self.schedule();
            self.collect_garbage_if_waiting();
            if !self.run_inline() {
                self.help_while(|| !debt.stopped());
                self.jobs.wait_finished(LOOK);
            }
            self.update_space_debt();
        }
        Ok(())
    }

    /// Sleeps for `time`. Without background threads it runs the queued jobs instead.
    fn sleep_off(&self, time: Duration, wait: Wait) {
        let _timed = self.waits.start(wait);
        if self.options.background_threads == 0 {
            self.run_inline();
            return;
        }
        let until = self.clock.monotonic() + time;
        let left = || until.saturating_sub(self.clock.monotonic());
        if wait != Wait::MemtableDebt {
            self.help_while(|| left().is_zero());
        }
        if !left().is_zero() {
            self.clock.sleep(left());
        }
    }

    /// Looks at the debts of all indexes, and sets the rate of writers.
    pub(crate) fn update_compaction_debt(&self) {
        self.backpressure.compaction.update(|| {
            let version = self.version.load();
            (version.live_keyspaces())
                .map(|keyspace| keyspace.state.index.debt())
                .collect()
        });
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
