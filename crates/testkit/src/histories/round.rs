//! A round: one database, its clients, and what is checked at the end. Epochs follow each other, each ended by a crash or a clean close.
//!
//! Thread safety: none is needed; it starts the threads it needs.

use super::history::{self, Checked, History};
use super::registers::{Client, Done};
use super::stage::{Crash, Plan, Stage};
use super::stamps::Stamps;
use super::wrong::Wrong;
use super::{graph, isolation};
use crate::options::OptionSet;
use crate::place::Place;
use crate::rng::Rng;

/// What a round is told.
pub struct Round {
    /// Options.
    pub set: OptionSet,
    /// How each epoch ends.
    pub epochs: Vec<Crash>,
    /// Clients, a thread each.
    pub clients: u16,
    /// Calls in an epoch, of all clients together.
    pub calls: u64,
    /// Of everything that is random.
    pub seed: u64,
    /// What is done wrong on purpose.
    pub wrong: Option<Wrong>,
    /// See [`Stamps::new`].
    pub loose: bool,
}

/// What a round found.
#[derive(Debug, Default)]
pub struct Found {
    /// Histories and their calls.
    pub checked: Checked,
    /// Calls of clients.
    pub calls: u64,
    /// Transactions, batches and looks whose isolation was checked, and the edges between them.
    pub isolated: u64,
    /// Of the graphs that they make.
    pub edges: u64,
    /// Times that the sum of all accounts was taken.
    pub sums: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Transactions refused.
    pub conflicts: u64,
    /// Kills and power cuts.
    pub crashes: u64,
    /// What is wrong, for people.
    pub wrong: Vec<String>,
}

impl Found {
    /// Adds what another round found.
    pub fn add(&mut self, other: &Found) {
        self.checked.histories += other.checked.histories;
        self.checked.operations += other.checked.operations;
        self.calls += other.calls;
        self.isolated += other.isolated;
        self.edges += other.edges;
        self.sums += other.sums;
        self.commits += other.commits;
        self.conflicts += other.conflicts;
        self.crashes += other.crashes;
    }
}

impl Round {
    /// Runs the registers in `place`.
    ///
    /// # Errors
    /// What went wrong before there was a history to check.
    pub fn registers(&self, mut place: Place) -> Result<Found, String> {
        let stamps = Stamps::new(self.loose);
        let mut history = History::default();
        let mut found = Found::default();
        let mut values = vec![0; usize::from(self.clients)];
        for (number, crash) in self.epochs.iter().enumerate() {
            let plan = self.plan(number, *crash);
            let stage = Stage::open(&place, &self.set, &stamps, plan)
                .map_err(|error| format!("epoch {number}: open: {error}"))?;
            let before = Client::new(&stage, self.clients, 0, plan.seed, None).read_all()?;
            history.survivors(&before);
            let run = stage
                .run(self.clients, |stage, client| {
                    let values = values[usize::from(client)];
                    Client::new(stage, client, values, plan.seed, self.wrong).run()
                })
                .map_err(|message| format!("epoch {number} ({crash:?}): {message}"))?;
            for (values, done) in values.iter_mut().zip(&run.results) {
                *values = done.notes.values;
                found.commits += done.commits;
                found.conflicts += done.notes.conflicts;
                found.calls += done.calls;
            }
            let mut clients: Vec<Done> = run.results;
            clients.push(before);
            let moment = run.after.as_ref().map(|(_, moment)| *moment);
            history.add(&clients, &run.floors, *crash, moment);
            if let Some((after, _)) = run.after {
                found.crashes += 1;
                place = after;
            }
        }
        let (checked, violations) = history.check(2);
        found.checked = checked;
        // One is told in full: to make a history short takes thousands of checks, and a lost commit may show in all of them.
        if let Some((register, violation)) = violations.first() {
            found.wrong.push(history.tell(*register, violation));
        }
        let others = violations.iter().skip(1);
        (found.wrong)
            .extend(others.map(|(register, violation)| History::name(*register, violation)));
        Ok(found)
    }

    fn plan(&self, number: usize, crash: Crash) -> Plan {
        let mut rng = Rng::of(&[self.seed, number as u64]);
        Plan {
            calls: match crash {
                Crash::None => self.calls,
                // The moment is as random as it gets.
                _ => self.calls / 2 + rng.below(self.calls),
            },
            crash,
            seed: rng.number(),
        }
    }

    /// Runs transactions over many cells in `place`.
    ///
    /// # Errors
    /// What went wrong before there was a history to check.
    pub fn isolation(&self, mut place: Place) -> Result<Found, String> {
        let stamps = Stamps::new(self.loose);
        let mut found = Found::default();
        let mut values = vec![0; usize::from(self.clients)];
        // What the last epoch did, and from where on what it did may be lost.
        let mut last: Option<(Vec<graph::Txn>, u64)> = None;
        let mut held = graph::empty(isolation::CELLS);
        // One more opening after the last epoch, to see what is left.
        let epochs = self.epochs.iter().copied().map(Some).chain([None]);
        for (number, crash) in epochs.enumerate() {
            let mut plan = self.plan(number, crash.unwrap_or(Crash::None));
            // A transaction is many calls.
            plan.calls /= 3;
            let wrong = |message: String| format!("epoch {number} ({crash:?}): {message}");
            let stage = Stage::open(&place, &self.set, &stamps, plan)
                .map_err(|error| wrong(format!("open: {error}")))?;
            let reader = isolation::Client::new(&stage, 0, 0, &held, plan.seed, None);
            let now = reader.read_all().map_err(wrong)?;
            if let Some((mut txns, floor)) = last.take() {
                // What was recovered is a snapshot of the epoch that ended: a prefix that holds all that was safe.
                txns.push(graph::Txn {
                    via: "what was found after opening",
                    reads: (0..).zip(now.iter().copied()).collect(),
                    begin: (floor, history::UNKNOWN),
                    joined: true,
                    ..graph::Txn::default()
                });
                found.isolated += txns.len() as u64;
                match graph::check(&held, &txns) {
                    Ok(edges) => found.edges += edges,
                    Err(message) => found.wrong.push(wrong(message)),
                }
            }
            held = now;
            let Some(crash) = crash.filter(|_| found.wrong.is_empty()) else {
                break;
            };
            let run = stage.run(self.clients, |stage, client| {
                let values = values[usize::from(client)];
                let client =
                    isolation::Client::new(stage, client, values, &held, plan.seed, self.wrong);
                client.run()
            });
            let run = run.map_err(wrong)?;
            let (mut txns, mut floors) = (Vec::new(), run.floors);
            for (values, done) in values.iter_mut().zip(run.results) {
                *values = done.notes.values;
                found.conflicts += done.notes.conflicts;
                found.sums += done.sums;
                txns.extend(done.txns);
                floors.extend(done.notes.floors);
            }
            found.calls += txns.len() as u64;
            found.commits += txns.iter().filter(|txn| !txn.writes.is_empty()).count() as u64;
            let moment = run.after.as_ref().map(|(_, moment)| *moment);
            let floor = history::floor(&floors, crash, moment);
            last = Some((history::cut_txns(txns, moment), floor));
            if let Some((after, _)) = run.after {
                found.crashes += 1;
                place = after;
            }
        }
        Ok(found)
    }
}
