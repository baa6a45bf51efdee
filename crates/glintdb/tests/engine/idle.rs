//! An idle engine gives back the space of what was deleted, and of what readers kept, without a
//! call that asks for it.

use crate::support::*;
use glintdb::{Db, Keyspace, KeyspaceOptions, Options};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Bytes of values that are loaded.
const BYTES: u64 = 40 << 20;
/// Space that is not worth a new segment of the log.
const SURPLUS_BYTES: u64 = 4 << 20;

fn options() -> Options {
    Options::default()
        .memory_budget_bytes(16 << 20)
        .background_threads(1)
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

/// Bytes that the files of a directory take.
fn disk_bytes(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).unwrap();
    let blocks = files.map(|file| file.unwrap().metadata().map_or(0, |file| file.blocks()));
    blocks.sum::<u64>() * 512
}

/// Waits until `done` returns true. Fails after a minute, which is long for ten seconds of work
/// beside other tests.
fn wait_until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..600 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{what}: not within a minute");
}

/// Loads a keyspace, deletes everything in it, and waits for the space, also after reopening.
fn deleted_by(value_bytes: usize, delete: impl Fn(&Db, &Keyspace)) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let db = options().open(path).unwrap();
    let empty = disk_bytes(path);
    let keyspace = db
        .create_keyspace("loaded", KeyspaceOptions::default())
        .unwrap();
    let records = BYTES / value_bytes as u64;
    for n in 0..records {
        keyspace.put(key(n), pattern(n, value_bytes)).unwrap();
    }
    let full = disk_bytes(path);
    assert!(full > BYTES, "{full}");
    delete(&db, &keyspace);
    let is_free = || disk_bytes(path) <= empty + full / 10 + SURPLUS_BYTES;
    wait_until("the space comes back", is_free);
    drop(keyspace);
    db.close().unwrap();
    let db = options().open(path).unwrap();
    wait_until("the space comes back after reopening", is_free);
    check_clean(&db, &"after deletions");
}

#[test]
fn space_comes_back_after_everything_was_deleted_by_key() {
    for value_bytes in [100, 4096] {
        deleted_by(value_bytes, |_, keyspace| {
            for n in 0..BYTES / value_bytes as u64 {
                keyspace.delete(key(n)).unwrap();
            }
        });
    }
}

#[test]
fn space_comes_back_after_everything_was_deleted_by_range() {
    for value_bytes in [100, 4096] {
        deleted_by(value_bytes, |_, keyspace| {
            keyspace.delete_range::<Vec<u8>>(..).unwrap();
        });
    }
}

#[test]
fn space_comes_back_after_a_keyspace_was_dropped() {
    for value_bytes in [100, 4096] {
        deleted_by(value_bytes, |db, _| db.drop_keyspace("loaded").unwrap());
    }
}

/// The deletions are only in the log when the database is opened.
#[test]
fn space_comes_back_after_an_opening_that_replays_deletions() {
    let directory = tempfile::tempdir().unwrap();
    let db = options().open(directory.path()).unwrap();
    let keyspace = db.default_keyspace();
    for n in 0..BYTES / 100 {
        keyspace.put(key(n), pattern(n, 100)).unwrap();
    }
    db.flush().unwrap();
    let full = disk_bytes(directory.path());
    keyspace.delete_range::<Vec<u8>>(..).unwrap();
    db.close().unwrap();
    let _db = options().open(directory.path()).unwrap();
    wait_until("the space comes back", || {
        disk_bytes(directory.path()) < full / 4
    });
}

#[test]
fn tombstones_go_after_the_transaction_that_kept_them() {
    let directory = tempfile::tempdir().unwrap();
    let db = options().open(directory.path()).unwrap();
    let keyspace = db.default_keyspace();
    let (transaction, records) = (db.transaction(), 100_000);
    for n in 0..records {
        keyspace.put(key(n), b"value").unwrap();
    }
    db.flush().unwrap();
    for n in 0..records {
        keyspace.delete(key(n)).unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    let tombstones = || db.stats().keyspaces[0].index_tombstones;
    assert_eq!(tombstones(), records);
    drop(transaction);
    wait_until("the tombstones go", || tombstones() == 0);
}

/// Puts are slowed if compactions fall behind deletions.
#[test]
fn a_window_by_deletions_keeps_its_tables_small() {
    let directory = tempfile::tempdir().unwrap();
    let db = options().open(directory.path()).unwrap();
    let mut small_tables = KeyspaceOptions::default();
    small_tables.set("table_bytes_target", "1M").unwrap();
    let keyspace = db.create_keyspace("window", small_tables).unwrap();
    let index_bytes = || db.stats().keyspaces[1].index_bytes;
    let (window, value_bytes) = (20_000, 300);
    let live = window * 320;
    let mut most = 0;
    for n in 0..20 * window {
        keyspace.put(key(n), pattern(n, value_bytes)).unwrap();
        if n >= window {
            keyspace.delete(key(n - window)).unwrap();
        }
        if n % 1000 == 0 {
            most = most.max(index_bytes());
        }
    }
    assert!(most < 3 * live + (4 << 20), "{most} bytes for {live}");
    wait_until("the window has its size", || {
        index_bytes() < live + live / 2
    });
}
