//! Transactions against flushes, compactions and each other.

use crate::support::*;
use glintdb::{Db, ErrorKind, Isolation, Keyspace, TransactionOptions};
use glintdb_core::FileKind;
use glintdb_simdisk::{FaultKind, MemOptions, MemVolume, Operation, OperationKind};

fn serializable() -> TransactionOptions {
    TransactionOptions::default().isolation(Isolation::Serializable)
}

fn database() -> (Db, Keyspace) {
    let db = open(&MemVolume::new()).unwrap();
    let keyspace = db.default_keyspace();
    (db, keyspace)
}

fn number(value: Option<glintdb::Bytes>) -> u64 {
    value.map_or(0, |bytes| u64::from_le_bytes((*bytes).try_into().unwrap()))
}

/// The deletion that a transaction must notice is flushed, and compacted to the bottom, where a tombstone is dropped when nobody needs it.
#[test]
fn a_deletion_is_a_conflict_also_after_flush_and_compaction() {
    for by_range in [false, true] {
        let (db, keyspace) = database();
        for n in 0..100 {
            keyspace.put(format!("{n:03}"), pattern(n, 600)).unwrap();
        }
        db.compact().unwrap();
        let mut writer = db.transaction();
        assert!(writer.get(&keyspace, "050").unwrap().is_some());
        writer.put(&keyspace, "050", "mine").unwrap();
        let mut reader = db.transaction_with(serializable());
        assert!(reader.get(&keyspace, "050").unwrap().is_some());
        reader.put(&keyspace, "elsewhere", "x").unwrap();
        let mut scanner = db.transaction_with(serializable());
        assert_eq!(scanner.range(&keyspace, "040".."060").count(), 20);
        scanner.put(&keyspace, "elsewhere too", "x").unwrap();
        if by_range {
            keyspace.delete_range("045".."055").unwrap();
        } else {
            keyspace.delete("050").unwrap();
        }
        for _ in 0..3 {
            db.compact().unwrap();
            keyspace.put("other", "to flush").unwrap();
        }
        for transaction in [writer, reader, scanner] {
            assert_eq!(
                transaction.commit().unwrap_err().kind(),
                ErrorKind::Conflict,
                "by range {by_range}"
            );
        }
        // Nobody needs them now: the tombstones go, and with them the last trace.
        keyspace.put("other", "again").unwrap();
        db.compact().unwrap();
        db.compact().unwrap();
        assert_eq!(keyspace.version_of("050").unwrap(), 0);
        assert_eq!(db.stats().keyspaces[0].index_tombstones, 0);
    }
}

/// Two doctors on call; each goes off when the other is on.
#[test]
fn write_skew_is_allowed_by_snapshot_isolation_and_forbidden_by_serializable() {
    for flush in [false, true] {
        for (options, both) in [
            (TransactionOptions::default(), true),
            (serializable(), false),
        ] {
            let (db, keyspace) = database();
            keyspace.put("ann", "on").unwrap();
            keyspace.put("bob", "on").unwrap();
            let go_off = |who, other| {
                let mut transaction = db.transaction_with(options);
                assert_eq!(transaction.get(&keyspace, other).unwrap().unwrap(), "on");
                transaction.put(&keyspace, who, "off").unwrap();
                transaction
            };
            let (ann, bob) = (go_off("ann", "bob"), go_off("bob", "ann"));
            ann.commit().unwrap();
            if flush {
                db.compact().unwrap();
            }
            let second = bob.commit();
            assert_eq!(second.is_ok(), both, "{options:?}");
            if let Err(error) = second {
                assert_eq!(error.kind(), ErrorKind::Conflict);
                assert_eq!(db.get("bob").unwrap().unwrap(), "on");
            }
        }
    }
}

#[test]
fn increments_by_four_threads_are_never_lost() {
    const THREADS: u64 = 4;
    const EACH: u64 = 150;
    for options in [TransactionOptions::default(), serializable()] {
        let volume = MemVolume::new();
        let small = crate::support::options()
            .background_threads(2)
            .replay_bytes_max(128 << 10);
        let db = open_with(&volume, small).unwrap();
        let flushing = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (db, keyspace) = (&db, db.default_keyspace());
                    scope.spawn(move || {
                        for n in 0..EACH {
                            loop {
                                let mut transaction = db.transaction_with(options);
                                let key = format!("counter{}", n % 3);
                                let value = number(transaction.get(&keyspace, &key).unwrap());
                                transaction
                                    .put(&keyspace, &key, (value + 1).to_le_bytes())
                                    .unwrap();
                                // Checked after the counter, so that others have time to commit between its check and the end.
                                for own in 0..150 {
                                    let key = format!("own{thread}/{own}");
                                    transaction.put(&keyspace, key, n.to_le_bytes()).unwrap();
                                }
                                match transaction.commit() {
                                    Ok(()) => break,
                                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict),
                                }
                            }
                        }
                    })
                })
                .collect();
            // The counters move into the index again and again.
            scope.spawn(|| {
                while flushing.load(std::sync::atomic::Ordering::Relaxed) {
                    db.flush().unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
            let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            flushing.store(false, std::sync::atomic::Ordering::Relaxed);
            results.into_iter().for_each(|result| result.unwrap());
        });
        let total: u64 = (0..3)
            .map(|n| number(db.get(format!("counter{n}")).unwrap()))
            .sum();
        assert_eq!(total, THREADS * EACH, "{options:?}");
        check_clean(&db, &"after");
    }
}

/// Found by `cargo xtask sim --seed 165 --ops 40`: where the range tombstones of a table could not be read, the newest commit of that table was taken for a rival.
#[test]
fn what_cannot_be_read_is_an_error_and_no_conflict() {
    let commit = |fault: Option<u64>| {
        let volume = MemVolume::with_options(MemOptions {
            log_operations: true,
            ..MemOptions::default()
        });
        let db = open(&volume).unwrap();
        let keyspace = db.default_keyspace();
        let mut transaction = db.transaction();
        transaction.delete_range(&keyspace, "p".."q").unwrap();
        keyspace.put("a", "1").unwrap();
        keyspace.put("z", "1").unwrap();
        keyspace.delete_range("c".."d").unwrap();
        if let Some(operation) = fault {
            fail_at(&volume, operation, FaultKind::Io, true);
        }
        db.flush().unwrap();
        (transaction.commit(), volume)
    };
    let (committed, volume) = commit(None);
    committed.unwrap();
    // The flush reads the tail of the table that it has written, so that no reader waits for it; what it cannot read is left to them.
    let opens = |operation: &&Operation| matches!(operation.kind, OperationKind::Open(id) if id.kind == FileKind::Table);
    let operations = volume.operations();
    let opened = operations.iter().find(opens).unwrap().number;
    let (committed, _) = commit(Some(opened));
    assert_eq!(committed.unwrap_err().kind(), ErrorKind::Io);
}
