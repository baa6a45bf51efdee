//! Salvage: writes all intact records of a damaged database directory into a new database. Used by
//! `glintdb salvage`.
//!
//! The directory is only read. Salvage has three steps. Their memory is bounded, except for range
//! tombstones and the ranges of lost blocks.
//! 1. [`source`] identifies the files. An intact manifest names them exactly. Without one, file
//!    headers, remains of manifests and the log have to do.
//! 2. [`tables`] and [`log`] offer every intact record with its version to [`candidates`], a
//!    temporary database that keeps the newest version of each key.
//! 3. [`restore`] writes the keys that are not deleted into the new database.
//!
//! A B+tree is read by its root: leaves that it does not need any more have entries that were
//! deleted
//! since. They count only for the keys of lost nodes, and are uncertain. Without an intact manifest
//! there is no root, and all leaves count.
//!
//! **Which records count.** The indexes hold all commits up to the flush point, the log all later
//! ones. Older frames are still in segments that hold live values. A put in such a frame may have
//! been deleted since, and compactions may have dropped the deletion. So older frames count only
//! for keys that may be lost: those in the range of a lost key block or table, or with a lost
//! value. Without an intact manifest the flush point is unknown. Then every record counts, and keys
//! deleted long ago may reappear.

mod candidates;
mod log;
mod restore;
mod source;
mod tables;

use crate::{Error, Result};
use candidates::Candidates;
use glintdb_core::FileId;
use glintdb_flash::{DirOptions, DirectIo, ReadEngine, Volume};
use source::Source;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of damaged places and of lost keys that a report lists one by one.
const TOLD_MAX: usize = 1000;

/// How far a salvage has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SalvageProgress {
    /// Bytes of the files that have been read.
    pub done_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
}

/// A function that receives the progress of a salvage.
pub type SalvageProgressFn = Arc<dyn Fn(SalvageProgress) + Send + Sync>;

/// Options of [`salvage`].
#[derive(Clone)]
#[non_exhaustive]
pub struct SalvageOptions {
    /// Memory of the new database, in bytes. The temporary database takes as much again. Default:
    /// 64 MiB.
    pub memory_budget_bytes: usize,
    /// A function that receives the progress. Default: none.
    pub progress: Option<SalvageProgressFn>,
}

impl Default for SalvageOptions {
    fn default() -> Self {
        SalvageOptions {
            memory_budget_bytes: 64 << 20,
            progress: None,
        }
    }
}

/// What a salvage found in one file.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SalvagedFile {
    /// Length of the file, in bytes.
    pub bytes: u64,
    /// Number of intact puts and deletions in the file, old versions included. Of a B+tree, only
    /// those that count.
    pub records: u64,
    /// Number of damaged places in the file.
    pub damaged: u64,
}

/// What a salvage found and wrote.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Whether the manifest is intact. If so, the names and options of keyspaces and the files of
    /// the database are known.
    pub manifest_whole: bool,
    /// Whether the log ends with the mark of a clean close. If so, no commit is missing at its end.
    /// If not, the loss of the newest commits cannot be told from commits that were never finished.
    pub closed: bool,
    /// What each file gave, by file name.
    pub files: BTreeMap<String, SalvagedFile>,
    /// Number of records written, by name of the keyspace.
    pub keyspaces: BTreeMap<String, u64>,
    /// Bytes of keys and values written.
    pub bytes: u64,
    /// The first 1,000 damaged places, each with file, offset and cause.
    pub damage: Vec<Error>,
    /// Number of all damaged places.
    pub damaged: u64,
    /// The first 1,000 keys whose newest value is known to be lost, each with the name of its
    /// keyspace.
    pub lost_keys: Vec<(String, Vec<u8>)>,
    /// Number of all keys whose newest value is known to be lost.
    pub lost: u64,
    /// Number of commits missing between those found in the log. 0 if the manifest is not intact.
    pub commits_lost: u64,
    /// Number of records written that may be outdated or deleted, because a newer version may have
    /// been lost.
    pub uncertain: u64,
    /// Further findings, as sentences.
    pub notes: Vec<String>,
}

impl SalvageReport {
    /// Returns the number of records written to all keyspaces.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.keyspaces.values().sum()
    }

    /// Returns whether no record is known or suspected to be lost.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.manifest_whole && self.damaged == 0 && self.lost == 0 && self.commits_lost == 0
    }

    fn damage(&mut self, file: FileId, error: Error) {
        self.files.entry(file.to_string()).or_default().damaged += 1;
        self.damaged += 1;
        if self.damage.len() < TOLD_MAX {
            self.damage.push(error);
        }
    }

    fn lost_key(&mut self, keyspace: &str, key: &[u8]) {
        self.lost += 1;
        if self.lost_keys.len() < TOLD_MAX {
            self.lost_keys.push((keyspace.to_owned(), key.to_vec()));
        }
    }
}

/// Copies every intact record of the database in `dir`, however damaged, into a new database in
/// `out`.
///
/// `dir` is only read, except that its lock file gets the number of this process. While the
/// function runs, it uses a temporary directory: `out` with `.candidates` appended to its name. If
/// it fails, it removes both. Damage is not an error: it is in the report.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let (damaged, rescued) = (dir.path().join("damaged"), dir.path().join("rescued"));
/// # let db = glintdb::Db::open(&damaged)?;
/// # db.put("key", "value")?;
/// # db.close()?;
/// let report = glintdb::salvage(&damaged, &rescued, &Default::default())?;
/// println!("{} records, complete: {}", report.records(), report.is_complete());
/// # assert!(report.records() == 1 && report.is_complete());
/// # Ok::<(), glintdb::Error>(())
/// ```
///
/// # Errors
/// - `AlreadyExists`: `out` or the temporary directory exists.
/// - `InvalidArgument`: `dir` holds no part of a database.
/// - `Locked`: the database in `dir` is open.
/// - `NotFound`: `dir` does not exist.
/// - `NoSpace` or `Io`: a file could not be written or read.
pub fn salvage(
    dir: impl AsRef<Path>,
    out: impl AsRef<Path>,
    options: &SalvageOptions,
) -> Result<SalvageReport> {
    let (dir, out) = (dir.as_ref(), out.as_ref());
    let mut name = out.as_os_str().to_owned();
    name.push(".candidates");
    let beside = PathBuf::from(name);
    for path in [out, &beside] {
        if std::fs::symlink_metadata(path).is_ok() {
            return Err(Error::exists(path.display().to_string()));
        }
    }
    let volume = crate::handles::open_to_read(
        dir,
        DirOptions {
            direct: DirectIo::Off,
            read_engine: ReadEngine::Sync,
            ..DirOptions::default()
        },
    )?;
    let mut report = SalvageReport::default();
    let mut salvage = || -> Result<()> {
        let mut candidates = Candidates::create(&beside, options)?;
        let mut work = Work {
            volume: &volume,
            source: source::read(&*volume, &mut report)?,
            report: &mut report,
            options,
            done_bytes: 0,
        };
        let mut evidence = tables::gather(&mut work, &mut candidates)?;
        log::gather(&mut work, &mut candidates, &mut evidence)?;
        // Tables that nothing but the log can assign come last.
        tables::gather_unassigned(&mut work, &mut candidates, &evidence)?;
        candidates.settle();
        restore::write(&mut work, &candidates, out)?;
        candidates.close()
    };
    let outcome = salvage();
    // The candidates are always temporary. An incomplete output database is useless.
    let removed = remove(&beside);
    if outcome.is_err() {
        remove(out)?;
    }
    outcome.and(removed)?;
    Ok(report)
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("remove {}", path.display()), error))
        }
        _ => Ok(()),
    }
}

/// State that the steps share.
struct Work<'w> {
    volume: &'w Arc<dyn Volume>,
    source: Source,
    report: &'w mut SalvageReport,
    options: &'w SalvageOptions,
    done_bytes: u64,
}

impl Work<'_> {
    /// Counts the records of a file and reports progress.
    fn done(&mut self, file: FileId, records: u64) {
        let entry = self.report.files.entry(file.to_string()).or_default();
        entry.records += records;
        self.done_bytes += entry.bytes;
        if let Some(progress) = &self.options.progress {
            progress(SalvageProgress {
                done_bytes: self.done_bytes.min(self.source.total_bytes),
                total_bytes: self.source.total_bytes,
            });
        }
    }
}
