//! Deterministic simulation: a seed decides options, operations, the order of jobs, and at every operation of the volume which images crashes leave there. The engine is
//! the one that everybody runs; the volume is in memory, jobs run on the caller's thread, clock and identity are given.
//!
//! - [`plan`]: what a seed stands for.
//! - `oracle`: what must hold of an image that a crash leaves; `watcher` takes the images.
//! - `errors`: the same histories on a volume that fails, or reads and writes in the wrong place.
//! - `threads`: the same histories beside real background threads.
//! - `shrink`: makes a failing history shorter.
//! - `trace`: a hash over everything that was done and answered: the same seed gives the same one.
//!
//! Thread-safe: runs share nothing.

mod campaign;
mod counts;
mod errors;
mod oracle;
pub mod plan;
mod shrink;
mod threads;
mod trace;
mod watcher;

pub use campaign::{Outcome, campaign, planned};
pub use counts::Counts;
pub use errors::Errors;
pub(crate) use oracle::hash_of;
pub use plan::Plan;
pub use shrink::shrink;

use crate::model::History;
use crate::place::Place;
use crate::runner::Runner;
use glintdb_simdisk::{MemVolume, Observer};
use oracle::{Cut, Oracle};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use trace::{Both, Trace};
use watcher::Watcher;

/// How much is tried at each operation of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Power cuts with random survivors, beside none, all, a prefix, garbage and the middle of the operation.
    pub random_survivors: u32,
    /// One image in so many is cut again at every operation of its recovery; the second number is for images of that depth, the third for the next. 0: none.
    pub nested_one_in: [u64; 3],
    /// Whether crashes are tried at all.
    pub crashes: bool,
    /// Where errors are injected.
    pub errors: Errors,
    /// Asks for more than is promised: that a power cut keeps what was acknowledged at `Os`. For tests of the oracle.
    pub promise_too_much: bool,
    /// Background threads of a run beside; 0: no such run. What it does is not the same twice.
    pub threads: usize,
    /// From then on what is left of a history is run without crashes and errors; `None`: never.
    pub until: Option<Instant>,
}

impl Budget {
    /// For many seeds.
    pub const CAMPAIGN: Budget = Budget {
        random_survivors: 2,
        nested_one_in: [64, 64, 0],
        crashes: true,
        errors: Errors::Some(24),
        promise_too_much: false,
        threads: 0,
        until: None,
    };

    /// Whether its time is over.
    #[expect(clippy::disallowed_methods, reason = "campaigns end in real time")]
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// What a campaign spends on this seed: most get the ordinary budget; one in 16 has each image cut again in its recovery, or errors at each operation, or background
    /// threads.
    #[must_use]
    pub fn of_campaign(seed: u64) -> Budget {
        let ordinary = Budget::CAMPAIGN;
        match seed % 16 {
            0 => Budget {
                random_survivors: 1,
                nested_one_in: [1, 512, 64],
                errors: Errors::None,
                ..ordinary
            },
            1 => Budget {
                errors: Errors::All,
                ..ordinary
            },
            2 => Budget {
                threads: 2,
                ..ordinary
            },
            _ => ordinary,
        }
    }
}

/// What a run that went well was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ran {
    /// What was tried.
    pub counts: Counts,
    /// Hash of everything that was done and answered.
    pub trace: u64,
}

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The run.
    pub seed: u64,
    /// Name of the option set.
    pub options: &'static str,
    /// Operations of the history that were begun.
    pub begun: usize,
    /// What is wrong.
    pub message: String,
    /// What was tried until then.
    pub counts: Counts,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "seed {}, options {}, operation {}: {}",
            self.seed, self.options, self.begun, self.message
        )
    }
}

/// Runs the history of a seed: `operations` long, with as many crashes as `budget` says.
///
/// # Errors
/// The first thing that is wrong.
pub fn run(seed: u64, operations: usize, budget: &Budget) -> Result<Counts, Box<Failure>> {
    run_plan(&Plan::of(seed, operations, None), budget).map(|ran| ran.counts)
}

/// Runs a plan.
///
/// # Errors
/// The first thing that is wrong.
pub fn run_plan(plan: &Plan, budget: &Budget) -> Result<Ran, Box<Failure>> {
    let mut history = History::default();
    let set = plan.set.clone();
    let oracle = Arc::new(Oracle::new(set.clone(), *budget, history.ledger()));
    let cut = Cut {
        power: false,
        depth: 0,
        seed: plan.survivors,
    };
    let watcher = Arc::new(Watcher::new(Arc::clone(&oracle), cut));
    let trace = Arc::new(Trace::default());
    let observer: Arc<dyn Observer> = if budget.crashes {
        Arc::new(Both(Arc::clone(&trace), Arc::clone(&watcher)))
    } else {
        Arc::clone(&trace) as _
    };
    let place = Place::Memory(MemVolume::with_options(plan.set.volume));
    let mut begun = 0;
    let run = || -> Result<(), String> {
        let sleep = |asleep| watcher.asleep.store(asleep, Ordering::Relaxed);
        sleep(plan.watch_from > 0);
        let wrong = |watcher: &Watcher| watcher.failure().map_or(Ok(()), Err);
        let runner = Runner::watched(set, place, history, Some(observer), Some(plan.seed));
        wrong(&watcher)?;
        let mut runner = runner?;
        for operation in &plan.operations {
            begun += 1;
            sleep(plan.watch_from >= begun);
            let done = runner.step(operation);
            trace.answer(&done);
            wrong(&watcher).and(done)?;
        }
        let done = runner.finish();
        wrong(&watcher).and(done)
    };
    let mut outcome = run();
    let mut counts = *oracle.counts.lock().unwrap();
    counts.histories = 1;
    counts.operations = begun as u64;
    if outcome.is_ok() && plan.watch_from == 0 {
        outcome = errors::run(plan, budget, &mut counts);
    }
    if outcome.is_ok() && plan.watch_from == 0 && budget.threads > 0 && !budget.is_over() {
        outcome = threads::run(plan, budget.threads, &mut counts);
    }
    match outcome {
        Ok(()) => Ok(Ran {
            counts,
            trace: trace.hash(),
        }),
        Err(message) => Err(Box::new(Failure {
            seed: plan.seed,
            options: plan.set.name,
            begun,
            message,
            counts,
        })),
    }
}
