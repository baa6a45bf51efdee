//! What a verification counts: entries and separated values, in tables and in the log.

use crate::support::*;
use glintdb::{VerifyReport, check_volume};
use glintdb_flash::Volume;
use glintdb_simdisk::MemVolume;
use std::sync::Arc;

/// Entries and values in tables, then in the log.
fn counts(report: &VerifyReport) -> [(u64, u64); 2] {
    assert!(report.is_clean(), "{:?}", report.errors);
    let sums = (
        report.table_entries + report.log_entries,
        report.table_values + report.log_values,
    );
    assert_eq!((report.entries(), report.values()), sums);
    [
        (report.table_entries, report.table_values),
        (report.log_entries, report.log_values),
    ]
}

fn check(volume: &Arc<MemVolume>) -> [(u64, u64); 2] {
    counts(&check_volume(&(Arc::clone(volume) as Arc<dyn Volume>)).unwrap())
}

/// Puts keys `from..to`, every third one with a value that is stored apart from its key.
fn put(db: &glintdb::Db, from: u64, to: u64) {
    for n in from..to {
        let bytes = if n % 3 == 0 { 1000 } else { 10 };
        let value = pattern(n, bytes);
        db.put(n.to_be_bytes(), value).unwrap();
    }
}

#[test]
fn check_counts_records_that_are_only_in_the_log() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    put(&db, 0, 30);
    assert_eq!(counts(&db.verify().unwrap()), [(0, 0), (30, 10)]);
    // A killed process leaves the newest commits in the ring.
    assert_eq!(check(&volume.kill()), [(0, 0), (30, 10)]);
    db.close().unwrap();
    assert_eq!(check(&volume), [(0, 0), (30, 10)]);
}

#[test]
fn check_counts_each_record_once_after_a_flush() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    put(&db, 0, 30);
    db.flush().unwrap();
    assert_eq!(counts(&db.verify().unwrap()), [(30, 10), (0, 0)]);
    put(&db, 30, 36);
    assert_eq!(counts(&db.verify().unwrap()), [(30, 10), (6, 2)]);
    db.close().unwrap();
    assert_eq!(check(&volume), [(30, 10), (6, 2)]);
}

#[test]
fn check_counts_each_put_and_deletion_in_the_log_and_no_range_deletion() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    put(&db, 0, 9);
    put(&db, 0, 9);
    db.delete(4_u64.to_be_bytes()).unwrap();
    let (from, to) = (5_u64.to_be_bytes(), 7_u64.to_be_bytes());
    db.default_keyspace().delete_range(from..to).unwrap();
    // The memtable keeps the newest entry of each of the nine keys; the log has them all.
    assert_eq!(counts(&db.verify().unwrap()), [(0, 0), (9, 3)]);
    db.close().unwrap();
    assert_eq!(check(&volume), [(0, 0), (19, 6)]);
}

#[test]
fn check_progress_rises_to_the_bytes_to_be_read() {
    let home = tempfile::tempdir().unwrap();
    let db = options().open(home.path()).unwrap();
    for round in 0..3 {
        put(&db, round * 300, round * 300 + 600);
        db.flush().unwrap();
    }
    // Few enough that value GC seals no memtable.
    put(&db, 0, 50);
    db.close().unwrap();
    let mut seen = Vec::new();
    let report = glintdb::check_with(home.path(), &mut |now| seen.push(now)).unwrap();
    assert!(report.is_clean() && report.table_values > 0 && report.log_entries == 50);
    assert!(seen.len() > 5, "{seen:?}");
    assert!(seen.is_sorted_by_key(|now| now.done_bytes), "{seen:?}");
    let last = seen.last().unwrap();
    assert!(seen.iter().all(|now| now.total_bytes == last.total_bytes));
    // Overwritten values are in the total, and are not read.
    assert!(
        last.done_bytes >= report.bytes && last.done_bytes <= last.total_bytes,
        "{last:?}"
    );
}
