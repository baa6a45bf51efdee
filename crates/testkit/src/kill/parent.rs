//! The process that kills and checks.

use super::child::{ACKNOWLEDGEMENT_BYTES, READY};
use super::work::{self, Records};
use super::{SPACES, WRITERS};
use crate::rng::Rng;
use glintdb::{Db, Error};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest life of a child, in milliseconds, once the database is open.
const LIFE_MS_MAX: u64 = 700;
/// One child in so many is killed while it opens the database.
const IN_RECOVERY: u64 = 4;

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
    /// Longest open after a kill.
    pub open_max: Duration,
    /// Most bytes that `verify` read.
    pub bytes_max: u64,
}

/// A writer as the parent knows it.
#[derive(Default)]
struct Writer {
    /// Commits that are in the database.
    done: u64,
    records: Records,
}

/// Runs the campaign. `child` makes the command that calls [`super::child::run`] with these counts of commits done.
///
/// # Errors
/// What was found wrong, and in which cycle.
pub fn run(campaign: &Campaign, child: impl Fn(&[u64]) -> Command) -> Result<Totals, String> {
    let mut rng = Rng::of(&[campaign.seed, 1]);
    let mut totals = Totals::default();
    let mut writers: Vec<Writer> = (0..WRITERS).map(|_| Writer::default()).collect();
    for cycle in 0..campaign.cycles {
        let done: Vec<u64> = writers.iter().map(|writer| writer.done).collect();
        let in_recovery = cycle > 0 && rng.one_in(IN_RECOVERY);
        let life = Duration::from_micros(if in_recovery {
            rng.below(10_000)
        } else {
            // Short lives as often as long ones.
            let max = 1 + rng.below(LIFE_MS_MAX);
            rng.below(max * 1000)
        });
        let acknowledged = one_life(&mut child(&done), life, in_recovery, &mut totals)
            .and_then(|acknowledged| {
                check(campaign, &mut writers, &acknowledged, &mut totals)?;
                Ok(acknowledged)
            })
            .map_err(|message| format!("cycle {cycle}, seed {}: {message}", campaign.seed))?;
        totals.acknowledged += acknowledged.iter().sum::<u64>();
    }
    Ok(totals)
}

/// Starts a child, kills it, and gives the commits that each writer acknowledged in its life.
fn one_life(
    command: &mut Command,
    life: Duration,
    in_recovery: bool,
    totals: &mut Totals,
) -> Result<Vec<u64>, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start the child: {error}"))?;
    let mut pipe = child.stdout.take().ok_or("no pipe")?;
    let (ready, opened) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut acknowledged = vec![Vec::new(); WRITERS as usize];
        let mut bytes = [0; ACKNOWLEDGEMENT_BYTES];
        while pipe.read_exact(&mut bytes).is_ok() {
            let writer = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
            let number = u64::from_le_bytes(bytes[4..].try_into().expect("eight bytes"));
            if writer == READY {
                ready.send(()).ok();
            } else if let Some(numbers) = acknowledged.get_mut(writer as usize) {
                numbers.push(number);
            }
        }
        acknowledged
    });
    let was_open = if in_recovery {
        std::thread::sleep(life);
        opened.try_recv().is_ok()
    } else {
        let open = opened.recv_timeout(Duration::from_secs(60)).is_ok();
        std::thread::sleep(life);
        open
    };
    kill(&mut child)?;
    if !was_open && !in_recovery {
        return Err("the child did not open the database within a minute".into());
    }
    totals.kills += 1;
    totals.kills_in_recovery += u64::from(!was_open);
    let acknowledged = reader
        .join()
        .map_err(|_| "the reader of the pipe panicked")?;
    let count = |numbers: &Vec<u64>| numbers.len() as u64;
    for (writer, numbers) in acknowledged.iter().enumerate() {
        let in_order = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        if !in_order {
            return Err(format!("writer {writer} acknowledged out of order"));
        }
    }
    Ok(acknowledged.iter().map(count).collect())
}

/// SIGKILL; a child that has ended by itself has failed.
fn kill(child: &mut Child) -> Result<(), String> {
    if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
        return Err(format!("the child ended by itself: {status}"));
    }
    child.kill().map_err(|error| format!("kill: {error}"))?;
    child.wait().map_err(|error| error.to_string())?;
    Ok(())
}

/// Opens the database and compares; the writers go on from what was found.
fn check(
    campaign: &Campaign,
    writers: &mut [Writer],
    acknowledged: &[u64],
    totals: &mut Totals,
) -> Result<(), String> {
    let start = Instant::now();
    let db = super::open(&campaign.dir).map_err(|error| format!("open after the kill: {error}"))?;
    totals.open_max = totals.open_max.max(start.elapsed());
    let mut found = read_all(&db).map_err(|error| format!("read after the kill: {error}"))?;
    for (number, writer) in writers.iter_mut().enumerate() {
        let found = found.remove(&(number as u32)).unwrap_or_default();
        totals.in_flight_kept += advance(
            campaign.seed,
            number as u32,
            writer,
            acknowledged[number],
            &found,
        )?;
    }
    if let Some(writer) = found.keys().next() {
        return Err(format!("records of a writer {writer}, whom nobody asked"));
    }
    let report = db.verify().map_err(|error| format!("verify: {error}"))?;
    if let Some(error) = report.errors.first() {
        return Err(format!(
            "verify found {} errors; the first: {error}",
            report.errors.len()
        ));
    }
    totals.bytes_max = totals.bytes_max.max(report.bytes);
    db.close().map_err(|error| format!("close: {error}"))
}

/// The writer's records must be those after all acknowledged commits, or after one more. Gives how many of one more.
fn advance(
    seed: u64,
    number: u32,
    writer: &mut Writer,
    acknowledged: u64,
    found: &Records,
) -> Result<u64, String> {
    for _ in 0..acknowledged {
        writer.done += 1;
        writer
            .records
            .apply(&work::commit(seed, number, writer.done));
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
    Ok(1)
}

/// All records, by writer.
fn read_all(db: &Db) -> Result<std::collections::BTreeMap<u32, Records>, Error> {
    let mut all = std::collections::BTreeMap::<u32, Records>::new();
    for (space, name) in SPACES.into_iter().enumerate() {
        let keyspace = match db.keyspace(name) {
            Ok(keyspace) => keyspace,
            // The child may have died before it made the second one.
            Err(error) if error.kind() == glintdb::ErrorKind::NotFound => continue,
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
            all.entry(writer).or_default().0[space].insert(key.to_vec(), value.to_vec());
        }
    }
    Ok(all)
}

/// A fresh directory for a campaign: what is there from an earlier one goes.
///
/// # Errors
/// A sentence.
pub fn fresh(dir: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(format!("{}: {error}", dir.display())),
    }
    let parent = dir.parent().unwrap_or(dir);
    std::fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))
}
