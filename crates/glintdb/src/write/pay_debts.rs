//! A commit pays for the debts of background work: it sleeps, or waits while a debt stops writers.
//!
//! Thread safety: any thread that holds no lock.

use crate::options::Durability;
use crate::write::Writer;
use crate::write::backpressure::waits::Wait;
use crate::write::commit::Outstanding;
use crate::write::operations::Operations;
use crate::{ErrorKind, Result};
use std::time::Duration;

/// A stopped writer looks again after this time.
const LOOK: Duration = Duration::from_millis(5);

impl Writer {
    /// Before a commit, waits while a debt stops writers, and sleeps for what the commit owes.
    ///
    /// # Errors
    /// - `Closed`: the database is closed.
    /// - The error that keeps background jobs from running.
    #[cold]
    pub(crate) fn pay_debts(
        &self,
        batch: &Operations,
        durability: Durability,
        outstanding: &mut Option<Outstanding>,
    ) -> Result<()> {
        let debts = &self.shared.backpressure;
        if debts.compaction.stopped() {
            self.settle(outstanding, durability)?;
            self.wait_for_compactions()?;
        }
        if debts.space.concerns(batch.only_deletes()) {
            self.space.update_space_debt_if_stale();
            if debts.space.stopped() {
                self.settle(outstanding, durability)?;
                self.wait_for_space()?;
            }
        }
        let log_bytes =
            (debts.space.concerns(batch.only_deletes())).then_some(batch.size_bytes() as u64);
        let owed = debts.admit(batch.index_bytes(), log_bytes, &*self.shared.clock);
        let Some((time, wait)) = owed else {
            return Ok(());
        };
        self.settle(outstanding, durability)?;
        self.sleep_off(time, wait);
        if debts.flush.engaged() {
            self.sequencer.update_flush_debt();
        }
        Ok(())
    }

    /// Waits until compactions have caught up.
    fn wait_for_compactions(&self) -> Result<()> {
        let debt = &self.shared.backpressure.compaction;
        let _timed = self.shared.waits.start(Wait::RunsStop);
        while debt.stopped() {
            // A job that was given up did not queue itself again.
            self.shared.schedule();
            match self.check_background() {
                // No compaction runs before there is more space. A wait would refuse deletions,
                // which make space, and puts that have space.
                Err(error) if error.kind() == ErrorKind::NoSpace => break,
                checked => checked?,
            }
            if self.shared.run_inline() {
                self.shared.update_compaction_debt();
            } else {
                self.shared.help_while(|| !debt.stopped());
                debt.wait_while_stopped(LOOK);
            }
        }
        Ok(())
    }

    /// Waits until a round of value GC has given space back.
    fn wait_for_space(&self) -> Result<()> {
        let debt = &self.shared.backpressure.space;
        let _timed = self.shared.waits.start(Wait::Space);
        while debt.stopped() {
            self.shared.pipeline.check()?;
            self.shared.schedule();
            self.space.collect_garbage_if_waiting();
            if !self.shared.run_inline() {
                self.shared.help_while(|| !debt.stopped());
                self.shared.wait_finished(LOOK);
            }
            self.space.update_space_debt();
        }
        Ok(())
    }

    /// Sleeps for `time`. Without background threads it runs the queued jobs instead.
    fn sleep_off(&self, time: Duration, wait: Wait) {
        let _timed = self.shared.waits.start(wait);
        if self.shared.options.background_threads == 0 {
            self.shared.run_inline();
            return;
        }
        let until = self.shared.clock.monotonic() + time;
        let left = || until.saturating_sub(self.shared.clock.monotonic());
        if wait != Wait::MemtableDebt {
            self.shared.help_while(|| left().is_zero());
        }
        if !left().is_zero() {
            self.shared.clock.sleep(left());
        }
    }
}
