//! Target `operations`: a sequence of operations with crashes, run against the model by the [`Runner`] on a volume in memory.
//!
//! Asserts what the runner does: every answer is the model's; after a kill or a power cut, at any operation of the volume and again in recovery, the database holds a prefix of
//! the commits with everything that was acknowledged at a sufficient level.

use super::input::Input;
use crate::operation::{
    Change, KEYS, Key, Operation, Range, SNAPSHOTS, SPACES, Space, Step, Value, Walk, Write,
};
use crate::options;
use crate::place::Place;
use crate::runner::Runner;
use glintdb::Durability;
use std::ops::Bound;

const OPERATIONS_MAX: usize = 60;

fn space(input: &mut Input<'_>) -> Space {
    Space([0, 0, 0, 0, 1, 1, 2][usize::from(input.u8() % 7)] % SPACES)
}

fn key(input: &mut Input<'_>) -> Key {
    Key(input.u8() % KEYS)
}

fn range(input: &mut Input<'_>) -> Range {
    let bound = |kind: u8, key: Key| match kind % 3 {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    };
    match input.u8() {
        0 => Range::All,
        kind @ 1..16 => Range::Prefix(Key(kind % KEYS)),
        kind => {
            let (lower, upper) = (key(input), key(input));
            Range::Between(bound(kind, lower), bound(kind >> 2, upper))
        }
    }
}

fn write(input: &mut Input<'_>) -> Write {
    let space = space(input);
    let change = match input.u8() % 12 {
        0..=7 => {
            let (key, seed) = (key(input), input.u8());
            let lengths = [0, 7, 40, 64, 200, 600, 5000, 30_000];
            let length = lengths[usize::from(seed & 7)] + u32::from(seed >> 3);
            Change::Put(key, Value { length, seed })
        }
        8..=10 => Change::Delete(key(input)),
        _ => Change::DeleteRange(range(input)),
    };
    Write { space, change }
}

fn writes(input: &mut Input<'_>, max: u8) -> Vec<Write> {
    (0..input.u8() % (max + 1)).map(|_| write(input)).collect()
}

fn durability(input: &mut Input<'_>) -> Durability {
    match input.u8() % 4 {
        0 => Durability::Buffered,
        1 => Durability::Sync,
        _ => Durability::Os,
    }
}

fn keys(input: &mut Input<'_>) -> Vec<Key> {
    (0..=input.u8() % 6).map(|_| key(input)).collect()
}

fn walk(input: &mut Input<'_>) -> Walk {
    Walk {
        range: range(input),
        backwards: input.u32(),
        records_max: input.u8(),
        keys_only: input.u8() & 1 != 0,
    }
}

fn steps(input: &mut Input<'_>) -> Vec<Step> {
    let step = |input: &mut Input<'_>| match input.u8() % 4 {
        0 => Step::Get(space(input), key(input)),
        1 => Step::Scan(space(input), range(input)),
        _ => Step::Write(write(input)),
    };
    (0..input.u8() % 4).map(|_| step(input)).collect()
}

fn operation(input: &mut Input<'_>) -> Operation {
    match input.u8() % 32 {
        0..=7 => Operation::Write(write(input), durability(input)),
        8..=10 => Operation::Batch(writes(input, 8), durability(input)),
        11 => {
            let batches = (0..input.u8() % 4).map(|_| writes(input, 3)).collect();
            Operation::Group(batches, durability(input))
        }
        12 | 13 => {
            let flags = input.u8();
            Operation::Transaction {
                serializable: flags & 1 != 0,
                before: steps(input),
                interfering: writes(input, 2),
                after: steps(input),
                commit: flags & 2 == 0,
            }
        }
        14 | 15 => Operation::Read(space(input), keys(input)),
        16 | 17 => Operation::Iterate(space(input), walk(input), writes(input, 2)),
        18 => Operation::Snapshot(input.u8() % SNAPSHOTS),
        19 => Operation::ReadSnapshot(
            input.u8() % SNAPSHOTS,
            space(input),
            keys(input),
            walk(input),
        ),
        20 => Operation::DropSnapshot(input.u8() % SNAPSHOTS),
        21 | 22 => Operation::Flush,
        23 => Operation::FlushLog(durability(input)),
        24 => match input.u8() % 4 {
            0 => Operation::Compact(None),
            2 => Operation::Convert(space(input), input.u8()),
            1 => Operation::Compact(Some(space(input))),
            _ => Operation::CompactValues(space(input)),
        },
        25 => Operation::Reopen,
        26 => Operation::Create(space(input)),
        27 => Operation::Drop(space(input)),
        28 => Operation::Verify,
        29 => Operation::SetOptions(space(input), input.u8()),
        _ => Operation::Crash {
            power_cut: input.u8() & 1 == 0,
            seed: input.u64(),
        },
    }
}

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let sets = options::deterministic();
    // The first set is for large databases; its ring alone takes longer to make than a sequence does to run.
    let set = sets[1 + usize::from(input.u8()) % (sets.len() - 1)].clone();
    let mut operations: Vec<Operation> = (1..SPACES)
        .map(|space| Operation::Create(Space(space)))
        .collect();
    while !input.is_empty() && operations.len() < OPERATIONS_MAX {
        operations.push(operation(&mut input));
    }
    let runner = Runner::new(set, Place::memory()).expect("a new database");
    if let Err(message) = runner.run(&operations) {
        panic!("{message}\n{operations:?}");
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut rng = crate::rng::Rng::new(7);
    (0..8).map(|index| rng.bytes(100 + index * 60)).collect()
}
