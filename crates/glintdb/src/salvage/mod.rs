//! Salvage: whatever is intact in a damaged database directory, written into a new database. For `glintdb salvage`.
//!
//! The directory is only read. Three steps, bounded in memory (but for range tombstones and the ranges of lost blocks):
//! 1. [`source`] finds out what the files are: with a whole manifest exactly; without one by what files say of themselves, what is left of manifests, and the log.
//! 2. [`tables`] and [`log`] offer every intact record with its version to [`candidates`], a temporary database that keeps the newest of each key.
//! 3. [`restore`] writes what is not deleted into the new database.
//!
//! **Which records count.** The indexes hold everything up to the flush point, the log everything behind it. Older frames of the log are still there where a segment holds
//! live values; a put in them may have been deleted since, and the deletion forgotten. So they are taken only for keys that may be lost: in the range of a lost key block or
//! table, or with a lost value. Without a whole manifest nobody knows the flush point: then everything counts, and what was deleted long ago may be back.

mod candidates;
mod log;
mod restore;
mod source;
mod tables;

use crate::{Error, Result};
use candidates::Candidates;
use glintdb_core::FileId;
use glintdb_flash::{DirOptions, DirVolume, DirectIo, ReadEngine, Volume};
use source::Source;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Damaged places and lost keys told one by one; of more only the number.
const TOLD_MAX: usize = 1000;

/// How far a salvage is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SalvageProgress {
    /// Bytes of files done with.
    pub done_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
}

/// Is told how far a salvage is.
pub type SalvageProgressFn = Arc<dyn Fn(SalvageProgress) + Send + Sync>;

/// How to salvage.
#[derive(Clone)]
#[non_exhaustive]
pub struct SalvageOptions {
    /// Memory for the new database, and as much for the temporary one. Default 64 MiB.
    pub memory_budget_bytes: usize,
    /// Is told how far it is. Default: nobody.
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

/// What one file gave.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SalvagedFile {
    /// Its length in bytes.
    pub bytes: u64,
    /// Intact records found in it: puts and deletions, old versions included.
    pub records: u64,
    /// Damaged places in it.
    pub damaged: u64,
}

/// What a salvage found and wrote.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Whether the manifest was whole: names, options and what belongs to the database are known then.
    pub manifest_whole: bool,
    /// Whether the log ends with the mark of a clean close: then nothing is missing at its end. Without it rot or loss of the very last commits cannot be told from
    /// commits that were never finished.
    pub closed: bool,
    /// By file.
    pub files: BTreeMap<String, SalvagedFile>,
    /// Records written, by keyspace.
    pub keyspaces: BTreeMap<String, u64>,
    /// Bytes of keys and values written.
    pub bytes: u64,
    /// Damaged places (the first 1,000): file, offset, what is wrong.
    pub damage: Vec<Error>,
    /// Damaged places in all.
    pub damaged: u64,
    /// Keys known to have had a newer value that is lost (the first 1,000), with their keyspace.
    pub lost_keys: Vec<(String, Vec<u8>)>,
    /// Such keys in all.
    pub lost: u64,
    /// Commits missing between those found in the log; counted only with a whole manifest.
    pub commits_lost: u64,
    /// Records written that may be older than what is lost, or deleted since: their keys lie where something is lost.
    pub uncertain: u64,
    /// What else a person should know.
    pub notes: Vec<String>,
}

impl SalvageReport {
    /// Records written.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.keyspaces.values().sum()
    }

    /// Whether nothing is known or suspected to be lost.
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

/// Recovers every intact record of the database in `dir`, which may be damaged in any way, into a new database `out`. Nothing in `dir` is changed (but the lock file, which gets
/// this process's number). While it works there is a
/// directory beside `out` with `.candidates` behind its name.
///
/// # Errors
/// `InvalidArgument` where `out` is there already or `dir` holds nothing of a database, `Locked`, I/O errors. Damage is no error: it is in the report.
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
            return Err(Error::invalid(format!(
                "{} is there already",
                path.display()
            )));
        }
    }
    crate::directory::check(dir, false)?;
    let volume = DirVolume::open(
        dir,
        DirOptions {
            direct: DirectIo::Off,
            read_engine: ReadEngine::Sync,
            create: false,
            ..DirOptions::default()
        },
    )?;
    let mut report = SalvageReport::default();
    let mut salvage = || -> Result<()> {
        let mut candidates = Candidates::create(&beside, options)?;
        let mut work = Work {
            volume: &*volume,
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
    // Whatever happened, the candidates are of no more use; and half a database is none.
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

/// What the steps share.
struct Work<'w> {
    volume: &'w dyn Volume,
    source: Source,
    report: &'w mut SalvageReport,
    options: &'w SalvageOptions,
    done_bytes: u64,
}

impl Work<'_> {
    /// A file is done with.
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
