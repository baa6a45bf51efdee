//! Forked children of a process that has a database open: every handle returns an error, dropping
//! one changes nothing, and the parent goes on.

use crate::support::*;
use glintdb::{
    Batch, Bytes, Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options, Result,
};
use glintdb_flash::in_forked_child;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a child ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Drops every handle, and ends without exit handlers.
    Drop,
    /// Ends with its handles alive, exit handlers run.
    Exit,
    /// Ends with its handles alive.
    ExitNow,
    /// Becomes another program.
    Exec,
}

/// A handle of each kind, an iterator in the middle of its records and a value of the cache.
struct Handles {
    db: Db,
    keyspace: Keyspace,
    dropped: Keyspace,
    snapshot: glintdb::Snapshot,
    transaction: glintdb::Transaction,
    records: glintdb::Iter,
    value: Bytes,
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn handles(db: Db) -> Handles {
    let keyspace = db
        .keyspace_or_create("one", KeyspaceOptions::default())
        .unwrap();
    let dropped = db
        .create_keyspace("dropped", KeyspaceOptions::default())
        .unwrap();
    for n in 0..300 {
        keyspace.put(key(n), pattern(n, 600)).unwrap();
        dropped.put(key(n), pattern(n, 50)).unwrap();
    }
    db.flush().unwrap();
    db.drop_keyspace("dropped").unwrap();
    for n in 300..500 {
        keyspace.put(key(n), pattern(n, 600)).unwrap();
    }
    let mut records = keyspace.iter();
    records.next().unwrap().unwrap();
    let mut transaction = db.transaction();
    transaction.get(&keyspace, key(1)).unwrap();
    transaction.put(&keyspace, key(1), "never").unwrap();
    Handles {
        value: keyspace.get(key(7)).unwrap().unwrap(),
        snapshot: db.snapshot(),
        transaction,
        records,
        dropped,
        keyspace,
        db,
    }
}

fn closed<T>(what: &str, result: Result<T>) {
    match result {
        Ok(_) => panic!("{what}: no error in a forked child"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Closed, "{what}: {error}");
            assert!(error.to_string().contains("forked"), "{what}: {error}");
        }
    }
}

/// Every operation of every handle.
fn operations_fail(handles: &mut Handles, elsewhere: &Path) {
    let Handles {
        db,
        keyspace,
        snapshot,
        transaction,
        records,
        ..
    } = handles;
    closed("put", db.put("key", "value"));
    closed("get", db.get("key"));
    closed("delete", db.delete("key"));
    closed("keyspace put", keyspace.put(key(1), "value"));
    closed(
        "put_with",
        keyspace.put_with(key(1), "value", Durability::Sync),
    );
    closed("keyspace get", keyspace.get(key(1)));
    closed("contains", keyspace.contains(key(1)));
    closed("keyspace delete", keyspace.delete(key(1)));
    closed("delete_range", keyspace.delete_range(key(1)..key(2)));
    for value in keyspace.multi_get(&[key(1), key(400)]) {
        closed("multi_get", value);
    }
    for value in snapshot.multi_get(keyspace, &[key(1)]) {
        closed("snapshot multi_get", value);
    }
    closed("snapshot get", snapshot.get(keyspace, key(1)));
    closed("snapshot contains", snapshot.contains(keyspace, key(1)));
    closed("new snapshot", db.snapshot().get(keyspace, key(1)));
    closed("next", records.next().unwrap());
    closed("iter", keyspace.iter().next().unwrap());
    closed("range", keyspace.range(key(1)..).next_back().unwrap());
    closed("snapshot iter", snapshot.iter(keyspace).next().unwrap());
    closed("transaction get", transaction.get(keyspace, key(2)));
    closed("new transaction", db.transaction().get(keyspace, key(2)));
    let mut unused = db.transaction();
    std::mem::swap(transaction, &mut unused);
    closed("commit", unused.commit());
    let mut batch = Batch::new();
    batch.put(keyspace, key(1), "value");
    closed("write", db.write(batch));
    closed(
        "write_group",
        db.write_group(vec![Batch::new()], Durability::Os),
    );
    closed("keyspace", db.keyspace("one"));
    closed(
        "create_keyspace",
        db.create_keyspace("two", KeyspaceOptions::default()),
    );
    closed("drop_keyspace", db.drop_keyspace("one"));
    closed(
        "set_options",
        keyspace.set_options(KeyspaceOptions::default()),
    );
    closed("count", keyspace.count());
    closed("sample_keys", keyspace.sample_keys(3));
    closed("flush", db.flush());
    closed("flush_log", db.flush_log(Durability::Sync));
    closed("compact", db.compact());
    closed("keyspace compact", keyspace.compact());
    closed("compact_values", db.compact_values());
    closed("checkpoint", db.checkpoint(elsewhere));
    closed("verify", db.verify());
    closed("close", db.clone().close());
    assert_eq!(db.stats().keyspaces.len(), 0);
    drop(keyspace.options());
}

fn in_child(handles: &mut Option<Handles>, directory: &Path, end: End) {
    let elsewhere = directory.join("elsewhere");
    let live = directory.join("live");
    let status = in_forked_child(|| {
        operations_fail(handles.as_mut().unwrap(), &elsewhere);
        assert!(!elsewhere.exists());
        let locked = options().open(&live).map(drop).unwrap_err();
        assert_eq!(locked.kind(), ErrorKind::Locked, "{locked}");
        let own = options()
            .open(directory.join(format!("own {end:?}")))
            .unwrap();
        own.put("key", "value").unwrap();
        match end {
            End::Drop => drop(handles.take()),
            End::Exit => std::process::exit(0),
            End::ExitNow => {}
            End::Exec => panic!("{}", std::process::Command::new("true").exec()),
        }
        assert_eq!(own.get("key").unwrap().unwrap(), "value");
        own.close().unwrap();
    });
    assert_eq!(status, 0, "{end:?}");
}

fn a_parent_goes_on(threads: usize, end: End) {
    let directory = tempfile::tempdir().unwrap();
    let live = directory.path().join("live");
    let with_threads = || -> Options { options().background_threads(threads) };
    let mut handles = Some(handles(with_threads().open(&live).unwrap()));
    in_child(&mut handles, directory.path(), end);

    let Handles {
        db,
        keyspace,
        transaction,
        records,
        value,
        dropped,
        snapshot,
    } = handles.unwrap();
    assert_eq!(value, pattern(7, 600));
    assert_eq!(records.count(), 499);
    assert_eq!(
        snapshot.get(&keyspace, key(1)).unwrap().unwrap(),
        pattern(1, 600)
    );
    assert_eq!(dropped.get(key(1)).unwrap_err().kind(), ErrorKind::NotFound);
    for n in 500..1000 {
        keyspace.put(key(n), pattern(n, 600)).unwrap();
    }
    db.flush().unwrap();
    drop(transaction);
    let second = in_forked_child(|| {
        let error = options().open(&live).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
    });
    assert_eq!(second, 0);
    drop((keyspace, dropped, snapshot));
    db.close().unwrap();
    let report = glintdb::check(&live).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    let db = with_threads().open(&live).unwrap();
    let one = contents(&db.keyspace("one").unwrap()).unwrap();
    assert_eq!(one.len(), 1000);
    assert!((0..1000).all(|n| one[&key(n)[..]] == pattern(n, 600)));
}

#[test]
fn a_child_that_drops_its_handles_changes_nothing() {
    a_parent_goes_on(0, End::Drop);
    a_parent_goes_on(2, End::Drop);
}

#[test]
fn a_child_that_exits_changes_nothing() {
    for threads in [0, 2] {
        a_parent_goes_on(threads, End::Exit);
        a_parent_goes_on(threads, End::ExitNow);
    }
}

#[test]
fn a_child_that_runs_another_program_changes_nothing() {
    a_parent_goes_on(0, End::Exec);
    a_parent_goes_on(2, End::Exec);
}

/// Locks that a thread of the parent holds during the fork are never free in the child.
#[test]
fn children_of_a_busy_parent_wait_for_no_lock() {
    let directory = tempfile::tempdir().unwrap();
    let live = directory.path().join("live");
    let db = options().background_threads(2).open(&live).unwrap();
    let mut held = Some(handles(db.clone()));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (db, done) = (db.clone(), &done);
            scope.spawn(move || {
                let busy = db
                    .keyspace_or_create("busy", KeyspaceOptions::default())
                    .unwrap();
                let mut n = 0;
                while !done.load(Ordering::Relaxed) {
                    n += 1;
                    busy.put(key(n % 2000), pattern(n + thread, 700)).unwrap();
                    busy.get(key(n * 7 % 2000)).unwrap();
                    busy.range(key(n % 2000)..).take(3).for_each(drop);
                    drop(db.snapshot());
                    drop(db.transaction());
                }
            });
        }
        for _ in 0..60 {
            let status = in_forked_child(|| {
                operations_fail(held.as_mut().unwrap(), Path::new("/nowhere"));
                drop(held.take());
            });
            if status != 0 {
                done.store(true, Ordering::Relaxed);
            }
            assert_eq!(status, 0, "14 is a child that waited for a minute");
        }
        done.store(true, Ordering::Relaxed);
    });
    drop(held);
    db.close().unwrap();
    assert!(glintdb::check(&live).unwrap().errors.is_empty());
}
