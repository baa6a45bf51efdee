//! Runs a [`Setup`] by the machine's clock: a thread for each reader and writer, which sleeps until
//! what it waits for is done.
//!
//! The threads share a simulation under a lock. Each handles the events of its own worker when
//! their time has come. Operations reach the device in the order in which the threads get the lock,
//! at the clock's time. A thread that wakes late begins its next operation late, as on a device, so
//! outcomes differ from run to run.

use super::setup::Setup;
use super::simulation::{Outcome, Simulation};
use crate::report::Latencies;
use glintdb_core::clock::Clock;
use glintdb_flash::SystemClock;
use glintdb_flash::emulator::nand::Ns;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The end of a wait in which a thread spins, because the kernel wakes sleepers that late.
const SPIN_NS: Ns = 60_000;

/// What came of a run in real time.
#[derive(Clone, Debug)]
pub struct Paced {
    /// What came of it. Latencies and times are those of the machine's clock.
    pub outcome: Outcome,
    /// How late waits ended, one for each command and each step of an erase.
    pub late: Latencies,
}

struct Shared<'a> {
    simulation: Simulation<'a>,
    /// Times and numbers of each worker's events.
    queues: Vec<BinaryHeap<Reverse<(Ns, u64)>>>,
    late: Latencies,
    begin: Duration,
    error: Option<String>,
}

impl Shared<'_> {
    /// Gives new events to the queues of their workers, which are returned.
    fn distribute(&mut self) -> Vec<usize> {
        let mut workers = Vec::new();
        while let Some((time, number)) = self.simulation.next_event() {
            if let Some(worker) = self.simulation.worker_of(number) {
                self.queues[worker].push(Reverse((time, number)));
                workers.push(worker);
            }
        }
        workers
    }
}

struct Pacer<'a> {
    shared: Mutex<Shared<'a>>,
    /// Of each worker: its queue has a new event, or the run is over.
    wakes: Vec<Condvar>,
    clock: SystemClock,
}

/// Runs `setup` in real time.
///
/// # Errors
/// As [`simulate`](super::simulate), or the system gives no thread.
pub fn run_in_real_time(setup: &Setup) -> Result<Paced, String> {
    let mut simulation = Simulation::new(setup, false)?;
    simulation.start();
    let workers = (setup.readers + setup.writers) as usize;
    let mut shared = Shared {
        simulation,
        queues: vec![BinaryHeap::new(); workers],
        late: Latencies::new(),
        begin: Duration::ZERO,
        error: None,
    };
    shared.distribute();
    let pacer = Pacer {
        shared: Mutex::new(shared),
        wakes: (0..workers).map(|_| Condvar::new()).collect(),
        clock: SystemClock::new(),
    };
    std::thread::scope(|scope| {
        // The threads begin together, when the lock is free.
        let mut shared = pacer.lock();
        let pacer = &pacer;
        for worker in 0..workers {
            let thread = std::thread::Builder::new().name(format!("flash-bench-{worker}"));
            if let Err(error) = thread.spawn_scoped(scope, move || pacer.work(worker)) {
                shared.error = Some(format!("cannot start a thread for each worker: {error}"));
                break;
            }
        }
        shared.begin = pacer.clock.monotonic();
    });
    let shared = pacer.shared.into_inner();
    let shared = shared.unwrap_or_else(PoisonError::into_inner);
    match shared.error {
        Some(error) => Err(error),
        None => Ok(Paced {
            outcome: shared.simulation.into_outcome(),
            late: shared.late,
        }),
    }
}

impl<'a> Pacer<'a> {
    fn lock(&self) -> MutexGuard<'_, Shared<'a>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock's time since the run began.
    fn now(&self, begin: Duration) -> Ns {
        let now = self.clock.monotonic().saturating_sub(begin);
        Ns::try_from(now.as_nanos()).unwrap_or(Ns::MAX)
    }

    /// Handles the worker's events until the run is over.
    fn work(&self, worker: usize) {
        let mut shared = self.lock();
        let begin = shared.begin;
        while shared.error.is_none() && !shared.simulation.is_over() {
            let wake = &self.wakes[worker];
            let Some(Reverse((time, number))) = shared.queues[worker].peek().copied() else {
                // It waits for a lock of the setup, or has done its part.
                shared = wake.wait(shared).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let now = self.now(begin);
            if now + SPIN_NS < time {
                let sleep = Duration::from_nanos(time - SPIN_NS - now);
                let woken = wake.wait_timeout(shared, sleep);
                shared = woken.unwrap_or_else(PoisonError::into_inner).0;
            } else if now < time {
                drop(shared);
                while self.now(begin) < time {
                    std::hint::spin_loop();
                }
                shared = self.lock();
            } else {
                shared.queues[worker].pop();
                if shared.simulation.is_wait(number) {
                    shared.late.record(Duration::from_nanos(now - time));
                }
                let handled = shared.simulation.handle(now, number);
                shared.error = handled.err();
                for woken in shared.distribute() {
                    self.wakes[woken].notify_one();
                }
            }
        }
        drop(shared);
        for wake in &self.wakes {
            wake.notify_all();
        }
    }
}
