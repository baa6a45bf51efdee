//! Conversions of indexes: the contents stay the same for readers, snapshots, transactions and
//! writers, a crash leaves the old or the new index, and bad requests change nothing.

use crate::support::*;
use glintdb::{
    Batch, Compression, Db, ErrorKind, Experiments, IndexKind, Isolation, Keyspace,
    KeyspaceOptions, Result,
};
use glintdb_core::FileKind;
use glintdb_simdisk::{CrashMode, FaultKind, MemVolume};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Small nodes, tables and slices, so that few entries make many of them.
fn small(kind: IndexKind) -> KeyspaceOptions {
    let mut options = KeyspaceOptions::default().index(kind);
    match kind {
        IndexKind::Lsm => {
            options.lsm.table_bytes_target = 16 << 10;
            options.lsm.experiments.base_level_bytes = 32 << 10;
        }
        _ => {
            options.btree.table_bytes_target = 16 << 10;
            options.btree.experiments.slice_bytes = 16 << 10;
        }
    }
    options
}

fn other(kind: IndexKind) -> IndexKind {
    match kind {
        IndexKind::Lsm => IndexKind::BTree,
        _ => IndexKind::Lsm,
    }
}

fn convert(keyspace: &Keyspace) -> Result<()> {
    keyspace.convert(small(other(keyspace.options().index)))
}

/// Puts, deletions and range deletions, with separated and inline values, and flushes in between.
fn write_some(db: &Db, keyspace: &Keyspace, rounds: std::ops::Range<u64>) {
    for round in rounds {
        for n in 0..300 {
            let key = format!("key{:05}", (n * 7 + round * 131) % 2000);
            let length = if n % 3 == 0 { 1500 } else { 40 };
            keyspace
                .put(key, pattern(round * 1000 + n, length))
                .unwrap();
        }
        for n in 0..30 {
            keyspace
                .delete(format!("key{:05}", (n * 13 + round * 77) % 2000))
                .unwrap();
        }
        let from = round * 97 % 2000;
        keyspace
            .delete_range(format!("key{from:05}")..format!("key{:05}", from + 25))
            .unwrap();
        db.flush().unwrap();
    }
}

#[test]
fn contents_are_the_same_before_and_after_and_after_reopening() {
    let volume = MemVolume::new();
    let mut db = open(&volume).unwrap();
    db.create_keyspace("there and back", small(IndexKind::Lsm))
        .unwrap();
    for turn in 0..4 {
        let keyspace = db.keyspace("there and back").unwrap();
        write_some(&db, &keyspace, turn * 12..turn * 12 + 12);
        let (kind, before) = (keyspace.options().index, contents(&keyspace).unwrap());
        assert!(before.len() > 500);
        convert(&keyspace).unwrap();
        assert_eq!(keyspace.options(), small(other(kind)));
        assert_eq!(contents(&keyspace).unwrap(), before);
        check_clean(&db, &format!("turn {turn}"));
        check_files(&volume, &db, &format!("turn {turn}"));
        let stats = db.stats();
        let stats = stats
            .keyspaces
            .iter()
            .find(|one| one.name == "there and back");
        assert_eq!(stats.unwrap().index_kind, other(kind).name());
        if turn % 2 == 0 {
            keyspace.compact().unwrap();
            assert_eq!(contents(&keyspace).unwrap(), before);
        }
        drop(keyspace);
        db.close().unwrap();
        db = open(&volume).unwrap();
        let keyspace = db.keyspace("there and back").unwrap();
        assert_eq!(keyspace.options(), small(other(kind)));
        assert_eq!(contents(&keyspace).unwrap(), before);
        check_clean(&db, &format!("turn {turn}, opened again"));
        keyspace.compact().unwrap();
        assert_eq!(contents(&keyspace).unwrap(), before);
        check_files(&volume, &db, &format!("turn {turn}, compacted"));
    }
}

#[test]
fn an_lsm_tree_becomes_a_b_tree_without_moving_data() {
    let volume = MemVolume::new();
    // Value GC flushes a table of the values that it moves.
    let options = options()
        .background_threads(1)
        .experiments(Experiments::default().value_gc(false));
    let db = open_with(&volume, options).unwrap();
    let keyspace = db.create_keyspace("one", small(IndexKind::Lsm)).unwrap();
    write_some(&db, &keyspace, 0..12);
    keyspace.compact().unwrap();
    let tables = files(&volume, FileKind::Table);
    assert!(tables > 1);
    // More runs than one make a settling begin; one run waits.
    keyspace.convert(small(IndexKind::BTree)).unwrap();
    assert_eq!(files(&volume, FileKind::Table), tables);
    assert_eq!(files(&volume, FileKind::Tree), 0);
    keyspace.compact().unwrap();
    assert!(files(&volume, FileKind::Tree) > 0);
}

#[test]
fn an_empty_keyspace_is_converted() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let keyspace = db.default_keyspace();
    for _ in 0..4 {
        convert(&keyspace).unwrap();
        assert_eq!(keyspace.iter().count(), 0);
    }
    convert(&keyspace).unwrap();
    keyspace.put("a", "1").unwrap();
    drop((keyspace, db));
    let db = open(&volume.kill()).unwrap();
    assert_eq!(db.default_keyspace().options(), small(IndexKind::BTree));
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn snapshots_and_iterators_read_on_across_conversions() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let keyspace = db.create_keyspace("one", small(IndexKind::Lsm)).unwrap();
    write_some(&db, &keyspace, 0..10);
    let mut kept = Vec::new();
    for turn in 1..5 {
        let snapshot = db.snapshot();
        let mut iter = keyspace.iter();
        let first = iter.next().unwrap().unwrap();
        kept.push((snapshot, contents(&keyspace).unwrap(), iter, first));
        convert(&keyspace).unwrap();
        // Also files that are open already stay on the volume.
        if keyspace.options().index == IndexKind::Lsm {
            assert!(files(&volume, FileKind::Tree) > 0);
        }
        write_some(&db, &keyspace, turn * 10..turn * 10 + 10);
        keyspace.compact().unwrap();
    }
    for (snapshot, expected, iter, first) in kept {
        let seen: Map = std::iter::once(Ok(first))
            .chain(iter)
            .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
            .collect::<Result<_>>()
            .unwrap();
        assert!(seen == expected, "an iterator shows what was there");
        let seen: Map = (snapshot.iter(&keyspace))
            .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
            .collect::<Result<_>>()
            .unwrap();
        assert!(seen == expected, "a snapshot shows what was there");
    }
    keyspace.compact().unwrap();
    assert_eq!(files(&volume, FileKind::Tree), 0);
    check_files(&volume, &db, &"no reader is left");
}

#[test]
fn transactions_find_conflicts_across_conversions() {
    for kind in [IndexKind::Lsm, IndexKind::BTree] {
        let volume = MemVolume::new();
        let db = open(&volume).unwrap();
        let keyspace = db.create_keyspace("one", small(kind)).unwrap();
        write_some(&db, &keyspace, 0..10);
        for key in ["put", "deleted", "range deleted", "untouched"] {
            keyspace.put(key, "before").unwrap();
        }
        keyspace.compact().unwrap();
        let begin = |key: &str| {
            let mut transaction = db.transaction_with(
                glintdb::TransactionOptions::default().isolation(Isolation::Serializable),
            );
            transaction.get(&keyspace, key).unwrap();
            transaction.put(&keyspace, "written", key).unwrap();
            transaction
        };
        let lost = ["put", "deleted", "range deleted"].map(begin);
        keyspace.put("put", "after").unwrap();
        keyspace.delete("deleted").unwrap();
        keyspace.delete_range("range d".."range e").unwrap();
        // The tree has the deletions now, because the transactions may still have to see them.
        keyspace.compact().unwrap();
        convert(&keyspace).unwrap();
        let kept = begin("untouched");
        keyspace.compact().unwrap();
        for transaction in lost {
            assert_eq!(
                transaction.commit().unwrap_err().kind(),
                ErrorKind::Conflict
            );
        }
        kept.commit().unwrap();
    }
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let keyspace = db.default_keyspace();
    write_some(&db, &keyspace, 0..3);
    let (options, before) = (keyspace.options(), contents(&keyspace).unwrap());
    let refused = |wrong: KeyspaceOptions, text: &str| {
        let error = keyspace.convert(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(keyspace.options(), options);
        assert_eq!(contents(&keyspace).unwrap(), before);
    };
    refused(small(IndexKind::Lsm), "of kind lsm already");
    let mut wrong = small(IndexKind::BTree);
    wrong.btree.experiments.leaf_batch = 0;
    refused(wrong, "leaf_batch");
    let mut wrong = small(IndexKind::BTree);
    wrong.lsm.size_ratio = 4;
    refused(wrong, "size_ratio: 4 is an option of an index of kind lsm");
    let gone = db
        .create_keyspace("gone", KeyspaceOptions::default())
        .unwrap();
    db.drop_keyspace("gone").unwrap();
    let error = gone.convert(small(IndexKind::BTree)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = keyspace.set_options(small(IndexKind::BTree)).unwrap_err();
    assert!(error.to_string().contains("Keyspace::convert"), "{error}");
    db.close().unwrap();
    let error = keyspace.convert(small(IndexKind::BTree)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[test]
fn options_of_the_other_kind_keep_what_both_kinds_have() {
    let mut lsm = KeyspaceOptions::default().compression(Compression::Lz4);
    (lsm.lsm.size_ratio, lsm.lsm.block_bytes) = (4, 8192);
    let btree = lsm.of_kind(IndexKind::BTree);
    let mut expected = KeyspaceOptions::default()
        .index(IndexKind::BTree)
        .compression(Compression::Lz4);
    expected.btree.block_bytes = 8192;
    assert_eq!(btree, expected);
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let keyspace = db.create_keyspace("one", lsm).unwrap();
    keyspace.convert(btree.clone()).unwrap();
    assert_eq!(keyspace.options(), btree);
}

/// Two writers, whose batches put the same number under all keys of theirs; two readers, who must
/// see whole batches that never go back; value GC and compactions; and conversions.
#[test]
fn writers_and_readers_go_on_during_conversions() {
    const KEYS: u32 = 40;
    let volume = MemVolume::new();
    let db = open_with(&volume, options().background_threads(2)).unwrap();
    let keyspace = db.create_keyspace("one", small(IndexKind::Lsm)).unwrap();
    let stop = AtomicBool::new(false);
    let written = [const { AtomicU64::new(0) }; 2];
    let key = |writer: usize, n: u32| format!("{writer} {n:04}");
    let value = |number: u64, n: u32| {
        let length = if n.is_multiple_of(2) { 900 } else { 20 };
        let mut value = number.to_le_bytes().to_vec();
        value.extend(pattern(number + u64::from(n), length));
        value
    };
    let number_of = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap());
    std::thread::scope(|scope| {
        for (writer, written) in written.iter().enumerate() {
            let (db, keyspace, stop) = (&db, &keyspace, &stop);
            scope.spawn(move || {
                for number in 1.. {
                    let mut batch = Batch::new();
                    for n in 0..KEYS {
                        batch.put(keyspace, key(writer, n), value(number, n));
                    }
                    db.write(batch).unwrap();
                    written.store(number, Ordering::SeqCst);
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
        }
        for reader in 0..2 {
            let (db, keyspace, stop, written) = (&db, &keyspace, &stop, &written);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let least = written[reader].load(Ordering::SeqCst);
                    let snapshot = db.snapshot();
                    let prefix = format!("{reader} ");
                    let entries: Vec<_> = (snapshot.prefix(keyspace, &prefix))
                        .collect::<Result<_>>()
                        .unwrap();
                    let number = entries.first().map_or(0, |(_, found)| number_of(found));
                    assert!(number >= least, "{number} after {least}");
                    assert_eq!(entries.len(), if number == 0 { 0 } else { KEYS as usize });
                    for (n, (found_key, found)) in (0..).zip(&entries) {
                        assert_eq!(**found_key, *key(reader, n).as_bytes());
                        assert_eq!(**found, value(number, n));
                    }
                    let found = snapshot.get(keyspace, key(reader, 7)).unwrap();
                    assert_eq!(found.map_or(0, |found| number_of(&found)), number);
                }
            });
        }
        let mover = scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                keyspace.compact_values().unwrap();
            }
        });
        for turn in 0..24 {
            convert(&keyspace).unwrap();
            if turn % 5 == 0 {
                keyspace.compact().unwrap();
            } else {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
        stop.store(true, Ordering::SeqCst);
        mover.join().unwrap();
    });
    let check_all = |db: &Db, keyspace: &Keyspace| {
        let found = contents(keyspace).unwrap();
        assert_eq!(found.len(), 2 * KEYS as usize);
        for (writer, written) in written.iter().enumerate() {
            for n in 0..KEYS {
                let expected = value(written.load(Ordering::SeqCst), n);
                assert_eq!(found[key(writer, n).as_bytes()], expected);
            }
        }
        check_clean(db, &"after conversions");
    };
    check_all(&db, &keyspace);
    assert!(
        written
            .iter()
            .all(|written| written.load(Ordering::SeqCst) > 24)
    );
    drop(keyspace);
    db.close().unwrap();
    let db = open(&volume).unwrap();
    let keyspace = db.keyspace("one").unwrap();
    check_all(&db, &keyspace);
    keyspace.compact().unwrap();
    check_files(&volume, &db, &"after conversions");
}

/// A life with conversions there and back, cut at operation `at`.
fn life(at: u64) -> (Arc<MemVolume>, Promises) {
    let volume = MemVolume::new();
    fail_at(&volume, at, FaultKind::PowerOff, false);
    let mut promises = Promises::default();
    let mut live = || -> Result<()> {
        let db = open(&volume)?;
        let (one, two) = keyspaces(&db)?;
        promises.tried = 0;
        for (turn, from) in (1..).zip([1, 15, 29, 43]) {
            run(&volume, &db, from..=from + 13, at, &mut promises)?;
            if volume.operation_count() > at {
                break;
            }
            if turn != 3 {
                convert(&one)?;
            }
            if turn != 2 {
                convert(&two)?;
            }
        }
        Ok(())
    };
    live().ok();
    (volume, promises)
}

#[test]
fn a_crash_at_every_operation_of_conversions_leaves_the_old_or_the_new_index() {
    let (volume, promises) = life(u64::MAX);
    assert_eq!(promises.tried, 56);
    let mut found_kinds = [0; 2];
    for at in 0..volume.operation_count() {
        let (volume, promises) = life(at);
        for (after, promised) in [
            (volume.kill(), promises.os),
            (volume.crash(CrashMode::LoseUnsynced), promises.synced),
            (
                volume.crash(CrashMode::Random { seed: at }),
                promises.synced,
            ),
        ] {
            let context = format!("cut at {at}, {promises:?}");
            let db = open(&after).unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = check(&after, &db, promised, promises.tried, &context);
            let Ok((one, two)) = keyspaces(&db) else {
                continue;
            };
            for keyspace in [&one, &two] {
                let kind = keyspace.options().index;
                found_kinds[usize::from(kind == IndexKind::BTree)] += 1;
                convert(keyspace).unwrap();
                assert_eq!(keyspace.options().index, other(kind));
            }
            check(&after, &db, found, found, &format!("{context}, converted"));
            db.compact().unwrap();
            check(&after, &db, found, found, &format!("{context}, compacted"));
        }
    }
    assert!(
        found_kinds.iter().all(|kinds| *kinds > 100),
        "{found_kinds:?}"
    );
}

#[test]
fn an_error_at_every_operation_of_a_conversion_leaves_the_index_in_use() {
    for kind in [IndexKind::Lsm, IndexKind::BTree] {
        let build = || {
            let volume = MemVolume::new();
            let db = open(&volume).unwrap();
            let keyspace = db.create_keyspace("one", small(kind)).unwrap();
            write_some(&db, &keyspace, 0..2);
            keyspace.compact().unwrap();
            write_some(&db, &keyspace, 2..3);
            (volume, db, keyspace)
        };
        let (volume, db, keyspace) = build();
        let from = volume.operation_count();
        convert(&keyspace).unwrap();
        let count = volume.operation_count() - from;
        // The record is written and synced.
        assert!(count >= 2);
        let expected = contents(&keyspace).unwrap();
        drop((keyspace, db));
        for (at, fault) in
            (from..from + count).flat_map(|at| [(at, FaultKind::NoSpace), (at, FaultKind::Io)])
        {
            let context = format!("{fault:?} at {at} of {from}+{count}, from {}", kind.name());
            let (volume, db, keyspace) = build();
            fail_at(&volume, at, fault, false);
            let converted = convert(&keyspace);
            if converted.is_err() {
                assert_eq!(keyspace.options(), small(kind), "{context}");
            }
            assert!(contents(&keyspace).unwrap() == expected, "{context}");
            drop((keyspace, db));
            let db = open(&volume.kill()).unwrap_or_else(|error| panic!("{context}: {error}"));
            let keyspace = db.keyspace("one").unwrap();
            assert!(contents(&keyspace).unwrap() == expected, "{context}");
            check_clean(&db, &context);
        }
    }
}
