//! Sequences of operations from a seed, bent into shapes that meet what evenly drawn ones seldom do: nodes that split, rivals over a key, deep trees, segments that die.

use crate::operation::{
    Change, KEYS, Key, Mix, Operation, Range, Space, Step, Value, Walk, Write, operations,
};
use crate::rng::Rng;
use glintdb::Durability;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Keys that transactions of a sequence of rivals use.
const RIVAL_KEYS: u8 = 6;
/// Keys of a sequence that churns.
const CHURNED_KEYS: u8 = 8;
/// What its values are longer by.
const CHURNED_BYTES: u32 = 9000;
/// Commits of its groups.
const RING_FULL: u8 = 20;
/// One flush after so many operations.
const FLUSH_EACH: usize = 6;
/// Neighbouring keys that a sequence with a queue deletes together, more than a gap needs.
const STRETCH: std::ops::Range<u8> = 40..64;

/// Sequences, in turn: as drawn; beginning with every key; with rival transactions; churning few
/// keys and flushing often; flushing often; taking records from both ends of a queue.
pub(super) struct Sequences {
    runner: TestRunner,
    mix: Mix,
    operations_max: usize,
    number: usize,
}

impl Sequences {
    pub(super) fn new(seed: u64, mix: Mix, operations_max: usize) -> Sequences {
        let seed = Rng::new(seed).bytes(32);
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        Sequences {
            runner: TestRunner::new_with_rng(Config::default(), rng),
            mix,
            operations_max,
            number: 0,
        }
    }

    pub(super) fn next(&mut self) -> Vec<Operation> {
        let strategy = operations(self.operations_max, self.mix);
        let tree = strategy.new_tree(&mut self.runner);
        let mut operations = tree.expect("nothing is filtered").current();
        self.number += 1;
        match self.number % 6 {
            0 => {}
            1 => operations.insert(2, every_key(self.number as u8)),
            2 => operations.iter_mut().for_each(rival),
            3 => {
                operations.iter_mut().for_each(churn);
                flush_often(&mut operations);
            }
            4 => {
                operations.insert(2, every_key(self.number as u8));
                flush_often(&mut operations);
            }
            _ => queue(&mut operations, self.number as u8),
        }
        operations
    }
}

/// Every third operation takes the next record from one end of a queue of all keys, after a look at
/// both ends. Snapshots look at what was taken since, stretches are deleted around a snapshot, and
/// transactions take many records and give them back. The other operations go on as drawn, so they
/// put records where some were taken.
fn queue(operations: &mut Vec<Operation>, seed: u8) {
    let mut with = vec![every_key(seed), Operation::Snapshot(0)];
    let mut ends = (0, KEYS - 1);
    for (index, operation) in operations.drain(..).enumerate() {
        with.push(operation);
        if index % 12 == 5 {
            let all = walk(if index % 24 == 5 { 0 } else { u32::MAX }, KEYS);
            let read = Operation::ReadSnapshot(0, Space::DEFAULT, Vec::new(), all.clone());
            with.push(read.clone());
            with.extend(delete_around_snapshot(&all, read, seed));
            with.push(delete_and_roll_back(ends));
        }
        if index % 3 > 0 || ends.0 >= ends.1 {
            continue;
        }
        let taken = match index % 2 {
            0 => {
                ends.0 += 1;
                ends.0 - 1
            }
            _ => {
                ends.1 -= 1;
                ends.1 + 1
            }
        };
        with.push(Operation::Write(delete(taken), Durability::Os));
        with.push(Operation::Iterate(
            Space::DEFAULT,
            walk(0b10, 2),
            Vec::new(),
        ));
    }
    *operations = with;
}

fn put(key: u8, seed: u8) -> Write {
    let length = u32::from(key) * 3;
    Write {
        space: Space::DEFAULT,
        change: Change::Put(Key(key), Value { length, seed }),
    }
}

fn delete(key: u8) -> Write {
    Write {
        space: Space::DEFAULT,
        change: Change::Delete(Key(key)),
    }
}

fn walk(backwards: u32, records_max: u8) -> Walk {
    Walk {
        range: Range::All,
        backwards,
        records_max,
        keys_only: true,
    }
}

/// Returns operations that delete one half of a stretch before a snapshot, and the other half after
/// it. A scan of `all` then finds a gap, while `read` must show the second half in the snapshot,
/// beside deletions of the first. At last the first half is put into the gap.
fn delete_around_snapshot(all: &Walk, read: Operation, seed: u8) -> [Operation; 7] {
    let first = || STRETCH.step_by(2);
    let second = || STRETCH.skip(1).step_by(2);
    let batch = |writes: Vec<Write>| Operation::Batch(writes, Durability::Os);
    let scan = Operation::Iterate(Space::DEFAULT, all.clone(), Vec::new());
    let put = |key| put(key, seed);
    [
        batch(second().map(put).chain(first().map(delete)).collect()),
        Operation::Snapshot(0),
        batch(second().map(delete).collect()),
        scan.clone(),
        read,
        batch(first().map(put).collect()),
        scan,
    ]
}

/// Returns a transaction that deletes all keys from `first` to `last`, scans the keyspace, and is
/// rolled back.
fn delete_and_roll_back((first, last): (u8, u8)) -> Operation {
    let deletes = (first..=last).map(|key| Step::Write(delete(key)));
    Operation::Transaction {
        serializable: false,
        before: deletes
            .chain([Step::Scan(Space::DEFAULT, Range::All)])
            .collect(),
        interfering: Vec::new(),
        after: Vec::new(),
        commit: false,
    }
}

/// One commit of all keys: nodes of the memtable split.
fn every_key(seed: u8) -> Operation {
    let writes = (0..KEYS).map(|key| put(key, seed));
    Operation::Batch(writes.collect(), Durability::Os)
}

fn flush_often(operations: &mut Vec<Operation>) {
    let mut with = Vec::with_capacity(operations.len() * 2);
    for (index, operation) in operations.drain(..).enumerate() {
        with.push(operation);
        if index % FLUSH_EACH == FLUSH_EACH - 1 {
            with.push(Operation::Flush);
        }
    }
    *operations = with;
}

/// Transactions meet on few keys.
fn rival(operation: &mut Operation) {
    let Operation::Transaction {
        before,
        interfering,
        after,
        ..
    } = operation
    else {
        return;
    };
    let key = |key: &mut Key| key.0 = 40 + key.0 % RIVAL_KEYS;
    for step in before.iter_mut().chain(after) {
        match step {
            Step::Get(space, at) => {
                space.0 = 0;
                key(at);
            }
            Step::Scan(space, range) => {
                space.0 = 0;
                each_key_of(range, key);
            }
            Step::Write(write) => {
                write.space.0 = 0;
                each_key(&mut write.change, key);
                if let Change::Delete(at) = write.change {
                    let end = Key(at.0 + 2);
                    write.change = Change::DeleteRange(Range::Between(Included(at), Excluded(end)));
                }
            }
        }
    }
    for write in interfering {
        write.space.0 = 0;
        each_key(&mut write.change, key);
    }
}

/// One of so many commits that together do not fit the smallest ring, though each goes through it.
fn large(number: u8) -> Vec<Write> {
    vec![Write {
        space: Space::DEFAULT,
        change: Change::Put(
            Key(32 + number % CHURNED_KEYS),
            Value {
                length: CHURNED_BYTES + u32::from(number) * 300,
                seed: number,
            },
        ),
    }]
}

/// Few keys, large values.
fn churn(operation: &mut Operation) {
    let key = |key: &mut Key| key.0 = 32 + key.0 % CHURNED_KEYS;
    let bend = |write: &mut Write| {
        each_key(&mut write.change, key);
        if let Change::Put(_, value) = &mut write.change {
            value.length += CHURNED_BYTES;
        }
    };
    match operation {
        Operation::Write(write, _) => bend(write),
        Operation::Batch(writes, _) => writes.iter_mut().for_each(bend),
        Operation::Group(batches, _) => *batches = (0..RING_FULL).map(large).collect(),
        Operation::Read(_, keys) | Operation::ReadSnapshot(_, _, keys, _) => {
            keys.iter_mut().for_each(key);
        }
        _ => {}
    }
}

fn each_key(change: &mut Change, bend: impl Fn(&mut Key)) {
    match change {
        Change::Put(key, _) | Change::Delete(key) => bend(key),
        Change::DeleteRange(range) => each_key_of(range, bend),
    }
}

fn each_key_of(range: &mut Range, bend: impl Fn(&mut Key)) {
    match range {
        Range::All => {}
        Range::Prefix(key) => bend(key),
        Range::Between(lower, upper) => {
            for bound in [lower, upper] {
                match bound {
                    Included(key) | Excluded(key) => bend(key),
                    Unbounded => {}
                }
            }
        }
    }
}
