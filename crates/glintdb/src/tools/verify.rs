//! Verification of an open database: reads and checks every byte of every file, and follows every
//! value pointer.

use crate::durable::manifest::{RecordReader, State};
use crate::shared::Shared;
use crate::state::version::{KeyspaceVersion, Version};
use crate::{Error, Result};
use glintdb_core::{Direction, EntryRef, FileId, FileKind, SegmentId, SeqNum, ValuePointer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Values that are read in one batch.
pub(crate) const VALUES_BATCH: usize = 256;

/// The result of a verification.
///
/// An *entry* is a put or a deletion of one key. A key that was written several times can have
/// several entries until compactions merge them, so there are at least as many entries as records.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Errors found, each with its file and offset.
    pub errors: Vec<Error>,
    /// Files read.
    pub files: u64,
    /// Bytes in these files.
    pub bytes: u64,
    /// Entries in the tables of the indexes.
    pub table_entries: u64,
    /// Values in the log that live entries of the tables point to.
    pub table_values: u64,
    /// Entries that no table holds yet. [`check`](crate::tools::check) counts the
    /// operations in the log
    /// from the flush point on: these are the ones that the next open replays.
    /// [`Db::verify`] counts the keys in the memtables.
    pub log_entries: u64,
    /// Values that entries in `log_entries` keep apart from their keys.
    pub log_values: u64,
    /// Files that belong to nothing. They are harmless, and the next open removes them. A database
    /// without running jobs and open snapshots has none. [`check`](crate::tools::check)
    /// does not look for
    /// them.
    pub leftovers: Vec<FileId>,
}

impl VerifyReport {
    /// Whether no error was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }

    /// Entries in the tables and in the log together.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.table_entries + self.log_entries
    }

    /// Values that are stored apart from their keys, of entries in the tables and in the log.
    #[must_use]
    pub fn values(&self) -> u64 {
        self.table_values + self.log_values
    }
}

/// Reads the values that `pointers` name, and reports damaged ones.
fn follow(shared: &Shared, report: &mut VerifyReport, pointers: &mut Vec<ValuePointer>) {
    // Sorted, so that neighbours in the log are read together.
    pointers.sort_by_key(|pointer| (pointer.segment, pointer.offset));
    for value in shared.log.read_batch(pointers) {
        match value {
            Ok(_) => report.table_values += 1,
            Err(error) => report.errors.push(error),
        }
    }
    pointers.clear();
}

/// Verifies `version` at commit `at`, the log and the manifest. `retired`: segments that were
/// retired before the version was taken, so that no live entry of it is in them.
pub(crate) fn verify(
    shared: &Shared,
    version: &Arc<Version>,
    at: SeqNum,
    retired: &BTreeSet<SegmentId>,
) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let mut held: BTreeMap<u32, BTreeMap<u64, u64>> = BTreeMap::new();
    let mut sound = true;
    for keyspace in version.live_keyspaces() {
        let mut errors = Vec::new();
        let mut pointers = Vec::new();
        let by_segment = held.entry(keyspace.state.id.0).or_default();
        keyspace.view.verify(
            &mut |error| errors.push(error),
            // The manifest also counts values that compactions have yet to drop.
            &mut |pointer| {
                *by_segment.entry(pointer.segment.0).or_default() += u64::from(pointer.length);
            },
            &mut |_, pointer| {
                if retired.contains(&pointer.segment) {
                    report.errors.push(live_in_retired(&pointer));
                }
                pointers.push(pointer);
                if pointers.len() >= VALUES_BATCH {
                    follow(shared, &mut report, &mut pointers);
                }
            },
            &mut |_| {},
        );
        follow(shared, &mut report, &mut pointers);
        sound &= errors.is_empty();
        report.errors.extend(
            errors
                .into_iter()
                .map(|error| error.context(format!("keyspace {:?}", keyspace.state.name))),
        );
        report.table_entries += keyspace.view.stats().entries;
        count_unflushed(version, keyspace, at, &mut report)?;
        for file in keyspace.view.files() {
            count_file(shared, file, &mut report);
        }
    }
    for segment in shared.log.segment_ids() {
        match shared.log.verify(segment) {
            Ok(checked) => {
                report.files += 1;
                report.bytes += checked.bytes;
                report.errors.extend(checked.errors);
            }
            // Deleted since the list of segments was taken.
            Err(error) if error.kind() == crate::ErrorKind::NotFound => {}
            Err(error) => report.errors.push(error),
        }
    }
    verify_manifest(shared, &mut report)?;
    // The content of a damaged table is unknown.
    if sound {
        verify_liveness(shared, version, &held, &mut report);
    }
    report.leftovers = leftovers(shared, version)?;
    // Files that could not be read because the database was closed meanwhile are not damaged.
    shared.check_open()?;
    Ok(report)
}

/// Files on the volume that no index of `version`, no log, manifest or reserve names.
fn leftovers(shared: &Shared, version: &Version) -> Result<Vec<FileId>> {
    let mut named: BTreeSet<FileId> = version
        .live_keyspaces()
        .flat_map(|keyspace| keyspace.view.files())
        .collect();
    named.extend(shared.log.files());
    named.extend(shared.reserve.files());
    named.insert(FileId::new(
        FileKind::Manifest,
        shared.manifest.lock().number(),
    ));
    let mut files = shared.volume.list()?;
    files.retain(|file| !named.contains(file));
    Ok(files)
}

fn count_file(shared: &Shared, file: FileId, report: &mut VerifyReport) {
    match shared.volume.open(file).and_then(|file| file.len()) {
        Ok(bytes) => {
            report.files += 1;
            report.bytes += bytes;
        }
        Err(error) => report.errors.push(error),
    }
}

fn verify_manifest(shared: &Shared, report: &mut VerifyReport) -> Result<()> {
    let manifest = shared.manifest.lock();
    let id = FileId::new(FileKind::Manifest, manifest.number());
    let bytes = crate::durable::manifest::read_whole(&*shared.volume, id)?;
    report.files += 1;
    report.bytes += bytes.len() as u64;
    let check = || -> Result<()> {
        let (_, mut records) = RecordReader::open(id, &bytes)?;
        while records.next_record()?.is_some() {}
        if records.rest_bytes() != 0 {
            let offset = bytes.len() as u64 - records.rest_bytes();
            return Err(Error::corruption(
                id,
                offset,
                "the records end before the file does",
            ));
        }
        Ok(())
    };
    if let Err(error) = check() {
        report.errors.push(error);
    }
    Ok(())
}

/// Compares the manifest's count of live bytes with the pointers in the indexes' files. If the
/// manifest counts too few, a segment could be removed that is still needed; if too many, a
/// segment would never be removed. Compares nothing if the version has changed meanwhile.
fn verify_liveness(
    shared: &Shared,
    version: &Arc<Version>,
    held: &BTreeMap<u32, BTreeMap<u64, u64>>,
    report: &mut VerifyReport,
) {
    let manifest = shared.manifest.lock();
    if !Arc::ptr_eq(version, &shared.version.load_full()) {
        return;
    }
    let id = FileId::new(FileKind::Manifest, manifest.number());
    compare_liveness(id, manifest.state(), held, report);
}

/// Adds the entries of a keyspace that are visible at `at` and in no table of its index.
fn count_unflushed(
    version: &Version,
    keyspace: &KeyspaceVersion,
    at: SeqNum,
    report: &mut VerifyReport,
) -> Result<()> {
    let mut count = |value: EntryRef<'_>| {
        report.log_entries += 1;
        report.log_values += u64::from(matches!(value, EntryRef::Pointer(_)));
    };
    let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
    for generation in version.generations() {
        if let Some(mem) = generation.keyspace(keyspace.state.id) {
            let mut cursor = mem.map.cursor(lower, upper, Direction::Forward, at);
            while cursor.advance() {
                count(cursor.value());
            }
        }
    }
    Ok(())
}

/// The error for a live value in a segment whose file may be removed.
pub(crate) fn live_in_retired(pointer: &ValuePointer) -> Error {
    Error::corruption(
        pointer.segment.file(),
        u64::from(pointer.offset),
        "expected no live value in a segment that is retired, found one",
    )
}

/// Compares the value bytes that the files of the indexes point to with what the manifest counts,
/// by keyspace and segment.
pub(crate) fn compare_liveness(
    id: FileId,
    state: &State,
    held: &BTreeMap<u32, BTreeMap<u64, u64>>,
    report: &mut VerifyReport,
) {
    let mut differences: BTreeMap<(u32, u64), (u64, u64)> = BTreeMap::new();
    for (keyspace, by_segment) in held {
        for (segment, bytes) in by_segment {
            differences.entry((*keyspace, *segment)).or_default().0 = *bytes;
        }
    }
    for (segment, by_keyspace) in &state.liveness {
        for (keyspace, bytes) in by_keyspace {
            differences.entry((keyspace.0, segment.0)).or_default().1 = *bytes;
        }
    }
    for ((keyspace, segment), (held, stated)) in differences {
        if held != stated {
            let message = format!(
                "keyspace {keyspace} holds {held} value bytes in segment {segment}, the manifest counts {stated}"
            );
            report.errors.push(Error::corruption(id, 0, message));
        }
    }
}
