//! Tests of values that were moved to segments of their own, which are no part of the stream.

use super::*;
use glintdb_log::format::segment::SegmentKind;

#[test]
fn moved_values_survive_checkpoints_openings_and_salvage() {
    let home = tempfile::tempdir().unwrap();
    let (dir, copy, out) = ["db", "copy", "out"]
        .map(|name| home.path().join(name))
        .into();
    let db = options().open(&dir).unwrap();
    let expected = filled(&db, |_| {});
    let victims = round(&db, |_| {});
    let values = moved(&db);
    assert!(values.len() > 1);
    for &id in &values {
        let kind = db.handle.engine.shared.log.segment_kind(id).unwrap();
        assert_eq!(kind, SegmentKind::Values);
    }
    assert_eq!(there(&dir, &victims), 0);
    check_whole(&db, &expected);

    // The ids of these segments are above that of the segment that the checkpoint seals.
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
    // Moves the values again, after which their segments are removed.
    let again = round(&db, |_| {});
    assert!(values.iter().all(|id| again.contains(id)));
    check_whole(&db, &expected);
    assert_eq!(there(&dir, &again), 0);
    db.close().unwrap();
    let report = salvage(&dir, &out, &SalvageOptions::default()).unwrap();
    assert!(report.is_complete(), "{report:?}");
    let salvaged = options().open(&out).unwrap();
    assert!(contents(&salvaged) == expected);
    salvaged.close().unwrap();
}

/// If every table is lost, salvage still finds moved values under their keys.
#[test]
fn salvage_finds_moved_values_if_tables_are_lost() {
    for without_manifest in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let (dir, out) = ["db", "out"].map(|name| home.path().join(name)).into();
        let db = options().open(&dir).unwrap();
        let expected = filled(&db, |_| {});
        round(&db, |_| {});
        let values = moved(&db);
        db.close().unwrap();
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let manifest = without_manifest && name.starts_with("manifest-");
            if manifest || name.starts_with("table-") {
                std::fs::remove_file(&path).unwrap();
            }
        }
        // The value of one record is damaged.
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
