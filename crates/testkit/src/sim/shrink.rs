//! Makes a failing history shorter: what comes after the failure goes, then ever smaller pieces of what comes before, as long as something still fails.
//!
//! Images are taken only during the last operation, and survivors are drawn with a few seeds, for a history that lost an operation counts the volume's operations differently.

use super::{Budget, Failure, Plan, run_plan};
use crate::operation::Operation;

/// Seeds of survivors tried with each shorter history, beside the one that failed.
const SURVIVORS: u64 = 4;

/// A shorter plan that fails, with its failure.
///
/// `ended` may stop the search early.
#[must_use]
pub fn shrink(
    plan: &Plan,
    budget: &Budget,
    failure: Box<Failure>,
    ended: &dyn Fn() -> bool,
) -> (Plan, Box<Failure>) {
    let budget = Budget {
        nested_one_in: budget.nested_one_in.map(|one_in| one_in.min(8)),
        ..*budget
    };
    let mut best = plan.clone();
    let mut failure = failure;
    let cut = best.operations.len().min(failure.begun);
    best.operations.truncate(cut);
    // Watching only the last operation makes every attempt cheap; where that no longer fails, everything is watched.
    let mut watch_last = true;
    match try_plan(&best, &budget, watch_last) {
        Some((plan, found)) => (best, failure) = (plan, found),
        None => watch_last = false,
    }
    let mut piece = best.operations.len().div_ceil(2);
    while piece > 0 && !ended() {
        let mut at = 0;
        let mut removed = false;
        while at < best.operations.len() && !ended() {
            let mut operations: Vec<Operation> = best.operations.clone();
            operations.drain(at..(at + piece).min(operations.len()));
            let shorter = Plan {
                operations,
                ..best.clone()
            };
            match try_plan(&shorter, &budget, watch_last) {
                Some((plan, found)) => {
                    (best, failure) = (plan, found);
                    removed = true;
                }
                None => at += piece,
            }
        }
        if piece == 1 && !removed {
            break;
        }
        piece = if removed && piece == 1 { 1 } else { piece / 2 };
    }
    (best, failure)
}

/// The plan with survivors that make it fail.
fn try_plan(plan: &Plan, budget: &Budget, watch_last: bool) -> Option<(Plan, Box<Failure>)> {
    (0..=SURVIVORS).find_map(|survivors| {
        let plan = Plan {
            survivors: plan.survivors.wrapping_add(survivors),
            watch_from: if watch_last {
                plan.operations.len().saturating_sub(1)
            } else {
                0
            },
            ..plan.clone()
        };
        match run_plan(&plan, budget) {
            Ok(_) => None,
            Err(failure) => Some((plan, failure)),
        }
    })
}
