//! Creating and dropping keyspaces: what the log says of dropped ones is passed over, what it says of unknown ones is corruption.

use crate::support::*;
use glintdb::{Durability, ErrorKind, KeyspaceOptions};
use glintdb_core::FileKind;
use glintdb_flash::Volume;
use glintdb_simdisk::{CrashMode, FaultKind, MemVolume};
use std::sync::Arc;

#[test]
fn frames_of_a_dropped_keyspace_are_passed_over() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    for life in 0..3 {
        let gone = db
            .create_keyspace("gone", KeyspaceOptions::default())
            .unwrap();
        gone.put("a", pattern(life, 1000)).unwrap();
        let mut batch = glintdb::Batch::new();
        batch
            .put(&gone, "b", "x")
            .put(&db.default_keyspace(), format!("{life}"), "kept");
        db.write(batch).unwrap();
        db.drop_keyspace("gone").unwrap();
        assert_eq!(gone.put("a", "x").unwrap_err().kind(), ErrorKind::NotFound);
        db.put(format!("after {life}"), "kept").unwrap();
    }
    for after in [volume.kill(), volume.crash(CrashMode::KeepUnsynced)] {
        let db = open(&after).unwrap();
        assert_eq!(db.keyspaces(), ["default"]);
        assert_eq!(db.default_keyspace().iter().count(), 6);
        check_clean(&db, &"reopened");
        // The id is not used again: what a new keyspace of the name holds is its own.
        let again = db
            .create_keyspace("gone", KeyspaceOptions::default())
            .unwrap();
        assert_eq!(again.iter().count(), 0);
        again.put("c", "new").unwrap();
        let killed = after.kill();
        drop(db);
        let db = open(&killed).unwrap();
        assert_eq!(db.keyspace("gone").unwrap().iter().count(), 1);
    }
}

#[test]
fn a_keyspace_that_the_manifest_does_not_know_is_corruption() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    db.put("a", "b").unwrap();
    let manifest = *volume
        .list()
        .unwrap()
        .iter()
        .find(|file| file.kind == FileKind::Manifest)
        .unwrap();
    let length = volume.open(manifest).unwrap().len().unwrap();
    let unknown = db
        .create_keyspace("unknown", KeyspaceOptions::default())
        .unwrap();
    unknown.put("key", "value").unwrap();
    drop((db, unknown));
    let killed = volume.kill();
    // The manifest as it was before the keyspace: as if its creation had not been made durable before the keyspace was used.
    killed.open(manifest).unwrap().set_len(length).unwrap();
    let error = open(&killed).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(
        error.to_string().contains("keyspace 1") && error.place().is_some(),
        "{error}"
    );
}

/// What each step leaves, by the number of steps that were acknowledged: a keyspace "x" comes, is filled, goes, and comes again with something else in it.
fn steps(volume: &Arc<MemVolume>, db: &glintdb::Db, at: u64) -> usize {
    let mut done = 0;
    let mut step = |run: &dyn Fn() -> glintdb::Result<()>| {
        let ok = run().is_ok() && volume.operation_count() <= at;
        done += usize::from(ok);
        ok
    };
    let x = || db.keyspace("x");
    let create = || {
        db.create_keyspace("x", KeyspaceOptions::default())
            .map(drop)
    };
    let _all = step(&create)
        && step(&|| x()?.put_with("k", pattern(1, 900), Durability::Sync))
        && step(&|| db.flush())
        && step(&|| db.drop_keyspace("x"))
        && step(&create)
        && step(&|| x()?.put_with("l", pattern(2, 900), Durability::Sync))
        && step(&|| db.drop_keyspace("x"))
        && step(&|| db.flush());
    done
}

/// Contents of "x" after each number of steps; `None`: it is not there.
fn expected(done: usize) -> Option<Vec<&'static str>> {
    match done {
        0 | 4 | 7 | 8 => None,
        1 | 5 => Some(vec![]),
        2 | 3 => Some(vec!["k"]),
        _ => Some(vec!["l"]),
    }
}

#[test]
fn a_crash_at_every_operation_of_creating_and_dropping() {
    let life = |at| {
        let volume = MemVolume::new();
        let db = open(&volume).unwrap();
        db.default_keyspace()
            .put_with("here", "before", Durability::Sync)
            .unwrap();
        let start = volume.operation_count();
        let at = at + start;
        fail_at(&volume, at, FaultKind::PowerOff, false);
        let done = steps(&volume, &db, at);
        (volume, done, start)
    };
    let (volume, done, start) = life(u64::MAX / 2);
    assert_eq!(done, 8);
    for at in 0..volume.operation_count() - start {
        let (volume, done, _) = life(at);
        let modes = [CrashMode::LoseUnsynced, CrashMode::Random { seed: at }];
        let crashed = modes.map(|mode| volume.crash(mode));
        for after in crashed.into_iter().chain([volume.kill()]) {
            let context = format!("cut at {at}, {done} steps done");
            let db = open(&after).unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = db.keyspace("x").ok().map(|x| {
                let keys = x.iter().keys().map(|key| key.unwrap());
                keys.map(|key| String::from_utf8_lossy(&key).into_owned())
                    .collect::<Vec<_>>()
            });
            // The step that was under way is done or not.
            let allowed = [expected(done), expected((done + 1).min(8))];
            assert!(
                allowed.iter().any(|keys| keys
                    .as_ref()
                    .map(|keys| keys.iter().map(|k| (*k).to_owned()).collect())
                    == found),
                "{context}: {found:?}"
            );
            assert_eq!(db.get("here").unwrap().unwrap(), "before", "{context}");
            check_clean(&db, &context);
            check_files(&after, &db, &context);
            db.keyspace_or_create("x", KeyspaceOptions::default())
                .and_then(|x| x.put("m", "on"))
                .unwrap_or_else(|error| panic!("{context}: {error}"));
        }
    }
}

#[test]
fn a_drop_that_the_manifest_refuses_leaves_the_keyspace_readable() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let kept = db
        .create_keyspace("kept", KeyspaceOptions::default())
        .unwrap();
    kept.put("key", "value").unwrap();
    db.flush_log(Durability::Sync).unwrap();
    // The manifest's own sync is the next one, and loses the edit.
    fail_at(
        &volume,
        volume.operation_count(),
        FaultKind::SyncLosesData,
        false,
    );
    assert!(
        db.create_keyspace("other", KeyspaceOptions::default())
            .is_err()
    );
    let error = db.drop_keyspace("kept").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    assert_eq!(kept.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    volume.clear_faults();
    let killed = volume.kill();
    drop(db);
    let db = open(&killed).unwrap();
    let kept = db.keyspace("kept").unwrap();
    assert_eq!(kept.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}
