//! A campaign: many seeds on several threads, each a run by itself.

use super::plan::Plan;
use super::{Budget, Counts};
use crate::options::OptionSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The result of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Counts of what was tried.
    pub counts: Counts,
    /// The first failures, each with the command that repeats it.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Adds the outcome of another campaign.
    pub fn add(&mut self, other: Outcome) {
        self.counts.add(&other.counts);
        self.failures.extend(other.failures);
    }
}

/// Failures after which a campaign ends.
const FAILURES_MAX: usize = 5;

/// Returns the plan and the budget of a seed in a campaign.
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

/// Runs the seeds from `first` on until `until`, or until there are five failures. Histories under
/// way at that time run to their ends without crashes.
///
/// # Panics
/// If a run does.
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
