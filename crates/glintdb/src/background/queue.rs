//! The job queue: jobs in resumable steps, most urgent first. A step is short, except that of a
//! flush, which writes a whole generation.
//!
//! Background threads take steps, and so does a thread that must wait ([`JobQueue::help`]). Without
//! background threads the same queue runs on the callers' threads. Its order then depends only on
//! the jobs that were queued, and on a seed if one is given. There is no second code path for
//! tests.
//!
//! Thread safety: any thread. No lock is held while a step runs.

use crate::Result;
use glintdb_core::index::JobPriority;
use glintdb_core::sync::{Condvar, Mutex};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest step that a seed chooses, in entries.
const CUT_MAX: u64 = 64;

/// The result of a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The job must be queued again.
    More,
    /// The job has finished.
    Done,
}

/// The object that jobs work on, and actions after them. Models have a smaller one.
pub(crate) trait Host {
    /// Called after every job that has finished.
    fn after_job(&self);
    /// Called after a job that failed, or was cut off by closing.
    fn after_failed_job(&self);
    /// Called during the unwinding of a step that panicked, after which the state of what the job
    /// changed is unknown.
    fn after_panic(&self, _job: &str) {}
    /// Time until [`on_wake`](Self::on_wake) is to be called; `None`: it need not be. Called with
    /// the queue's lock.
    fn until_wake(&self) -> Option<Duration> {
        None
    }
    /// Queues a failed job again, or looks for work, if the time for that has come.
    fn on_wake(&self) {}
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
    /// Gives up the job, which failed or is cut off by closing, and what it holds of the host.
    fn abandon(self: Box<Self>, host: &H, error: Option<&crate::Error>);
}

struct State<H: Host> {
    /// Waiting jobs, by priority and then by age.
    waiting: BTreeMap<(JobPriority, u64), Box<dyn Job<H>>>,
    running: usize,
    next: u64,
    stopped: bool,
    /// State of the generator that picks jobs, if a seed decides the order.
    order: Option<u64>,
}

impl<H: Host> State<H> {
    /// Picks the next job among those that are at least as urgent as `floor`.
    fn pick(&mut self, floor: JobPriority) -> Option<(JobPriority, u64)> {
        let mut urgent = (self.waiting.keys()).take_while(|key| Reverse(key.0) >= Reverse(floor));
        let Some(order) = &mut self.order else {
            return urgent.next().copied();
        };
        // A step of a linear congruential generator with Knuth's constants, which is random enough
        // to pick a job.
        *order = order
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let count = urgent.clone().count();
        let chosen = usize::try_from(*order >> 33).ok()?.checked_rem(count)?;
        urgent.nth(chosen).copied()
    }
}

/// A step under way, until what follows from it is done: between a job and the next one that it
/// leads to, the queue does not look idle. It is dropped with its job only by a panic, and then
/// wakes the threads that wait for the job.
struct Step<'a, H: Host> {
    queue: &'a JobQueue<H>,
    host: &'a H,
    job: Option<Box<dyn Job<H>>>,
}

impl<H: Host> Drop for Step<'_, H> {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            self.host.after_panic(&job.name());
        }
        self.queue.state.lock().running -= 1;
        self.queue.finished.notify_all();
    }
}

pub(crate) struct JobQueue<H: Host> {
    state: Mutex<State<H>>,
    work: Condvar,
    /// Signalled after every job that has ended.
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
    /// Creates an empty queue. With a seed, the seed decides the order of jobs.
    pub(crate) fn new(order: Option<u64>) -> Self {
        let queue = JobQueue::default();
        queue.state.lock().order = order;
        queue
    }

    /// Queues a job. After `stop`, abandons it at once.
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

    /// Runs one step of the most urgent job on this thread, if it is at least as urgent as `floor`.
    /// Returns false if there is none.
    pub(crate) fn help(&self, host: &H, floor: JobPriority) -> bool {
        let mut state = self.state.lock();
        let Some(job) = state.pick(floor).and_then(|key| state.waiting.remove(&key)) else {
            return false;
        };
        // If a seed decides the order, it also decides where merges are cut, because a waiting
        // thread may take steps of any size.
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
        let error = match progress {
            Ok(Progress::Done) => {
                drop(job);
                host.after_job();
                return;
            }
            Ok(Progress::More) => {
                let mut state = self.state.lock();
                if !state.stopped {
                    // The job gets a new age, so that jobs of equal priority take turns.
                    let age = state.next;
                    state.next += 1;
                    state.waiting.insert((job.priority(), age), job);
                    // The thread that took this step may be a caller that does not return. A
                    // background thread that found no job meanwhile must look again.
                    self.work.notify_one();
                    return;
                }
                None
            }
            Err(error) => Some(error),
        };
        job.abandon(host, error.as_ref());
        // Nothing is queued again at once: the job would fail again, without end. The next seal, a
        // writer that waits, or a background thread after a pause tries again.
        host.after_failed_job();
    }

    /// Runs jobs on a background thread until `stop`.
    pub(crate) fn work(&self, host: &H) {
        loop {
            let mut state = self.state.lock();
            let job = loop {
                if state.stopped {
                    return;
                }
                // Asked first, because there may always be a job.
                let until_wake = host.until_wake();
                if until_wake == Some(Duration::ZERO) {
                    drop(state);
                    host.on_wake();
                    state = self.state.lock();
                    continue;
                }
                if let Some((_, job)) = state.waiting.pop_first() {
                    break job;
                }
                match until_wake {
                    None => self.work.wait(&mut state),
                    Some(time) => {
                        self.work.wait_for(&mut state, time);
                    }
                }
            };
            state.running += 1;
            drop(state);
            self.run(host, job, None);
        }
    }

    /// Wakes the background threads that wait for a job, so that they ask [`Host::until_wake`]. All
    /// of them, because one may soon be busy with a long step.
    pub(crate) fn wake(&self) {
        // A thread between that question and its sleep holds the lock.
        drop(self.state.lock());
        self.work.notify_all();
    }

    /// Gives up the waiting jobs that are less urgent than `floor`. Returns how many.
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

    /// Waits until a job ends, or for `time`.
    pub(crate) fn wait_finished(&self, time: Duration) {
        let mut state = self.state.lock();
        self.finished.wait_for(&mut state, time);
    }

    /// After [`stop`](Self::stop), waits for the steps that had begun, on any thread.
    pub(crate) fn wait_stopped(&self) {
        let mut state = self.state.lock();
        while state.running > 0 {
            self.finished
                .wait_for(&mut state, Duration::from_millis(10));
        }
    }

    /// Returns the number of jobs that wait, and of jobs in a step.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.waiting.len(), state.running)
    }

    /// Returns the names of the jobs that wait.
    pub(crate) fn names(&self) -> Vec<String> {
        self.state
            .lock()
            .waiting
            .values()
            .map(|job| job.name())
            .collect()
    }

    /// Begins no more steps. Abandons waiting jobs at once, and running ones after their step.
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
    use std::sync::Arc;

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

    /// Spills come before flushes, then level 0, then value GC, then deeper levels. Equal jobs take
    /// turns.
    #[test]
    fn the_most_urgent_job_is_stepped_first() {
        let steps = Steps::default();
        let queue = queue(&steps);
        while queue.help(&steps, Background) {}
        let taken: String = steps.0.lock().iter().map(|(_, name)| name).collect();
        assert_eq!(taken, "ffeeccbbadad");
        assert_eq!(queue.counts(), (0, 0));
    }

    /// A waiting thread takes only jobs that are at least as urgent as the one that it waits for.
    #[test]
    fn helpers_leave_jobs_that_are_less_urgent() {
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

    /// Counts, after each job, what [`JobQueue::counts`] says meanwhile.
    #[derive(Default)]
    struct Looking {
        queue: std::sync::OnceLock<Arc<JobQueue<Looking>>>,
        seen: Mutex<Vec<(usize, usize)>>,
    }

    impl Host for Looking {
        fn after_job(&self) {
            let counts = self.queue.get().map(|queue| queue.counts());
            self.seen.lock().extend(counts);
        }

        fn after_failed_job(&self) {
            self.after_job();
        }
    }

    struct Ends(bool);

    impl Job<Looking> for Ends {
        fn step(&mut self, _: &Looking) -> Result<Progress> {
            match self.0 {
                true => Ok(Progress::Done),
                false => Err(crate::Error::invalid("no")),
            }
        }

        fn name(&self) -> String {
            "ends".to_owned()
        }

        fn priority(&self) -> JobPriority {
            Background
        }

        fn abandon(self: Box<Self>, _: &Looking, _: Option<&crate::Error>) {}
    }

    #[test]
    fn a_queue_is_not_idle_until_what_follows_from_a_job_is_queued() {
        let host = Looking::default();
        let queue = host.queue.get_or_init(|| Arc::new(JobQueue::new(None)));
        for ends_well in [true, false] {
            queue.push(&host, Box::new(Ends(ends_well)));
            assert!(queue.help(&host, Background));
            assert_eq!(queue.counts(), (0, 0));
        }
        assert_eq!(*host.seen.lock(), [(0, 1), (0, 1)]);
    }
}
