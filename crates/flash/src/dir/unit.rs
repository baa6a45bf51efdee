//! Several directories of one database. The file `unit` of each says which database it belongs to,
//! and which of its directories it is ([layout](../../../../docs/format/media.md)).
//!
//! Thread safety: any thread.
//!
//! Invariants:
//! 1. Nothing is created or changed in any of the directories before the names and the files `unit`
//!    of all of them were looked at.
//! 2. The first file `unit` of a new database gets its name after all directories have theirs,
//!    durably, under the name `unit.new`. So where one directory has `unit`, another one that has
//!    neither name is none of that database.

use super::{Common, DirContents, DirOptions, DirVolume, Prepared, descriptors, open_directory};
use crate::system::random_bytes;
use glintdb_core::checksum::crc32c;
use glintdb_core::codec::Reader;
use glintdb_core::{Error, ErrorKind, Result};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file.
pub(super) const NAME: &str = "unit";
/// Name of a file that is being made.
pub(super) const NAME_NEW: &str = "unit.new";

const MAGIC: [u8; 8] = *b"GLNTUNIT";
const VERSION: u32 = 1;
/// Length of the file.
const BYTES: usize = 40;
/// The most directories of a database.
const DIRECTORIES_MAX: usize = 64;

/// What the file `unit` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Unit {
    /// Drawn at random when the directories were made.
    id: [u8; 16],
    /// Which of the directories it is, from 0.
    index: u32,
    /// How many there are.
    count: u32,
}

impl Unit {
    fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.index.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.count.to_le_bytes());
        bytes[20..36].copy_from_slice(&self.id);
        let checksum = crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], path: &Path) -> Result<Unit> {
        let damaged = |what: &str| Error::corruption(path.display(), 0, what);
        let mut reader = Reader::new(bytes);
        if reader.array::<8>() != Some(MAGIC) {
            return Err(damaged("it does not begin with GLNTUNIT"));
        }
        match reader.u32() {
            Some(VERSION) => {}
            Some(version) => {
                let what = format!("{} has version {version}, not 1", path.display());
                return Err(Error::new(ErrorKind::UnsupportedFormat, what));
            }
            None => return Err(damaged("it is too short")),
        }
        let fields = (reader.u32(), reader.u32(), reader.array(), reader.u32());
        let (Some(index), Some(count), Some(id), Some(checksum)) = fields else {
            return Err(damaged("it is too short"));
        };
        let unit = Unit { id, index, count };
        let known = (2..=DIRECTORIES_MAX).contains(&(count as usize)) && index < count;
        match known && reader.is_empty() && unit.encode()[36..] == checksum.to_le_bytes() {
            true => Ok(unit),
            false => Err(damaged("its checksum is wrong")),
        }
    }

    /// Reads the file `name` of a directory, if it is there.
    fn read(directory: &Path, name: &str) -> Result<Option<Unit>> {
        let path = directory.join(name);
        match fs::read(&path) {
            Ok(bytes) => Unit::decode(&bytes, &path).map(Some),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(Error::access(format!("read {}", path.display()), error)),
        }
    }

    /// Writes `unit.new`, durably.
    fn write_new(self, directory: &Path) -> Result<()> {
        let path = directory.join(NAME_NEW);
        let failed = |error| Error::io(format!("write {}", path.display()), error);
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true);
        let mut file = options.open(&path).map_err(failed)?;
        file.write_all(&self.encode()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        sync(directory)
    }
}

/// Gives `unit.new` its name, durably.
fn finish(directory: &Path) -> Result<()> {
    let (from, to) = (directory.join(NAME_NEW), directory.join(NAME));
    fs::rename(from, &to).map_err(|error| Error::io(format!("make {}", to.display()), error))?;
    sync(directory)
}

fn sync(directory: &Path) -> Result<()> {
    open_directory(directory)?
        .sync_all()
        .map_err(|error| Error::io(format!("sync directory {}", directory.display()), error))
}

/// Says which directory of a database `directory` is, if it is one of several.
pub(super) fn describe(directory: &Path) -> Result<Option<String>> {
    let unit = Unit::read(directory, NAME)?;
    Ok(unit.map(|unit| {
        format!(
            "{} is directory {} of {} of one database: give all of them, as in `dirs:{},OTHER`",
            directory.display(),
            unit.index + 1,
            unit.count,
            directory.display()
        )
    }))
}

/// Refuses a directory that is one of several.
pub(super) fn refuse(directory: &Path) -> Result<()> {
    match describe(directory)? {
        Some(what) => Err(Error::invalid(what)),
        None => Ok(()),
    }
}

/// How an opening goes on, by the files `unit` that it has found.
#[derive(PartialEq, Eq, Debug)]
enum Plan {
    /// They have no database yet.
    New,
    /// Each with its number among those that were given, in the order of their indices; and whether
    /// its file `unit` has its name.
    Found(Vec<(usize, bool)>),
}

/// Looks at the directories without changing anything.
fn look(paths: &[PathBuf], create: bool) -> Result<Plan> {
    let mut found = Vec::with_capacity(paths.len());
    for path in paths {
        let unit = Unit::read(path, NAME)?;
        let new = match unit {
            Some(_) => None,
            // One that was cut off while it was written means nothing.
            None => Unit::read(path, NAME_NEW).ok().flatten(),
        };
        found.push((unit, new));
    }
    let Some(at) = found.iter().position(|(unit, _)| unit.is_some()) else {
        return look_at_new(paths, create).map(|()| Plan::New);
    };
    let (first, Some(known)) = (paths[at].display(), found[at].0) else {
        unreachable!("the directory at {at} has a file `unit`");
    };
    let mut order = vec![None; known.count as usize];
    for (number, (path, (unit, new))) in paths.iter().zip(&found).enumerate() {
        let here = path.display();
        let Some(unit) = unit.or(new.filter(|new| new.id == known.id)) else {
            let what = match path.try_exists() {
                Ok(false) => format!("{here} is not there"),
                _ => format!("{here} has no file `unit`"),
            };
            return Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "{what}; {first} belongs to a database of {} directories",
                    known.count
                ),
            ));
        };
        if unit.id != known.id || unit.count != known.count {
            return Err(Error::invalid(format!(
                "{here} and {first} belong to different databases"
            )));
        }
        if let Some(other) = order[unit.index as usize].replace(number) {
            let other: &PathBuf = &paths[other];
            return Err(Error::invalid(format!(
                "{} and {here} both say that they are directory {} of {}: one is a copy",
                other.display(),
                unit.index + 1,
                unit.count
            )));
        }
    }
    let missing: Vec<String> = (1..)
        .zip(&order)
        .filter(|(_, number)| number.is_none())
        .map(|(index, _)| index.to_string())
        .collect();
    if !missing.is_empty() {
        return Err(Error::invalid(format!(
            "the database in {first} has {} directories, and {} were given: number {} is missing",
            known.count,
            paths.len(),
            missing.join(", ")
        )));
    }
    let order = order.into_iter().flatten();
    Ok(Plan::Found(
        order
            .map(|number| (number, found[number].0.is_some()))
            .collect(),
    ))
}

/// Refuses directories in which no database can be made.
fn look_at_new(paths: &[PathBuf], create: bool) -> Result<()> {
    for path in paths {
        match DirVolume::contents(path)? {
            DirContents::Missing | DirContents::Empty if create => {}
            DirContents::Missing | DirContents::Empty => {
                let what = format!("there is no database in {}", path.display());
                return Err(Error::new(ErrorKind::NotFound, what));
            }
            DirContents::Database => {
                return Err(Error::invalid(format!(
                    "{} holds a database of one directory",
                    path.display()
                )));
            }
            DirContents::Foreign(name) => {
                return Err(Error::invalid(format!(
                    "{} holds other files, {name:?} for one; a new database needs empty directories",
                    path.display()
                )));
            }
            DirContents::Unit(what) => return Err(Error::invalid(what)),
        }
    }
    Ok(())
}

/// Refuses a number of directories that no database has, and a directory that is given twice.
fn check_paths(paths: &[PathBuf]) -> Result<()> {
    if !(2..=DIRECTORIES_MAX).contains(&paths.len()) {
        return Err(Error::invalid(format!(
            "a database over several directories has 2 to {DIRECTORIES_MAX}, not {}",
            paths.len()
        )));
    }
    let mut resolved: Vec<PathBuf> = Vec::with_capacity(paths.len());
    for path in paths {
        let whole = path.canonicalize().or_else(|_| std::path::absolute(path));
        let whole =
            whole.map_err(|error| Error::access(format!("resolve {}", path.display()), error))?;
        if resolved.contains(&whole) {
            return Err(Error::invalid(format!("{} is given twice", path.display())));
        }
        resolved.push(whole);
    }
    Ok(())
}

/// Opens the directories of a database, or makes it there. They come back in their own order,
/// whatever order they were given in.
///
/// # Errors
/// - `InvalidArgument`: a directory is given twice, is missing among those given, belongs to
///   another database, or holds other files.
/// - `NotFound`: there is no database, or a directory of it is not there.
/// - `Locked`, `Unavailable`, `Corruption` of a file `unit`, I/O errors.
pub(crate) fn open(paths: &[PathBuf], options: DirOptions) -> Result<Vec<Arc<DirVolume>>> {
    descriptors::check_limit()?;
    check_paths(paths)?;
    let create = options.create && !options.read_only;
    let plan = look(paths, create)?;
    let order: Vec<(usize, bool)> = match &plan {
        Plan::New => (0..paths.len()).map(|number| (number, false)).collect(),
        Plan::Found(order) => order.clone(),
    };
    let mut prepared = Vec::with_capacity(paths.len());
    for (number, _) in &order {
        prepared.push(Prepared::new(&paths[*number], options)?);
    }
    // Before the locks were held, another process may have been at work.
    if look(paths, create)? != plan {
        return Err(Error::new(
            ErrorKind::Locked,
            format!(
                "another process is making a database in {}",
                paths[0].display()
            ),
        ));
    }
    if !options.read_only {
        make(&prepared, &order, &plan)?;
    }
    let direct = prepared.iter().all(|one| one.direct);
    let common = Arc::new(Common::new(options, direct)?);
    let opened = prepared.into_iter().map(|one| one.finish(options, &common));
    Ok(opened.collect())
}

/// Makes the files `unit` that are missing.
fn make(prepared: &[Prepared], order: &[(usize, bool)], plan: &Plan) -> Result<()> {
    if *plan == Plan::New {
        let id = random_bytes()?;
        let count = u32::try_from(prepared.len()).unwrap_or(u32::MAX);
        for (index, one) in (0..).zip(prepared) {
            Unit { id, index, count }.write_new(&one.path)?;
        }
    }
    for (one, (_, finished)) in prepared.iter().zip(order) {
        if !finished {
            finish(&one.path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
