//! Background jobs of the log: they spill its ring to segments, prepare segments, and sync full
//! ones.
//!
//! Thread safety: one job of each kind at a time. A flag says whether one is queued.

use crate::background::Background;
use crate::background::queue::{Job, Progress};
use crate::shared::Shared;
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::JobPriority;
use glintdb_core::planted;
use glintdb_log::Space;
use std::sync::atomic::Ordering;

impl Background {
    /// Does a step of the log's work.
    fn log_step(&self) -> Result<()> {
        let Shared { log, pipeline, .. } = &*self.shared;
        if self.shared.may_prepare()
            && let Err(error) = log.prepare_step(Space::Normal)
            && !planted!(
                "glintdb: a log segment that cannot be made fails all later commits",
                error.kind().passes(),
                error.kind() == ErrorKind::NoSpace
            )
        {
            pipeline.fail(&error);
            return Err(error);
        }
        if !self.shared.reserve.is_lent() {
            log.grow_ring_ahead();
        }
        log.populate_ahead();
        if log.spill_due() {
            log.spill_step().inspect_err(|error| pipeline.fail(error))?;
            self.space.update_space_debt();
            self.shared.values.update_room();
        }
        if log.sync_full_due() && !self.log_sync_queued.swap(true, Ordering::SeqCst) {
            self.push(Box::new(LogSyncJob));
        }
        Ok(())
    }
}

/// Spills the log's ring to segments, and prepares the next segment.
pub(crate) struct SpillJob;

impl Job<Background> for SpillJob {
    fn step(&mut self, background: &Background) -> Result<Progress> {
        background.log_step()?;
        if background.shared.log_due() {
            return Ok(Progress::More);
        }
        background
            .shared
            .spill_queued
            .store(false, Ordering::SeqCst);
        // A commit that saw the flag just before it fell queued nothing.
        if background.shared.log_due()
            && !background.shared.spill_queued.swap(true, Ordering::SeqCst)
        {
            return Ok(Progress::More);
        }
        Ok(Progress::Done)
    }

    fn name(&self) -> String {
        "log spill".to_owned()
    }

    fn priority(&self) -> JobPriority {
        JobPriority::Spill
    }

    fn abandon(self: Box<Self>, background: &Background, _error: Option<&Error>) {
        background
            .shared
            .spill_queued
            .store(false, Ordering::SeqCst);
    }
}

/// Syncs full segments before a commit must ([`glintdb_log::Log::sync_full`]).
pub(crate) struct LogSyncJob;

impl Job<Background> for LogSyncJob {
    fn step(&mut self, background: &Background) -> Result<Progress> {
        // The next job syncs segments that become full from here on.
        background.log_sync_queued.store(false, Ordering::SeqCst);
        let shared = &background.shared;
        (shared.log.sync_full()).inspect_err(|error| shared.pipeline.fail(error))?;
        Ok(Progress::Done)
    }

    fn name(&self) -> String {
        "log sync".to_owned()
    }

    fn priority(&self) -> JobPriority {
        JobPriority::Gc
    }

    fn abandon(self: Box<Self>, background: &Background, _error: Option<&Error>) {
        background.log_sync_queued.store(false, Ordering::SeqCst);
    }
}
