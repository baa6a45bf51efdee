//! EIO on reads, writes and flushes of the disk while a child process works on a database; then the disk is sound again, the file system is mounted anew, and what the child was
//! promised must be there.
//!
//! The child is a process of its own because of the log's ring: a store into the mapping of a file system that has shut itself down ends in SIGBUS (`docs/format/media.md`).
//! That is the only way in which a child may end other than by itself, and only where the ring is mapped.
//!
//! Threads: those of the work and of the engine in the child; the reader of the pipe in the parent.

use super::filesystem::FileSystem;
use super::history::History;
use super::power::verified;
use super::work::{self, Event, Work};
use crate::kill::SPACES;
use crate::options::{self, Lane, OptionSet};
use crate::rng::Rng;
use glintdb::{Db, Durability, ErrorKind};
use glintdb_faultdisk::{Disk, Effect, Fault, Image, On, Times};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Number of the signal by which a store into a mapping fails.
const SIGBUS: i32 = 7;
/// Commits of each writer, unless an error comes first.
const COMMITS: u64 = 150;
/// A child ends within this time.
const CHILD_MAX: Duration = Duration::from_secs(60);
/// Events are so long: kind, writer (u32), number (u64).
const EVENT_BYTES: usize = 13;

/// Sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Children that worked on a failing disk.
    pub rounds: u64,
    /// Of those, with faults of reads, writes, flushes planned.
    pub planned: [u64; 3],
    /// Errors that the disk gave.
    pub struck: u64,
    /// Children to which the engine reported an error.
    pub reported: u64,
    /// Of those, ones in which it found by checksum that the disk had lost what it had taken.
    pub noticed: u64,
    /// Rounds in which the disk lost what another sync had covered, which nobody promises to survive.
    pub beyond: u64,
    /// Children that ended by SIGBUS.
    pub sigbus: u64,
    /// Commits acknowledged at `Sync`, or by a flush, that were looked for.
    pub promises: u64,
}

/// Rounds on one file system.
pub struct Errors {
    system: FileSystem,
    disk: Disk,
    formatted: Image,
    /// So far.
    pub totals: Totals,
}

/// A fault at random, and what of it is told.
fn some_fault(rng: &mut Rng) -> (usize, Fault) {
    let kind = rng.below(3) as usize;
    let fault = Fault {
        on: [On::Read, On::Write, On::Flush][kind],
        range: None,
        skip: rng.below([20, 200, 60][kind]),
        times: if rng.one_in(2) {
            Times::Once
        } else {
            Times::Sticky
        },
        effect: if rng.one_in(3) {
            Effect::ErrorAndLoss
        } else {
            Effect::Error
        },
    };
    (kind, fault)
}

impl Errors {
    /// A disk of its own for this file system.
    ///
    /// # Errors
    /// What the machine lacks.
    pub fn new(system: FileSystem) -> Result<Errors, String> {
        let (disk, formatted) = system.disk()?;
        Ok(Errors {
            system,
            disk,
            formatted,
            totals: Totals::default(),
        })
    }

    /// One child. `command` makes what calls [`child`] with this directory, option set and seed.
    ///
    /// # Errors
    /// What was found wrong.
    pub fn round(
        &mut self,
        seed: u64,
        command: impl Fn(&Path, usize, u64) -> Command,
    ) -> Result<(), String> {
        let mut rng = Rng::of(&[seed, 200]);
        let sets = options::of(Lane::Kill);
        let set = rng.below(sets.len() as u64) as usize;
        let (kind, fault) = some_fault(&mut rng);
        let effect = fault.effect;
        let beyond = effect == Effect::ErrorAndLoss && fault.on == On::Flush;
        let context =
            |message: String| format!("round {seed}, \"{}\", {fault:?}: {message}", sets[set].name);
        self.disk.insert(self.formatted.clone())?;
        self.system.mount(&self.disk)?;
        let before = self.disk.operations().struck;
        let dir = self.disk.mount_point().join("db");
        let (history, status) = self.child(command(&dir, set, seed), seed, fault.clone());
        self.disk.repair();
        self.totals.rounds += 1;
        self.totals.planned[kind] += 1;
        self.totals.struck += self.disk.operations().struck - before;
        let status = status.map_err(context)?;
        match (status.code(), status.signal()) {
            (Some(0), _) => {}
            (Some(REPORTED), _) => self.totals.reported += 1,
            // A disk that lost what it had taken gives older bytes back: found by their checksum.
            (Some(NOTICED), _) if effect == Effect::ErrorAndLoss => {
                self.totals.reported += 1;
                self.totals.noticed += 1;
            }
            // Only a mapped ring can do that.
            (_, Some(SIGBUS)) if self.system.kind != "btrfs" => self.totals.sigbus += 1,
            _ => return Err(context(format!("the child ended with {status}"))),
        }
        self.disk.unmount().map_err(context)?;
        self.system
            .mount(&self.disk)
            .map_err(|message| context(format!("after the error: {message}")))?;
        match self.judge(&history, &sets[set], &dir) {
            Ok(promised) => self.totals.promises += promised,
            // The kernel tells a failed flush to one caller, or to none where its journal flushed. What the disk lost with it may be what another sync, that said OK, had covered:
            // that breaks assumption A1 of docs/format/media.md, and nobody above the kernel can know.
            Err(_) if beyond => self.totals.beyond += 1,
            Err(message) => return Err(context(message)),
        }
        self.disk.unmount().map_err(context)
    }

    /// Runs it; the fault is planned when its first commits are acknowledged, or a little later.
    fn child(
        &self,
        mut command: Command,
        seed: u64,
        fault: Fault,
    ) -> (History, Result<ExitStatus, String>) {
        let history = History::new(seed);
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => return (history, Err(format!("cannot start the child: {error}"))),
        };
        let Some(mut pipe) = child.stdout.take() else {
            return (history, Err("no pipe".into()));
        };
        let mut arm = Some(fault);
        let mut bytes = [0; EVENT_BYTES];
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while pipe.read_exact(&mut bytes).is_ok() {
                    let [kind, a, b, c, d, number @ ..] = bytes;
                    let writer = u32::from_le_bytes([a, b, c, d]);
                    let number = u64::from_le_bytes(number);
                    match kind {
                        0 => history.begin(writer, number),
                        kind => history.acknowledge(writer, number, kind == 2, 0),
                    }
                    if number > 10
                        && let Some(fault) = arm.take()
                    {
                        self.disk.fail(fault);
                    }
                }
            });
            wait(&mut child, &self.disk);
            reader.join().expect("no panic");
        });
        let status = child.wait().map_err(|error| error.to_string());
        (history, status)
    }

    /// Opens what is left on the sound disk; gives how many commits were promised.
    fn judge(&self, history: &History, set: &OptionSet, dir: &PathBuf) -> Result<u64, String> {
        let allowed = history.allowed();
        let promised = allowed.promised(usize::MAX);
        let open = || set.options.clone().open(dir);
        let db = open().map_err(|error| format!("open on the sound disk: {error}"))?;
        allowed.check(&work::found(&db)?, promised)?;
        verified(&db)?;
        db.default_keyspace()
            .put_with("99/after", "written", Durability::Sync)
            .map_err(|error| format!("write on the sound disk: {error}"))?;
        drop(db);
        let db = open().map_err(|error| format!("second open on the sound disk: {error}"))?;
        verified(&db)?;
        Ok(promised.iter().sum())
    }
}

/// Waits for its end. One that takes too long gets a sound disk, and then SIGKILL, which the caller sees.
fn wait(child: &mut Child, disk: &Disk) {
    let until = Instant::now() + CHILD_MAX;
    while Instant::now() < until {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    disk.repair();
    child.kill().ok();
}

/// What a child that saw an error, and went on as it should, ends with.
pub const REPORTED: i32 = 3;
/// As [`REPORTED`], and bytes were found that are not those that were written.
pub const NOTICED: i32 = 4;

/// The child: works, and where something fails, looks whether the engine goes on as it promises. Answers what the process is to end with.
///
/// # Errors
/// A sentence: what was found wrong.
pub fn child(dir: &Path, set: &OptionSet, seed: u64) -> Result<i32, String> {
    let out = parking_lot::Mutex::new(std::io::stdout());
    let tell = |event: Event| {
        let (kind, writer, number) = match event {
            Event::Begin(writer, number) => (0, writer, number),
            Event::Done(writer, number, false) => (1, writer, number),
            Event::Done(writer, number, true) => (2, writer, number),
        };
        let mut bytes = [0; EVENT_BYTES];
        bytes[0] = kind;
        bytes[1..5].copy_from_slice(&writer.to_le_bytes());
        bytes[5..].copy_from_slice(&number.to_le_bytes());
        let mut out = out.lock();
        // Where the parent is gone nobody asks any more.
        out.write_all(&bytes).and_then(|()| out.flush()).ok();
    };
    let options = set.options.clone();
    let db = options
        .open(dir)
        .map_err(|error| format!("open before any fault: {error}"))?;
    let spaces = set
        .keyspaces(&db, SPACES)
        .map_err(|error| error.to_string())?;
    let history = History::new(seed);
    let work = Work {
        db: &db,
        history: &history,
        seed,
        commits: COMMITS,
        sync_every: if set.syncs() { 1 } else { 4 },
        position: &|| 0,
        tell: &tell,
    };
    let errors = work.run(&spaces);
    let mut noticed = false;
    for error in &errors {
        match error.kind() {
            kind if is_refusal(kind) || kind == ErrorKind::Poisoned => {}
            ErrorKind::Corruption => noticed = true,
            _ => return Err(format!("an error of the disk came out as {error:?}")),
        }
    }
    if errors.is_empty() {
        return Ok(0);
    }
    noticed |= after_error(&db, &history)?;
    Ok(if noticed { NOTICED } else { REPORTED })
}

/// Whether an error says that the disk refused an operation. After an error of the disk, a file
/// system may turn read-only, and then opens no file for writing: `Unavailable`.
fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Io | ErrorKind::Unavailable)
}

/// Checks that reads show a state that is allowed, or an error, and that a writer that was refused
/// is refused again. Returns whether bytes were found that are not those that were written.
fn after_error(db: &Db, history: &History) -> Result<bool, String> {
    let allowed = history.allowed();
    let acknowledged = history.acknowledged();
    let mut noticed = false;
    match crate::kill::parent::read_all(db) {
        Ok(found) => allowed
            .check(&found, acknowledged)
            .map(drop)
            .map_err(|message| format!("read beside the error: {message}"))?,
        Err(error) => match error.kind() {
            kind if is_refusal(kind) => {}
            ErrorKind::Corruption => noticed = true,
            _ => return Err(format!("read beside the error: {error:?}")),
        },
    }
    let again = || {
        let space = db.default_keyspace();
        space.put_with("98/later", "x", Durability::Sync).err()
    };
    match (again(), again()) {
        // What failed was a read, or a job that may try again.
        (None, None) => Ok(noticed),
        (_, Some(error)) if is_refusal(error.kind()) || error.kind() == ErrorKind::Poisoned => {
            Ok(noticed)
        }
        (first, second) => Err(format!(
            "a writer was refused with {first:?}, and then answered with {second:?}"
        )),
    }
}
