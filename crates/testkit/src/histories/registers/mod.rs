//! Every key as a register: clients get, put, delete, exchange, read and write many at once in every way there is; then the history of each key is checked for linearizability.
//!
//! What is seen through a snapshot, an iterator or a transaction was there when that was made, so it counts as a read of that time, however late it happens.
//!
//! Thread safety: a [`Client`] belongs to one thread.

mod reads;
mod writes;

use super::caller::{Caller, Interval, Notes, Outcome};
use super::linear::{ABSENT, Kind, Op, UNKNOWN, Value};
use super::stage::{SPACES, Stage};
use super::wrong::Wrong;
use crate::rng::Rng;
use glintdb::{Durability, Keyspace, Snapshot};

/// Keys in each keyspace.
pub const KEYS: u64 = 40;
/// All registers.
pub const REGISTERS: usize = SPACES * KEYS as usize;

/// A key of a keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register(pub u16);

impl Register {
    fn new(space: usize, index: u64) -> Register {
        Register((space as u64 * KEYS + index) as u16)
    }

    fn some(rng: &mut Rng) -> Register {
        Register(rng.below(REGISTERS as u64) as u16)
    }

    /// Which keyspace.
    #[must_use]
    pub fn space(self) -> usize {
        usize::from(self.0) / KEYS as usize
    }

    fn index(self) -> u64 {
        u64::from(self.0) % KEYS
    }

    /// The key.
    #[must_use]
    pub fn key(self) -> Vec<u8> {
        key(self.index())
    }
}

fn key(index: u64) -> Vec<u8> {
    format!("{index:04}").into_bytes()
}

/// One call as one register has it.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Which register.
    pub register: Register,
    /// What was done.
    pub op: Op,
}

/// What a client has done.
#[derive(Default)]
pub struct Done {
    /// The calls.
    pub records: Vec<Record>,
    /// What every client notes.
    pub notes: Notes,
    /// How many.
    pub calls: u64,
    /// Transactions that were committed.
    pub commits: u64,
}

struct Held {
    snapshot: Snapshot,
    taken: Interval,
}

/// A client: one thread of an epoch.
pub struct Client<'a> {
    caller: Caller<'a>,
    held: Vec<Held>,
    /// For wrong behaviour: what it read before.
    old: Vec<Value>,
    done: Done,
}

impl<'a> Client<'a> {
    /// Client `number`, which has written `values` values in earlier epochs.
    pub fn new(
        stage: &'a Stage<'a>,
        number: u16,
        values: u64,
        seed: u64,
        wrong: Option<Wrong>,
    ) -> Client<'a> {
        let rng = Rng::of(&[seed, u64::from(number), values]);
        Client {
            caller: Caller::new(stage, number, values, rng, wrong),
            held: Vec::new(),
            old: vec![ABSENT; REGISTERS],
            done: Done::default(),
        }
    }

    /// Calls until the stage says that it is enough.
    ///
    /// # Errors
    /// What no history may have: an error, or bytes that nobody wrote.
    pub fn run(mut self) -> Result<Done, String> {
        while self.caller.stage.another_call() {
            self.step()?;
            self.done.calls += 1;
        }
        Ok(self.done())
    }

    /// Reads every register once, in order, and ends: what was recovered.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn read_all(mut self) -> Result<Done, String> {
        for space in 0..SPACES {
            let (iter, made) = self.iter_of(space, 0, KEYS);
            self.scan(space, 0, KEYS, iter, made, "scan after opening")?;
        }
        Ok(self.done())
    }

    fn done(self) -> Done {
        Done {
            notes: self.caller.notes,
            ..self.done
        }
    }

    fn space(&self, register: Register) -> &'a Keyspace {
        &self.caller.stage.spaces[register.space()]
    }

    fn level(&mut self) -> Durability {
        self.caller.level(48, 4)
    }

    fn record(&mut self, register: Register, (call, ret): Interval, kind: Kind, via: &'static str) {
        if ret == UNKNOWN && matches!(kind, Kind::Read(_)) {
            return;
        }
        let op = Op {
            call,
            ret,
            kind,
            client: self.caller.number,
            via,
        };
        self.done.records.push(Record { register, op });
    }

    /// The interval of a read whose result counts: `None` where the power had gone.
    fn valid(&self, (call, ret): Interval) -> Option<Interval> {
        self.caller.stage.powered().then_some((call, ret))
    }

    fn step(&mut self) -> Outcome {
        match self.caller.rng.below(100) {
            0..26 => self.get(),
            26..50 => self.put(),
            50..53 => self.delete(),
            53..65 => self.exchange(),
            65..71 => self.multi_get(),
            71..79 => self.batch(),
            79..81 => self.group(),
            81..88 => self.range(),
            88..93 => self.snapshot(),
            93 => self.delete_range(),
            94 if self.caller.rng.one_in(8) => self.checkpoint(),
            _ => self.transaction(),
        }
    }
}
