//! Every key as a register: clients get, put, delete, exchange, read and write many at once in every way there is; then the history of each key is checked for linearizability.
//!
//! What is seen through a snapshot, an iterator or a transaction was there when that was made, so it counts as a read of that time, however late it happens.
//!
//! Thread safety: a [`Client`] belongs to one thread.

use super::linear::{ABSENT, Kind, Op, UNKNOWN, Value};
use super::stage::{Floor, SPACES, Stage};
use super::value;
use super::wrong::Wrong;
use crate::rng::Rng;
use glintdb::{
    Batch, Durability, Error, ErrorKind, Isolation, Iter, Keyspace, Snapshot, Transaction,
    TransactionOptions,
};

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
    /// What its durable commits made safe.
    pub floors: Vec<Floor>,
    /// How many.
    pub calls: u64,
    /// Values it has written, for the next epoch.
    pub values: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Transactions refused for a conflict.
    pub conflicts: u64,
}

/// When a call was made and when it returned.
type Interval = (u64, u64);

struct Held {
    snapshot: Snapshot,
    taken: Interval,
}

/// A client: one thread of an epoch.
pub struct Client<'a> {
    stage: &'a Stage<'a>,
    number: u16,
    rng: Rng,
    wrong: Option<Wrong>,
    held: Vec<Held>,
    /// For wrong behaviour: what it read before.
    old: Vec<Value>,
    done: Done,
}

type Outcome = Result<(), String>;

impl<'a> Client<'a> {
    /// Client `number`, which has written `values` values in earlier epochs.
    pub fn new(
        stage: &'a Stage<'a>,
        number: u16,
        values: u64,
        seed: u64,
        wrong: Option<Wrong>,
    ) -> Client<'a> {
        Client {
            stage,
            number,
            rng: Rng::of(&[seed, u64::from(number), values]),
            wrong,
            held: Vec::new(),
            old: vec![ABSENT; REGISTERS],
            done: Done {
                values,
                ..Done::default()
            },
        }
    }

    /// Calls until the stage says that it is enough.
    ///
    /// # Errors
    /// What no history may have: an error, or bytes that nobody wrote.
    pub fn run(mut self) -> Result<Done, String> {
        while self.stage.another_call() {
            self.step()?;
            self.done.calls += 1;
        }
        Ok(self.done)
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
        Ok(self.done)
    }

    fn space(&self, register: Register) -> &'a Keyspace {
        &self.stage.spaces[register.space()]
    }

    fn new_value(&mut self) -> Value {
        self.done.values += 1;
        value::number(self.number, self.done.values)
    }

    fn level(&mut self) -> Durability {
        match self.rng.below(48) {
            0 => Durability::Sync,
            1..=4 => Durability::Buffered,
            _ => Durability::Os,
        }
    }

    /// Whether to do the wrong thing now, if that is what this client is for.
    fn goes_wrong(&mut self, what: Wrong) -> bool {
        self.wrong == Some(what) && self.rng.one_in(what.once_in())
    }

    fn record(&mut self, register: Register, (call, ret): Interval, kind: Kind, via: &'static str) {
        if ret == UNKNOWN && matches!(kind, Kind::Read(_)) {
            return;
        }
        let op = Op {
            call,
            ret,
            kind,
            client: self.number,
            via,
        };
        self.done.records.push(Record { register, op });
    }

    /// The interval of a read whose result counts: `None` where the power had gone.
    fn valid(&self, (call, ret): Interval) -> Option<Interval> {
        self.stage.powered().then_some((call, ret))
    }

    /// Takes note of a commit at `level`; gives the interval in which its writes took effect.
    fn committed(
        &mut self,
        (call, ret): Interval,
        result: Result<(), Error>,
        level: Durability,
    ) -> Result<Option<Interval>, String> {
        match result {
            Ok(()) if self.stage.powered() => {
                self.done.floors.push(Floor { call, ret, level });
                Ok(Some((call, ret)))
            }
            Ok(()) => Ok(Some((call, UNKNOWN))),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
            Err(error) if self.stage.expected(&error) => Ok(Some((call, UNKNOWN))),
            Err(error) => Err(format!("client {}: commit: {error}", self.number)),
        }
    }

    /// What a read found; `None` where its error is one that must be expected.
    fn found(
        &self,
        result: glintdb::Result<Option<glintdb::Bytes>>,
    ) -> Result<Option<Value>, String> {
        match result {
            Ok(found) => value::seen(found.as_deref()).map(Some),
            Err(error) if self.stage.expected(&error) => Ok(None),
            Err(error) => Err(format!("client {}: read: {error}", self.number)),
        }
    }

    fn step(&mut self) -> Outcome {
        match self.rng.below(100) {
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
            94 if self.rng.one_in(8) => self.checkpoint(),
            _ => self.transaction(),
        }
    }

    fn get(&mut self) -> Outcome {
        let register = Register::some(&mut self.rng);
        let space = self.space(register);
        let (call, result, ret) = self.stage.stamps.around(|| space.get(register.key()));
        let Some(mut seen) = self.found(result)? else {
            return Ok(());
        };
        let old = std::mem::replace(&mut self.old[usize::from(register.0)], seen);
        if old != ABSENT && self.goes_wrong(Wrong::StaleRead) {
            seen = old;
        }
        if let Some(interval) = self.valid((call, ret)) {
            self.record(register, interval, Kind::Read(seen), "get");
        }
        Ok(())
    }

    fn put(&mut self) -> Outcome {
        let register = Register::some(&mut self.rng);
        let (value, level) = (self.new_value(), self.level());
        let (key, bytes) = (register.key(), value::bytes(value));
        let space = self.space(register);
        let put = || space.put_with(&key, &bytes, level);
        let (call, result, ret) = if self.goes_wrong(Wrong::LostWrite) {
            self.stage.stamps.around(|| Ok(()))
        } else if self.goes_wrong(Wrong::EarlyAcknowledgement) {
            let (call, (), ret) = self.stage.stamps.around(|| ());
            std::thread::yield_now();
            (call, put(), ret)
        } else {
            self.stage.stamps.around(put)
        };
        if let Some(interval) = self.committed((call, ret), result, level)? {
            self.record(register, interval, Kind::Write(value), "put");
        }
        Ok(())
    }

    fn delete(&mut self) -> Outcome {
        let register = Register::some(&mut self.rng);
        let space = self.space(register);
        let (call, result, ret) = self.stage.stamps.around(|| space.delete(register.key()));
        if let Some(interval) = self.committed((call, ret), result, Durability::Os)? {
            self.record(register, interval, Kind::Write(ABSENT), "delete");
        }
        Ok(())
    }

    fn delete_range(&mut self) -> Outcome {
        let (space, start) = (self.rng.below(SPACES as u64) as usize, self.rng.below(KEYS));
        let end = (start + 1 + self.rng.below(4)).min(KEYS);
        let of = &self.stage.spaces[space];
        let (call, result, ret) = self
            .stage
            .stamps
            .around(|| of.delete_range(key(start)..key(end)));
        if let Some(interval) = self.committed((call, ret), result, Durability::Os)? {
            for index in start..end {
                let register = Register::new(space, index);
                self.record(register, interval, Kind::Write(ABSENT), "delete_range");
            }
        }
        Ok(())
    }

    fn multi_get(&mut self) -> Outcome {
        let space = self.rng.below(SPACES as u64) as usize;
        let count = 2 + self.rng.below(7);
        let registers: Vec<Register> = (0..count)
            .map(|_| Register::new(space, self.rng.below(KEYS)))
            .collect();
        let keys: Vec<Vec<u8>> = registers.iter().map(|register| register.key()).collect();
        let of = &self.stage.spaces[space];
        let (call, results, ret) = self.stage.stamps.around(|| of.multi_get(&keys));
        for (register, result) in registers.into_iter().zip(results) {
            let seen = self.found(result)?;
            if let (Some(seen), Some(interval)) = (seen, self.valid((call, ret))) {
                self.record(register, interval, Kind::Read(seen), "multi_get");
            }
        }
        Ok(())
    }

    /// Fills a batch with writes of different registers.
    fn fill(&mut self, batch: &mut Batch, writes: &mut Vec<(Register, Value)>) {
        for _ in 0..2 + self.rng.below(4) {
            let register = Register::some(&mut self.rng);
            if writes.iter().any(|(known, _)| *known == register) {
                continue;
            }
            if self.rng.one_in(8) {
                batch.delete(self.space(register), register.key());
                writes.push((register, ABSENT));
            } else {
                let value = self.new_value();
                batch.put(self.space(register), register.key(), value::bytes(value));
                writes.push((register, value));
            }
        }
    }

    fn batch(&mut self) -> Outcome {
        let (mut batch, mut writes) = (Batch::new(), Vec::new());
        self.fill(&mut batch, &mut writes);
        let level = self.level();
        let db = &self.stage.db;
        let (call, result, ret) = self.stage.stamps.around(|| db.write_with(batch, level));
        if let Some(interval) = self.committed((call, ret), result, level)? {
            for (register, value) in writes {
                self.record(register, interval, Kind::Write(value), "batch");
            }
        }
        Ok(())
    }

    /// Several batches with one wait.
    fn group(&mut self) -> Outcome {
        let (mut batches, mut writes) = (Vec::new(), Vec::new());
        for _ in 0..2 + self.rng.below(3) {
            let mut batch = Batch::new();
            self.fill(&mut batch, &mut writes);
            batches.push(batch);
        }
        let level = self.level();
        let db = &self.stage.db;
        let (call, result, ret) = self.stage.stamps.around(|| db.write_group(batches, level));
        if let Some(interval) = self.committed((call, ret), result, level)? {
            for (register, value) in writes {
                self.record(register, interval, Kind::Write(value), "write_group");
            }
        }
        Ok(())
    }

    fn begin(&mut self, isolation: Isolation) -> (Transaction, Interval, Durability) {
        let level = self.level();
        let options = TransactionOptions {
            isolation,
            durability: Some(level),
        };
        let db = &self.stage.db;
        let (call, transaction, ret) = self.stage.stamps.around(|| db.transaction_with(options));
        (transaction, (call, ret), level)
    }

    /// Compare-and-set.
    fn exchange(&mut self) -> Outcome {
        let register = Register::some(&mut self.rng);
        let space = self.space(register);
        let (mut transaction, begun, level) = self.begin(Isolation::Snapshot);
        let result = transaction.get(space, register.key());
        let Some(old) = self.found(result)? else {
            return Ok(());
        };
        if let Some(interval) = self.valid(begun) {
            self.record(register, interval, Kind::Read(old), "transaction, begin");
        }
        if self.rng.one_in(4) {
            std::thread::yield_now();
        }
        let new = self.new_value();
        let bytes = value::bytes(new);
        let (call, result, ret) = if self.goes_wrong(Wrong::LostUpdate) {
            drop(transaction);
            self.stage
                .stamps
                .around(|| space.put_with(register.key(), &bytes, level))
        } else {
            let put = transaction.put(space, register.key(), &bytes);
            put.map_err(|error| error.to_string())?;
            self.stage.stamps.around(|| transaction.commit())
        };
        match self.committed((call, ret), result, level)? {
            Some(interval) => {
                self.done.commits += 1;
                self.record(register, interval, Kind::Exchange(old, new), "exchange");
            }
            None => self.done.conflicts += 1,
        }
        Ok(())
    }

    /// Reads some registers, writes some of them and others.
    fn transaction(&mut self) -> Outcome {
        let serializable = self.rng.one_in(2);
        let (mut transaction, begun, level) = self.begin(match serializable {
            true => Isolation::Serializable,
            false => Isolation::Snapshot,
        });
        let mut reads: Vec<(Register, Value)> = Vec::new();
        let mut writes: Vec<(Register, Value)> = Vec::new();
        for _ in 0..2 + self.rng.below(4) {
            let register = Register::some(&mut self.rng);
            let (key, space) = (register.key(), self.space(register));
            let written = writes.iter().find(|(known, _)| *known == register);
            if let Some((_, own)) = written.copied() {
                let seen = self.found(transaction.get(space, &key))?;
                if seen.is_some_and(|seen| seen != own) {
                    return Err(format!(
                        "a transaction does not see its own write of {register:?}"
                    ));
                }
                continue;
            }
            if self.rng.below(3) > 0 {
                match self.found(transaction.get(space, &key))? {
                    Some(seen) => reads.push((register, seen)),
                    None => return Ok(()),
                }
            }
            let refused = |error: Error| error.to_string();
            match self.rng.below(8) {
                0..=3 => {
                    let value = self.new_value();
                    let bytes = value::bytes(value);
                    transaction.put(space, &key, bytes).map_err(refused)?;
                    writes.push((register, value));
                }
                4 => {
                    transaction.delete(space, &key).map_err(refused)?;
                    writes.push((register, ABSENT));
                }
                _ => {}
            }
        }
        if let Some(interval) = self.valid(begun) {
            for (register, seen) in &reads {
                self.record(*register, interval, Kind::Read(*seen), "transaction, begin");
            }
        }
        if writes.is_empty() || self.rng.one_in(16) {
            transaction.rollback();
            return Ok(());
        }
        let (call, result, ret) = self.stage.stamps.around(|| transaction.commit());
        match self.committed((call, ret), result, level)? {
            Some(interval) => {
                self.done.commits += 1;
                for (register, seen) in reads.iter().filter(|_| serializable) {
                    // Nobody has written it since.
                    self.record(
                        *register,
                        interval,
                        Kind::Read(*seen),
                        "transaction, commit",
                    );
                }
                for (register, new) in writes {
                    // What it read of a register that it wrote was still there when it wrote.
                    let read = reads.iter().find(|(known, _)| *known == register);
                    let kind = read.map_or(Kind::Write(new), |(_, old)| Kind::Exchange(*old, new));
                    self.record(register, interval, kind, "transaction");
                }
            }
            None => self.done.conflicts += 1,
        }
        Ok(())
    }

    fn iter_of(&mut self, space: usize, start: u64, end: u64) -> (Iter, Interval) {
        let of = &self.stage.spaces[space];
        let (call, iter, ret) = self.stage.stamps.around(|| of.range(key(start)..key(end)));
        (iter, (call, ret))
    }

    fn range(&mut self) -> Outcome {
        let (space, start) = (self.rng.below(SPACES as u64) as usize, self.rng.below(KEYS));
        let end = (start + 1 + self.rng.below(16)).min(KEYS);
        let (iter, made) = self.iter_of(space, start, end);
        if self.rng.one_in(3) {
            // It shows what was there when it was made, not what comes now.
            self.put()?;
        }
        self.scan(space, start, end, iter, made, "scan")
    }

    /// Takes an iterator to its end, from both ends as it comes, and records what it showed of every key within its bounds.
    fn scan(
        &mut self,
        space: usize,
        start: u64,
        end: u64,
        mut iter: Iter,
        made: Interval,
        via: &'static str,
    ) -> Outcome {
        let mut seen = vec![ABSENT; (end - start) as usize];
        let way = self.rng.below(3);
        let (mut front, mut back) = (start, end);
        loop {
            let forward = match way {
                0 => true,
                1 => false,
                _ => self.rng.one_in(2),
            };
            let item = if forward {
                iter.next()
            } else {
                iter.next_back()
            };
            let Some(item) = item else { break };
            let (key, bytes) = match item {
                Ok(item) => item,
                Err(error) if self.stage.expected(&error) => return Ok(()),
                Err(error) => return Err(format!("client {}: scan: {error}", self.number)),
            };
            let text = String::from_utf8_lossy(&key);
            let index: u64 = text
                .parse()
                .map_err(|_| format!("a scan shows key {text:?}"))?;
            if !(front..back).contains(&index) {
                return Err(format!(
                    "a scan of {start}..{end} shows {index} when {front}..{back} is left"
                ));
            }
            if forward {
                front = index + 1;
            } else {
                back = index;
            }
            seen[(index - start) as usize] = value::number_of(&bytes)?;
        }
        if let Some(interval) = self.valid(made) {
            for (index, seen) in (start..end).zip(seen) {
                self.record(Register::new(space, index), interval, Kind::Read(seen), via);
            }
        }
        Ok(())
    }

    /// Takes a snapshot, or reads from one taken earlier.
    fn snapshot(&mut self) -> Outcome {
        if self.held.len() < 2 && self.rng.one_in(2) {
            let db = &self.stage.db;
            let (call, snapshot, ret) = self.stage.stamps.around(|| db.snapshot());
            self.held.push(Held {
                snapshot,
                taken: (call, ret),
            });
        }
        if self.held.is_empty() {
            return Ok(());
        }
        let index = self.rng.below(self.held.len() as u64) as usize;
        let (snapshot, taken) = (self.held[index].snapshot.clone(), self.held[index].taken);
        if self.rng.one_in(3) {
            self.held.swap_remove(index);
        }
        let register = Register::some(&mut self.rng);
        let (space, of) = (register.space(), self.space(register));
        match self.rng.below(3) {
            0 => {
                let seen = self.found(snapshot.get(of, register.key()))?;
                if let (Some(seen), Some(interval)) = (seen, self.valid(taken)) {
                    self.record(register, interval, Kind::Read(seen), "snapshot");
                }
            }
            1 => {
                let end = (register.index() + 6).min(KEYS);
                let registers: Vec<Register> = (register.index()..end)
                    .map(|index| Register::new(space, index))
                    .collect();
                let keys: Vec<Vec<u8>> = registers.iter().map(|register| register.key()).collect();
                let results = snapshot.multi_get(of, &keys);
                for (register, result) in registers.into_iter().zip(results) {
                    let seen = self.found(result)?;
                    if let (Some(seen), Some(interval)) = (seen, self.valid(taken)) {
                        self.record(register, interval, Kind::Read(seen), "snapshot, multi_get");
                    }
                }
            }
            _ => {
                let (start, end) = (register.index(), (register.index() + 10).min(KEYS));
                let iter = snapshot.range(of, key(start)..key(end));
                self.scan(space, start, end, iter, taken, "snapshot, scan")?;
            }
        }
        Ok(())
    }

    /// A copy of the database, opened: it shows what was there while it was made.
    fn checkpoint(&mut self) -> Outcome {
        let Some(scratch) = &self.stage.scratch else {
            return self.get();
        };
        let path = scratch.join(format!("{}-{}", self.number, self.stage.stamps.take()));
        let wrong = |error: Error| format!("checkpoint: {error}");
        std::fs::create_dir_all(scratch).map_err(|error| error.to_string())?;
        let db = &self.stage.db;
        let (call, made, ret) = self.stage.stamps.around(|| db.checkpoint(&path));
        made.map_err(wrong)?;
        let options = glintdb::Options {
            memory_budget_bytes: 8 << 20,
            background_threads: 0,
            ..glintdb::Options::default()
        };
        let copy = options.open(&path).map_err(wrong)?;
        for (index, space) in self.stage.spaces.iter().enumerate() {
            let of = copy.keyspace(space.name()).map_err(wrong)?;
            let (start, end) = (key(0), key(KEYS));
            let iter = of.range(start..end);
            self.scan(index, 0, KEYS, iter, (call, ret), "checkpoint")?;
        }
        drop(copy);
        std::fs::remove_dir_all(&path).map_err(|error| error.to_string())
    }
}
