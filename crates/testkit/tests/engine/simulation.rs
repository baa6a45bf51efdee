//! The simulation itself: that a seed does the same twice, that every kind of run goes through, and that a broken promise is seen and its history made shorter.

use glintdb_testkit::Operation;
use glintdb_testkit::options::{self, Lane};
use glintdb_testkit::sim::plan::Plan;
use glintdb_testkit::sim::{self, Budget, Errors};

#[test]
fn the_same_seed_does_the_same_twice_and_another_one_something_else() {
    let budget = Budget {
        crashes: false,
        errors: Errors::None,
        ..Budget::CAMPAIGN
    };
    let mut traces = Vec::new();
    for set in options::of(Lane::Sim) {
        for seed in 0..4 {
            let plan = Plan::of(seed, 60, Some(&set));
            let ran = sim::run_plan(&plan, &budget).unwrap();
            let again = sim::run_plan(&plan, &budget).unwrap();
            assert_eq!(ran, again, "seed {seed}, options {}", set.name);
            traces.push(ran.trace);
        }
    }
    let runs = traces.len();
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), runs, "two different runs did the same");
}

#[test]
fn crashes_and_errors_at_every_operation_of_a_few_histories_lose_nothing() {
    let budget = Budget {
        nested_one_in: [32, 256, 256],
        errors: Errors::Some(40),
        ..Budget::CAMPAIGN
    };
    for seed in 0..6 {
        let counts = sim::run(seed, 16, &budget).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(counts.crash_points > 500 && counts.nested > 0, "{counts:?}");
        assert!(counts.kills > 0 && counts.identical > 0, "{counts:?}");
        assert!(counts.errors_injected > 20, "{counts:?}");
    }
}

#[test]
fn images_taken_beside_background_threads_hold_what_was_acknowledged() {
    let budget = Budget {
        crashes: false,
        errors: Errors::None,
        threads: 2,
        ..Budget::CAMPAIGN
    };
    let mut racing = 0;
    for seed in 0..12 {
        let counts = sim::run(seed, 60, &budget).unwrap_or_else(|failure| panic!("{failure}"));
        racing += counts.racing;
    }
    assert!(racing > 100, "{racing}");
}

/// A promise that nobody made: that a power cut keeps what was acknowledged at `Os`.
#[test]
fn a_broken_promise_is_seen_and_its_history_made_shorter() {
    let budget = Budget {
        promise_too_much: true,
        errors: Errors::None,
        ..Budget::CAMPAIGN
    };
    let (plan, failure) = (0..8)
        .find_map(|seed| {
            let plan = Plan::of(seed, 30, None);
            let failure = sim::run_plan(&plan, &budget).err()?;
            Some((plan, failure))
        })
        .unwrap();
    assert!(failure.message.contains("commits are lost"), "{failure}");
    let (shorter, failure) = sim::shrink(&plan, &budget, failure, &|| false);
    assert!(failure.message.contains("commits are lost"), "{failure}");
    assert!(
        shorter.operations.len() <= 3,
        "{:?}",
        shorter.operations.iter().collect::<Vec<&Operation>>()
    );
}
