//! Sequences of operations from fixed seeds, against the model: in memory, in a directory, with crashes.

use super::lanes::Steps;
use crate::operation::{Mix, Operation, operations};
use crate::options::{self, OptionSet};
use crate::place::Place;
use crate::rng::Rng;
use crate::runner::Runner;
use glintdb_flash::{MemOptions, MemVolume};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::path::Path;

/// Sequences a lane runs, each under every option set.
const MODEL_SEQUENCES: u64 = 60;
const DIRECTORY_SEQUENCES: u64 = 10;
const CRASH_SEQUENCES: u64 = 250;

/// Sequences from a seed.
pub(super) struct Sequences {
    runner: TestRunner,
    mix: Mix,
    operations_max: usize,
}

impl Sequences {
    pub(super) fn new(seed: u64, mix: Mix, operations_max: usize) -> Sequences {
        let seed = Rng::new(seed).bytes(32);
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        Sequences {
            runner: TestRunner::new_with_rng(Config::default(), rng),
            mix,
            operations_max,
        }
    }

    pub(super) fn next(&mut self) -> Vec<Operation> {
        let strategy = operations(self.operations_max, self.mix);
        let tree = strategy.new_tree(&mut self.runner);
        tree.expect("nothing is filtered").current()
    }
}

/// Applies a sequence, counting its operations.
pub(super) fn apply(set: &OptionSet, place: Place, operations: &[Operation]) -> Result<(), String> {
    let failed = |at: &str, message| format!("options `{}`, {at}: {message}", set.name);
    let mut runner = Runner::new(set.clone(), place)?;
    for (index, operation) in operations.iter().enumerate() {
        Steps::count();
        runner
            .step(operation)
            .map_err(|message| failed(&format!("operation {index}"), message))?;
    }
    runner
        .finish()
        .map_err(|message| failed("at the end", message))
}

pub(super) fn model() -> Result<(), String> {
    let mut sequences = Sequences::new(1, Mix::default(), 200);
    for _ in 0..MODEL_SEQUENCES {
        let operations = sequences.next();
        for set in options::deterministic() {
            apply(&set, Place::memory(), &operations)?;
        }
    }
    Ok(())
}

pub(super) fn directory(dir: &Path) -> Result<(), String> {
    let mut sequences = Sequences::new(2, Mix::default(), 200);
    for number in 0..DIRECTORY_SEQUENCES {
        let operations = sequences.next();
        for (set, options) in options::all().iter().enumerate() {
            let place = dir.join(format!("{number}-{set}"));
            apply(options, Place::Directory(place.clone()), &operations)?;
            std::fs::remove_dir_all(place).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

pub(super) fn crash() -> Result<(), String> {
    let mut sequences = Sequences::new(3, Mix { crashes: true }, 120);
    for number in 0..CRASH_SEQUENCES {
        let operations = sequences.next();
        for set in options::deterministic() {
            // A ring in plain memory, which is what a file system without shared mappings gives.
            let volume = MemVolume::with_options(MemOptions {
                ring_survives_kill: number % 4 != 3,
                ..MemOptions::default()
            });
            apply(&set, Place::Memory(volume), &operations)?;
        }
    }
    Ok(())
}
