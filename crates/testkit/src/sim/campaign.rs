//! Many seeds, on several threads, each run by itself.

use super::plan::Plan;
use super::{Budget, Counts};
use crate::options::OptionSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What a campaign came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was tried.
    pub counts: Counts,
    /// What went wrong: the first few, each with the command that repeats it.
    pub failures: Vec<String>,
}

/// Failures after which a campaign ends.
const FAILURES_MAX: usize = 5;

/// What a campaign does with a seed.
#[must_use]
pub fn planned(seed: u64, length: usize, set: Option<&OptionSet>) -> (Plan, Budget) {
    let budget = Budget::of_campaign(seed);
    // Cutting every recovery at every operation takes a hundred times as long as cutting the history alone.
    let length = match budget.nested_one_in[0] {
        1 => length.div_ceil(4),
        _ => length,
    };
    (Plan::of(seed, length, set), budget)
}

/// Runs the seeds from `first` on until then, or until too much went wrong. Histories that are under way then are run to their ends without crashes.
///
/// # Panics
/// Where a run does.
#[must_use]
pub fn campaign(
    first: u64,
    length: usize,
    threads: u64,
    set: Option<&OptionSet>,
    until: Instant,
) -> Outcome {
    let next = AtomicU64::new(first);
    let outcome = Mutex::new(Outcome::default());
    let work = || {
        while outcome.lock().unwrap().failures.len() < FAILURES_MAX {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let (plan, budget) = planned(seed, length, set);
            let budget = Budget {
                until: Some(until),
                ..budget
            };
            if budget.is_over() {
                break;
            }
            let ran = super::run_plan(&plan, &budget);
            let mut outcome = outcome.lock().unwrap();
            match ran {
                Ok(ran) => outcome.counts.add(&ran.counts),
                Err(failure) => {
                    outcome.counts.add(&failure.counts);
                    let options =
                        set.map_or_else(String::new, |set| format!(" --options {}", set.name));
                    outcome.failures.push(format!(
                        "{failure}\nrepeat with: cargo xtask sim --seed {seed} --ops {length}{options}"
                    ));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    outcome.into_inner().unwrap()
}
