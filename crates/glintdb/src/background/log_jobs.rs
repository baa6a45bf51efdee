//! What the log has done in the background: its ring is moved to segments, segments are made ready, and what is full is synced.
//!
//! Thread safety: one job of each kind at a time; a flag of the engine says that it is queued.

use crate::background::queue::{Job, Progress};
use crate::engine::Engine;
use crate::{Error, Result};
use glintdb_core::index::JobPriority;
use std::sync::atomic::Ordering;

/// Moves the log's ring to its segments, and prepares the next segment.
pub(crate) struct SpillJob;

impl Job for SpillJob {
    fn step(&mut self, engine: &Engine) -> Result<Progress> {
        engine.log_step()?;
        if engine.log_due() {
            return Ok(Progress::More);
        }
        engine.spill_queued.store(false, Ordering::SeqCst);
        // A commit that saw the flag just before it fell queued nothing.
        if engine.log_due() && !engine.spill_queued.swap(true, Ordering::SeqCst) {
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

    fn abandon(self: Box<Self>, engine: &Engine, _error: Option<&Error>) {
        engine.spill_queued.store(false, Ordering::SeqCst);
    }
}

/// Makes full segments durable before somebody must ([`glintdb_log::Log::sync_full`]).
pub(crate) struct LogSyncJob;

impl Job for LogSyncJob {
    fn step(&mut self, engine: &Engine) -> Result<Progress> {
        // What gets full from here on is for the next one.
        engine.log_sync_queued.store(false, Ordering::SeqCst);
        engine
            .log
            .sync_full()
            .inspect_err(|error| engine.pipeline.fail(error))?;
        Ok(Progress::Done)
    }

    fn name(&self) -> String {
        "log sync".to_owned()
    }

    fn priority(&self) -> JobPriority {
        JobPriority::Gc
    }

    fn abandon(self: Box<Self>, engine: &Engine, _error: Option<&Error>) {
        engine.log_sync_queued.store(false, Ordering::SeqCst);
    }
}
