//! Cases by the number.

use super::scenario::{Plan, Totals, execute};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Steps after which an execution counts as one that does not end. Usual ones have some ten thousand.
const STEPS_MAX: usize = 3_000_000;
/// Stack of one simulated thread.
const STACK_BYTES: usize = 1 << 20;

/// Runs `schedules` schedules of a case: random ones for even cases, PCT's (with three changes of priority) for odd ones. Deterministic.
///
/// # Errors
/// The case's number and what failed; the details are on standard error.
pub fn case(case: u64, schedules: usize, totals: &Arc<Totals>) -> Result<(), String> {
    let plan = Plan::of(case);
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let in_run = Arc::clone(totals);
    let shown = format!("{plan:?}");
    let model = move || execute(&plan, &in_run);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        if case.is_multiple_of(2) {
            Runner::new(RandomScheduler::new_from_seed(case, schedules), config).run(model)
        } else {
            Runner::new(PctScheduler::new_from_seed(case, 3, schedules), config).run(model)
        }
    }));
    match ended {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("case {case} failed: {shown}")),
    }
}
