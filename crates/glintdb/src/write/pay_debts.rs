//! A commit pays for the debts of background work: it sleeps, or waits while a debt stops writers.
//!
//! Thread safety: any thread that holds no lock.

use crate::options::Durability;
use crate::write::Writer;
use crate::write::backpressure::Charge;
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
        if batch.are_stopped() {
            self.settle(outstanding, durability)?;
            self.wait_for_compactions(batch)?;
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
        let commit = Charge {
            indexes: (batch.keyspaces.iter())
                .filter(|named| named.state.debt.concerns(batch.only_deletes()))
                .map(|named| (&named.state.debt, named.index_bytes)),
            index_bytes: batch.index_bytes(),
            log_bytes,
            pays_shared: debts.engaged() && !self.sequencer.is_within_share(batch),
        };
        let Some((time, wait)) = debts.admit(commit, &*self.shared.clock) else {
            return Ok(());
        };
        self.settle(outstanding, durability)?;
        self.sleep_off(time, wait);
        if debts.flush.engaged() {
            self.sequencer.update_flush_debt();
        }
        Ok(())
    }

    /// Waits until compactions have caught up in all keyspaces that the commit names.
    fn wait_for_compactions(&self, batch: &Operations) -> Result<()> {
        let stopped = || batch.are_stopped();
        let _timed = self.shared.waits.start(Wait::RunsStop);
        let mut tried_again = false;
        while stopped() {
            // A job that was given up did not queue itself again.
            self.shared.schedule();
            match self.check_background() {
                // No compaction runs before there is more space. A wait would refuse deletions,
                // which make space, and puts that have space.
                Err(error) if error.kind() == ErrorKind::NoSpace => break,
                // Its cause may be gone, and the check has queued the job again.
                Err(error) if error.kind().passes() && !tried_again => tried_again = true,
                checked => checked?,
            }
            if self.shared.run_inline() {
                let keyspaces = batch.keyspaces.iter();
                (self.shared).update_compaction_debts(keyspaces.map(|named| &*named.state));
            } else {
                self.shared.help_while(|| !stopped());
                (self.shared.backpressure.compaction).wait_while(stopped, LOOK);
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
