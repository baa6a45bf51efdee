//! The same histories on a volume that fails at its N-th operation: with an I/O error, half a
//! write, no space, no descriptor, no permission, or a sync that loses its data and lies from then
//! on; once, or from there on. And on one that reads or writes in the wrong place and says nothing.
//!
//! The database may return errors, and nothing of a write that returned one is seen. When the
//! medium works again, every image that a kill or a power cut leaves must open and hold a prefix of
//! the commits with everything acknowledged, as the [oracle](super::oracle) has it. After a
//! misdirected operation less is asked: an error, or a value that the key had at some time.

use super::oracle::{Cut, Oracle};
use super::{Budget, Counts, Plan};
use crate::model::{History, State};
use crate::operation::{KEYS, Key, Operation, SPACES, Space};
use crate::place::Place;
use crate::rng::Rng;
use crate::runner::{Faulty, Runner};
use glintdb::{Db, ErrorKind};
use glintdb_simdisk::{CrashMode, Fault, FaultKind, MemVolume};
use std::sync::Arc;

/// What is injected, and whether it stays.
const FAULTS: [(FaultKind, bool); 11] = [
    (FaultKind::Io, false),
    (FaultKind::Io, true),
    (FaultKind::NoSpace, false),
    (FaultKind::NoSpace, true),
    (FaultKind::SyncLosesData, false),
    (FaultKind::ShortWrite, false),
    (FaultKind::MisdirectedRead, false),
    (FaultKind::MisdirectedWrite, false),
    (FaultKind::NoDescriptor, false),
    (FaultKind::NoDescriptor, true),
    (FaultKind::NoPermission, true),
];

/// A run with a fault: everything follows from these.
#[derive(Clone, Copy, Debug)]
struct Injected {
    fault: Fault,
    seed: u64,
}

/// Runs the plan with faults at as many operations of the volume as the budget says.
///
/// # Errors
/// The first thing that is wrong: a sentence.
pub(super) fn run(plan: &Plan, budget: &Budget, counts: &mut Counts) -> Result<(), String> {
    // A crash makes a new volume, and what `verify` answers of a medium that fails is a report full
    // of errors.
    let wanted =
        |operation: &&Operation| !matches!(operation, Operation::Crash { .. } | Operation::Verify);
    let operations: Vec<Operation> = plan.operations.iter().filter(wanted).cloned().collect();
    let steps = operations_of_volume(plan, &operations)?;
    let mut rng = Rng::of(&[plan.seed, 0xe0]);
    let chosen: Vec<u64> = match budget.errors {
        Errors::None => Vec::new(),
        Errors::Some(number) => (0..number).map(|_| rng.below(steps)).collect(),
        Errors::All => (0..steps).collect(),
    };
    for at_operation in chosen {
        if budget.is_over() {
            break;
        }
        let (kind, sticky) = FAULTS[rng.below(FAULTS.len() as u64) as usize];
        let injected = Injected {
            fault: Fault {
                at_operation,
                kind,
                sticky,
            },
            seed: rng.number(),
        };
        with_fault(plan, &operations, budget, injected, counts)
            .map_err(|message| format!("{:?}: {message}", injected.fault))?;
    }
    Ok(())
}

/// At how many operations errors are injected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errors {
    /// None.
    None,
    /// So many of a history's.
    Some(u64),
    /// Each of them.
    All,
}

/// How many operations of the volume a run without faults has.
fn operations_of_volume(plan: &Plan, operations: &[Operation]) -> Result<u64, String> {
    let volume = MemVolume::with_options(plan.set.volume);
    let mut runner = runner(plan, &volume, History::default())?;
    for operation in operations {
        runner.step(operation)?;
    }
    Ok(volume.operation_count())
}

fn runner(plan: &Plan, volume: &Arc<MemVolume>, history: History) -> Result<Runner, String> {
    let place = Place::Memory(Arc::clone(volume));
    Runner::watched(plan.set.clone(), place, history, None, Some(plan.seed))
}

fn with_fault(
    plan: &Plan,
    operations: &[Operation],
    budget: &Budget,
    Injected { fault, seed }: Injected,
    counts: &mut Counts,
) -> Result<(), String> {
    let options = glintdb_simdisk::MemOptions {
        seed,
        ..plan.set.volume
    };
    let volume = MemVolume::with_options(options);
    volume.fail(fault);
    let mut history = History::default();
    let ledger = history.ledger();
    let misdirected = matches!(
        fault.kind,
        FaultKind::MisdirectedRead | FaultKind::MisdirectedWrite
    );
    // All states there ever were, for what a misdirected operation may leave.
    let mut states = vec![State::default()];
    let mut expected = vec![ErrorKind::Io, ErrorKind::Poisoned, ErrorKind::NoSpace];
    let unavailable = matches!(
        fault.kind,
        FaultKind::NoDescriptor | FaultKind::NoPermission
    );
    if unavailable {
        // Neither `Io` nor `Poisoned`: no write or sync fails.
        expected = vec![ErrorKind::Unavailable, ErrorKind::NoSpace];
    }
    if misdirected {
        expected.extend([ErrorKind::Corruption, ErrorKind::UnsupportedFormat]);
    }
    let reads_fail = misdirected
        || fault.kind == FaultKind::NoDescriptor
        || (fault.kind == FaultKind::Io && fault.sticky);
    // An open that fails has nothing to show; what it left is judged like everything else.
    let mut runner = runner(plan, &volume, history).ok();
    if let Some(runner) = &mut runner {
        for operation in operations {
            let stepped = runner.step_with_faults(operation, &expected, reads_fail)?;
            if misdirected {
                states.extend(ledger.now().states().iter().cloned());
            }
            if matches!(stepped, Faulty::Ended(_)) {
                break;
            }
        }
    }
    counts.errors_injected += u64::from(volume.fault_count() > 0);
    volume.clear_faults();
    let images = [
        (false, volume.kill()),
        (true, volume.crash(CrashMode::LoseUnsynced)),
        (true, volume.crash(CrashMode::Random { seed })),
    ];
    drop(runner);
    if misdirected {
        return images
            .iter()
            .try_for_each(|(_, image)| never_a_wrong_value(plan, image, &states));
    }
    let oracle = Arc::new(Oracle::new(plan.set.clone(), *budget, ledger));
    for (power, image) in images {
        let cut = Cut {
            power,
            depth: 1,
            seed,
        };
        oracle
            .check(image, cut)
            .map_err(|message| format!("then, power cut {power}: {message}"))?;
    }
    counts.add(&oracle.counts.lock().unwrap());
    Ok(())
}

/// Opening and reading give errors, or values that stood there at some time.
fn never_a_wrong_value(
    plan: &Plan,
    image: &Arc<MemVolume>,
    states: &[State],
) -> Result<(), String> {
    let options = plan.set.options.clone();
    let opened = Place::Memory(Arc::clone(image)).open_in_order(options, Some(plan.seed));
    let detected = |error: &glintdb::Error| {
        let kinds = [
            ErrorKind::Corruption,
            ErrorKind::UnsupportedFormat,
            ErrorKind::NotFound,
            ErrorKind::Poisoned,
        ];
        match kinds.contains(&error.kind()) {
            true => Ok(()),
            false => Err(format!("an error that no fault explains: {error}")),
        }
    };
    let db: Db = match opened {
        Ok(db) => db,
        Err(error) => return detected(&error),
    };
    for space in (0..SPACES).map(Space) {
        let keyspace = match db.keyspace(&space.name()) {
            Ok(keyspace) => keyspace,
            Err(error) => {
                detected(&error)?;
                continue;
            }
        };
        for key in (0..KEYS).map(|n| Key(n).bytes()) {
            let value = match keyspace.get(&key) {
                Ok(value) => value,
                Err(error) => {
                    detected(&error)?;
                    continue;
                }
            };
            if !states
                .iter()
                .any(|state| state.get(space, &key) == value.as_deref())
            {
                return Err(format!(
                    "{space:?} key {}: a value of {:?} bytes that was never there",
                    key.escape_ascii(),
                    value.map(|value| value.len())
                ));
            }
        }
    }
    Ok(())
}
