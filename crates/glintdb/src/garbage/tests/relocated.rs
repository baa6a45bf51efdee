//! Values that live in segments of their own, beside the stream: with the engine's own parts in the order in which value GC uses them.

use super::*;
use crate::flush::Pending;
use glintdb_core::index::SortedRun;
use glintdb_core::{Direction, EntryRef, RangeTombstone, Result, SeqNum, ValuePointer};
use glintdb_log::Space;
use glintdb_log::format::segment::SegmentKind;
use std::ops::Bound;
use std::sync::Arc;

struct Run(std::vec::IntoIter<(Vec<u8>, SeqNum, ValuePointer)>, Vec<u8>);

impl SortedRun for Run {
    fn next(&mut self) -> Result<Option<(&[u8], SeqNum, EntryRef<'_>)>> {
        let Some((key, seqno, pointer)) = self.0.next() else {
            return Ok(None);
        };
        self.1 = key;
        Ok(Some((&self.1, seqno, EntryRef::Pointer(pointer))))
    }

    fn range_tombstones(&self) -> &[RangeTombstone] {
        &[]
    }

    fn entries_hint(&self) -> usize {
        self.0.len()
    }
}

/// Moves every value of the default keyspace, and answers to where.
fn relocate(db: &Db) -> Vec<SegmentId> {
    let engine = &db.handle.engine;
    let version = engine.version.load_full();
    let keyspace = version.live_keyspaces().next().unwrap();
    let keyspace = Arc::clone(&keyspace.state);
    let relocation = keyspace.index.begin_relocation();
    let mut writer = engine.log.values_writer(Space::Reserve).unwrap();
    let mut moved = Vec::new();
    let view = relocation.view();
    let mut cursor = view
        .cursor(Bound::Unbounded, Bound::Unbounded, Direction::Forward)
        .unwrap();
    while cursor.advance().unwrap() {
        if let EntryRef::Pointer(pointer) = cursor.value() {
            let value = engine.log.read(&pointer).unwrap();
            let key = cursor.key();
            writer
                .put(&engine.log, keyspace.id, key, &value, pointer.checksum)
                .unwrap();
            moved.push((key.to_vec(), cursor.seqno()));
        }
    }
    let values = writer.finish(&engine.log).unwrap();
    let pointers = values.pointers().iter().copied();
    let run: Vec<_> = moved
        .into_iter()
        .zip(pointers)
        .map(|((key, seqno), pointer)| (key, seqno, pointer))
        .collect();
    let change = relocation
        .write(&mut Run(run.into_iter(), Vec::new()))
        .unwrap();
    let ids = values.segments().collect();
    engine.log.publish_values(values);
    let pending = Pending { keyspace, change };
    engine.commit_changes(vec![pending], None).unwrap();
    ids
}

#[test]
fn relocated_values_are_there_in_checkpoints_after_openings_and_in_salvage() {
    let home = tempfile::tempdir().unwrap();
    let (dir, copy, out) = ["db", "copy", "out"]
        .map(|name| home.path().join(name))
        .into();
    let db = options().open(&dir).unwrap();
    let expected = filled(&db, |_| {});
    let values = relocate(&db);
    assert!(values.len() > 1);
    for &id in &values {
        let kind = db.handle.engine.log.segment_kind(id).unwrap();
        assert_eq!(kind, SegmentKind::Values);
    }
    check_whole(&db, &expected);
    let victims = retire(&db);
    assert_eq!(there(&dir, &victims), 0);
    check_whole(&db, &expected);

    // Their ids are above that of the segment that the checkpoint seals.
    db.checkpoint(&copy).unwrap();
    let report = check(&copy).unwrap();
    assert!(report.is_clean(), "{:?}", report.errors);
    let copied = options().open(&copy).unwrap();
    check_whole(&copied, &expected);
    copied.close().unwrap();

    db.close().unwrap();
    let report = check(&dir).unwrap();
    assert!(report.is_clean(), "{:?}", report.errors);
    let db = options().open(&dir).unwrap();
    check_whole(&db, &expected);
    assert_eq!(there(&dir, &values), values.len());
    // Moved again: what held them goes, once the flush point has passed it.
    db.put(key(0), value(0, 1)).unwrap();
    db.flush().unwrap();
    let again = relocate(&db);
    retire(&db);
    check_whole(&db, &expected);
    assert_eq!(there(&dir, &again), again.len());
    db.close().unwrap();
    let report = salvage(&dir, &out, &SalvageOptions::default()).unwrap();
    assert!(report.is_complete(), "{report:?}");
    let salvaged = options().open(&out).unwrap();
    assert!(contents(&salvaged) == expected);
    salvaged.close().unwrap();
}

/// With every table lost, the values that were moved are still there under their keys.
#[test]
fn salvage_takes_relocated_values_where_tables_are_lost() {
    for without_manifest in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let (dir, out) = ["db", "out"].map(|name| home.path().join(name)).into();
        let db = options().open(&dir).unwrap();
        let expected = filled(&db, |_| {});
        let values = relocate(&db);
        retire(&db);
        db.close().unwrap();
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let manifest = without_manifest && name.starts_with("manifest-");
            if manifest || name.starts_with("table-") {
                std::fs::remove_file(&path).unwrap();
            }
        }
        // Of one record the value is rotten.
        let segment = dir.join(values[0].file().to_string());
        let mut bytes = std::fs::read(&segment).unwrap();
        let end = bytes.len() - 5000;
        bytes[end] ^= 1;
        std::fs::write(&segment, bytes).unwrap();
        let report = salvage(&dir, &out, &SalvageOptions::default()).unwrap();
        assert!(!report.is_complete());
        let salvaged = options().open(&out).unwrap();
        let found = contents(&salvaged);
        let lost = expected
            .iter()
            .filter(|(key, value)| found.get(*key) != Some(value));
        let lost = lost.count();
        assert!(
            lost <= 1,
            "{lost} of {} records, {report:?}",
            expected.len()
        );
        salvaged.close().unwrap();
        assert!(report.records() >= expected.len() as u64 - 1);
        if !without_manifest {
            assert!(report.uncertain >= expected.len() as u64 - 1);
        }
    }
}
