//! The waits of a commit for room: in the log, and in the memtables.
//!
//! Thread safety: any thread that holds no lock, and has settled its numbered commits (the
//! invariant of [`commit`](crate::write::commit)).

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

    /// Whether the active generation may be sealed now: at most one sealed generation waits to be
    /// flushed. Each is sealed at half of the memtables' share of memory, or of the log that may
    /// have to be replayed, so both bounds hold.
    pub(crate) fn may_seal(&self) -> bool {
        !self.version.load().has_sealed()
    }

    /// Waits for a sealed memtable to be flushed.
    pub(crate) fn wait_for_memtable(&self) -> Result<()> {
        self.schedule();
        // No job to run here: background threads run it, or another caller.
        if !self.run_inline() {
            self.help_while(|| self.may_seal());
            self.jobs.wait_finished(Duration::from_millis(2));
        }
        // Other stalled jobs, such as a compaction without space, do not block this writer.
        let goes_on = self.may_seal() || self.flush_queued.load(Ordering::SeqCst);
        if goes_on && !self.closing() {
            return Ok(());
        }
        self.check_background()
    }

    /// Returns the error of the background job that failed, if one did: a writer that waited for
    /// jobs would wait forever.
    pub(super) fn check_background(&self) -> Result<()> {
        self.check_open()?;
        let error = self.background_error.lock().clone();
        match error {
            Some(error) => {
                // The next write tries again: there may be room now.
                self.retry_background();
                Err(error.context("memtables are full and could not be flushed"))
            }
            None => Ok(()),
        }
    }
}
