//! Crashes of a volume in memory: between operations, in the middle of any operation of the volume, and again in the middle of recovery.
//!
//! After each, the database must hold a prefix of the commits with everything that was acknowledged at a sufficient level (`Os` for a kill, `Sync` for a power
//! cut), batches whole; it must verify, hold the same after another opening, and take writes.

use crate::prop::config;
use glintdb_testkit::Runner;
use glintdb_testkit::operation::{Mix, Operation, operations};
use glintdb_testkit::options::{self, Lane, OptionSet};
use glintdb_testkit::place::Place;
use glintdb_testkit::rng::Rng;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{TestCaseError, TestRng, TestRunner};

fn run(set: OptionSet, operations: &[Operation]) -> Result<(), String> {
    Runner::new(set, Place::memory())?.run(operations)
}

proptest! {
    #![proptest_config(config(250))]

    #[test]
    fn prop_a_crash_leaves_a_prefix_with_everything_acknowledged(operations in operations(80, Mix { crashes: true })) {
        for set in options::of(Lane::Model) {
            run(set, &operations).map_err(TestCaseError::fail)?;
        }
    }
}

/// Operations of the volume at which a sequence is cut.
const STEPS: u64 = 600;

/// The same operations, cut at every operation of the volume in turn: from ten places in the sequence, each of the next 60.
#[test]
fn a_power_cut_at_every_step_of_the_volume_loses_nothing_acknowledged() {
    let mut runner = TestRunner::new_with_rng(
        config(1),
        TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &[7; 32]),
    );
    let operations = operations(60, Mix::default())
        .new_tree(&mut runner)
        .unwrap()
        .current();
    let mut rng = Rng::new(11);
    for set in options::deterministic() {
        for step in 0..STEPS {
            // A seed that plans the crash `step` operations ahead, with survivors and crashes in recovery chosen by the rest of its bits.
            let mut seed = rng.number();
            seed = (seed & !0xff00) | (step % 60) << 8;
            while seed.is_multiple_of(3) {
                seed += 1;
            }
            let place = (step / 60) as usize * operations.len() / (STEPS / 60) as usize;
            let mut cut = operations.clone();
            let crash = Operation::Crash {
                power_cut: step % 3 != 0,
                seed,
            };
            cut.insert(place, crash);
            run(set.clone(), &cut)
                .unwrap_or_else(|message| panic!("step {step}, seed {seed}: {message}"));
        }
    }
}
