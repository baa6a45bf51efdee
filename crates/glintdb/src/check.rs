//! Checking a database that is not open: every byte that means something is read and verified, nothing is changed, and what is wrong is told also where opening would refuse.
//!
//! Thread safety: the volume's lock keeps others out.
//!
//! Invariants: 1. no file is made, changed or removed. 2. Whatever opening or reading would find damaged is in the report, and more: padding, and what opening would drop.

use crate::engine::IndexFactory;
use crate::manifest::{Loaded, RecordReader, check_database, read_newest, read_whole};
use crate::verify::{VALUES_BATCH, VerifyReport, compare_liveness, live_in_retired};
use crate::{Error, ErrorKind, Result};
use glintdb_core::memory::MemoryBudget;
use glintdb_core::sync::atomic::AtomicU64;
use glintdb_core::{FileId, FileKind, FileNumbers, SeqNum, ValuePointer};
use glintdb_flash::{Cache, DirOptions, Volume};
use glintdb_log::FrameView;
use glintdb_lsm::LsmEnv;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Memory for blocks that a check reads again.
const CACHE_BYTES: usize = 1 << 20;

/// Checks the database in the directory `path`, which must not be open; changes nothing. What keeps it from opening is in the report too.
///
/// # Errors
/// `Locked`, `NotFound`, I/O errors: where nothing could be checked.
pub fn check(path: impl AsRef<Path>) -> Result<VerifyReport> {
    let options = DirOptions {
        create: false,
        ..DirOptions::default()
    };
    crate::directory::check(path.as_ref(), false)?;
    let volume: Arc<dyn Volume> = crate::handles::open_directory(path.as_ref(), options)?;
    check_volume(&volume)
}

/// [`check`] of a database on a volume other than a directory: for tests and simulation.
///
/// # Errors
/// As [`check`].
pub fn check_volume(volume: &Arc<dyn Volume>) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    match read_newest(&**volume) {
        Ok(found) => match found.loaded {
            Some(loaded) => match check_database(&**volume, &loaded) {
                Ok(()) => whole(volume, &loaded, &mut report)?,
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

/// Damage goes into the report; anything else ends the check.
fn damaged(report: &mut VerifyReport, error: Error) -> Result<()> {
    match error.kind() {
        ErrorKind::Corruption | ErrorKind::UnsupportedFormat | ErrorKind::NotFound => {
            report.errors.push(error);
            Ok(())
        }
        _ => Err(error),
    }
}

fn whole(volume: &Arc<dyn Volume>, loaded: &Loaded, report: &mut VerifyReport) -> Result<()> {
    if let Err(error) = manifest(volume, loaded, report) {
        damaged(report, error)?;
    }
    indexes(volume, loaded, report)?;
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
    let mut visit = |frame: FrameView<'_>| replayed(loaded, &frame, &mut newest);
    let (from, durable) = (state.flush_point.lsn, state.log_durable);
    let log = glintdb_log::check(volume, loaded.db, from, durable, &live, &mut visit)?;
    report.files += log.files;
    report.bytes += log.bytes;
    report.errors.extend(log.errors);
    Ok(())
}

/// What replay holds each commit to.
fn replayed(loaded: &Loaded, frame: &FrameView<'_>, newest: &mut SeqNum) -> Result<()> {
    if frame.seqno() <= loaded.state.flush_point.seqno {
        return Ok(());
    }
    let wrong = |message: String| {
        let lsn = frame.lsn();
        Error::corruption(lsn.segment.file(), u64::from(lsn.offset), message)
    };
    if frame.seqno() != newest.next() {
        return Err(wrong(format!(
            "commit {} stands where {} belongs",
            frame.seqno(),
            newest.next()
        )));
    }
    *newest = frame.seqno();
    let known: BTreeSet<_> = (loaded.state.keyspaces.keys())
        .chain(loaded.state.dropped.keys())
        .collect();
    match frame
        .entries()
        .find(|entry| !known.contains(&entry.keyspace))
    {
        Some(entry) => Err(loaded.lacks(entry.keyspace, frame)),
        None => Ok(()),
    }
}

/// The records were read; what fills them up is zero.
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

/// Every table that the manifest names, and every value that one points to.
fn indexes(volume: &Arc<dyn Volume>, loaded: &Loaded, report: &mut VerifyReport) -> Result<()> {
    let factory = IndexFactory {
        env: LsmEnv {
            volume: Arc::clone(volume),
            cache: Arc::new(Cache::new(CACHE_BYTES)),
            memory: Arc::new(MemoryBudget::new(CACHE_BYTES)),
            db: loaded.db,
            numbers: Arc::new(NoNumbers),
            run_bytes: 0,
            tombstone_floor: Arc::new(AtomicU64::new(0)),
            reads: None,
        },
    };
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
                    values(volume, loaded, &mut pointers, report);
                }
            },
        );
        values(volume, loaded, &mut pointers, report);
        sound &= errors.is_empty();
        for error in errors {
            damaged(report, error.context(format!("keyspace {:?}", record.name)))?;
        }
        report.entries += view.stats().entries;
        for file in view.files() {
            if let Ok(file) = volume.open(file) {
                report.files += 1;
                report.bytes += file.len()?;
            }
        }
    }
    // What a damaged table holds is not known.
    if sound {
        let id = FileId::new(FileKind::Manifest, loaded.number);
        compare_liveness(id, &loaded.state, &held, report);
    }
    Ok(())
}

fn values(
    volume: &Arc<dyn Volume>,
    loaded: &Loaded,
    pointers: &mut Vec<ValuePointer>,
    report: &mut VerifyReport,
) {
    // Sorted: neighbours in the log are read one behind the other.
    pointers.sort_by_key(|pointer| (pointer.segment, pointer.offset));
    for value in glintdb_log::read_values(volume, loaded.db, pointers) {
        match value {
            Ok(_) => report.values += 1,
            Err(error) => report.errors.push(error),
        }
    }
    pointers.clear();
}

/// Nobody makes files while checking.
struct NoNumbers;

impl FileNumbers for NoNumbers {
    fn next(&self) -> Result<u64> {
        Err(Error::invalid("a check makes no files"))
    }
}
