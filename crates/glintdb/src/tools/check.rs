//! Checks a database that is not open: reads and verifies every byte that has a meaning, changes
//! nothing, and reports all damage, also damage that keeps the database from opening.
//!
//! Thread safety: the volume's lock keeps others out.
//!
//! Invariants: 1. No file is created, changed or removed. 2. The report has all damage that opening
//! and reading would find, and also damage to padding and to data that opening would drop.

use crate::durable::manifest::{Loaded, RecordReader, check_database, read_newest, read_whole};
use crate::index_kinds::IndexFactory;
use crate::tools::verify::{VALUES_BATCH, VerifyReport, compare_liveness, live_in_retired};
use crate::{Error, ErrorKind, Result};
use glintdb_cache::Cache;
use glintdb_core::memory::MemoryBudget;
use glintdb_core::sync::atomic::AtomicU64;
use glintdb_core::{DbId, FileId, FileKind, FileNumbers, SeqNum, ValuePointer};
use glintdb_flash::{DirOptions, Volume};
use glintdb_log::{FrameView, LogOp};
use glintdb_runs::IndexEnv;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Cache for blocks that a check reads more than once.
const CACHE_BYTES: usize = 1 << 20;

/// How far a check is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CheckProgress {
    /// Bytes read.
    pub done_bytes: u64,
    /// Bytes to be read.
    pub total_bytes: u64,
}

/// Checks the database in the directory `path`, which must not be open. Changes nothing, and needs
/// no permission to write. Damage that keeps the database from opening is in the report like any
/// other.
///
/// # Errors
/// `Locked`, `NotFound`, `Unavailable`, I/O errors: nothing could be checked.
pub fn check(path: impl AsRef<Path>) -> Result<VerifyReport> {
    check_with(path, &mut |_| ())
}

/// Does the same as [`check`], and calls `progress` after each file and each batch of values.
///
/// # Errors
/// As [`check`].
pub fn check_with(
    path: impl AsRef<Path>,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<VerifyReport> {
    let volume = crate::handles::open_to_read(path.as_ref(), DirOptions::default())?;
    check_volume_with(&volume, progress)
}

/// Does the same as [`check`] for a database on any volume: for tests and simulation.
///
/// # Errors
/// As [`check`].
pub fn check_volume(volume: &Arc<dyn Volume>) -> Result<VerifyReport> {
    check_volume_with(volume, &mut |_| ())
}

fn check_volume_with(
    volume: &Arc<dyn Volume>,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    match read_newest(&**volume) {
        Ok(found) => match found.loaded {
            Some(loaded) => match check_database(&**volume, &loaded) {
                Ok(()) => {
                    let mut progress = Progress {
                        now: CheckProgress {
                            done_bytes: 0,
                            total_bytes: bytes_to_read(&**volume, &loaded)?,
                        },
                        told: progress,
                    };
                    whole(volume, &loaded, &mut report, &mut progress)?;
                }
                Err(error) => damaged(&mut report, error)?,
            },
            None => {
                return Err(Error::new(ErrorKind::NotFound, "there is no database here"));
            }
        },
        Err(error) => damaged(&mut report, error)?,
    }
    Ok(report)
}

/// Counts bytes as they are read.
struct Progress<'a> {
    now: CheckProgress,
    told: &'a mut dyn FnMut(CheckProgress),
}

impl Progress<'_> {
    fn add(&mut self, bytes: u64) {
        // Values that are no longer live are in the total and are not read.
        let done_bytes = self.now.done_bytes.saturating_add(bytes);
        self.now.done_bytes = done_bytes.min(self.now.total_bytes);
        (self.told)(self.now);
    }
}

/// Bytes that a check reads: all files, the values that tables point to, and once more the part of
/// the log that opening would replay.
fn bytes_to_read(volume: &dyn Volume, loaded: &Loaded) -> Result<u64> {
    let state = &loaded.state;
    let mut bytes = glintdb_log::check_bytes(volume, state.flush_point.lsn)?;
    for file in volume.list()? {
        if file.kind.is_index() || file.kind == FileKind::Manifest {
            bytes += volume.open(file)?.len()?;
        }
    }
    for segment in state.live_segments() {
        bytes = bytes.saturating_add(state.live_bytes(segment));
    }
    Ok(bytes)
}

/// Adds damage to the report. Any other error ends the check.
fn damaged(report: &mut VerifyReport, error: Error) -> Result<()> {
    match error.kind() {
        ErrorKind::Corruption | ErrorKind::UnsupportedFormat | ErrorKind::NotFound => {
            report.errors.push(error);
            Ok(())
        }
        _ => Err(error),
    }
}

fn whole(
    volume: &Arc<dyn Volume>,
    loaded: &Loaded,
    report: &mut VerifyReport,
    progress: &mut Progress<'_>,
) -> Result<()> {
    if let Err(error) = manifest(volume, loaded, report) {
        damaged(report, error)?;
    }
    progress.add(report.bytes);
    indexes(volume, loaded, report, progress)?;
    let state = &loaded.state;
    let live = state.live_segments();
    if !loaded.has_begun() {
        let begun = loaded.check_not_begun(&**volume);
        return begun.or_else(|error| damaged(report, error));
    }
    if let Err(error) = loaded.check_ring(&**volume) {
        damaged(report, error)?;
    }
    let mut newest = state.flush_point.seqno;
    let (mut entries, mut values) = (0, 0);
    let mut visit = |frame: FrameView<'_>| {
        replayed(loaded, &frame, &mut newest, &mut |op| {
            entries += u64::from(!matches!(op, LogOp::DeleteRange { .. }));
            values += u64::from(op.is_separated());
        })
    };
    let (from, durable) = (state.flush_point.lsn, state.log_durable);
    let log = glintdb_log::check(
        volume,
        loaded.db,
        from,
        durable,
        &live,
        &mut visit,
        &mut |bytes| progress.add(bytes),
    )?;
    report.log_entries += entries;
    report.log_values += values;
    report.files += log.files;
    report.bytes += log.bytes;
    report.errors.extend(log.errors);
    Ok(())
}

/// Checks a commit as replay does, and gives its operations to `visit`.
fn replayed(
    loaded: &Loaded,
    frame: &FrameView<'_>,
    newest: &mut SeqNum,
    visit: &mut dyn FnMut(&LogOp<'_>),
) -> Result<()> {
    if frame.seqno() <= loaded.state.flush_point.seqno {
        return Ok(());
    }
    let wrong = |message: String| {
        let lsn = frame.lsn();
        Error::corruption(lsn.segment.file(), u64::from(lsn.offset), message)
    };
    if frame.seqno() != newest.next() {
        return Err(wrong(format!(
            "expected commit {}, found commit {}",
            newest.next(),
            frame.seqno()
        )));
    }
    *newest = frame.seqno();
    let known: BTreeSet<_> = (loaded.state.keyspaces.keys())
        .chain(loaded.state.dropped.keys())
        .collect();
    for entry in frame.entries() {
        if !known.contains(&entry.keyspace) {
            return Err(loaded.lacks(entry.keyspace, frame));
        }
        visit(&entry.op);
    }
    Ok(())
}

/// Reads every record of the manifest and checks that its padding is zero.
fn manifest(volume: &Arc<dyn Volume>, loaded: &Loaded, report: &mut VerifyReport) -> Result<()> {
    let id = FileId::new(FileKind::Manifest, loaded.number);
    let bytes = read_whole(&**volume, id)?;
    report.files += 1;
    report.bytes += bytes.len() as u64;
    let (_, mut records) = RecordReader::open(id, &bytes)?;
    while records.next_record()?.is_some() {
        let (start, padding) = records.padding();
        if padding.iter().any(|&byte| byte != 0) {
            let what = "expected zeros that fill up a record, found something else";
            report.errors.push(Error::corruption(id, start, what));
        }
    }
    Ok(())
}

/// Checks every table that the manifest names, and every value that a live entry points to.
fn indexes(
    volume: &Arc<dyn Volume>,
    loaded: &Loaded,
    report: &mut VerifyReport,
    progress: &mut Progress<'_>,
) -> Result<()> {
    let factory = IndexFactory::new(read_only_env(volume, loaded.db));
    let mut held: BTreeMap<u32, BTreeMap<u64, u64>> = BTreeMap::new();
    let mut sound = true;
    for (id, record) in &loaded.state.keyspaces {
        let edits = loaded.edits.get(id).map_or(&[][..], Vec::as_slice);
        let index = match factory.open(&record.options, edits) {
            Ok(index) => index,
            Err(error) => {
                sound = false;
                damaged(report, error.context(format!("keyspace {:?}", record.name)))?;
                continue;
            }
        };
        let view = index.view();
        let mut errors = Vec::new();
        let mut pointers: Vec<ValuePointer> = Vec::new();
        let by_segment = held.entry(id.0).or_default();
        let progress = RefCell::new(&mut *progress);
        view.verify(
            &mut |error| errors.push(error),
            &mut |pointer| {
                *by_segment.entry(pointer.segment.0).or_default() += u64::from(pointer.length);
            },
            &mut |_, pointer| {
                if loaded.state.retired.contains(&pointer.segment) {
                    report.errors.push(live_in_retired(&pointer));
                }
                pointers.push(pointer);
                if pointers.len() >= VALUES_BATCH {
                    let bytes = values(volume, loaded, &mut pointers, report);
                    progress.borrow_mut().add(bytes);
                }
            },
            &mut |bytes| progress.borrow_mut().add(bytes),
        );
        let bytes = values(volume, loaded, &mut pointers, report);
        progress.borrow_mut().add(bytes);
        sound &= errors.is_empty();
        for error in errors {
            damaged(report, error.context(format!("keyspace {:?}", record.name)))?;
        }
        report.table_entries += view.stats().entries;
        for file in view.files() {
            if let Ok(file) = volume.open(file) {
                report.files += 1;
                report.bytes += file.len()?;
            }
        }
    }
    // The content of a damaged table is unknown.
    if sound {
        let id = FileId::new(FileKind::Manifest, loaded.number);
        compare_liveness(id, &loaded.state, &held, report);
    }
    Ok(())
}

/// Reads and checks the values of `pointers`, and clears them. Returns the bytes of these values.
fn values(
    volume: &Arc<dyn Volume>,
    loaded: &Loaded,
    pointers: &mut Vec<ValuePointer>,
    report: &mut VerifyReport,
) -> u64 {
    let bytes = pointers.iter().map(|pointer| u64::from(pointer.length));
    let bytes = bytes.sum();
    // Sorted, so that neighbours in the log are read one after the other.
    pointers.sort_by_key(|pointer| (pointer.segment, pointer.offset));
    for value in glintdb_log::read_values(volume, loaded.db, pointers) {
        match value {
            Ok(_) => report.table_values += 1,
            Err(error) => report.errors.push(error),
        }
    }
    pointers.clear();
    bytes
}

/// What an index is given that is read and never changed.
pub(super) fn read_only_env(volume: &Arc<dyn Volume>, db: DbId) -> IndexEnv {
    IndexEnv {
        volume: Arc::clone(volume),
        cache: Arc::new(Cache::new(CACHE_BYTES)),
        memory: Arc::new(MemoryBudget::new(CACHE_BYTES)),
        db,
        numbers: Arc::new(NoNumbers),
        run_bytes: 0,
        tombstone_floor: Arc::new(AtomicU64::new(0)),
        reads: None,
    }
}

/// A check creates no files.
struct NoNumbers;

impl FileNumbers for NoNumbers {
    fn next(&self) -> Result<u64> {
        Err(Error::invalid("a check makes no files"))
    }
}
