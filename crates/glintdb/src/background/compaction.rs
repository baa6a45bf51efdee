//! Compactions of an index: as jobs, or of a range of keys on the calling thread. Their changes are
//! committed like those of a flush ([`install`](crate::background::install)).
//!
//! Thread safety: any thread that holds no lock.

use crate::background::Background;
use crate::background::install::Pending;
use crate::background::queue::{Job, Progress};
use crate::space::priority::{Begun, Running};
use crate::state::version::KeyspaceState;
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::{IndexChange, IndexJob, JobPriority, JobStep, STEP_BUDGET};
use glintdb_core::sync::atomic::Ordering;
use std::ops::Bound;
use std::sync::Arc;

impl Background {
    /// Commits the change of a finished compaction.
    fn finish_compaction(&self, keyspace: &Arc<KeyspaceState>, change: IndexChange) -> Result<()> {
        if change == IndexChange::default() {
            // One part of a compaction; the part that ends last returns the change.
            return Ok(());
        }
        // All entries were flushed before, so the log is synced up to them.
        self.commit_compaction(Pending {
            keyspace: Arc::clone(keyspace),
            change,
        })
    }

    /// Compacts the keys within bounds to the bottom level of a keyspace's index, and gives back
    /// space that is not needed then.
    pub(crate) fn compact(
        &self,
        keyspace: &Arc<KeyspaceState>,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Result<()> {
        let compacted =
            (self.space.gc()).while_held_off(|| self.compact_all(keyspace, lower, upper));
        self.shared.schedule();
        self.shared.run_inline();
        compacted?;
        self.trim()
    }

    fn compact_all(
        &self,
        keyspace: &Arc<KeyspaceState>,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Result<()> {
        loop {
            self.shared
                .transactions
                .raise_floor(|| self.shared.pipeline.visible());
            let index = keyspace.index();
            if let Some(job) = index.pick_full_compaction(lower, upper) {
                self.run_called(keyspace, job)?;
            } else if index.busy() || keyspace.converting.load(Ordering::Acquire) {
                self.wait_for_jobs()?;
            } else {
                return Ok(());
            }
        }
    }

    /// Runs a job of an index on this thread, and commits its change. If there is no space, lends
    /// the reserve's, and gives the job up: it may be picked again.
    pub(super) fn run_called(
        &self,
        keyspace: &Arc<KeyspaceState>,
        mut job: Box<dyn IndexJob>,
    ) -> Result<()> {
        let _running = self.space.begin_compaction(&mut *job, Begun::Called)?;
        // Declared after `_running`, so that its output files are removed before it counts as
        // ended.
        let mut job = job;
        let lends = |error: &Error| match error.kind() {
            ErrorKind::NoSpace => self.shared.reserve.lend(),
            _ => Ok(false),
        };
        loop {
            self.shared.watch_pins();
            let done = match self.space.may_compact().and_then(|()| job.step()) {
                Ok(JobStep::More) => None,
                Ok(JobStep::Done(change)) => Some(self.finish_compaction(keyspace, change)),
                Err(error) => Some(Err(error)),
            };
            match done {
                None => self.shared.check_open()?,
                Some(Err(error)) if lends(&error)? => return Ok(()),
                Some(done) => return done,
            }
        }
    }
}

/// A compaction of one keyspace.
pub(crate) struct CompactionJob {
    pub(crate) keyspace: Arc<KeyspaceState>,
    pub(crate) job: Box<dyn IndexJob>,
    pub(crate) running: Running,
}

impl Job<Background> for CompactionJob {
    fn step(&mut self, background: &Background) -> Result<Progress> {
        self.step_within(background, STEP_BUDGET)
    }

    fn step_within(&mut self, background: &Background, budget: u32) -> Result<Progress> {
        if self.keyspace.dropped.load(Ordering::Acquire) {
            return Ok(Progress::Done);
        }
        background.shared.watch_pins();
        background.space.may_compact()?;
        match self.job.step_within(budget)? {
            JobStep::More => Ok(Progress::More),
            JobStep::Done(change) => {
                background.finish_compaction(&self.keyspace, change)?;
                Ok(Progress::Done)
            }
        }
    }

    fn name(&self) -> String {
        format!("{}: {}", self.keyspace.name, self.job.name())
    }

    fn priority(&self) -> JobPriority {
        self.job.priority()
    }

    fn abandon(self: Box<Self>, background: &Background, error: Option<&Error>) {
        // Its outputs are removed before it counts as ended.
        let CompactionJob { job, running, .. } = *self;
        drop(job);
        drop(running);
        let Some(error) = error else { return };
        let lent = error.kind() == ErrorKind::NoSpace
            && matches!(background.shared.reserve.lend(), Ok(true));
        if lent {
            // Its inputs are free again, so with the reserve's space it may succeed.
            background.shared.schedule();
        } else {
            background.shared.note_background_error(error);
        }
    }
}
