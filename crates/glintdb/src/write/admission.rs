//! What a commit waits for before it has a place in the order: room in the log, room in the memtables, and its part of what indexes owe.
//!
//! Thread safety: any thread that holds no lock. Invariant: whoever waits here has settled what it has numbered (`commit`, invariant 3).

use crate::batch::Batch;
use crate::engine::Engine;
use crate::options::Durability;
use crate::write::backpressure::waits::Wait;
use crate::write::commit::Outstanding;
use crate::{ErrorKind, Result};
use glintdb_log::{Space, WaitReason};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Engine {
    /// Waits until the log can take a frame that it refused for `reason`.
    pub(crate) fn wait_for_log(&self, reason: WaitReason, space: Space) -> Result<()> {
        self.update_brake();
        let wait = || {
            self.log.wait(reason, space).inspect_err(|error| {
                if error.kind() != ErrorKind::NoSpace {
                    self.pipeline.fail(error);
                }
            })
        };
        if space == Space::Normal || reason == WaitReason::Ring {
            return wait();
        }
        // Before a new segment takes space that a flush may need.
        if self.reserve.is_lent() {
            self.free_log_space()?;
        }
        match wait() {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.free_log_space()?;
                self.with_reserve(wait)
            }
            waited => waited,
        }
    }

    /// Whether the active generation may be sealed now: one at a time waits to be flushed. Each is sealed at half the memtables' share of memory, or at half of the log
    /// that may have to be replayed, so both bounds hold.
    pub(crate) fn may_seal(&self) -> bool {
        !self.version.load().has_sealed()
    }

    /// Waits for a sealed memtable to be flushed.
    pub(crate) fn wait_for_memtable(&self) -> Result<()> {
        self.schedule();
        // Nothing to run here: background threads do it, or another caller.
        if !self.run_inline() {
            self.help_while(|| self.may_seal());
            self.jobs.wait_finished(Duration::from_millis(2));
        }
        // What else stands still, a compaction for which there is no space, is not this writer's matter.
        let goes_on = self.may_seal() || self.flush_queued.load(Ordering::SeqCst);
        if goes_on && !self.closing() {
            return Ok(());
        }
        self.check_background()
    }

    /// The error that keeps jobs from going on, for writers that would wait for them in vain.
    fn check_background(&self) -> Result<()> {
        self.check_open()?;
        let error = self.background_error.lock().clone();
        match error {
            Some(error) => {
                // Tried again at the next write: there may be room now.
                self.retry_background();
                Err(error.context("memtables are full and could not be flushed"))
            }
            None => Ok(()),
        }
    }

    /// Pays for the indexes' debt before a commit.
    #[cold]
    pub(crate) fn slow_down(
        &self,
        batch: &Batch,
        durability: Durability,
        outstanding: &mut Option<Outstanding>,
    ) -> Result<()> {
        if self.throttle.stopped() {
            self.settle(outstanding, durability)?;
            let _timed = self.waits.start(Wait::Level0Stop);
            while self.throttle.stopped() {
                // Whoever kept level 0 from being compacted may have given up, and told nobody.
                self.schedule();
                match self.check_background() {
                    // Nobody will compact before there is more space: to wait for it would refuse deletions, the way to it, and puts that there is space for.
                    Err(error) if error.kind() == ErrorKind::NoSpace => break,
                    checked => checked?,
                }
                if self.run_inline() {
                    self.update_throttle();
                } else {
                    self.help_while(|| !self.throttle.stopped());
                    self.throttle.wait_while_stopped(Duration::from_millis(5));
                }
            }
        }
        let owed = self.throttle.admit(batch.index_bytes());
        self.pay(owed, Wait::CompactionDebt, durability, outstanding)?;
        Ok(())
    }

    /// A writer that is slowed pays for what it wrote, if it owes anything: by time, or by work where nobody else does any. Whether it did.
    pub(crate) fn pay(
        &self,
        owed: Option<Duration>,
        wait: Wait,
        durability: Durability,
        outstanding: &mut Option<Outstanding>,
    ) -> Result<bool> {
        let Some(time) = owed else {
            return Ok(false);
        };
        self.settle(outstanding, durability)?;
        let _timed = self.waits.start(wait);
        if self.options.background_threads == 0 {
            self.run_inline();
            return Ok(true);
        }
        let until = self.clock.monotonic() + time;
        let left = || until.saturating_sub(self.clock.monotonic());
        if wait != Wait::MemtableDebt {
            self.help_while(|| left().is_zero());
        }
        if !left().is_zero() {
            self.clock.sleep(left());
        }
        Ok(true)
    }
}
