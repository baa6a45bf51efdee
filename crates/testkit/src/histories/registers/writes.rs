//! Calls that write: one register, ranges, batches, transactions.
//!
//! Thread safety: as [`Client`].

use super::{Client, KEYS, Register, key};
use crate::histories::caller::{Interval, Outcome};
use crate::histories::linear::{ABSENT, Kind, Value};
use crate::histories::stage::SPACES;
use crate::histories::value;
use crate::histories::wrong::Wrong;
use glintdb::{Batch, Durability, Error, Isolation, Transaction, TransactionOptions};

impl Client<'_> {
    pub(super) fn put(&mut self) -> Outcome {
        let register = Register::some(&mut self.caller.rng);
        let (value, level) = (self.caller.new_value(), self.level());
        let (key, bytes) = (register.key(), value::bytes(value));
        let space = self.space(register);
        let put = || space.put_with(&key, &bytes, level);
        let (call, result, ret) = if self.caller.goes_wrong(Wrong::LostWrite) {
            self.caller.stage.stamps.around(|| Ok(()))
        } else if self.caller.goes_wrong(Wrong::EarlyAcknowledgement) {
            let (call, (), ret) = self.caller.stage.stamps.around(|| ());
            std::thread::yield_now();
            (call, put(), ret)
        } else {
            self.caller.stage.stamps.around(put)
        };
        if let Some(interval) = self.caller.committed((call, ret), result, level)? {
            self.record(register, interval, Kind::Write(value), "put");
        }
        Ok(())
    }

    pub(super) fn delete(&mut self) -> Outcome {
        let register = Register::some(&mut self.caller.rng);
        let space = self.space(register);
        let (call, result, ret) = self
            .caller
            .stage
            .stamps
            .around(|| space.delete(register.key()));
        if let Some(interval) = self.caller.committed((call, ret), result, Durability::Os)? {
            self.record(register, interval, Kind::Write(ABSENT), "delete");
        }
        Ok(())
    }

    pub(super) fn delete_range(&mut self) -> Outcome {
        let (space, start) = (
            self.caller.rng.below(SPACES as u64) as usize,
            self.caller.rng.below(KEYS),
        );
        let end = (start + 1 + self.caller.rng.below(4)).min(KEYS);
        let of = &self.caller.stage.spaces[space];
        let (call, result, ret) = self
            .caller
            .stage
            .stamps
            .around(|| of.delete_range(key(start)..key(end)));
        if let Some(interval) = self.caller.committed((call, ret), result, Durability::Os)? {
            for index in start..end {
                let register = Register::new(space, index);
                self.record(register, interval, Kind::Write(ABSENT), "delete_range");
            }
        }
        Ok(())
    }

    /// Fills a batch with writes of different registers.
    fn fill(&mut self, batch: &mut Batch, writes: &mut Vec<(Register, Value)>) {
        for _ in 0..2 + self.caller.rng.below(4) {
            let register = Register::some(&mut self.caller.rng);
            if writes.iter().any(|(known, _)| *known == register) {
                continue;
            }
            if self.caller.rng.one_in(8) {
                batch.delete(self.space(register), register.key());
                writes.push((register, ABSENT));
            } else {
                let value = self.caller.new_value();
                batch.put(self.space(register), register.key(), value::bytes(value));
                writes.push((register, value));
            }
        }
    }

    /// Takes note of what a commit wrote, if it was one.
    fn record_all(
        &mut self,
        writes: Vec<(Register, Value)>,
        committed: Option<Interval>,
        via: &'static str,
    ) {
        let Some(interval) = committed else { return };
        for (register, value) in writes {
            self.record(register, interval, Kind::Write(value), via);
        }
    }

    pub(super) fn batch(&mut self) -> Outcome {
        let (mut batch, mut writes) = (Batch::new(), Vec::new());
        self.fill(&mut batch, &mut writes);
        let level = self.level();
        let db = &self.caller.stage.db;
        let (call, result, ret) = self
            .caller
            .stage
            .stamps
            .around(|| db.write_with(batch, level));
        let committed = self.caller.committed((call, ret), result, level)?;
        self.record_all(writes, committed, "batch");
        Ok(())
    }

    /// Several batches with one wait.
    pub(super) fn group(&mut self) -> Outcome {
        let (mut batches, mut writes) = (Vec::new(), Vec::new());
        for _ in 0..2 + self.caller.rng.below(3) {
            let mut batch = Batch::new();
            self.fill(&mut batch, &mut writes);
            batches.push(batch);
        }
        let level = self.level();
        let db = &self.caller.stage.db;
        let (call, result, ret) = self
            .caller
            .stage
            .stamps
            .around(|| db.write_group(batches, level));
        let committed = self.caller.committed((call, ret), result, level)?;
        self.record_all(writes, committed, "write_group");
        Ok(())
    }

    fn begin(&mut self, isolation: Isolation) -> (Transaction, Interval, Durability) {
        let level = self.level();
        let options = TransactionOptions::default()
            .isolation(isolation)
            .durability(level);
        let db = &self.caller.stage.db;
        let (call, transaction, ret) = self
            .caller
            .stage
            .stamps
            .around(|| db.transaction_with(options));
        (transaction, (call, ret), level)
    }

    /// Compare-and-set.
    pub(super) fn exchange(&mut self) -> Outcome {
        let register = Register::some(&mut self.caller.rng);
        let space = self.space(register);
        let (mut transaction, begun, level) = self.begin(Isolation::Snapshot);
        let result = transaction.get(space, register.key());
        let Some(old) = self.caller.found(result)? else {
            return Ok(());
        };
        if let Some(interval) = self.valid(begun) {
            self.record(register, interval, Kind::Read(old), "transaction, begin");
        }
        if self.caller.rng.one_in(4) {
            std::thread::yield_now();
        }
        let new = self.caller.new_value();
        let bytes = value::bytes(new);
        let (call, result, ret) = if self.caller.goes_wrong(Wrong::LostUpdate) {
            drop(transaction);
            self.caller
                .stage
                .stamps
                .around(|| space.put_with(register.key(), &bytes, level))
        } else {
            let put = transaction.put(space, register.key(), &bytes);
            put.map_err(|error| error.to_string())?;
            self.caller.stage.stamps.around(|| transaction.commit())
        };
        if let Some(interval) = self.caller.committed((call, ret), result, level)? {
            self.done.commits += 1;
            self.record(register, interval, Kind::Exchange(old, new), "exchange");
        }
        Ok(())
    }

    /// Reads some registers, writes some of them and others.
    pub(super) fn transaction(&mut self) -> Outcome {
        let serializable = self.caller.rng.one_in(2);
        let (mut transaction, begun, level) = self.begin(match serializable {
            true => Isolation::Serializable,
            false => Isolation::Snapshot,
        });
        let mut reads: Vec<(Register, Value)> = Vec::new();
        let mut writes: Vec<(Register, Value)> = Vec::new();
        for _ in 0..2 + self.caller.rng.below(4) {
            let register = Register::some(&mut self.caller.rng);
            let (key, space) = (register.key(), self.space(register));
            let written = writes.iter().find(|(known, _)| *known == register);
            if let Some((_, own)) = written.copied() {
                let seen = self.caller.found(transaction.get(space, &key))?;
                if seen.is_some_and(|seen| seen != own) {
                    return Err(format!(
                        "a transaction does not see its own write of {register:?}"
                    ));
                }
                continue;
            }
            if self.caller.rng.below(3) > 0 {
                match self.caller.found(transaction.get(space, &key))? {
                    Some(seen) => reads.push((register, seen)),
                    None => return Ok(()),
                }
            }
            let refused = |error: Error| error.to_string();
            match self.caller.rng.below(8) {
                0..=3 => {
                    let value = self.caller.new_value();
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
        if writes.is_empty() || self.caller.rng.one_in(16) {
            transaction.rollback();
            return Ok(());
        }
        let (call, result, ret) = self.caller.stage.stamps.around(|| transaction.commit());
        if let Some(interval) = self.caller.committed((call, ret), result, level)? {
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
        Ok(())
    }
}
