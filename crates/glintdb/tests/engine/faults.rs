//! A failed write or sync poisons and is never tried again; an I/O error at any operation is an error and nothing worse.

use crate::support::*;
use glintdb::{Durability, ErrorKind};
use glintdb_core::FileKind;
use glintdb_simdisk::{CrashMode, FaultKind, MemOptions, MemVolume, OperationKind};

#[test]
fn a_failed_sync_fails_its_commit_and_poisons_all_later_ones() {
    let volume = MemVolume::with_options(MemOptions {
        log_operations: true,
        ..MemOptions::default()
    });
    let db = open(&volume).unwrap();
    keyspaces(&db).unwrap();
    commit(&db, 1, Durability::Sync).unwrap();
    commit(&db, 2, Durability::Os).unwrap();
    fail_at(&volume, 0, FaultKind::SyncLosesData, false);
    assert_eq!(
        commit(&db, 3, Durability::Sync).unwrap_err().kind(),
        ErrorKind::Io
    );
    let failed_at = volume.operation_count();
    for durability in [Durability::Buffered, Durability::Os, Durability::Sync] {
        let error = commit(&db, 4, durability).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    }
    let mut transaction = db.transaction();
    transaction.put(&db.default_keyspace(), "x", "y").unwrap();
    assert_eq!(
        transaction.commit().unwrap_err().kind(),
        ErrorKind::Poisoned
    );
    for durability in [Durability::Os, Durability::Sync] {
        assert_eq!(
            db.flush_log(durability).unwrap_err().kind(),
            ErrorKind::Poisoned
        );
    }
    assert!(db.flush().is_err());
    // Nothing of the log was written or synced again.
    let retried = volume
        .operations()
        .into_iter()
        .filter(|operation| operation.number >= failed_at)
        .find(|operation| match operation.kind {
            OperationKind::Sync(file) | OperationKind::Write { file, .. } => {
                file.kind == FileKind::Log
            }
            OperationKind::RingWrite { .. } => true,
            _ => false,
        });
    assert_eq!(retried, None);
    // Reads go on, and show what was acknowledged.
    assert!(contents(&db.default_keyspace()).unwrap() == Model::after(2).one);
    assert!(db.snapshot().get(&db.default_keyspace(), "newest").is_ok());
    drop(db);
    for (after, promised) in [
        (volume.kill(), 2),
        (volume.crash(CrashMode::LoseUnsynced), 1),
        (volume.crash(CrashMode::KeepUnsynced), 1),
    ] {
        let db = open(&after).unwrap();
        let found = check(&after, &db, promised, 3, &"reopened");
        commit(&db, found + 1, Durability::Sync).unwrap();
    }
}

const COMMITS: u64 = 40;

/// A life with a fault from operation `at` on, and what is true after it.
fn life_with(at: u64, kind: FaultKind, sticky: bool) -> u64 {
    let volume = MemVolume::new();
    let mut promises = Promises::default();
    fail_at(&volume, at, kind, sticky);
    let context = format!("{kind:?} at {at}, sticky {sticky}");
    if let Ok(db) = open(&volume) {
        let result =
            keyspaces(&db).and_then(|_| run(&volume, &db, 1..=COMMITS, u64::MAX, &mut promises));
        if let Err(error) = &result {
            assert!(
                matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned),
                "{context}: {error}"
            );
        }
        let complete = result.is_ok() && promises.tried == COMMITS;
        assert!(complete || result.is_err());
        // What is seen is what was acknowledged, whole; or the medium cannot be read.
        match (
            contents(&db.default_keyspace()),
            db.keyspace("two").and_then(|two| contents(&two)),
        ) {
            (Ok(one), Ok(two)) => {
                let model = Model::after(promises.acknowledged);
                assert!(
                    one == model.one && two == model.two,
                    "{context}: something half-applied is seen, {promises:?}"
                );
            }
            (one, two) => {
                for error in [one.err(), two.err()].into_iter().flatten() {
                    assert!(
                        matches!(error.kind(), ErrorKind::Io | ErrorKind::NotFound),
                        "{context}: {error}"
                    );
                }
            }
        }
    }
    let operations = volume.operation_count();
    volume.clear_faults();
    for (after, promised) in [
        (volume.kill(), promises.os),
        (volume.crash(CrashMode::LoseUnsynced), promises.synced),
        (
            volume.crash(CrashMode::Random { seed: at }),
            promises.synced,
        ),
    ] {
        let context = format!("{context}, reopened, {promises:?}");
        let db = open(&after).unwrap_or_else(|error| panic!("{context}: {error}"));
        let found = check(&after, &db, promised, promises.tried, &context);
        keyspaces(&db).unwrap();
        commit(&db, found + 1, Durability::Sync)
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        db.flush().unwrap();
        check(&after, &db, found + 1, found + 1, &context);
    }
    operations
}

#[test]
fn an_io_error_at_every_operation_once() {
    let count = life_with(u64::MAX, FaultKind::Io, false);
    for at in 0..count {
        life_with(at, FaultKind::Io, false);
    }
}

#[test]
fn io_errors_from_every_operation_on() {
    let count = life_with(u64::MAX, FaultKind::Io, false);
    for at in 0..count {
        life_with(at, FaultKind::Io, true);
    }
}

#[test]
fn every_sync_fails_once_and_loses_its_data() {
    let count = life_with(u64::MAX, FaultKind::Io, false);
    for at in (0..count).step_by(3) {
        life_with(at, FaultKind::SyncLosesData, false);
    }
}
