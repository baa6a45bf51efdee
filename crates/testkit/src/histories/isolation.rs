//! Clients that read and write many cells at once: transactions at both levels, batches over all keyspaces, snapshots, multi_get and scans. What each saw and wrote goes to
//! [`graph`](super::graph). Beside them money moves between accounts, and whoever looks at a consistent point in time finds all of it.
//!
//! *Shared* cells are written by transactions that have read them; *own* cells by one client alone, blindly, several at once. So each write knows what it replaces.
//!
//! Thread safety: a [`Client`] belongs to one thread.

use super::caller::{Caller, Interval, Notes, Outcome};
use super::graph::{Cell, Txn};
use super::linear::{ABSENT, Value};
use super::stage::{SPACES, Stage};
use super::value;
use super::wrong::Wrong;
use crate::rng::Rng;
use glintdb::{Batch, Durability, Isolation, Keyspace, Snapshot, TransactionOptions};

/// Shared cells in each keyspace.
const SHARED: u16 = 8;
/// Most clients.
pub const CLIENTS_MAX: u16 = 64;
/// Cells in each keyspace: the shared ones, then one of each client.
const OF_SPACE: u16 = SHARED + CLIENTS_MAX;
/// All cells.
pub const CELLS: usize = OF_SPACE as usize * SPACES;
/// Accounts in each keyspace, and what each holds at first.
const ACCOUNTS: u64 = 6;
const BALANCE: i64 = 1_000;

fn space_of(cell: Cell) -> usize {
    usize::from(cell / OF_SPACE)
}

fn key_of(cell: Cell) -> Vec<u8> {
    format!("c{:03}", cell % OF_SPACE).into_bytes()
}

/// Everything that a client did.
#[derive(Default)]
pub struct Done {
    /// Transactions, and whatever reads or writes several cells.
    pub txns: Vec<Txn>,
    /// What every client notes.
    pub notes: Notes,
    /// Looks at the accounts.
    pub sums: u64,
}

/// A client: one thread of an epoch.
pub struct Client<'a> {
    caller: Caller<'a>,
    /// What its own cells hold.
    own: [Value; SPACES],
    done: Done,
}

impl<'a> Client<'a> {
    /// Client `number`, which has written `values` values in earlier epochs and finds `held` in the cells.
    pub fn new(
        stage: &'a Stage<'a>,
        number: u16,
        values: u64,
        held: &[Value],
        seed: u64,
        wrong: Option<Wrong>,
    ) -> Client<'a> {
        let own = |space: u16| held[usize::from(space * OF_SPACE + SHARED + number % CLIENTS_MAX)];
        let rng = Rng::of(&[seed, u64::from(number), values, 5]);
        Client {
            caller: Caller::new(stage, number, values, rng, wrong),
            own: [own(0), own(1), own(2)],
            done: Done::default(),
        }
    }

    /// Calls until the stage says that it is enough.
    ///
    /// # Errors
    /// What no history may have.
    pub fn run(mut self) -> Result<Done, String> {
        while self.caller.stage.another_call() {
            match self.caller.rng.below(100) {
                0..40 => self.transaction()?,
                40..58 => self.batch()?,
                58..82 => self.look()?,
                82..92 => self.transfer()?,
                _ => self.sum()?,
            }
        }
        Ok(Done {
            notes: self.caller.notes,
            ..self.done
        })
    }

    /// What all cells hold, and the accounts checked or, where there are none yet, made.
    ///
    /// # Errors
    /// What no history may have.
    pub fn read_all(mut self) -> Result<Vec<Value>, String> {
        let snapshot = self.caller.stage.db.snapshot();
        let mut held = vec![ABSENT; CELLS];
        for (space, of) in self.caller.stage.spaces.iter().enumerate() {
            for item in snapshot.prefix(of, "c") {
                let (key, bytes) = item.map_err(|error| error.to_string())?;
                let text = String::from_utf8_lossy(&key[1..]).into_owned();
                let index: usize = text
                    .parse()
                    .map_err(|_| format!("a scan shows key {text:?}"))?;
                held[space * usize::from(OF_SPACE) + index] = value::number_of(&bytes)?;
            }
        }
        let missing = snapshot.get(&self.caller.stage.spaces[0], account(0));
        if missing.map_err(|error| error.to_string())?.is_none() {
            let mut batch = Batch::new();
            for of in &self.caller.stage.spaces {
                for number in 0..ACCOUNTS {
                    batch.put(of, account(number), BALANCE.to_le_bytes());
                }
            }
            let made = self.caller.stage.db.write_with(batch, Durability::Sync);
            made.map_err(|error| error.to_string())?;
        }
        self.sum_of_snapshot()?;
        Ok(held)
    }

    fn space(&self, cell: Cell) -> &'a Keyspace {
        &self.caller.stage.spaces[space_of(cell)]
    }

    fn level(&mut self) -> Durability {
        self.caller.level(32, 3)
    }

    fn some_cell(&mut self) -> Cell {
        let space = self.caller.rng.below(SPACES as u64) as Cell;
        let index = match self.caller.rng.below(3) {
            0 => SHARED + self.caller.rng.below(16) as Cell,
            _ => self.caller.rng.below(u64::from(SHARED)) as Cell,
        };
        space * OF_SPACE + index
    }

    /// Takes note of reads at one point in time.
    fn saw(&mut self, reads: Vec<(Cell, Value)>, begin: Interval, via: &'static str) {
        if self.caller.stage.powered() && !reads.is_empty() {
            self.done.txns.push(Txn {
                client: self.caller.number,
                via,
                reads,
                begin,
                joined: true,
                ..Txn::default()
            });
        }
    }

    /// Reads some cells, replaces some of those that it read.
    fn transaction(&mut self) -> Outcome {
        let level = self.level();
        let serializable = self.caller.rng.one_in(2);
        let isolation = match serializable && !self.caller.goes_wrong(Wrong::WriteSkew) {
            true => Isolation::Serializable,
            false => Isolation::Snapshot,
        };
        let options = TransactionOptions::default()
            .isolation(isolation)
            .durability(level);
        let db = &self.caller.stage.db;
        let (call, mut transaction, ret) = self
            .caller
            .stage
            .stamps
            .around(|| db.transaction_with(options));
        let mut txn = Txn {
            client: self.caller.number,
            via: if serializable {
                "serializable"
            } else {
                "transaction"
            },
            begin: (call, ret),
            joined: serializable,
            ..Txn::default()
        };
        if self.caller.rng.one_in(6) {
            // All shared cells of a keyspace, in a scan.
            let space = self.caller.rng.below(SPACES as u64) as Cell;
            let (start, end) = (space * OF_SPACE, space * OF_SPACE + SHARED);
            let mut seen = vec![ABSENT; usize::from(SHARED)];
            for item in transaction.range(self.space(start), key_of(start)..key_of(end)) {
                match item {
                    Ok((key, bytes)) => {
                        let index: usize = String::from_utf8_lossy(&key[1..])
                            .parse()
                            .map_err(|_| format!("a scan shows {key:?}"))?;
                        seen[index] = value::number_of(&bytes)?;
                    }
                    Err(error) if self.caller.stage.expected(&error) => return Ok(()),
                    Err(error) => return Err(format!("scan in a transaction: {error}")),
                }
            }
            txn.reads.extend((start..end).zip(seen));
        }
        for _ in 0..1 + self.caller.rng.below(4) {
            let cell = self.some_cell();
            if txn.reads.iter().any(|(known, _)| *known == cell) {
                continue;
            }
            match self
                .caller
                .found(transaction.get(self.space(cell), key_of(cell)))?
            {
                Some(seen) => txn.reads.push((cell, seen)),
                None => return Ok(()),
            }
        }
        for (cell, old) in txn.reads.clone() {
            if cell % OF_SPACE < SHARED && self.caller.rng.one_in(3) {
                let new = self.caller.new_value();
                let put = transaction.put(self.space(cell), key_of(cell), value::bytes(new));
                put.map_err(|error| error.to_string())?;
                txn.writes.push((cell, old, new));
            }
        }
        if txn.writes.is_empty() {
            self.saw(txn.reads, txn.begin, "transaction that reads");
            return Ok(());
        }
        if self.caller.rng.one_in(4) {
            // Or transactions would hardly ever overlap where there are fewer cores than clients.
            std::thread::yield_now();
        }
        let lost = self.caller.goes_wrong(Wrong::LostUpdate);
        let (call, result, ret) = if lost {
            let mut batch = Batch::new();
            for (cell, _, new) in &txn.writes {
                batch.put(self.space(*cell), key_of(*cell), value::bytes(*new));
            }
            drop(transaction);
            self.caller
                .stage
                .stamps
                .around(|| db.write_with(batch, level))
        } else {
            self.caller.stage.stamps.around(|| transaction.commit())
        };
        match self.caller.committed((call, ret), result, level)? {
            Some(commit) => {
                txn.commit = commit;
                self.done.txns.push(txn);
            }
            // What a refused transaction saw was there all the same.
            None => self.saw(txn.reads, txn.begin, "transaction that was refused"),
        }
        Ok(())
    }

    /// Writes its own cells, all at once.
    fn batch(&mut self) -> Outcome {
        let count = 1 + self.caller.rng.below(3);
        let (mut batches, mut txns) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let mut txn = Txn {
                client: self.caller.number,
                via: if count == 1 {
                    "batch"
                } else {
                    "batch of a group"
                },
                joined: true,
                ..Txn::default()
            };
            let mut batch = Batch::new();
            for space in 0..SPACES {
                if count > 1 || self.caller.rng.below(4) > 0 {
                    let cell = space as Cell * OF_SPACE + SHARED + self.caller.number;
                    let new = self.caller.new_value();
                    batch.put(self.space(cell), key_of(cell), value::bytes(new));
                    txn.writes.push((cell, self.own[space], new));
                    self.own[space] = new;
                }
            }
            batches.push(batch);
            txns.push(txn);
        }
        let level = self.level();
        let db = &self.caller.stage.db;
        let (call, result, ret) = if count == 1 && self.caller.goes_wrong(Wrong::HalfBatch) {
            let puts = || {
                txns[0].writes.iter().try_for_each(|(cell, _, new)| {
                    let space = &self.caller.stage.spaces[space_of(*cell)];
                    space.put_with(key_of(*cell), value::bytes(*new), level)
                })
            };
            self.caller.stage.stamps.around(puts)
        } else if count == 1 {
            let batch = batches.remove(0);
            self.caller
                .stage
                .stamps
                .around(|| db.write_with(batch, level))
        } else {
            self.caller
                .stage
                .stamps
                .around(|| db.write_group(batches, level))
        };
        if let Some(commit) = self.caller.committed((call, ret), result, level)? {
            for txn in &mut txns {
                txn.commit = commit;
            }
            self.done.txns.extend(txns);
        }
        Ok(())
    }

    /// Looks at many cells at one point in time.
    fn look(&mut self) -> Outcome {
        let mut cells: Vec<Cell> = (0..3 + self.caller.rng.below(8))
            .map(|_| self.some_cell())
            .collect();
        cells.sort_unstable();
        cells.dedup();
        let db = &self.caller.stage.db;
        match self.caller.rng.below(4) {
            0 => {
                // One keyspace, without a snapshot.
                let space = space_of(cells[0]);
                cells.retain(|cell| space_of(*cell) == space);
                let keys: Vec<Vec<u8>> = cells.iter().map(|cell| key_of(*cell)).collect();
                let of = &self.caller.stage.spaces[space];
                let (call, results, ret) = self.caller.stage.stamps.around(|| of.multi_get(&keys));
                let mut reads = Vec::new();
                for (cell, result) in cells.into_iter().zip(results) {
                    if let Some(seen) = self.caller.found(result)? {
                        reads.push((cell, seen));
                    }
                }
                self.saw(reads, (call, ret), "multi_get");
            }
            1 => {
                let space = space_of(cells[0]);
                let of = &self.caller.stage.spaces[space];
                let (call, iter, ret) = self.caller.stage.stamps.around(|| of.prefix("c"));
                if let Some(reads) = self.scan(space, iter)? {
                    self.saw(reads, (call, ret), "scan");
                }
            }
            _ => {
                let (call, snapshot, ret) = self.caller.stage.stamps.around(|| db.snapshot());
                let mut reads = Vec::new();
                for cell in cells {
                    let torn = self.caller.goes_wrong(Wrong::TornSnapshot);
                    let result = match torn {
                        true => self.space(cell).get(key_of(cell)),
                        false => snapshot.get(self.space(cell), key_of(cell)),
                    };
                    if let Some(seen) = self.caller.found(result)? {
                        reads.push((cell, seen));
                    }
                }
                for space in 0..SPACES {
                    if self.caller.rng.one_in(4) {
                        let iter = snapshot.prefix(&self.caller.stage.spaces[space], "c");
                        reads.extend(self.scan(space, iter)?.unwrap_or_default());
                    }
                }
                self.saw(reads, (call, ret), "snapshot");
            }
        }
        Ok(())
    }

    /// What a scan over a keyspace shows of all cells, from one end.
    fn scan(
        &mut self,
        space: usize,
        iter: glintdb::Iter,
    ) -> Result<Option<Vec<(Cell, Value)>>, String> {
        let items: Vec<_> = match self.caller.rng.one_in(2) {
            true => iter.collect(),
            false => iter.rev().collect(),
        };
        let mut seen = vec![ABSENT; usize::from(OF_SPACE)];
        for item in items {
            match item {
                Ok((key, bytes)) => {
                    let index: usize = String::from_utf8_lossy(&key[1..])
                        .parse()
                        .map_err(|_| format!("a scan shows {key:?}"))?;
                    seen[index] = value::number_of(&bytes)?;
                }
                Err(error) if self.caller.stage.expected(&error) => return Ok(None),
                Err(error) => return Err(format!("client {}: scan: {error}", self.caller.number)),
            }
        }
        let start = space as Cell * OF_SPACE;
        Ok(Some((start..).zip(seen).collect()))
    }

    /// Moves money, within a keyspace or between two.
    fn transfer(&mut self) -> Outcome {
        let mut transaction = self.caller.stage.db.transaction();
        let within = self.caller.rng.one_in(2);
        let from = self.caller.rng.below(SPACES as u64) as usize;
        let to = match within {
            true => from,
            false => self.caller.rng.below(SPACES as u64) as usize,
        };
        // Across keyspaces the last account moves, so that the others of a keyspace keep their sum.
        let account_of = |rng: &mut Rng| match within {
            true => rng.below(ACCOUNTS - 1),
            false => ACCOUNTS - 1,
        };
        let (giver, taker) = (
            account_of(&mut self.caller.rng),
            account_of(&mut self.caller.rng),
        );
        if (from, giver) == (to, taker) {
            return Ok(());
        }
        let amount = 1 + self.caller.rng.below(50) as i64;
        for (space, number, change) in [(from, giver, -amount), (to, taker, amount)] {
            let of = &self.caller.stage.spaces[space];
            let balance = match transaction.get(of, account(number)) {
                Ok(found) => balance(found.as_deref())?,
                Err(error) if self.caller.stage.expected(&error) => return Ok(()),
                Err(error) => return Err(format!("account: {error}")),
            };
            let put = transaction.put(of, account(number), (balance + change).to_le_bytes());
            put.map_err(|error| error.to_string())?;
        }
        match transaction.commit() {
            Ok(()) => Ok(()),
            Err(error) if self.caller.stage.expected(&error) => Ok(()),
            Err(error) => Err(format!("transfer: {error}")),
        }
    }

    fn sum(&mut self) -> Outcome {
        if self.caller.rng.one_in(2) {
            return self.sum_of_snapshot();
        }
        // One keyspace at one point in time: what moves within it stays in it.
        let space = self.caller.rng.below(SPACES as u64) as usize;
        let of = &self.caller.stage.spaces[space];
        let found: Vec<glintdb::Result<i64>> = match self.caller.rng.one_in(2) {
            true => {
                let keys: Vec<Vec<u8>> = (0..ACCOUNTS - 1).map(account).collect();
                let results = of.multi_get(&keys).into_iter();
                results
                    .map(|result| Ok(balance(result?.as_deref()).unwrap_or(i64::MIN / 100)))
                    .collect()
            }
            false => of
                .range(account(0)..account(ACCOUNTS - 1))
                .map(|item| Ok(balance(Some(&item?.1)).unwrap_or(i64::MIN / 100)))
                .collect(),
        };
        self.expect_sum(found, BALANCE * (ACCOUNTS as i64 - 1), "a keyspace")
    }

    fn sum_of_snapshot(&mut self) -> Outcome {
        let snapshot: Snapshot = self.caller.stage.db.snapshot();
        let mut found = Vec::new();
        for of in &self.caller.stage.spaces {
            for item in snapshot.prefix(of, "a") {
                found.push(item.map(|(_, bytes)| balance(Some(&bytes)).unwrap_or(i64::MIN / 100)));
            }
        }
        let whole = BALANCE * ACCOUNTS as i64 * SPACES as i64;
        self.expect_sum(found, whole, "a snapshot")
    }

    fn expect_sum(&mut self, found: Vec<glintdb::Result<i64>>, wanted: i64, of: &str) -> Outcome {
        let mut sum = 0;
        for balance in found {
            match balance {
                Ok(balance) => sum += balance,
                Err(error) if self.caller.stage.expected(&error) => return Ok(()),
                Err(error) => return Err(format!("accounts: {error}")),
            }
        }
        self.done.sums += 1;
        match sum == wanted {
            true => Ok(()),
            false => Err(format!(
                "the accounts of {of} hold {sum} instead of {wanted}"
            )),
        }
    }
}

fn account(number: u64) -> Vec<u8> {
    format!("a{number}").into_bytes()
}

fn balance(found: Option<&[u8]>) -> Result<i64, String> {
    let bytes = found.and_then(|found| found.try_into().ok());
    bytes
        .map(i64::from_le_bytes)
        .ok_or_else(|| format!("an account holds {found:?}"))
}
