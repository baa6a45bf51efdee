//! What a commit waits for before it has a place in the order: room in the log, room in the memtables, and its part of what indexes owe.
//!
//! Thread safety: any thread that holds no lock. Invariant: whoever waits here has settled what it
//! has numbered (the invariant of [`commit`](crate::write::commit)).

use crate::engine::Engine;
use crate::{ErrorKind, Result};
use glintdb_log::{Space, WaitReason};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Engine {
    /// Waits until the log can take a frame that it refused for `reason`.
    pub(crate) fn wait_for_log(&self, reason: WaitReason, space: Space) -> Result<()> {
        self.update_space_debt();
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
    pub(super) fn check_background(&self) -> Result<()> {
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
}
