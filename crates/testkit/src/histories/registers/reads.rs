//! Calls that read: one register, many at once, scans, snapshots, checkpoints.
//!
//! Thread safety: as [`Client`].

use super::{Client, Held, KEYS, Register, key};
use crate::histories::caller::{Interval, Outcome};
use crate::histories::linear::{ABSENT, Kind};
use crate::histories::stage::SPACES;
use crate::histories::value;
use crate::histories::wrong::Wrong;
use glintdb::{Error, Iter};

impl Client<'_> {
    pub(super) fn get(&mut self) -> Outcome {
        let register = Register::some(&mut self.caller.rng);
        let space = self.space(register);
        let (call, result, ret) = self
            .caller
            .stage
            .stamps
            .around(|| space.get(register.key()));
        let Some(mut seen) = self.caller.found(result)? else {
            return Ok(());
        };
        let old = std::mem::replace(&mut self.old[usize::from(register.0)], seen);
        if old != ABSENT && self.caller.goes_wrong(Wrong::StaleRead) {
            seen = old;
        }
        if let Some(interval) = self.valid((call, ret)) {
            self.record(register, interval, Kind::Read(seen), "get");
        }
        Ok(())
    }

    pub(super) fn multi_get(&mut self) -> Outcome {
        let space = self.caller.rng.below(SPACES as u64) as usize;
        let count = 2 + self.caller.rng.below(7);
        let registers: Vec<Register> = (0..count)
            .map(|_| Register::new(space, self.caller.rng.below(KEYS)))
            .collect();
        let keys: Vec<Vec<u8>> = registers.iter().map(|register| register.key()).collect();
        let of = &self.caller.stage.spaces[space];
        let (call, results, ret) = self.caller.stage.stamps.around(|| of.multi_get(&keys));
        for (register, result) in registers.into_iter().zip(results) {
            let seen = self.caller.found(result)?;
            if let (Some(seen), Some(interval)) = (seen, self.valid((call, ret))) {
                self.record(register, interval, Kind::Read(seen), "multi_get");
            }
        }
        Ok(())
    }

    pub(super) fn iter_of(&mut self, space: usize, start: u64, end: u64) -> (Iter, Interval) {
        let of = &self.caller.stage.spaces[space];
        let (call, iter, ret) = self
            .caller
            .stage
            .stamps
            .around(|| of.range(key(start)..key(end)));
        (iter, (call, ret))
    }

    pub(super) fn range(&mut self) -> Outcome {
        let (space, start) = (
            self.caller.rng.below(SPACES as u64) as usize,
            self.caller.rng.below(KEYS),
        );
        let end = (start + 1 + self.caller.rng.below(16)).min(KEYS);
        let (iter, made) = self.iter_of(space, start, end);
        if self.caller.rng.one_in(3) {
            // It shows what was there when it was made, not what comes now.
            self.put()?;
        }
        self.scan(space, start, end, iter, made, "scan")
    }

    /// Takes an iterator to its end, from both ends as it comes, and records what it showed of every key within its bounds.
    pub(super) fn scan(
        &mut self,
        space: usize,
        start: u64,
        end: u64,
        mut iter: Iter,
        made: Interval,
        via: &'static str,
    ) -> Outcome {
        let mut seen = vec![ABSENT; (end - start) as usize];
        let way = self.caller.rng.below(3);
        let (mut front, mut back) = (start, end);
        loop {
            let forward = match way {
                0 => true,
                1 => false,
                _ => self.caller.rng.one_in(2),
            };
            let item = if forward {
                iter.next()
            } else {
                iter.next_back()
            };
            let Some(item) = item else { break };
            let (key, bytes) = match item {
                Ok(item) => item,
                Err(error) if self.caller.stage.expected(&error) => return Ok(()),
                Err(error) => return Err(format!("client {}: scan: {error}", self.caller.number)),
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
    pub(super) fn snapshot(&mut self) -> Outcome {
        if self.held.len() < 2 && self.caller.rng.one_in(2) {
            let db = &self.caller.stage.db;
            let (call, snapshot, ret) = self.caller.stage.stamps.around(|| db.snapshot());
            self.held.push(Held {
                snapshot,
                taken: (call, ret),
            });
        }
        if self.held.is_empty() {
            return Ok(());
        }
        let index = self.caller.rng.below(self.held.len() as u64) as usize;
        let (snapshot, taken) = (self.held[index].snapshot.clone(), self.held[index].taken);
        if self.caller.rng.one_in(3) {
            self.held.swap_remove(index);
        }
        let register = Register::some(&mut self.caller.rng);
        let (space, of) = (register.space(), self.space(register));
        match self.caller.rng.below(3) {
            0 => {
                let seen = self.caller.found(snapshot.get(of, register.key()))?;
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
                    let seen = self.caller.found(result)?;
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
    pub(super) fn checkpoint(&mut self) -> Outcome {
        let Some(scratch) = &self.caller.stage.scratch else {
            return self.get();
        };
        let path = scratch.join(format!(
            "{}-{}",
            self.caller.number,
            self.caller.stage.stamps.take()
        ));
        let wrong = |error: Error| format!("checkpoint: {error}");
        std::fs::create_dir_all(scratch).map_err(|error| error.to_string())?;
        let db = &self.caller.stage.db;
        let (call, made, ret) = self.caller.stage.stamps.around(|| db.checkpoint(&path));
        made.map_err(wrong)?;
        let options = glintdb::Options::default()
            .memory_budget_bytes(8 << 20)
            .background_threads(0);
        let copy = options.open(&path).map_err(wrong)?;
        for (index, space) in self.caller.stage.spaces.iter().enumerate() {
            let of = copy.keyspace(space.name()).map_err(wrong)?;
            let (start, end) = (key(0), key(KEYS));
            let iter = of.range(start..end);
            self.scan(index, 0, KEYS, iter, (call, ret), "checkpoint")?;
        }
        drop(copy);
        std::fs::remove_dir_all(&path).map_err(|error| error.to_string())
    }
}
