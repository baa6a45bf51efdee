//! The tail of the log, the order of durability between log, tables and manifest, and liveness.

use crate::support::*;
use glintdb::{Durability, ErrorKind};
use glintdb_core::{FileId, FileKind};
use glintdb_flash::Volume;
use glintdb_simdisk::{CrashMode, FaultKind, MemVolume};
use std::sync::Arc;

/// Commits `1..=n`, none synced but the last, all in the ring or the first segments.
fn unflushed(n: u64, last: Durability) -> (Arc<MemVolume>, glintdb::Db) {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    keyspaces(&db).unwrap();
    for number in 1..=n {
        let durability = if number == n { last } else { Durability::Os };
        commit(&db, number, durability).unwrap();
    }
    (volume, db)
}

fn log_files(volume: &Arc<MemVolume>) -> Vec<FileId> {
    let mut files = volume.list().unwrap();
    files.retain(|file| file.kind == FileKind::Log);
    files
}

#[test]
fn damage_in_a_durable_frame_is_corruption_that_names_file_and_place() {
    let (volume, db) = unflushed(12, Durability::Sync);
    // Its frame says that all before it is durable.
    commit(&db, 13, Durability::Sync).unwrap();
    drop(db);
    let first = log_files(&volume)[0];
    let length = volume.open(first).unwrap().len().unwrap();
    for offset in [4096 + 40, 4096 + 2000, 4096 + 9000, 4096 + 15_000] {
        assert!(offset < length);
        // A power cut, so that no whole copy is left in the ring.
        let damaged = volume.crash(CrashMode::LoseUnsynced);
        damaged.flip_bits(first, offset, 0x10).unwrap();
        damaged.remove_ring().unwrap();
        let error = open(&damaged).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{offset}: {error}");
        let (file, at) = error
            .place()
            .unwrap_or_else(|| panic!("{error} names no place"));
        assert_eq!(file, first.to_string());
        assert!(
            at <= offset && offset - at < 4096,
            "damage at {offset} is reported at {at}: {error}"
        );
    }
}

#[test]
fn a_torn_tail_is_dropped_and_what_was_synced_before_it_stays() {
    let (volume, db) = unflushed(10, Durability::Sync);
    for n in 11..=20 {
        commit(&db, n, Durability::Os).unwrap();
    }
    let mut kept = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let torn = volume.crash(CrashMode::Random { seed });
        let db = open(&torn).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        kept.insert(check(&torn, &db, 10, 20, &format!("seed {seed}")));
    }
    assert!(
        kept.iter().any(|n| *n < 20),
        "some tails must be torn: {kept:?}"
    );
}

/// A flush of commits that nobody has synced, cut at each of its operations. Were the manifest's edit durable before the log, a pointer into the log would dangle, and
/// of a batch over two keyspaces one half could be there without the other.
#[test]
fn a_manifest_never_runs_ahead_of_the_log() {
    let (volume, db) = unflushed(14, Durability::Os);
    let start = volume.operation_count();
    db.flush().unwrap();
    let end = volume.operation_count();
    assert!(end - start > 10);
    for at in start..end {
        let (volume, db) = unflushed(14, Durability::Os);
        fail_at(&volume, at, FaultKind::PowerOff, false);
        db.flush().ok();
        let modes = [
            CrashMode::LoseUnsynced,
            CrashMode::Random { seed: at },
            CrashMode::Random { seed: at + 1000 },
        ];
        for mode in modes {
            let after = volume.crash(mode);
            let context = format!("cut at {at} of {start}..{end}, {mode:?}");
            let db = open(&after).unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&after, &db, 0, 14, &context);
        }
        let killed = volume.kill();
        let db = open(&killed).unwrap();
        check(&killed, &db, 14, 14, &format!("killed at {at}"));
    }
}

/// A compaction that drops values, cut at each operation: what the manifest says is live must be what the indexes hold, and both must stay so when the segments that
/// died go.
#[test]
fn liveness_changes_only_with_the_edit_that_changes_the_index() {
    let prepared = || {
        let (volume, db) = unflushed(20, Durability::Os);
        db.flush().unwrap();
        for n in 21..=50 {
            commit(&db, n, Durability::Os).unwrap();
        }
        db.flush().unwrap();
        (volume, db)
    };
    let (volume, db) = prepared();
    let start = volume.operation_count();
    let live_before = db.stats().log.live_value_bytes;
    db.compact().unwrap();
    let end = volume.operation_count();
    let live_after = db.stats().log.live_value_bytes;
    assert!(
        live_after < live_before,
        "{live_before} to {live_after}: the compaction drops nothing"
    );
    for at in start..end {
        let (volume, db) = prepared();
        fail_at(&volume, at, FaultKind::PowerOff, false);
        db.compact().ok();
        drop(db);
        for after in [
            volume.kill(),
            volume.crash(CrashMode::LoseUnsynced),
            volume.crash(CrashMode::Random { seed: at }),
        ] {
            let context = format!("cut at {at} of {start}..{end}");
            let db = open(&after).unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&after, &db, 50, 50, &context);
            let live = db.stats().log.live_value_bytes;
            assert!((live_after..=live_before).contains(&live), "{context}");
            db.compact().unwrap();
            assert_eq!(db.stats().log.live_value_bytes, live_after, "{context}");
            check(&after, &db, 50, 50, &context);
        }
    }
}

/// Overwritten for a long time, a small database stays small, however often it is opened: segments, tables and manifests go.
#[test]
fn dead_segments_go_and_none_is_leaked_over_many_lives() {
    let mut volume = MemVolume::new();
    let mut n = 0;
    let mut sizes = Vec::new();
    for life in 0..6 {
        let db = open(&volume).unwrap();
        keyspaces(&db).unwrap();
        run(
            &volume,
            &db,
            n + 1..=n + 60,
            u64::MAX,
            &mut Promises::default(),
        )
        .unwrap();
        n += 60;
        db.compact().unwrap();
        check(&volume, &db, n, n, &format!("life {life}"));
        sizes.push(db.stats().log.segments);
        drop(db);
        volume = volume.kill();
    }
    let (first, last) = (sizes[0], sizes[5]);
    assert!(
        last <= first + 2,
        "segments at the end of each life: {sizes:?}"
    );
}
