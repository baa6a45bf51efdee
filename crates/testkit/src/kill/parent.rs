//! The process that kills and checks.
//!
//! Thread safety: none is needed.

use super::life::{self, Death, Told};
use super::work::{self, Records};
use super::{SPACES, WRITERS, checkpoint_of, database_of, earlier_checkpoint_of};
use crate::options::{self, Lane, OptionSet};
use crate::rng::Rng;
use glintdb::{Db, Error, ErrorKind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest life of a child, in milliseconds, once the database is open.
const LIFE_MS_MAX: u64 = 320;
/// After one death in so many, a child is killed that opens what the last one left, and so on after that one.
const IN_RECOVERY: u64 = 3;

/// What to do.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Children killed.
    pub cycles: u64,
    /// Decides what is written and when children die (not where exactly: that is the scheduler's).
    pub seed: u64,
    /// The database; kept after a failure.
    pub dir: PathBuf,
}

/// Sums for the closing line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Children killed.
    pub kills: u64,
    /// Of those, before the database was open.
    pub kills_in_recovery: u64,
    /// Commits acknowledged, and all found.
    pub acknowledged: u64,
    /// Commits found that were in flight.
    pub in_flight_kept: u64,
    /// Checkpoints opened and checked.
    pub checkpoints: u64,
    /// Of those, cut off by the kill.
    pub checkpoints_cut: u64,
    /// Longest open after a kill.
    pub open_max: Duration,
    /// Most bytes that `verify` read.
    pub bytes_max: u64,
}

/// What the command for a child is made of.
pub struct ChildArguments<'a> {
    /// Number of the option set.
    pub set: usize,
    /// Commits done by each writer; `None`: open only.
    pub done: Option<&'a [u64]>,
}

/// A writer as the parent knows it.
#[derive(Default)]
struct Writer {
    /// Commits that are in the database.
    done: u64,
    records: Records,
    /// Fingerprints of all its states since the last check.
    states: Vec<u64>,
}

/// A campaign under way.
struct Parent<'a> {
    campaign: &'a Campaign,
    sets: Vec<OptionSet>,
    rng: Rng,
    writers: Vec<Writer>,
    totals: Totals,
    /// How long children took to open the database, from their start: a running mean.
    open: Duration,
}

/// Runs the campaign. `child` makes the command that calls [`super::child::run`].
///
/// # Errors
/// What was found wrong, and in which cycle.
pub fn run(
    campaign: &Campaign,
    child: impl Fn(&ChildArguments<'_>) -> Command,
) -> Result<Totals, String> {
    let mut parent = Parent {
        campaign,
        sets: options::of(Lane::Kill),
        rng: Rng::of(&[campaign.seed, 1]),
        writers: (0..WRITERS).map(|_| Writer::default()).collect(),
        totals: Totals::default(),
        open: Duration::from_millis(5),
    };
    while parent.totals.kills < campaign.cycles {
        let kill = parent.totals.kills;
        parent
            .cycle(&child)
            .map_err(|message| format!("kill {kill}, seed {}: {message}", campaign.seed))?;
    }
    Ok(parent.totals)
}

impl Parent<'_> {
    /// A child writes and is killed, others are killed while they recover, and then the database is judged.
    fn cycle(&mut self, child: &impl Fn(&ChildArguments<'_>) -> Command) -> Result<(), String> {
        remove_checkpoints(&self.campaign.dir)?;
        let done: Vec<u64> = self.writers.iter().map(|writer| writer.done).collect();
        let set = self.some_set();
        // Short lives as often as long ones.
        let max = 1 + self.rng.below(LIFE_MS_MAX);
        let life = Duration::from_micros(self.rng.below(max * 1000));
        let arguments = ChildArguments {
            set,
            done: Some(&done),
        };
        let mut history = vec![self.sets[set].name];
        let told = life::live(&mut child(&arguments), Death::AfterOpen(life))
            .map_err(|message| format!("{}: {message}", history.join(", then ")))?;
        self.count(&told);
        while self.rng.one_in(IN_RECOVERY) {
            let set = self.some_set();
            history.push(self.sets[set].name);
            let most = u64::try_from(self.open.as_micros()).unwrap_or(u64::MAX);
            let life = Duration::from_micros(self.rng.below(1 + most + most / 4));
            let arguments = ChildArguments { set, done: None };
            let killed = life::live(&mut child(&arguments), Death::AfterStart(life))
                .map_err(|message| format!("{}: {message}", history.join(", then ")))?;
            self.count(&killed);
        }
        let set = self.some_set();
        history.push(self.sets[set].name);
        self.check(set, &told)
            .map_err(|message| format!("{}: {message}", history.join(", then ")))
    }

    fn some_set(&mut self) -> usize {
        self.rng.below(self.sets.len() as u64) as usize
    }

    fn count(&mut self, told: &Told) {
        self.totals.kills += 1;
        match told.open {
            Some(open) => self.open = (self.open * 7 + open) / 8,
            None => self.totals.kills_in_recovery += 1,
        }
        let acknowledged = told.acknowledged.iter().map(|numbers| numbers.len() as u64);
        self.totals.acknowledged += acknowledged.sum::<u64>();
    }

    /// Opens the database and compares; the writers go on from what was found.
    fn check(&mut self, set: usize, told: &Told) -> Result<(), String> {
        let start = Instant::now();
        let options = self.sets[set].options.clone();
        let db = options
            .open(database_of(&self.campaign.dir, self.campaign.seed))
            .map_err(|error| format!("open after the kill: {error}"))?;
        self.totals.open_max = self.totals.open_max.max(start.elapsed());
        let mut found = read_all(&db).map_err(|error| format!("read after the kill: {error}"))?;
        for (number, writer) in self.writers.iter_mut().enumerate() {
            let found = found.remove(&(number as u32)).unwrap_or_default();
            let acknowledged = told.acknowledged[number].len() as u64;
            self.totals.in_flight_kept += advance(
                self.campaign.seed,
                number as u32,
                writer,
                acknowledged,
                &found,
            )?;
        }
        if let Some(writer) = found.keys().next() {
            return Err(format!("records of a writer {writer}, whom nobody asked"));
        }
        self.totals.bytes_max = self.totals.bytes_max.max(verify(&db)?);
        db.close().map_err(|error| format!("close: {error}"))?;
        match told.checkpoint {
            Some(whole) => self.check_checkpoint(whole),
            None => Ok(()),
        }
    }

    /// A checkpoint that was finished opens, and every writer's records are those of some moment of the child's life; one that was cut off may refuse to open.
    fn check_checkpoint(&mut self, whole: bool) -> Result<(), String> {
        let path = checkpoint_of(&self.campaign.dir);
        let mut options = self.sets[0].options.clone();
        options.create_if_missing = false;
        let db = match options.open(&path) {
            Ok(db) => db,
            Err(error) if !whole && refused(&error) => {
                self.totals.checkpoints_cut += 1;
                return Ok(());
            }
            Err(error) => return Err(format!("open the checkpoint: {error}")),
        };
        let mut found = read_all(&db).map_err(|error| format!("read the checkpoint: {error}"))?;
        for (number, writer) in self.writers.iter().enumerate() {
            let found = found.remove(&(number as u32)).unwrap_or_default();
            if !writer.states.contains(&found.fingerprint()) {
                return Err(format!(
                    "the checkpoint ({}) shows records of writer {number} that the database never had in that life",
                    if whole { "whole" } else { "cut off" }
                ));
            }
        }
        verify(&db).map_err(|message| format!("the checkpoint: {message}"))?;
        self.totals.checkpoints += 1;
        Ok(())
    }
}

/// How half a checkpoint may answer.
fn refused(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corruption)
}

fn verify(db: &Db) -> Result<u64, String> {
    let report = db.verify().map_err(|error| format!("verify: {error}"))?;
    match report.errors.first() {
        None => Ok(report.bytes),
        Some(error) => Err(format!(
            "verify found {} errors; the first: {error}",
            report.errors.len()
        )),
    }
}

/// The writer's records must be those after all acknowledged commits, or after one more. Gives how many of one more.
fn advance(
    seed: u64,
    number: u32,
    writer: &mut Writer,
    acknowledged: u64,
    found: &Records,
) -> Result<u64, String> {
    writer.states = vec![writer.records.fingerprint()];
    for _ in 0..acknowledged {
        writer.done += 1;
        writer
            .records
            .apply(&work::commit(seed, number, writer.done));
        writer.states.push(writer.records.fingerprint());
    }
    let Some(difference) = writer.records.difference(found) else {
        return Ok(0);
    };
    let mut next = writer.records.clone();
    next.apply(&work::commit(seed, number, writer.done + 1));
    if let Some(with_next) = next.difference(found) {
        return Err(format!(
            "writer {number} with {} commits acknowledged, {acknowledged} of them in the last life: {difference}; with the commit in flight: {with_next}",
            writer.done
        ));
    }
    writer.done += 1;
    writer.records = next;
    writer.states.push(writer.records.fingerprint());
    Ok(1)
}

/// All records, by writer.
pub(crate) fn read_all(db: &Db) -> Result<BTreeMap<u32, Records>, Error> {
    let mut all = BTreeMap::<u32, Records>::new();
    for (space, name) in SPACES.into_iter().enumerate() {
        let keyspace = match db.keyspace(name) {
            Ok(keyspace) => keyspace,
            // The child may have died before it made the second one.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for record in keyspace.iter() {
            let (key, value) = record?;
            let writer = key
                .get(..2)
                .and_then(|digits| std::str::from_utf8(digits).ok());
            let writer = writer
                .and_then(|digits| digits.parse().ok())
                .unwrap_or(u32::MAX);
            all.entry(writer).or_default().insert(space, &key, &value);
        }
    }
    Ok(all)
}

/// Fresh directories for a campaign: what is there from an earlier one goes.
///
/// # Errors
/// A sentence.
pub fn fresh(dir: &Path) -> Result<(), String> {
    remove(dir)?;
    remove_checkpoints(dir)?;
    let parent = dir.parent().unwrap_or(dir);
    std::fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))
}

/// A child that dies before it has made one leaves none: not that of a child before it, which was checked.
fn remove_checkpoints(dir: &Path) -> Result<(), String> {
    remove(&checkpoint_of(dir))?;
    remove(&earlier_checkpoint_of(dir))
}

fn remove(dir: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", dir.display()))
        }
        _ => Ok(()),
    }
}
