//! What a run does, all of it from a seed: an option set of tiny sizes, and a sequence of operations.

use crate::collecting::EAGER;
use crate::operation::{
    Change, KEYS, Key, Operation, Range, SNAPSHOTS, SPACES, Space, Step, Value, Walk, Write,
};
use crate::options::{self, Lane, OptionSet};
use crate::rng::Rng;
use glintdb::Durability;
use std::ops::Bound;

/// A run.
#[derive(Clone)]
pub struct Plan {
    /// What everything else follows from.
    pub seed: u64,
    /// Options.
    pub set: OptionSet,
    /// What is done.
    pub operations: Vec<Operation>,
    /// Decides what survives crashes.
    pub survivors: u64,
    /// Crashes are tried from this operation on.
    pub watch_from: usize,
}

impl Plan {
    /// The run of a seed: `length` operations, under this option set or one that the seed chooses.
    #[must_use]
    pub fn of(seed: u64, length: usize, set: Option<&OptionSet>) -> Plan {
        let mut rng = Rng::of(&[seed, 0x51]);
        let mut sets = options::of(Lane::Sim);
        let chosen = sets.swap_remove(rng.below(sets.len() as u64) as usize);
        let mut generator = Generator {
            // Runs differ in what they do most of.
            values_large: rng.one_in(4),
            syncs: [2, 4, 8][rng.below(3) as usize],
            rng,
        };
        let set = set.cloned().unwrap_or(chosen);
        // There is nothing to collect before some segments are full.
        let length = length * if set.name.starts_with(EAGER) { 3 } else { 1 };
        let mut operations: Vec<Operation> = (1..SPACES)
            .map(|space| Operation::Create(Space(space)))
            .collect();
        operations.extend((operations.len()..length).map(|_| generator.operation()));
        Plan {
            seed,
            set,
            operations,
            survivors: seed,
            watch_from: 0,
        }
    }
}

struct Generator {
    rng: Rng,
    values_large: bool,
    /// One commit in so many is synced.
    syncs: u64,
}

impl Generator {
    fn operation(&mut self) -> Operation {
        match self.rng.below(100) {
            0..40 => Operation::Write(self.write(), self.durability()),
            40..52 => Operation::Batch(self.writes(8), self.durability()),
            52..55 => {
                let groups = (0..self.rng.below(4)).map(|_| self.writes(3)).collect();
                Operation::Group(groups, self.durability())
            }
            55..60 => Operation::Transaction {
                serializable: self.rng.one_in(2),
                before: self.steps(),
                interfering: self.writes(2),
                after: self.steps(),
                commit: !self.rng.one_in(6),
            },
            60..63 => Operation::Read(self.space(), (0..3).map(|_| self.key()).collect()),
            63..66 => Operation::Iterate(self.space(), self.walk(), self.writes(2)),
            66..69 => Operation::Snapshot(self.slot()),
            69..72 => {
                let keys = (0..2).map(|_| self.key()).collect();
                Operation::ReadSnapshot(self.slot(), self.space(), keys, self.walk())
            }
            72..75 => Operation::DropSnapshot(self.slot()),
            75..82 => Operation::Flush,
            82..85 => Operation::FlushLog(self.durability()),
            85 => Operation::CompactValues(self.space()),
            86..88 => {
                let one = self.rng.one_in(2);
                Operation::Compact(one.then(|| self.space()))
            }
            88..90 => Operation::Checkpoint,
            90..93 => Operation::Reopen,
            93 => Operation::Create(self.space()),
            94 if self.rng.one_in(2) => {
                Operation::SetOptions(self.space(), self.rng.below(256) as u8)
            }
            94 => Operation::Convert(self.space(), self.rng.below(256) as u8),
            95 => Operation::Drop(self.space()),
            96 => Operation::Verify,
            _ => Operation::Crash {
                power_cut: self.rng.one_in(2),
                // A multiple of 3: the crash comes here, not at some later operation of the volume.
                seed: self.rng.number() / 3 / 2 * 3,
            },
        }
    }

    fn slot(&mut self) -> u8 {
        self.rng.below(SNAPSHOTS.into()) as u8
    }

    fn space(&mut self) -> Space {
        Space([0, 0, 0, 0, 0, 1, 1, 2][self.rng.below(8) as usize])
    }

    fn key(&mut self) -> Key {
        let key = match self.rng.below(8) {
            0 => self.rng.below(KEYS.into()),
            1..4 => 32 + self.rng.below(8),
            _ => 32 + self.rng.below(u64::from(KEYS) - 32),
        };
        // The two keys of 5000 bytes are for runs with large values.
        match key {
            4 | 5 if !self.values_large => Key(6),
            key => Key(key as u8),
        }
    }

    fn value(&mut self) -> Value {
        let length = match self.rng.below(16) {
            0 => 0,
            1..9 => 1 + self.rng.below(64),
            9..14 => 64 + self.rng.below(400),
            _ if !self.values_large => 400 + self.rng.below(400),
            14 => 600 + self.rng.below(4_000),
            _ => 4_000 + self.rng.below(30_000),
        };
        Value {
            length: length as u32,
            seed: self.rng.number() as u8,
        }
    }

    fn range(&mut self) -> Range {
        match self.rng.below(8) {
            0 => Range::All,
            1 => Range::Prefix(self.key()),
            2 => Range::Between(Bound::Excluded(self.key()), Bound::Included(self.key())),
            _ => {
                let start = self.rng.below(u64::from(KEYS) - 6) as u8;
                let end = start + self.rng.below(6) as u8;
                Range::Between(Bound::Included(Key(start)), Bound::Excluded(Key(end)))
            }
        }
    }

    fn change(&mut self) -> Change {
        match self.rng.below(12) {
            0..8 => Change::Put(self.key(), self.value()),
            8..11 => Change::Delete(self.key()),
            _ => Change::DeleteRange(self.range()),
        }
    }

    fn write(&mut self) -> Write {
        Write {
            space: self.space(),
            change: self.change(),
        }
    }

    fn writes(&mut self, max: u64) -> Vec<Write> {
        (0..self.rng.below(max + 1)).map(|_| self.write()).collect()
    }

    fn durability(&mut self) -> Durability {
        if self.rng.one_in(self.syncs) {
            return Durability::Sync;
        }
        match self.rng.below(3) {
            0 => Durability::Buffered,
            _ => Durability::Os,
        }
    }

    fn walk(&mut self) -> Walk {
        let ends = self.rng.number() as u32;
        Walk {
            range: self.range(),
            backwards: [0, u32::MAX, ends][self.rng.below(3) as usize],
            records_max: self.rng.below(100) as u8,
            keys_only: self.rng.one_in(3),
        }
    }

    fn steps(&mut self) -> Vec<Step> {
        let one = |generator: &mut Self| match generator.rng.below(8) {
            0..3 => Step::Get(generator.space(), generator.key()),
            3 => Step::Scan(generator.space(), generator.range()),
            _ => Step::Write(generator.write()),
        };
        (0..self.rng.below(4)).map(|_| one(self)).collect()
    }
}
