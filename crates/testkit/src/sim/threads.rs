//! Histories with real background threads: images are taken at random operations of any thread, while commits go on. Not reproducible; the oracle holds all the same, for what
//! was acknowledged is looked up before an image is taken, and what was begun after.
//!
//! Thread-safe: the volume's lock makes a total order of its operations, and an image is checked under it.

use super::oracle::{Cut, Oracle};
use super::{Budget, Counts, Plan};
use crate::ledger::Ledger;
use crate::model::History;
use crate::operation::Operation;
use crate::options::OptionSet;
use crate::place::Place;
use crate::rng::Rng;
use crate::runner::Runner;
use glintdb_simdisk::{CrashMode, MemVolume, Moment, Observer};
use std::sync::{Arc, Mutex};

/// One operation of the volume in so many is looked at.
const ONE_IN: u64 = 12;

struct Racing {
    set: OptionSet,
    ledger: Arc<Ledger>,
    rng: Mutex<Rng>,
    counts: Mutex<Counts>,
    failure: Mutex<Option<String>>,
}

impl Observer for Racing {
    fn before(&self, moment: &Moment<'_>) {
        let mut rng = self.rng.lock().unwrap();
        if !rng.one_in(ONE_IN) || self.failure.lock().unwrap().is_some() {
            return;
        }
        let seed = rng.number();
        let power = rng.one_in(2);
        let before = self.ledger.now();
        let image: Arc<MemVolume> = match rng.below(4) {
            _ if !power => moment.kill(),
            0 => moment.power_cut(CrashMode::LoseUnsynced),
            1 => moment.power_cut(CrashMode::KeepUnsynced),
            _ => moment.power_cut(CrashMode::Random { seed }),
        };
        let ledger = Ledger::fixed(before.until(&self.ledger.now()));
        let budget = Budget {
            nested_one_in: [0; 3],
            ..Budget::CAMPAIGN
        };
        let oracle = Arc::new(Oracle::new(self.set.clone(), budget, Arc::new(ledger)));
        let cut = Cut {
            power,
            depth: 0,
            seed,
        };
        if let Err(message) = oracle.check(image, cut) {
            let message = format!(
                "power cut {power}, before operation {} of the volume, {:?}, beside other threads: {message}",
                moment.number(),
                moment.kind()
            );
            self.failure.lock().unwrap().get_or_insert(message);
        }
        let counts = *oracle.counts.lock().unwrap();
        self.counts.lock().unwrap().add(&counts);
    }
}

/// Runs the plan with this many background threads.
///
/// # Errors
/// The first thing that is wrong: a sentence.
pub(super) fn run(plan: &Plan, threads: usize, counts: &mut Counts) -> Result<(), String> {
    let mut set = plan.set.clone();
    set.options.background_threads = threads;
    let mut history = History::default();
    let racing = Arc::new(Racing {
        set: set.clone(),
        ledger: history.ledger(),
        rng: Mutex::new(Rng::of(&[plan.seed, 0x7d])),
        counts: Mutex::default(),
        failure: Mutex::default(),
    });
    let observer = Some(Arc::clone(&racing) as Arc<dyn Observer>);
    let place = Place::Memory(MemVolume::with_options(plan.set.volume));
    let mut runner = Runner::watched(set, place, history, observer, None)?;
    let wrong = || racing.failure.lock().unwrap().clone().map_or(Ok(()), Err);
    for (index, operation) in plan.operations.iter().enumerate() {
        if matches!(operation, Operation::Crash { .. }) {
            continue;
        }
        let done = runner.step(operation);
        wrong()
            .and(done)
            .map_err(|message| format!("operation {index}, {threads} threads: {message}"))?;
    }
    let done = runner.finish();
    wrong().and(done)?;
    let mut found = *racing.counts.lock().unwrap();
    found.racing = found.crash_points;
    counts.add(&found);
    Ok(())
}
