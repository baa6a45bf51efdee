//! The job queue: flush, compaction and the log's spill as small resumable steps, most urgent first.
//!
//! Background threads take steps; so does a thread that must wait ([`JobQueue::help`]). With no background threads the same queue runs on the callers'
//! threads, in an order that depends on nothing but what was queued, and on a seed where one is given: there is no second code path for tests.
//!
//! Thread safety: everything from any thread. No lock is held while a step runs.

use crate::Result;
use crate::engine::Engine;
use glintdb_core::index::JobPriority;
use glintdb_core::sync::{Condvar, Mutex};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Queue it again.
    More,
    /// Finished.
    Done,
}

/// A job in resumable steps.
pub(crate) trait Job: Send {
    /// Does a bounded piece of work.
    fn step(&mut self, engine: &Engine) -> Result<Progress>;
    fn name(&self) -> String;
    fn priority(&self) -> JobPriority;
    /// The job failed or the database closes; gives back what the job holds of the engine.
    fn abandon(self: Box<Self>, engine: &Engine, error: Option<&crate::Error>);
}

#[derive(Default)]
struct State {
    /// Ordered by priority, then by age.
    waiting: BTreeMap<(JobPriority, u64), Box<dyn Job>>,
    running: usize,
    next: u64,
    stopped: bool,
    /// State of the generator that picks jobs, where a seed decides the order.
    order: Option<u64>,
}

impl State {
    /// The job to be taken next, of those of at least `floor` urgency.
    fn pick(&mut self, floor: JobPriority) -> Option<(JobPriority, u64)> {
        let mut urgent = (self.waiting.keys()).take_while(|key| Reverse(key.0) >= Reverse(floor));
        let Some(order) = &mut self.order else {
            return urgent.next().copied();
        };
        // A step of a linear congruential generator (Knuth's constants): which job comes next is all that is asked of it.
        *order = order
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let count = urgent.clone().count();
        let chosen = usize::try_from(*order >> 33).ok()?.checked_rem(count)?;
        urgent.nth(chosen).copied()
    }
}

#[derive(Default)]
pub(crate) struct JobQueue {
    state: Mutex<State>,
    work: Condvar,
    /// Signalled after every finished job.
    finished: Condvar,
}

impl JobQueue {
    /// An empty queue; with a seed, jobs are taken in an order that it decides.
    pub(crate) fn new(order: Option<u64>) -> JobQueue {
        let queue = JobQueue::default();
        queue.state.lock().order = order;
        queue
    }

    /// Queues a job. After `stop` it is abandoned at once.
    pub(crate) fn push(&self, engine: &Engine, job: Box<dyn Job>) {
        let mut state = self.state.lock();
        if state.stopped {
            drop(state);
            job.abandon(engine, None);
            return;
        }
        let age = state.next;
        state.next += 1;
        state.waiting.insert((job.priority(), age), job);
        drop(state);
        self.work.notify_one();
    }

    /// Runs one step of the most urgent job of at least `floor` urgency on this thread; `false`: there was none.
    pub(crate) fn help(&self, engine: &Engine, floor: JobPriority) -> bool {
        let mut state = self.state.lock();
        let Some(job) = state.pick(floor).and_then(|key| state.waiting.remove(&key)) else {
            return false;
        };
        state.running += 1;
        drop(state);
        self.run(engine, job);
        true
    }

    fn run(&self, engine: &Engine, mut job: Box<dyn Job>) {
        let progress = job.step(engine);
        let mut state = self.state.lock();
        state.running -= 1;
        let stopped = state.stopped;
        let ended = match progress {
            Ok(Progress::More) if !stopped => {
                // With a new age: equal priorities take turns.
                let age = state.next;
                state.next += 1;
                state.waiting.insert((job.priority(), age), job);
                None
            }
            Ok(Progress::More) => Some((job, None)),
            Ok(Progress::Done) => {
                drop(state);
                drop(job);
                engine.after_job();
                self.finished.notify_all();
                return;
            }
            Err(error) => Some((job, Some(error))),
        };
        drop(state);
        if let Some((job, error)) = ended {
            job.abandon(engine, error.as_ref());
            // Nothing is queued: what failed would fail again at once, for ever. The next seal, or a writer that waits, tries again.
            engine.after_failed_job();
        }
        self.finished.notify_all();
    }

    /// A background thread's loop: until `stop`.
    pub(crate) fn work(&self, engine: &Engine) {
        loop {
            let mut state = self.state.lock();
            let job = loop {
                if state.stopped {
                    return;
                }
                if let Some((_, job)) = state.waiting.pop_first() {
                    break job;
                }
                self.work.wait(&mut state);
            };
            state.running += 1;
            drop(state);
            self.run(engine, job);
        }
    }

    /// Waits until some job finishes, or `time` is over.
    pub(crate) fn wait_finished(&self, time: Duration) {
        let mut state = self.state.lock();
        self.finished.wait_for(&mut state, time);
    }

    /// Jobs waiting and running.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.waiting.len(), state.running)
    }

    /// Names of the jobs that wait.
    pub(crate) fn names(&self) -> Vec<String> {
        self.state
            .lock()
            .waiting
            .values()
            .map(|job| job.name())
            .collect()
    }

    /// Takes no more steps; waiting jobs are abandoned, running ones after their step.
    pub(crate) fn stop(&self, engine: &Engine) {
        let waiting = {
            let mut state = self.state.lock();
            state.stopped = true;
            std::mem::take(&mut state.waiting)
        };
        self.work.notify_all();
        self.finished.notify_all();
        for (_, job) in waiting {
            job.abandon(engine, None);
        }
    }
}
