//! Power cuts and kills at every operation of the volume: what was promised is there, the rest is a prefix of the commit order, and the database goes on.

use crate::support::*;
use glintdb::{Batch, Durability};
use glintdb_simdisk::{CrashMode, FaultKind, MemVolume};
use std::sync::Arc;

const COMMITS: u64 = 48;

/// A life from an empty volume on, cut at operation `at`.
fn life(at: u64) -> (Arc<MemVolume>, Promises) {
    let volume = MemVolume::new();
    fail_at(&volume, at, FaultKind::PowerOff, false);
    let mut promises = Promises::default();
    if let Ok(db) = open(&volume)
        && keyspaces(&db).is_ok()
    {
        promises.tried = 0;
        run(&volume, &db, 1..=COMMITS, at, &mut promises).ok();
    }
    (volume, promises)
}

fn operations_of_a_life() -> u64 {
    let (volume, promises) = life(u64::MAX);
    assert_eq!(promises.tried, COMMITS);
    volume.operation_count()
}

/// Opens what is left, checks it, opens it again (nothing may change), writes on, and opens once more.
fn recovers(volume: &Arc<MemVolume>, promised: u64, tried: u64, context: &str) {
    let found = {
        let db = open(volume).unwrap_or_else(|error| panic!("{context}: {error}"));
        check(volume, &db, promised, tried, &context)
    };
    let again = volume.kill();
    let db = open(&again).unwrap_or_else(|error| panic!("{context}, again: {error}"));
    assert_eq!(
        check(&again, &db, promised, tried, &format!("{context}, again")),
        found,
        "{context}: a second opening shows the same"
    );
    keyspaces(&db).unwrap();
    let mut next = Promises::default();
    run(&again, &db, found + 1..=found + 10, u64::MAX, &mut next)
        .unwrap_or_else(|error| panic!("{context}, writing on: {error}"));
    db.flush().unwrap();
    drop(db);
    let cut = again.crash(CrashMode::LoseUnsynced);
    let db = open(&cut).unwrap();
    check(
        &cut,
        &db,
        found + 10,
        found + 10,
        &format!("{context}, written on"),
    );
}

#[test]
fn sync_commits_survive_a_power_cut_at_every_operation() {
    let count = operations_of_a_life();
    assert!(count > 300, "{count} operations");
    for at in 0..count {
        let (volume, promises) = life(at);
        for mode in [CrashMode::LoseUnsynced, CrashMode::Random { seed: at }] {
            let context = format!("power cut at {at}, {mode:?}, {promises:?}");
            recovers(
                &volume.crash(mode),
                promises.synced,
                promises.tried,
                &context,
            );
        }
    }
}

#[test]
fn os_commits_survive_a_kill_at_every_operation() {
    for at in 0..operations_of_a_life() {
        let (volume, promises) = life(at);
        let context = format!("killed at {at}, {promises:?}");
        recovers(&volume.kill(), promises.os, promises.tried, &context);
    }
}

#[test]
fn a_crash_at_every_operation_of_recovery_loses_nothing() {
    let count = operations_of_a_life();
    for at in (count / 3..count).step_by(97) {
        let (volume, promises) = life(at);
        let whole = volume.kill();
        drop(open(&whole).unwrap());
        for step in 0..whole.operation_count() {
            let torn = volume.kill();
            fail_at(&torn, step, FaultKind::PowerOff, false);
            drop(open(&torn));
            for (after, promised) in [
                (torn.kill(), promises.os),
                (torn.crash(CrashMode::LoseUnsynced), promises.synced),
                (
                    torn.crash(CrashMode::Random { seed: step }),
                    promises.synced,
                ),
            ] {
                let context = format!("cut at {at}, then at {step} of recovery, {promises:?}");
                let db = open(&after).unwrap_or_else(|error| panic!("{context}: {error}"));
                let found = check(&after, &db, promised, promises.tried, &context);
                drop(db);
                let again = after.kill();
                let db = open(&again).unwrap();
                let same = check(&again, &db, found, found, &context);
                assert_eq!(same, found, "{context}");
            }
        }
    }
}

#[test]
fn a_kill_of_a_database_without_a_lasting_ring_keeps_os_commits() {
    let volume = MemVolume::with_options(glintdb_simdisk::MemOptions {
        ring_survives_kill: false,
        ..Default::default()
    });
    let db = open(&volume).unwrap();
    keyspaces(&db).unwrap();
    for n in 1..=40 {
        commit(&db, n, Durability::Os).unwrap();
        if n % 7 == 0 {
            let after = volume.kill();
            let reopened = open(&after).unwrap();
            check(&after, &reopened, n, n, &format!("killed after {n}"));
        }
    }
}

/// A commit is as durable as was asked, and so is everything before it: also where the commit writes nothing.
#[test]
fn an_empty_batch_at_sync_makes_what_was_committed_before_it_durable() {
    let barriers: [fn(&glintdb::Db) -> glintdb::Result<()>; 3] = [
        |db| db.write_with(Batch::new(), Durability::Sync),
        |db| db.write_group(vec![Batch::new(), Batch::new()], Durability::Sync),
        |db| db.write_group(Vec::new(), Durability::Sync),
    ];
    for (number, barrier) in barriers.into_iter().enumerate() {
        let volume = MemVolume::new();
        let db = open(&volume).unwrap();
        let space = db.default_keyspace();
        space.put_with("key", "value", Durability::Os).unwrap();
        let lost = volume.crash(CrashMode::LoseUnsynced);
        barrier(&db).unwrap();
        let kept = volume.crash(CrashMode::LoseUnsynced);
        let found = |volume: &Arc<MemVolume>| open(volume).unwrap().get("key").unwrap();
        assert_eq!(found(&lost), None, "the power cut takes what is not synced");
        assert_eq!(
            found(&kept).as_deref(),
            Some(&b"value"[..]),
            "barrier {number}"
        );
    }
}
