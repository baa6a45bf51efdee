//! The lanes that a planted mistake must get past. Each does a fixed amount of work from fixed seeds, and stops at the first thing that is wrong.

use super::{damage, faults, killing, sequences, threads};
use crate::histories::round::Round;
use crate::histories::stage::Crash;
use crate::options;
use crate::place::Place;
use crate::sim::{self, Budget, Plan};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A part of the harness.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lane {
    /// Random operations against the model, in memory, without crashes.
    Model,
    /// The same in a directory, with background threads too.
    Directory,
    /// Operations with kills and power cuts, at every moment and in recovery too.
    Crash,
    /// Simulation: a crash at every operation of the volume, with many survivors, and in recovery again.
    Sim,
    /// An I/O error, a full disk, a failed sync at the N-th operation of the volume.
    Faults,
    /// Files damaged, cut, swapped and exchanged.
    Damage,
    /// Real threads.
    Threads,
    /// Real threads, whose histories must be linearizable, across kills and power cuts.
    Histories,
    /// Real processes, killed.
    Kill,
}

impl Lane {
    /// All of them, the cheapest first.
    pub const ALL: [Lane; 9] = [
        Lane::Model,
        Lane::Directory,
        Lane::Crash,
        Lane::Faults,
        Lane::Damage,
        Lane::Threads,
        Lane::Histories,
        Lane::Kill,
        Lane::Sim,
    ];

    /// As it is written in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Lane::Model => "model",
            Lane::Directory => "directory",
            Lane::Crash => "crash",
            Lane::Sim => "sim",
            Lane::Faults => "faults",
            Lane::Damage => "damage",
            Lane::Threads => "threads",
            Lane::Histories => "histories",
            Lane::Kill => "kill",
        }
    }

    /// The lane of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Lane> {
        Lane::ALL.into_iter().find(|lane| lane.name() == name)
    }

    /// What a step of it is.
    #[must_use]
    pub fn step(self) -> &'static str {
        match self {
            Lane::Model | Lane::Directory | Lane::Crash => "operations",
            Lane::Sim => "crash points",
            Lane::Faults => "runs with a fault",
            Lane::Damage => "damaged databases",
            Lane::Threads => "operations",
            Lane::Histories => "calls",
            Lane::Kill => "processes killed",
        }
    }

    /// Does its work; `dir` is empty and its own.
    ///
    /// # Errors
    /// What is wrong.
    pub fn run(self, dir: &Path) -> Result<(), String> {
        match self {
            Lane::Model => sequences::model(),
            Lane::Directory => sequences::directory(dir),
            Lane::Crash => sequences::crash(),
            Lane::Sim => simulation(),
            Lane::Faults => faults::run(),
            Lane::Damage => damage::run(dir),
            Lane::Threads => threads::run(dir),
            Lane::Histories => histories(),
            Lane::Kill => killing::run(dir),
        }
    }
}

/// Histories of the simulation, and how long each is.
const HISTORIES: u64 = 2;
const HISTORY_OPERATIONS: usize = 40;

/// Rounds of histories, each a database with so many calls in each of its epochs.
const ROUNDS: u64 = 6;
const CALLS: u64 = 2000;

fn histories() -> Result<(), String> {
    let sets = options::of(options::Lane::Histories);
    for number in 0..ROUNDS {
        let round = Round {
            set: sets[number as usize % sets.len()].clone(),
            epochs: vec![
                Crash::None,
                Crash::Kill,
                Crash::PowerCut,
                Crash::TornPowerCut,
            ],
            clients: 8,
            calls: CALLS,
            seed: number,
            wrong: None,
            loose: false,
        };
        let found = round.registers(Place::memory())?;
        Steps::add(found.calls);
        if let Some(wrong) = found.wrong.first() {
            return Err(wrong.clone());
        }
    }
    Ok(())
}

fn simulation() -> Result<(), String> {
    // The second one collects garbage at every occasion.
    for plan in (1..=HISTORIES).map(|seed| Plan::of(seed, HISTORY_OPERATIONS, None)) {
        match sim::run_plan(&plan, &Budget::CAMPAIGN).map(|ran| ran.counts) {
            Ok(counts) => Steps::add(counts.crash_points),
            Err(failure) => {
                Steps::add(failure.counts.crash_points);
                return Err(failure.to_string());
            }
        }
    }
    Ok(())
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

static STEPS: AtomicU64 = AtomicU64::new(0);

/// Steps of the lane that runs, for the whole process: what a panic anywhere can still tell.
pub struct Steps;

impl Steps {
    /// A lane begins.
    pub fn reset() {
        STEPS.store(0, Ordering::Relaxed);
    }

    /// One more.
    pub fn count() {
        Steps::add(1);
    }

    /// So many more.
    pub fn add(number: u64) {
        STEPS.fetch_add(number, Ordering::Relaxed);
    }

    /// So many.
    #[must_use]
    pub fn so_far() -> u64 {
        STEPS.load(Ordering::Relaxed)
    }
}
