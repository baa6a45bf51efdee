//! The same random operations under every option set, each against the model; so they all agree with each other.

use glintdb_simdisk::MemVolume;
use glintdb_testkit::Runner;
use glintdb_testkit::operation::{Mix, Operation, operations};
use glintdb_testkit::options::{self, Lane};
use glintdb_testkit::place::Place;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};

/// Cases, unless the environment says more (`PROPTEST_CASES`, which proptest reads itself).
pub(crate) fn config(cases: u32) -> Config {
    let mut config = Config::with_cases(cases);
    if let Some(asked) = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
    {
        config.cases = asked;
    }
    config.failure_persistence = None;
    config.max_shrink_iters = 4_000;
    config
}

fn everywhere(operations: &[Operation]) -> Result<(), TestCaseError> {
    for set in options::of(Lane::Model) {
        let place = Place::Memory(MemVolume::with_options(set.volume));
        let runner = Runner::new(set, place).map_err(TestCaseError::fail)?;
        runner.run(operations).map_err(TestCaseError::fail)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn prop_every_option_set_agrees_with_the_model_in_memory(operations in operations(120, Mix::default())) {
        everywhere(&operations)?;
    }
}

proptest! {
    #![proptest_config(config(20))]

    #[test]
    fn prop_every_option_set_agrees_with_the_model_in_a_directory(operations in operations(120, Mix::default())) {
        for set in options::of(Lane::Model) {
            let dir = tempfile::tempdir().unwrap();
            let place = Place::Directory(dir.path().join("db"));
            let runner = Runner::new(set, place).map_err(TestCaseError::fail)?;
            runner.run(&operations).map_err(TestCaseError::fail)?;
        }
    }
}
