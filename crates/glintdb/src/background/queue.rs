//! The job queue: jobs in resumable steps, most urgent first. A step is short, except that of a
//! flush, which writes a whole generation.
//!
//! Background threads take steps; so does a thread that must wait ([`JobQueue::help`]). With no background threads the same queue runs on the callers'
//! threads, in an order that depends on nothing but what was queued, and on a seed where one is given: there is no second code path for tests.
//!
//! Thread safety: everything from any thread. No lock is held while a step runs.

use crate::Result;
use glintdb_core::index::JobPriority;
use glintdb_core::sync::{Condvar, Mutex};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest step that a seed decides on, in entries.
const CUT_MAX: u64 = 64;

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Queue it again.
    More,
    /// Finished.
    Done,
}

/// What jobs work on, and what is to be done after them: the host, and less in models.
pub(crate) trait Host {
    /// After every job that ended.
    fn after_job(&self);
    /// After a job that failed, or was cut off by closing.
    fn after_failed_job(&self);
    /// While the panic of a step goes on: nobody knows in which state the job has left what it worked on.
    fn after_panic(&self, _job: &str) {}
}

/// A job in resumable steps.
pub(crate) trait Job<H: Host>: Send {
    /// Does a bounded piece of work.
    fn step(&mut self, host: &H) -> Result<Progress>;
    /// Does a step of about `budget` entries, if the job can be cut anywhere. Only a seed asks for
    /// it.
    fn step_within(&mut self, host: &H, _budget: u32) -> Result<Progress> {
        self.step(host)
    }
    fn name(&self) -> String;
    fn priority(&self) -> JobPriority;
    /// The job failed or the database closes; gives back what the job holds of the host.
    fn abandon(self: Box<Self>, host: &H, error: Option<&crate::Error>);
}

struct State<H: Host> {
    /// Ordered by priority, then by age.
    waiting: BTreeMap<(JobPriority, u64), Box<dyn Job<H>>>,
    running: usize,
    next: u64,
    stopped: bool,
    /// State of the generator that picks jobs, where a seed decides the order.
    order: Option<u64>,
}

impl<H: Host> State<H> {
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

/// A step under way. Dropped with its job by a panic alone: nobody waits for ever for a job that will never end.
struct Step<'a, H: Host> {
    queue: &'a JobQueue<H>,
    host: &'a H,
    job: Option<Box<dyn Job<H>>>,
}

impl<H: Host> Drop for Step<'_, H> {
    fn drop(&mut self) {
        let Some(job) = self.job.take() else { return };
        self.queue.state.lock().running -= 1;
        self.host.after_panic(&job.name());
        drop(job);
        self.queue.finished.notify_all();
    }
}

pub(crate) struct JobQueue<H: Host> {
    state: Mutex<State<H>>,
    work: Condvar,
    /// Signalled after every finished job.
    finished: Condvar,
}

impl<H: Host> Default for JobQueue<H> {
    fn default() -> Self {
        JobQueue {
            state: Mutex::new(State {
                waiting: BTreeMap::new(),
                running: 0,
                next: 0,
                stopped: false,
                order: None,
            }),
            work: Condvar::new(),
            finished: Condvar::new(),
        }
    }
}

impl<H: Host> JobQueue<H> {
    /// An empty queue; with a seed, jobs are taken in an order that it decides.
    pub(crate) fn new(order: Option<u64>) -> Self {
        let queue = JobQueue::default();
        queue.state.lock().order = order;
        queue
    }

    /// Queues a job. After `stop` it is abandoned at once.
    pub(crate) fn push(&self, host: &H, job: Box<dyn Job<H>>) {
        let mut state = self.state.lock();
        if state.stopped {
            drop(state);
            job.abandon(host, None);
            return;
        }
        let age = state.next;
        state.next += 1;
        state.waiting.insert((job.priority(), age), job);
        drop(state);
        self.work.notify_one();
    }

    /// Runs one step of the most urgent job of at least `floor` urgency on this thread; `false`: there was none.
    pub(crate) fn help(&self, host: &H, floor: JobPriority) -> bool {
        let mut state = self.state.lock();
        let Some(job) = state.pick(floor).and_then(|key| state.waiting.remove(&key)) else {
            return false;
        };
        // Where a seed decides, it also decides where merges are cut: any place must do, for whoever waits may take steps of any size.
        let cut = state.order.filter(|order| order >> 63 == 1);
        let budget = cut.and_then(|order| u32::try_from(1 + (order >> 33) % CUT_MAX).ok());
        state.running += 1;
        drop(state);
        self.run(host, job, budget);
        true
    }

    fn run(&self, host: &H, job: Box<dyn Job<H>>, budget: Option<u32>) {
        let mut step = Step {
            queue: self,
            host,
            job: Some(job),
        };
        let progress = step.job.as_mut().map(|job| match budget {
            Some(budget) => job.step_within(host, budget),
            None => job.step(host),
        });
        let Some((progress, job)) = progress.zip(step.job.take()) else {
            return;
        };
        let mut state = self.state.lock();
        state.running -= 1;
        let stopped = state.stopped;
        let ended = match progress {
            Ok(Progress::More) if !stopped => {
                // With a new age: equal priorities take turns.
                let age = state.next;
                state.next += 1;
                state.waiting.insert((job.priority(), age), job);
                // The thread that took this step may only have helped and never come back: a background thread that found nothing meanwhile must look again.
                self.work.notify_one();
                None
            }
            Ok(Progress::More) => Some((job, None)),
            Ok(Progress::Done) => {
                drop(state);
                drop(job);
                host.after_job();
                self.finished.notify_all();
                return;
            }
            Err(error) => Some((job, Some(error))),
        };
        drop(state);
        if let Some((job, error)) = ended {
            job.abandon(host, error.as_ref());
            // Nothing is queued: what failed would fail again at once, for ever. The next seal, or a writer that waits, tries again.
            host.after_failed_job();
        }
        self.finished.notify_all();
    }

    /// A background thread's loop: until `stop`.
    pub(crate) fn work(&self, host: &H) {
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
            self.run(host, job, None);
        }
    }

    /// Gives up the waiting jobs that are less urgent than `floor`; how many they were.
    pub(crate) fn give_up_below(&self, host: &H, floor: JobPriority) -> usize {
        let given_up: Vec<_> = {
            let mut state = self.state.lock();
            let less = |key: &(JobPriority, u64)| key.0 > floor;
            let keys: Vec<_> = state.waiting.keys().copied().filter(less).collect();
            (keys.iter())
                .filter_map(|key| state.waiting.remove(key))
                .collect()
        };
        let count = given_up.len();
        for job in given_up {
            job.abandon(host, None);
        }
        count
    }

    /// Waits until some job finishes, or `time` is over.
    pub(crate) fn wait_finished(&self, time: Duration) {
        let mut state = self.state.lock();
        self.finished.wait_for(&mut state, time);
    }

    /// After [`stop`](Self::stop): waits until the steps that had begun, on whatever thread, are
    /// over.
    pub(crate) fn wait_stopped(&self) {
        let mut state = self.state.lock();
        while state.running > 0 {
            self.finished
                .wait_for(&mut state, Duration::from_millis(10));
        }
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
    pub(crate) fn stop(&self, host: &H) {
        let waiting = {
            let mut state = self.state.lock();
            state.stopped = true;
            std::mem::take(&mut state.waiting)
        };
        self.work.notify_all();
        self.finished.notify_all();
        for (_, job) in waiting {
            job.abandon(host, None);
        }
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use JobPriority::{Background, Flush, Gc, Runs, Spill};

    /// The steps that were taken.
    #[derive(Default)]
    struct Steps(Mutex<Vec<(JobPriority, char)>>);

    impl Host for Steps {
        fn after_job(&self) {}
        fn after_failed_job(&self) {}
    }

    struct TwoSteps(JobPriority, char, bool);

    impl Job<Steps> for TwoSteps {
        fn step(&mut self, steps: &Steps) -> Result<Progress> {
            steps.0.lock().push((self.0, self.1));
            match std::mem::replace(&mut self.2, true) {
                false => Ok(Progress::More),
                true => Ok(Progress::Done),
            }
        }

        fn name(&self) -> String {
            self.1.to_string()
        }

        fn priority(&self) -> JobPriority {
            self.0
        }

        fn abandon(self: Box<Self>, _: &Steps, _: Option<&crate::Error>) {}
    }

    fn queue(steps: &Steps) -> JobQueue<Steps> {
        let queue = JobQueue::new(None);
        let jobs = [
            (Background, 'a'),
            (Gc, 'b'),
            (Runs, 'c'),
            (Background, 'd'),
            (Flush, 'e'),
            (Spill, 'f'),
        ];
        for (priority, name) in jobs {
            queue.push(steps, Box::new(TwoSteps(priority, name, false)));
        }
        queue
    }

    /// The spill before flushes, those before level 0, that before value GC and deeper levels; equals take turns.
    #[test]
    fn steps_are_taken_of_what_is_most_urgent() {
        let steps = Steps::default();
        let queue = queue(&steps);
        while queue.help(&steps, Background) {}
        let taken: String = steps.0.lock().iter().map(|(_, name)| name).collect();
        assert_eq!(taken, "ffeeccbbadad");
        assert_eq!(queue.counts(), (0, 0));
    }

    /// Whoever waits for something helps with what is as urgent, and no other.
    #[test]
    fn helpers_leave_what_is_less_urgent_than_what_they_wait_for() {
        let steps = Steps::default();
        let queue = queue(&steps);
        while queue.help(&steps, Flush) {}
        assert!(
            steps
                .0
                .lock()
                .iter()
                .all(|(priority, _)| *priority <= Flush)
        );
        assert_eq!(queue.names(), ["c", "b", "a", "d"]);
        assert_eq!(queue.give_up_below(&steps, Runs), 3);
        assert_eq!(queue.names(), ["c"]);
    }
}
