//! Background work: the job queue, with flushes, compactions and steps of the log.

pub(crate) mod compaction;
mod convert;
pub(crate) mod flush;
pub(crate) mod flush_progress;
pub(crate) mod help;
pub(crate) mod install;
pub(crate) mod log_jobs;
mod looks;
pub(crate) mod queue;
pub(crate) mod trim;

use crate::Result;
use crate::shared::Shared;
use crate::space::DiskSpace;
use crate::space::priority::Begun;
use crate::write::Writer;
use crate::write::backpressure::waits::Wait;
use crate::write::sequencer::Sequencer;
use compaction::CompactionJob;
use flush::FlushJob;
use glintdb_core::index::JobPriority;
use glintdb_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use glintdb_core::sync::{Mutex, MutexGuard};
use log_jobs::SpillJob;
use queue::{Host, Job, JobQueue};
use std::sync::Arc;
use std::time::Duration;

/// Runs jobs, and makes the files that they write durable and visible.
///
/// **Lock order**: `flush_lock`, then the manifest's, then the sequencer's and the versions'. No
/// lock is held while a job's step runs, except `flush_lock` during a flush.
pub(crate) struct Background {
    shared: Arc<Shared>,
    sequencer: Arc<Sequencer>,
    space: Arc<DiskSpace>,
    writer: Arc<Writer>,
    jobs: JobQueue<Background>,
    /// Held by a flush, and by others while no flush may run.
    flush_lock: Mutex<()>,
    log_sync_queued: AtomicBool,
    /// The keyspace whose index is asked next for a compaction.
    turn: AtomicUsize,
    /// Held by the thread that looks.
    seen: Mutex<looks::Seen>,
}

impl Host for Background {
    fn after_job(&self) {
        self.shared.update_memory();
        self.shared.schedule();
        self.shared.backpressure.compaction.wake();
    }

    fn after_failed_job(&self) {
        self.shared.update_memory();
        self.shared.backpressure.compaction.wake();
    }

    fn after_panic(&self, job: &str) {
        self.shared.poison(&format!("there was a panic in {job}"));
    }

    fn until_wake(&self) -> Option<Duration> {
        let times = [self.shared.until_retry(), self.shared.until_look()];
        times.into_iter().flatten().min()
    }

    fn on_wake(&self) {
        if self.shared.retry_if_due() {
            // Segments that could not be removed.
            self.space.remove_doomed();
            self.shared.schedule();
            self.shared.ask_for_look();
        }
        if self.shared.take_look() {
            self.look();
        }
    }
}

impl Background {
    /// Creates an empty job queue. `job_order` is a seed that decides the order of jobs.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        sequencer: &Arc<Sequencer>,
        space: &Arc<DiskSpace>,
        writer: &Arc<Writer>,
        job_order: Option<u64>,
    ) -> Self {
        Background {
            shared: Arc::clone(shared),
            sequencer: Arc::clone(sequencer),
            space: Arc::clone(space),
            writer: Arc::clone(writer),
            jobs: JobQueue::new(job_order),
            flush_lock: Mutex::new(()),
            log_sync_queued: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            seen: Mutex::default(),
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Waits for the flush under way, and prevents others until the guard is dropped.
    pub(crate) fn no_flush(&self) -> MutexGuard<'_, ()> {
        self.flush_lock.lock()
    }

    /// Prevents flushes until the guard is dropped. Returns `None` if a flush is under way.
    pub(crate) fn try_no_flush(&self) -> Option<MutexGuard<'_, ()>> {
        self.flush_lock.try_lock()
    }

    /// Runs jobs on a background thread until [`stop`](Self::stop).
    pub(crate) fn work(&self) {
        self.jobs.work(self);
    }

    /// Ends background threads after their step, and gives up waiting jobs.
    pub(crate) fn stop(&self) {
        self.jobs.stop(self);
    }

    /// After [`stop`](Self::stop), waits for the steps that had begun, on any thread.
    pub(crate) fn wait_stopped(&self) {
        self.jobs.wait_stopped();
    }

    /// Wakes a background thread that has nothing to do.
    pub(crate) fn wake(&self) {
        self.jobs.wake();
    }

    /// Queues a job.
    pub(crate) fn push(&self, job: Box<dyn Job<Background>>) {
        self.jobs.push(self, job);
    }

    /// Queues a flush.
    pub(crate) fn push_flush(&self) {
        self.push(Box::new(FlushJob));
    }

    /// Queues a step of the log.
    pub(crate) fn push_spill(&self) {
        self.push(Box::new(SpillJob));
    }

    /// Queues the compactions that indexes ask for, as many as may run. Indexes take turns, so that
    /// one that always asks holds up no other.
    pub(crate) fn schedule_compactions(&self) {
        let shared = &self.shared;
        let limit = shared.options.background_threads.max(1);
        shared
            .transactions
            .raise_floor(|| shared.pipeline.visible());
        let version = shared.version.load_full();
        // Number of keyspaces in a row that had no job.
        let mut idle = 0;
        while idle < version.keyspaces.len()
            // Checked for each job: after a stop or an error the queue gives a job back at once,
            // and the index would return it again, without end.
            && !shared.closing()
            && shared.background_error().is_none()
            && self.space.queued_compactions() < limit
        {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % version.keyspaces.len();
            let keyspace = version.keyspaces.get(turn).and_then(Option::as_ref);
            let job = keyspace.and_then(|keyspace| keyspace.state.index().pick_job());
            let Some((keyspace, mut job)) = keyspace.zip(job) else {
                idle += 1;
                continue;
            };
            idle = 0;
            let running = match self.space.begin_compaction(&mut *job, Begun::Queued) {
                Ok(running) => running,
                Err(error) => {
                    drop(job);
                    shared.note_background_error(&error);
                    return;
                }
            };
            self.push(Box::new(CompactionJob {
                keyspace: Arc::clone(&keyspace.state),
                job,
                running,
            }));
        }
    }

    /// Runs one step of the most urgent job on this thread. Returns false if none is queued.
    pub(crate) fn run_step(&self) -> bool {
        self.jobs.help(self, JobPriority::Background)
    }

    /// Between the parts of a long step, runs the step of the log that commits will wait for next,
    /// because all other threads may be in long steps too.
    pub(crate) fn spill_if_urgent(&self) {
        if self.shared.may_prepare() || self.shared.log.spill_urgent() {
            self.shared.schedule_spill();
            self.jobs.help(self, JobPriority::Spill);
        }
    }

    /// Removes jobs that are less urgent than a flush from the queue. Returns how many.
    pub(crate) fn give_up_below_flush(&self) -> usize {
        self.jobs.give_up_below(self, JobPriority::Flush)
    }

    /// Number of jobs that wait, and of jobs in a step.
    pub(crate) fn job_counts(&self) -> (usize, usize) {
        self.jobs.counts()
    }

    /// Names of the jobs that wait.
    pub(crate) fn job_names(&self) -> Vec<String> {
        self.jobs.names()
    }

    /// Waits until a job ends, or for `time`.
    pub(crate) fn wait_finished(&self, time: Duration) {
        self.jobs.wait_finished(time);
    }

    /// Runs the most urgent job's next step, or waits a little for running jobs.
    pub(crate) fn wait_for_jobs(&self) -> Result<()> {
        self.shared.check_open()?;
        if self.run_step() {
            return Ok(());
        }
        if let Some(error) = self.shared.background_error() {
            return Err(error);
        }
        // The inputs of a change whose edit failed stay reserved until the next open.
        self.shared.manifest.lock().check()?;
        let _timed = self.shared.waits.start(Wait::Jobs);
        self.jobs.wait_finished(Duration::from_millis(10));
        Ok(())
    }
}
