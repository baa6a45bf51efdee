//! The directories that this process has open, so that the error `Locked` can tell which handles of
//! the database are still alive.
//!
//! Only [`Db`](crate::Db) handles are counted for this. Snapshots, transactions and iterators are
//! counted by their pins, and keyspaces are the remaining references to the handle.
//!
//! Thread safety: everything from any thread. Other threads may change the counts meanwhile.

use crate::durable::directory;
use crate::engine::Engine;
use crate::read::pins::Kind;
use crate::{Error, ErrorKind, Result};
use glintdb_flash::{
    DirOptions, DirVolume, Placement, ProcessToken, Units, Volume, directories_of,
};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

/// A database that this process has open, or is about to close.
struct Open {
    /// Canonical path of the directory.
    directory: PathBuf,
    /// The process that has the database open. A forked child has a copy of this list, and none of
    /// its databases open.
    process: ProcessToken,
    /// The handle, to count its references. Never upgraded: the last reference closes the database.
    handle: Weak<dyn Any + Send + Sync>,
    engine: Weak<Engine>,
}

static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

/// Number of times that [`open`] tries to take the lock.
const TRIES_MAX: usize = 10_000;

/// Locks the list. Returns `None` if the lock is not free for long, as in a child that was forked
/// while another thread of the parent held it. Messages then do without the list.
fn open() -> Option<MutexGuard<'static, Vec<Open>>> {
    for _ in 0..TRIES_MAX {
        match OPEN.try_lock() {
            Ok(open) => return Some(open),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

/// Notes that the database of `handle` is open in `directory`.
pub(crate) fn register<H: Any + Send + Sync>(
    directory: &Path,
    handle: &Arc<H>,
    engine: &Arc<Engine>,
) {
    let handle: Weak<H> = Arc::downgrade(handle);
    let opened = Open {
        directory: directory.to_owned(),
        process: ProcessToken::current(),
        handle,
        engine: Arc::downgrade(engine),
    };
    if let Some(mut open) = open() {
        open.push(opened);
    }
}

/// Removes a database that does not hold its directory any more from the list.
pub(crate) fn forget(engine: &Arc<Engine>) {
    if let Some(mut open) = open() {
        open.retain(|one| one.engine.as_ptr() != Arc::as_ptr(engine));
    }
}

/// The directory of a database, or its directories.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Directories {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

impl Directories {
    fn paths(&self) -> &[PathBuf] {
        match self {
            Directories::One(path) => std::slice::from_ref(path),
            Directories::Several(paths) => paths,
        }
    }
}

/// What `path` names: a directory, or several as `dirs:PATH,PATH`.
///
/// # Errors
/// `InvalidArgument`: one of several is empty.
pub(crate) fn directories(path: &Path) -> Result<Directories> {
    Ok(match directories_of(path)? {
        Some(paths) => Directories::Several(paths),
        None => Directories::One(path.to_owned()),
    })
}

/// Directories that are open and locked.
pub(crate) struct Opened {
    /// The volume over all of them.
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) directories: Vec<Arc<DirVolume>>,
}

/// Opens and locks directories.
///
/// # Errors
/// Those of [`directory::check`] and [`DirVolume::open`], or of [`Units::open`]. If this process
/// has the database open, `Locked` names its handles.
pub(crate) fn open_directories(
    directories: &Directories,
    placement: &Placement,
    options: DirOptions,
) -> Result<Opened> {
    let opened = match directories {
        Directories::One(path) => {
            directory::check(path, options.create)?;
            DirVolume::open(path, options).map(|volume| Opened {
                volume: Arc::clone(&volume) as Arc<dyn Volume>,
                directories: vec![volume],
            })
        }
        Directories::Several(paths) => {
            Units::open(paths, placement.clone(), options).map(|units| Opened {
                directories: units.directories().to_vec(),
                volume: units,
            })
        }
    };
    opened.map_err(|error| {
        let alive = || directories.paths().iter().find_map(|path| alive(path));
        match error.kind() {
            ErrorKind::Locked => alive().unwrap_or(error),
            _ => error,
        }
    })
}

/// Opens the directories that `path` names for reading only, for a tool.
///
/// # Errors
/// As [`open_directories`].
pub(crate) fn open_to_read(path: &Path, options: DirOptions) -> Result<Arc<dyn Volume>> {
    let options = DirOptions {
        read_only: true,
        create: false,
        ..options
    };
    let opened = open_directories(&directories(path)?, &Placement::Striping, options)?;
    Ok(opened.volume)
}

/// Returns the reason why `path` is locked, if a database of this process is the reason.
fn alive(path: &Path) -> Option<Error> {
    let directory = path.canonicalize().ok()?;
    let here = |one: &&Open| one.directory == directory && one.process.is_current();
    let (engine, references) = {
        let open = open()?;
        let one = open.iter().find(here)?;
        (one.engine.upgrade()?, one.handle.strong_count())
    };
    let why = match engine.shared.closing() {
        true => "another thread is closing it".to_owned(),
        false => format!(
            "{}; drop them or call Db::close",
            counted(&engine, references)
        ),
    };
    Some(Error::new(
        ErrorKind::Locked,
        format!(
            "{} is already open in this process: {why}",
            directory.display()
        ),
    ))
}

/// Names the handles of a database, which has `references` references to its handle.
fn counted(engine: &Engine, references: usize) -> String {
    let dbs = engine.dbs.load(Ordering::Relaxed);
    let (readers, pins) = engine.shared.pins.readers();
    let kinds = [
        (dbs, "Db handle", "Db handles"),
        (
            references.saturating_sub(dbs + pins),
            "keyspace",
            "keyspaces",
        ),
        (readers[Kind::Iterator as usize], "iterator", "iterators"),
        (readers[Kind::Snapshot as usize], "snapshot", "snapshots"),
        (
            readers[Kind::Transaction as usize],
            "transaction",
            "transactions",
        ),
    ];
    let alive: usize = kinds.iter().map(|(count, ..)| count).sum();
    let mut kinds = kinds.into_iter().filter(|(count, ..)| *count > 0);
    let in_words = |(count, one, many): (usize, &str, &str)| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    let last = kinds.next_back().map(in_words).unwrap_or_default();
    let others: Vec<String> = kinds.map(in_words).collect();
    let verb = if alive == 1 { "is" } else { "are" };
    match others.is_empty() {
        true => format!("{last} {verb} alive"),
        false => format!("{} and {last} {verb} alive", others.join(", ")),
    }
}
