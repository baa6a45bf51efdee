//! Models of the job queue under loom: the production type over a host without an engine. Waits in
//! loom have no time limit, so a thread that sleeps forever is a deadlock, which loom reports.

use super::*;
use glintdb_core::sync::{explore, thread};
use std::sync::Arc;

/// Counts how jobs ended, and lets a thread wait for that without the queue's help.
#[derive(Default)]
struct Ends {
    state: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Ends {
    fn note(&self, done: usize, abandoned: usize) {
        let mut state = self.state.lock();
        state.0 += done;
        state.1 += abandoned;
        self.changed.notify_all();
    }

    fn wait_for(&self, jobs: usize) {
        let mut state = self.state.lock();
        while state.0 + state.1 < jobs {
            self.changed.wait(&mut state);
        }
    }
}

impl Host for Ends {
    fn after_job(&self) {}
    fn after_failed_job(&self) {}
}

struct Steps(usize);

impl Job<Ends> for Steps {
    fn step(&mut self, ends: &Ends) -> Result<Progress> {
        self.0 -= 1;
        if self.0 > 0 {
            return Ok(Progress::More);
        }
        ends.note(1, 0);
        Ok(Progress::Done)
    }

    fn name(&self) -> String {
        "steps".to_owned()
    }

    fn priority(&self) -> JobPriority {
        JobPriority::Flush
    }

    fn abandon(self: Box<Self>, ends: &Ends, _error: Option<&crate::Error>) {
        ends.note(0, 1);
    }
}

fn worker(queue: &Arc<JobQueue<Ends>>, ends: &Arc<Ends>) -> thread::JoinHandle<()> {
    let (queue, ends) = (Arc::clone(queue), Arc::clone(ends));
    thread::spawn(move || queue.work(&ends))
}

/// A waiting caller takes one step of a job and leaves. A background thread must finish the job.
#[test]
fn a_background_thread_finishes_a_job_that_a_helper_put_back() {
    explore("jobs: a helper goes away", Some(3), || {
        let (queue, ends) = (Arc::new(JobQueue::default()), Arc::new(Ends::default()));
        let background = worker(&queue, &ends);
        queue.push(&ends, Box::new(Steps(2)));
        queue.help(&ends, JobPriority::Background);
        ends.wait_for(1);
        queue.stop(&ends);
        background.join().unwrap();
        assert_eq!(*ends.state.lock(), (1, 0));
    });
}

/// A push beside a stop: the job is finished or abandoned, once, and the background thread ends.
#[test]
fn a_job_pushed_beside_a_stop_ends_once() {
    explore("jobs: push beside stop", Some(3), || {
        let (queue, ends) = (Arc::new(JobQueue::default()), Arc::new(Ends::default()));
        let background = worker(&queue, &ends);
        let pushing = {
            let (queue, ends) = (Arc::clone(&queue), Arc::clone(&ends));
            thread::spawn(move || queue.push(&ends, Box::new(Steps(2))))
        };
        queue.stop(&ends);
        pushing.join().unwrap();
        background.join().unwrap();
        let (done, abandoned) = *ends.state.lock();
        assert_eq!(done + abandoned, 1);
        assert_eq!(queue.counts(), (0, 0));
    });
}
