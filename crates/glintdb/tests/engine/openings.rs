//! Openings that do not finish: what a replay has written of a log larger than a memtable neither piles up nor is in the way of the next one.

use crate::support::*;
use glintdb::{Durability, ErrorKind, Experiments, Options};
use glintdb_core::FileKind;
use glintdb_flash::Volume;
use glintdb_simdisk::{FaultKind, MemOptions, MemVolume, Operation, OperationKind};
use std::sync::Arc;

/// Memtables so small that the replay writes tables.
fn narrow() -> Options {
    options()
        .separate_min_bytes(1 << 20)
        .replay_bytes_max(64 << 20)
}

/// A killed database with 3 MB in the log and nothing flushed.
fn unflushed() -> Arc<MemVolume> {
    let volume = MemVolume::with_options(MemOptions {
        log_operations: true,
        ..MemOptions::default()
    });
    let db = open_with(&volume, narrow().memory_budget_bytes(64 << 20)).unwrap();
    for n in 0..3000u64 {
        db.default_keyspace()
            .put_with(n.to_be_bytes(), pattern(n, 900), Durability::Os)
            .unwrap();
    }
    volume.kill()
}

fn table_bytes(volume: &MemVolume) -> usize {
    let files = volume.contents().files;
    let tables = files.iter().filter(|(id, _)| id.kind == FileKind::Table);
    tables.map(|(_, bytes)| bytes.len()).sum()
}

/// How many operations an opening has done when it makes its last table, and when it writes the edit that follows.
fn places(image: &MemVolume) -> (u64, u64) {
    let volume = image.kill();
    let begin = volume.operation_count();
    drop(open_with(&volume, narrow()).unwrap());
    let operations = volume.operations();
    let is_table = |operation: &Operation| matches!(operation.kind, OperationKind::Create(id) if id.kind == FileKind::Table);
    let is_edit = |operation: &Operation| matches!(operation.kind, OperationKind::Write { file, .. } if file.kind == FileKind::Manifest);
    let table = operations.iter().rposition(is_table).unwrap();
    let edit = table + operations[table..].iter().position(is_edit).unwrap();
    (
        operations[table].number - begin,
        operations[edit].number - begin,
    )
}

#[test]
fn tables_of_openings_that_were_killed_do_not_pile_up() {
    let mut volume = unflushed();
    let (last_table, _) = places(&volume);
    let mut left = Vec::new();
    for _ in 0..5 {
        let next = volume.kill();
        let at = next.operation_count() + last_table + 1;
        fail_at(&next, at, FaultKind::PowerOff, true);
        assert!(open_with(&next, narrow()).is_err(), "killed as it replays");
        next.clear_faults();
        volume = next.kill();
        left.push(table_bytes(&volume));
    }
    assert!(left[0] > 0, "the replay does write tables");
    assert!(left.iter().all(|bytes| *bytes <= left[0]), "{left:?}");
    let db = open_with(&volume, narrow()).unwrap();
    assert_eq!(db.default_keyspace().iter().count(), 3000);
    check_clean(&db, &"after all");
    check_files(&volume, &db, &"after all");
}

#[test]
fn the_edit_behind_a_replay_has_the_reserve_and_gives_its_tables_back_where_that_is_gone() {
    let image = unflushed();
    let (_, edit) = places(&image);
    for (sticky, reserve) in [(false, true), (false, false), (true, true)] {
        let context = format!("sticky {sticky}, with a reserve {reserve}");
        let volume = image.kill();
        let reserves = || {
            let contents = volume.contents();
            let mut files = contents.files.keys();
            files.any(|id| id.kind == FileKind::Reserve)
        };
        assert!(reserves(), "{context}");
        if !reserve {
            use glintdb_flash::Volume;
            for id in volume.list().unwrap() {
                if id.kind == FileKind::Reserve {
                    volume.delete(id).unwrap();
                }
            }
        }
        let begin = volume.operation_count();
        fail_at(&volume, begin + edit, FaultKind::NoSpace, sticky);
        match open_with(&volume, narrow()) {
            Ok(db) => {
                assert!(reserve && !sticky, "{context}");
                assert_eq!(db.default_keyspace().iter().count(), 3000);
                check_files(&volume, &db, &context);
            }
            Err(error) => {
                assert!(!reserve || sticky, "{context}: {error}");
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{context}");
                assert_eq!(table_bytes(&volume), 0, "{context}");
            }
        }
        volume.clear_faults();
        let db = open_with(&volume.kill(), narrow()).unwrap();
        assert_eq!(db.default_keyspace().iter().count(), 3000, "{context}");
    }
}

/// What an opening had replayed was not counted as log of the memtables: each life added to it until it had itself written half of `replay_bytes_max`.
#[test]
fn lives_that_end_before_a_flush_do_not_make_the_replay_longer_than_it_may_be() {
    let most = 1 << 20;
    let options = || {
        options()
            .replay_bytes_max(most)
            .experiments(Experiments::default().value_gc(false))
    };
    let (mut volume, mut longest) = (MemVolume::new(), 0);
    for life in 0..8u64 {
        let db = open_with(&volume, options()).unwrap();
        let replayed = db.stats().replayed_bytes;
        assert!(replayed <= most, "life {life}: {replayed}");
        longest = longest.max(replayed);
        for n in 0..500 + life * 40 {
            db.put(n.to_be_bytes(), pattern(n, 600)).unwrap();
        }
        volume = volume.kill();
    }
    assert!(longest > most / 3, "{longest}");
}

/// Each opening goes on in a segment of its own, and those before it stayed as long as nothing was flushed: a database that is only read, again and again, gathered them.
#[test]
fn openings_do_not_gather_segments_of_the_log() {
    for (flushed, writes, killed) in [
        (false, false, false),
        (true, false, false),
        (false, true, true),
        (true, true, false),
    ] {
        let mut volume = MemVolume::new();
        let db = open_with(&volume, options()).unwrap();
        let keyspace = db.default_keyspace();
        keyspace.put("first", "value").unwrap();
        if flushed {
            db.flush().unwrap();
        }
        db.close().unwrap();
        for n in 0..40u64 {
            volume = volume.kill();
            let db = open_with(&volume, options()).unwrap();
            if writes {
                db.put(n.to_be_bytes(), "value").unwrap();
            }
            assert_eq!(db.get("first").unwrap().as_deref(), Some(&b"value"[..]));
            let count = db.default_keyspace().iter().count() as u64;
            assert_eq!(count, if writes { n + 2 } else { 1 });
            if !killed {
                db.close().unwrap();
            }
        }
        let files = volume.kill().list().unwrap();
        let segments = files.iter().filter(|id| id.kind == FileKind::Log).count();
        // With the next one, and two of the reserve.
        assert!(segments <= 13, "{segments} {flushed} {writes} {killed}");
    }
}
