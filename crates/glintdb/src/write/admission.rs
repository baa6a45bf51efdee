//! The waits of a commit for room: in the log, and in the memtables.
//!
//! Thread safety: any thread that holds no lock, and has settled its numbered commits (the
//! invariant of [`commit`](crate::write::commit)).

use crate::write::Writer;
use crate::{ErrorKind, Result};
use glintdb_core::planted;
use glintdb_log::{Space, WaitReason};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Writer {
    /// Waits until the log can take a frame that it refused for `reason`.
    pub(crate) fn wait_for_log(&self, reason: WaitReason, space: Space) -> Result<()> {
        self.space.update_space_debt();
        let wait = || {
            self.shared.log.wait(reason, space).inspect_err(|error| {
                // Otherwise nothing has happened, and the next commit may find what this one lacks.
                let passes = planted!(
                    "glintdb: a log segment that cannot be made fails all later commits",
                    error.kind().passes(),
                    error.kind() == ErrorKind::NoSpace
                );
                if !passes {
                    self.shared.pipeline.fail(error);
                }
            })
        };
        if space == Space::Normal || reason == WaitReason::Ring {
            return wait();
        }
        // Frees space before a new segment takes some that a flush may need.
        if self.shared.reserve.is_lent() {
            self.space.free_log_space()?;
        }
        match wait() {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.space.free_log_space()?;
                self.space.with_reserve(wait)
            }
            waited => waited,
        }
    }

    /// Waits for a sealed memtable to be flushed.
    pub(crate) fn wait_for_memtable(&self) -> Result<()> {
        self.shared.schedule();
        // If this thread ran no job, background threads or another caller run it.
        if !self.shared.run_inline() {
            self.shared.help_while(|| self.shared.may_seal());
            self.shared.wait_finished(Duration::from_millis(2));
        }
        // Other stalled jobs, such as a compaction without space, do not block this writer.
        let goes_on = self.shared.may_seal() || self.shared.flush_queued.load(Ordering::SeqCst);
        if goes_on && !self.shared.closing() {
            return Ok(());
        }
        self.check_background()
    }

    /// Returns the error of the background job that failed, if one did: a writer that waited for
    /// jobs would wait forever.
    pub(super) fn check_background(&self) -> Result<()> {
        self.shared.check_open()?;
        let error = self.shared.background_error();
        match error {
            Some(error) => {
                // The next write tries again: there may be room now.
                self.shared.retry_background();
                Err(error.context("memtables are full and could not be flushed"))
            }
            None => Ok(()),
        }
    }
}
