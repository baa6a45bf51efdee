//! Snapshots are repeatable, keep what they need and nothing longer, and are given up, oldest first, when they pin too much.

use crate::support::*;
use glintdb::{Db, Durability, ErrorKind, Keyspace, KeyspaceOptions};
use glintdb_core::{FileId, FileKind};
use glintdb_flash::Volume;
use glintdb_simdisk::MemVolume;
use std::sync::Arc;

fn log_files(volume: &Arc<MemVolume>) -> Vec<FileId> {
    let mut files = volume.list().unwrap();
    files.retain(|file| file.kind == FileKind::Log);
    files
}

/// 200 separated values of 2 KiB: some seven segments.
fn fill(keyspace: &Keyspace, round: u64) {
    for n in 0..200 {
        keyspace
            .put(format!("{n:03}"), pattern(round * 1000 + n, 2000))
            .unwrap();
    }
}

fn round_of(snapshot: &glintdb::Snapshot, keyspace: &Keyspace, round: u64) {
    for n in (0..200).step_by(17) {
        let value = snapshot.get(keyspace, format!("{n:03}")).unwrap().unwrap();
        assert!(value == pattern(round * 1000 + n, 2000), "{n}");
    }
}

#[test]
fn values_of_dead_segments_are_read_by_an_old_snapshot_and_the_files_go_with_it() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let keyspace = db.default_keyspace();
    fill(&keyspace, 1);
    db.flush().unwrap();
    let snapshot = db.snapshot();
    let mut iter = keyspace.iter();
    assert!(iter.next().unwrap().is_ok());
    let old = log_files(&volume)[0];
    fill(&keyspace, 2);
    db.compact().unwrap();
    assert!(
        log_files(&volume).contains(&old),
        "a snapshot and an iterator need it"
    );
    round_of(&snapshot, &keyspace, 1);
    drop(snapshot);
    db.put("more", "to do").unwrap();
    db.flush().unwrap();
    assert!(log_files(&volume).contains(&old), "the iterator needs it");
    for (n, entry) in (1..200).zip(&mut iter) {
        assert!(entry.unwrap().1 == pattern(1000 + n, 2000), "{n}");
    }
    drop(iter);
    assert!(
        !log_files(&volume).contains(&old),
        "nobody needs it any more"
    );
    check_clean(&db, &"after");
    check_files(&volume, &db, &"after");
    let now = db.snapshot();
    round_of(&now, &keyspace, 2);
}

#[test]
fn a_segment_above_the_flush_point_or_with_live_values_stays() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let keyspace = db.default_keyspace();
    fill(&keyspace, 1);
    db.flush().unwrap();
    // One key of each old segment stays live.
    for n in (0..200).filter(|n| n % 20 != 0) {
        keyspace.put(format!("{n:03}"), "short").unwrap();
    }
    db.compact().unwrap();
    let after = volume.kill();
    drop(db);
    let db = open(&after).unwrap();
    for n in 0..200u64 {
        let value = db.get(format!("{n:03}")).unwrap().unwrap();
        if n.is_multiple_of(20) {
            assert!(value == pattern(1000 + n, 2000), "{n}");
        } else {
            assert_eq!(value, "short");
        }
    }
    // Not flushed: their segments are below nothing.
    let before = log_files(&after).len();
    fill(&db.default_keyspace(), 3);
    assert!(log_files(&after).len() > before);
    let killed = after.kill();
    let db = open(&killed).unwrap();
    round_of(&db.snapshot(), &db.default_keyspace(), 3);
}

#[test]
fn a_snapshot_shows_the_same_through_everything() {
    let (volume, db) = built(30);
    let (one, two) = keyspaces(&db).unwrap();
    let snapshot = db.snapshot();
    let model = Model::after(30);
    let same = |what: &str| {
        for (keyspace, expected) in [(&one, &model.one), (&two, &model.two)] {
            let found: Vec<_> = snapshot.iter(keyspace).map(Result::unwrap).collect();
            assert!(
                found
                    .iter()
                    .map(|(key, value)| (&key[..], &value[..]))
                    .eq(expected.iter().map(|(key, value)| (&key[..], &value[..]))),
                "{what}"
            );
            let keys: Vec<_> = expected.keys().collect();
            for (key, found) in keys.iter().zip(snapshot.multi_get(keyspace, &keys)) {
                assert_eq!(
                    found.unwrap().as_deref(),
                    Some(&expected[*key][..]),
                    "{what}"
                );
            }
            assert_eq!(snapshot.range(keyspace, "key05".."key15").rev().count(), {
                let from = b"key05".to_vec()..b"key15".to_vec();
                expected.range(from).count()
            });
        }
    };
    run(&volume, &db, 31..=60, u64::MAX, &mut Promises::default()).unwrap();
    same("more commits, flushes and compactions");
    one.delete_range::<&[u8]>(..).unwrap();
    db.compact().unwrap();
    same("everything deleted");
    db.drop_keyspace("two").unwrap();
    same("a keyspace dropped");
    assert_eq!(
        two.iter().next().unwrap().unwrap_err().kind(),
        ErrorKind::NotFound
    );
    db.create_keyspace("two", KeyspaceOptions::default())
        .unwrap()
        .put("other", "life")
        .unwrap();
    db.compact().unwrap();
    same("another keyspace of its name");
}

fn pins(db: &Db) -> (u64, u64) {
    let stats = db.stats();
    (stats.pinned_bytes, stats.snapshots_given_up)
}

#[test]
fn past_the_limit_the_oldest_snapshot_and_its_iterators_fail_and_their_memory_is_freed() {
    const PIN_BYTES_MAX: usize = 1 << 20;
    let volume = MemVolume::new();
    let db = open_with(&volume, options().snapshot_pin_bytes_max(PIN_BYTES_MAX)).unwrap();
    let keyspace = db.default_keyspace();
    keyspace.put("first", "1").unwrap();
    assert_eq!(pins(&db), (0, 0));
    let mut snapshots = Vec::new();
    let mut given_up_at = None;
    for round in 0..12 {
        for n in 0..1000 {
            keyspace
                .put_with(format!("{n:04}"), pattern(n, 150), Durability::Buffered)
                .unwrap();
        }
        let snapshot = db.snapshot();
        // Stands in the memtables, and then does nothing for a long time.
        let mut iter = snapshot.iter(&keyspace);
        assert!(iter.next().unwrap().is_ok());
        snapshots.push((snapshot, iter));
        db.flush().unwrap();
        let (pinned, given_up) = pins(&db);
        assert!(
            pinned <= PIN_BYTES_MAX as u64,
            "round {round}: {pinned} bytes pinned"
        );
        if given_up == 0 {
            assert!(pinned > 0, "what a snapshot pins is seen");
        } else {
            given_up_at.get_or_insert(round);
        }
    }
    let given_up = pins(&db).1 as usize;
    assert!(given_up_at.is_some() && (1..snapshots.len()).contains(&given_up));
    for (at, (snapshot, iter)) in snapshots.iter_mut().enumerate() {
        // What was fetched before may come; then the error, or everything.
        let end = iter.find_map(Result::err);
        if at < given_up {
            let error = snapshot.get(&keyspace, "first").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "snapshot {at}");
            let error = snapshot.iter(&keyspace).next().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "snapshot {at}");
            assert_eq!(end.unwrap().kind(), ErrorKind::SnapshotTooOld);
        } else {
            assert!(end.is_none(), "snapshot {at}: {end:?}");
            assert!(snapshot.get(&keyspace, "first").unwrap().is_some());
            assert_eq!(snapshot.iter(&keyspace).count(), 1001);
        }
    }
    snapshots.clear();
    assert_eq!(pins(&db).0, 0, "nothing is pinned without snapshots");
}
