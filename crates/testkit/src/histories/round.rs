//! A round: one database, its clients, and what is checked at the end. Epochs follow each other, each ended by a crash or a clean close.
//!
//! Thread safety: none is needed; it starts the threads it needs.

use super::history::{Checked, History};
use super::registers::{Client, Done};
use super::stage::{Crash, Plan, Stage};
use super::stamps::Stamps;
use super::wrong::Wrong;
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
    /// Transactions committed.
    pub commits: u64,
    /// Transactions refused.
    pub conflicts: u64,
    /// Kills and power cuts.
    pub crashes: u64,
    /// What is wrong, for people.
    pub wrong: Vec<String>,
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
            let mut rng = Rng::of(&[self.seed, number as u64]);
            let plan = Plan {
                calls: match crash {
                    Crash::None => self.calls,
                    // The moment is as random as it gets.
                    _ => self.calls / 2 + rng.below(self.calls),
                },
                crash: *crash,
                seed: rng.number(),
            };
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
                *values = done.values;
                found.commits += done.commits;
                found.conflicts += done.conflicts;
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
        for (register, violation) in &violations {
            found.wrong.push(history.tell(*register, violation));
        }
        Ok(found)
    }
}
