//! Power cuts on a real file system: a life is recorded write by write, and for many places of the tape the image that a cut leaves is mounted (the kernel replays its
//! journal) and the database in it opened and judged.
//!
//! Cuts stand behind every flush, and between flushes with choices of what survives of the writes that no flush covers: all, none, random ones, ones torn at 512 bytes.
//! Now and then the recovery is recorded too, and cut off in its turn.
//!
//! Threads: those of the work and of the engine.

use super::filesystem::FileSystem;
use super::history::{Allowed, Counts, History};
use super::work::{self, Work};
use crate::kill::SPACES;
use crate::options::{self, Lane, OptionSet};
use crate::rng::Rng;
use glintdb::{Db, Durability};
use glintdb_core::{FileId, FileKind};
use glintdb_faultdisk::{Disk, Image, Kept, Tape};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// States judged of one life, about.
const STATES_OF_A_LIFE: u64 = 60;
/// Of one state in so many, the recovery is cut off too.
const NESTED: u64 = 6;
/// One image in so many may be one that the file system itself does not survive.
const UNMOUNTABLE: u64 = 50;
/// Key of what is written to a recovered database.
const AFTER: &str = "99/after";

/// Sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Lives recorded.
    pub lives: u64,
    /// Images mounted, opened and judged.
    pub states: u64,
    /// Of those, of a cut in a recovery.
    pub nested: u64,
    /// Of all, with nothing at all promised in them.
    pub without_promise: u64,
    /// Images that the file system itself refused to mount: there is nothing to judge in them.
    pub unmountable: u64,
    /// Commits acknowledged at `Sync`, or by a flush, that were looked for, summed over states.
    pub promises: u64,
    /// Writes and flushes recorded.
    pub entries: u64,
}

/// Lives and cuts on one file system until the time is over.
pub struct Power {
    system: FileSystem,
    disk: Disk,
    formatted: Image,
    sets: Vec<OptionSet>,
    /// So far.
    pub totals: Totals,
}

/// A recorded life.
struct Life<'a> {
    seed: u64,
    tape: &'a Tape,
    allowed: Allowed<'a>,
    history: &'a History,
}

/// How a cut treats what no flush covers.
#[derive(Clone, Copy, Debug)]
enum Survivors {
    All,
    None,
    Some(u64),
    Torn(u64),
}

impl Survivors {
    fn random(rng: &mut Rng) -> Survivors {
        match rng.below(6) {
            0 => Survivors::All,
            1 => Survivors::None,
            2 | 3 => Survivors::Some(rng.number()),
            _ => Survivors::Torn(rng.number()),
        }
    }

    fn image(self, tape: &Tape, cut: usize) -> Image {
        let seed = match self {
            Survivors::Some(seed) | Survivors::Torn(seed) => seed,
            _ => 0,
        };
        let mut rng = Rng::new(seed);
        tape.replay().cut(cut, &mut |sectors| match self {
            Survivors::All => Kept::Whole,
            Survivors::None => Kept::Nothing,
            Survivors::Some(_) if rng.one_in(2) => Kept::Whole,
            Survivors::Some(_) => Kept::Nothing,
            Survivors::Torn(_) => Kept::Sectors((0..sectors).map(|_| rng.one_in(2)).collect()),
        })
    }
}

impl Power {
    /// A disk of its own for this file system.
    ///
    /// # Errors
    /// What the machine lacks.
    pub fn new(system: FileSystem) -> Result<Power, String> {
        let (disk, formatted) = system.disk()?;
        Ok(Power {
            system,
            disk,
            formatted,
            sets: options::of(Lane::Kill),
            totals: Totals::default(),
        })
    }

    fn dir(&self) -> PathBuf {
        self.disk.mount_point().join("db")
    }

    /// One life, and the judging of its cuts until `until`.
    ///
    /// # Errors
    /// What was found wrong, with the seed and the cut.
    pub fn life(&mut self, seed: u64, until: Instant) -> Result<(), String> {
        let mut rng = Rng::of(&[seed, 100]);
        let set = self.sets[rng.below(self.sets.len() as u64) as usize].clone();
        let context = |message: String| format!("life {seed}, \"{}\": {message}", set.name);
        let history = History::new(seed);
        let tape = self.record(seed, &set, &history).map_err(context)?;
        self.totals.lives += 1;
        self.totals.entries += tape.entries.len() as u64;
        let life = Life {
            seed,
            tape: &tape,
            allowed: history.allowed(),
            history: &history,
        };
        for (cut, survivors) in cuts(&tape, &mut rng) {
            if Instant::now() > until {
                break;
            }
            self.judge(&life, cut, survivors, &mut rng)
                .map_err(|message| {
                    format!(
                        "cut at {cut} of {}, {survivors:?}: {message}",
                        tape.entries.len()
                    )
                })
                .map_err(context)?;
        }
        Ok(())
    }

    /// Makes a database, works on it in two sittings, and gives the tape of that.
    fn record(&self, seed: u64, set: &OptionSet, history: &History) -> Result<Tape, String> {
        self.disk.insert(self.formatted.clone())?;
        self.system.mount(&self.disk)?;
        self.disk.record();
        for sitting in 0..2 {
            let options = set.options.clone();
            let db = options
                .open(self.dir())
                .map_err(|error| format!("open, sitting {sitting}: {error}"))?;
            let spaces = set
                .keyspaces(&db, SPACES)
                .map_err(|error| error.to_string())?;
            let work = Work {
                db: &db,
                history,
                seed,
                commits: 60,
                sync_every: if set.syncs() { 1 } else { 5 },
                position: &|| self.disk.position(),
                tell: &|_| (),
            };
            if let Some(error) = work.run(&spaces).first() {
                return Err(format!("without a fault: {error}"));
            }
        }
        let tape = self.disk.tape().ok_or("no tape")?;
        self.disk.unmount()?;
        Ok(tape)
    }

    /// Judges the image of one cut, and perhaps one of a cut in its recovery.
    fn judge(
        &mut self,
        life: &Life<'_>,
        cut: usize,
        survivors: Survivors,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let promised = life.allowed.promised(cut);
        self.totals.promises += promised.iter().sum::<u64>();
        self.totals.without_promise += u64::from(promised == Counts::default());
        self.disk.insert(survivors.image(life.tape, cut))?;
        let nested = rng.one_in(NESTED);
        if nested {
            self.disk.record();
        }
        let after = self.recovered(life, promised, rng, nested)?;
        let Some((tape, written)) = after else {
            return Ok(());
        };
        // What was acknowledged before stays, however often recovery is cut off.
        let cut = rng.below(tape.entries.len() as u64 + 1) as usize;
        let survivors = Survivors::random(rng);
        self.disk.insert(survivors.image(&tape, cut))?;
        self.totals.nested += 1;
        let again = self.recovered(life, promised, rng, false);
        again.map_err(|message| {
            format!("cut again at {cut} of {} ({written} at its first commit), {survivors:?}: {message}", tape.entries.len())
        })?;
        Ok(())
    }

    /// Mounts, opens, compares, verifies, looks for files that nobody needs, writes, and opens once more. Gives the tape of all this where it was recorded, and where on it the
    /// write was acknowledged.
    fn recovered(
        &mut self,
        life: &Life<'_>,
        promised: Counts,
        rng: &mut Rng,
        recorded: bool,
    ) -> Result<Option<(Tape, usize)>, String> {
        if let Err(reason) = self.system.mount(&self.disk) {
            self.totals.unmountable += 1;
            // xfs, seldom: it skips what its log has of a block whose first sector is new already, and then finds that the other sectors are not.
            return if self.totals.unmountable <= 5 + self.totals.states / UNMOUNTABLE {
                drop(self.disk.tape());
                Ok(None)
            } else {
                Err(format!(
                    "five images and one in {UNMOUNTABLE} may fail to mount, this was one more: {reason}"
                ))
            };
        }
        self.totals.states += 1;
        let set = &self.sets[rng.below(self.sets.len() as u64) as usize];
        let dir = self.dir();
        let outcome = self.open_and_judge(life, promised, set, &dir, rng.one_in(3));
        let outcome = outcome.map_err(|message| format!("opened with \"{}\": {message}", set.name));
        let tape = self.disk.tape();
        self.disk.unmount()?;
        let written = outcome?;
        Ok(tape.filter(|_| recorded).map(|tape| (tape, written)))
    }

    fn open_and_judge(
        &self,
        life: &Life<'_>,
        promised: Counts,
        set: &OptionSet,
        dir: &Path,
        twice: bool,
    ) -> Result<usize, String> {
        let open = || set.options.clone().open(dir);
        let db = open().map_err(|error| format!("open: {error}"))?;
        let there = compare(life, &db, promised)?;
        verified(&db)?;
        if set.options.background_threads == 0 {
            no_file_left_over(&db, dir)?;
        }
        db.default_keyspace()
            .put_with(AFTER, life.seed.to_le_bytes(), Durability::Sync)
            .map_err(|error| format!("write after recovery: {error}"))?;
        let written = self.disk.position();
        drop(db);
        if twice {
            let db = open().map_err(|error| format!("second open: {error}"))?;
            let again = compare(life, &db, promised)?;
            if again != there {
                return Err(format!(
                    "a second open shows {again:?} instead of {there:?}"
                ));
            }
            let value = db.get(AFTER).map_err(|error| error.to_string())?;
            if value.as_deref() != Some(&life.seed.to_le_bytes()[..]) {
                return Err("what was written after recovery is gone".into());
            }
            verified(&db).map_err(|message| format!("second open: {message}"))?;
        }
        Ok(written)
    }
}

/// Where to cut a tape: behind flushes, and between them with a choice of survivors; so many that a life takes some seconds.
fn cuts(tape: &Tape, rng: &mut Rng) -> Vec<(usize, Survivors)> {
    // The end too: a disk that is never flushed has no other.
    let flushes = tape.flushes().into_iter().chain([tape.entries.len()]);
    let mut cuts = Vec::new();
    let mut before = 0;
    for flush in flushes {
        // Two thirds between flushes: that is where it is decided what is lost.
        for _ in 0..2 {
            if flush - before > 1 {
                let cut = before + 1 + rng.below((flush - before) as u64 - 1) as usize;
                cuts.push((cut, Survivors::random(rng)));
            }
        }
        if flush > before {
            cuts.push((flush, Survivors::None));
        }
        before = flush;
    }
    let all = cuts.len() as u64;
    cuts.retain(|_| rng.below(all) < STATES_OF_A_LIFE);
    cuts.sort_by_key(|(cut, _)| *cut);
    cuts
}

fn compare(life: &Life<'_>, db: &Db, promised: Counts) -> Result<Counts, String> {
    let mut found = work::found(db)?;
    found.remove(&99);
    if let Some(writer) = found.keys().find(|writer| **writer >= crate::kill::WRITERS) {
        return Err(format!("records of a writer {writer}, whom nobody asked"));
    }
    debug_assert!(life.history.begun().iter().sum::<u64>() > 0);
    life.allowed.check(&found, promised)
}

/// `verify()` finds nothing.
///
/// # Errors
/// The first thing that it finds.
pub fn verified(db: &Db) -> Result<(), String> {
    let report = db.verify().map_err(|error| format!("verify: {error}"))?;
    match report.errors.first() {
        None => Ok(()),
        Some(error) => Err(format!(
            "verify found {} errors; the first: {error}",
            report.errors.len()
        )),
    }
}

/// Every table is named by an index, every segment by the log, and there is one manifest. For databases without background threads, directly after an open.
fn no_file_left_over(db: &Db, dir: &Path) -> Result<(), String> {
    let names = std::fs::read_dir(dir).map_err(|error| error.to_string())?;
    let files: Vec<FileId> = names
        .flatten()
        .filter_map(|entry| FileId::parse(entry.file_name().to_str()?))
        .collect();
    let count = |kind| files.iter().filter(|file| file.kind == kind).count() as u64;
    let stats = db.stats();
    let found = count(FileKind::Table) + count(FileKind::Tree);
    let tables: u64 = stats
        .keyspaces
        .iter()
        .map(|keyspace| keyspace.index_files)
        .sum();
    let spare = count(FileKind::Log).saturating_sub(stats.log.segments);
    if found == tables && count(FileKind::Manifest) == 1 && spare <= 2 {
        return Ok(());
    }
    Err(format!(
        "files left over: {found} of indexes of which {tables} are used, {} manifests, {spare} spare segments",
        count(FileKind::Manifest)
    ))
}
