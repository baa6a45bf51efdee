//! Verification: every byte of every file is read and checked, and every value pointer followed.

use crate::db::{Db, Handle};
use crate::engine::Engine;
use crate::manifest::{RecordReader, State};
use crate::snapshot::Pin;
use crate::{Error, Result};
use glintdb_core::{FileId, FileKind, ValuePointer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Values whose pointers are followed together.
pub(crate) const VALUES_BATCH: usize = 256;

/// What verification found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Everything that is wrong, each with file and offset.
    pub errors: Vec<Error>,
    /// Files read.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Index entries read.
    pub entries: u64,
    /// Separated values read.
    pub values: u64,
    /// Files that nothing names: harmless, and removed by the next open at the latest. In a database where no job runs and no snapshot is held there are none.
    pub leftovers: Vec<FileId>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }
}

impl Db {
    /// Reads the values of `pointers` and reports the ones that are wrong.
    fn follow(engine: &Engine, report: &mut VerifyReport, pointers: &mut Vec<ValuePointer>) {
        // Sorted: neighbours in the log are read together.
        pointers.sort_by_key(|pointer| (pointer.segment, pointer.offset));
        for value in engine.log.read_batch(pointers) {
            match value {
                Ok(_) => report.values += 1,
                Err(error) => report.errors.push(error),
            }
        }
        pointers.clear();
    }
}

impl Engine {
    /// Verifies a pinned picture of the database, its log and its manifest.
    pub(crate) fn verify(&self, handle: &Arc<Handle>) -> Result<VerifyReport> {
        // Before the picture: what is retired by now, nothing in it needs.
        let retired = self.manifest.lock().state().retired.clone();
        let pin = Pin::new(handle);
        let version = pin.version()?;
        let mut report = VerifyReport::default();
        let mut held: BTreeMap<u32, BTreeMap<u64, u64>> = BTreeMap::new();
        let mut sound = true;
        for keyspace in version.live_keyspaces() {
            let mut errors = Vec::new();
            let mut pointers = Vec::new();
            let by_segment = held.entry(keyspace.state.id.0).or_default();
            keyspace.view.verify(
                &mut |error| errors.push(error),
                // What compactions have yet to drop counts as live in the manifest.
                &mut |pointer| {
                    *by_segment.entry(pointer.segment.0).or_default() += u64::from(pointer.length);
                },
                &mut |_, pointer| {
                    if retired.contains(&pointer.segment) {
                        report.errors.push(live_in_retired(&pointer));
                    }
                    pointers.push(pointer);
                    if pointers.len() >= VALUES_BATCH {
                        Db::follow(self, &mut report, &mut pointers);
                    }
                },
            );
            Db::follow(self, &mut report, &mut pointers);
            sound &= errors.is_empty();
            report.errors.extend(
                errors
                    .into_iter()
                    .map(|error| error.context(format!("keyspace {:?}", keyspace.state.name))),
            );
            report.entries += keyspace.view.stats().entries;
            for file in keyspace.view.files() {
                self.count_file(file, &mut report);
            }
        }
        for segment in self.log.segment_ids() {
            match self.log.verify(segment) {
                Ok(checked) => {
                    report.files += 1;
                    report.bytes += checked.bytes;
                    report.errors.extend(checked.errors);
                }
                // Deleted meanwhile.
                Err(error) if error.kind() == crate::ErrorKind::NotFound => {}
                Err(error) => report.errors.push(error),
            }
        }
        self.verify_manifest(&mut report)?;
        // What a damaged table holds is not known.
        if sound {
            self.verify_liveness(&version, &held, &mut report);
        }
        report.leftovers = self.leftovers(&version)?;
        // Files that could not be read because the database was closed meanwhile are not damaged.
        self.check_open()?;
        Ok(report)
    }

    /// Files on the volume that are named by no index of `version`, by no log, manifest or reserve.
    fn leftovers(&self, version: &crate::version::Version) -> Result<Vec<FileId>> {
        let mut named: BTreeSet<FileId> = version
            .live_keyspaces()
            .flat_map(|keyspace| keyspace.view.files())
            .collect();
        named.extend(self.log.files());
        named.extend(self.reserve.files());
        named.insert(FileId::new(
            FileKind::Manifest,
            self.manifest.lock().number(),
        ));
        let mut files = self.volume.list()?;
        files.retain(|file| !named.contains(file));
        Ok(files)
    }

    fn count_file(&self, file: FileId, report: &mut VerifyReport) {
        match self.volume.open(file).and_then(|file| file.len()) {
            Ok(bytes) => {
                report.files += 1;
                report.bytes += bytes;
            }
            Err(error) => report.errors.push(error),
        }
    }

    fn verify_manifest(&self, report: &mut VerifyReport) -> Result<()> {
        let manifest = self.manifest.lock();
        let id = FileId::new(FileKind::Manifest, manifest.number());
        let bytes = crate::manifest::read_whole(&*self.volume, id)?;
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

    /// The live bytes that the manifest states must be those of the pointers that the indexes' files hold: fewer, and a segment could go that is still needed; more, and
    /// one would never go. Compared where nothing changed meanwhile.
    fn verify_liveness(
        &self,
        version: &Arc<crate::version::Version>,
        held: &BTreeMap<u32, BTreeMap<u64, u64>>,
        report: &mut VerifyReport,
    ) {
        let manifest = self.manifest.lock();
        if !Arc::ptr_eq(version, &self.version.load_full()) {
            return;
        }
        let id = FileId::new(FileKind::Manifest, manifest.number());
        compare_liveness(id, manifest.state(), held, report);
    }
}

/// What is wrong with a live value in a segment whose file may go.
pub(crate) fn live_in_retired(pointer: &ValuePointer) -> Error {
    Error::corruption(
        pointer.segment.file(),
        u64::from(pointer.offset),
        "expected no live value in a segment that is retired, found one",
    )
}

/// Holds the value bytes that the files of the indexes point to, by keyspace and segment, against what the manifest counts.
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
