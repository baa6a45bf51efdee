//! What a user does on the first day, one test a promise.

use glintdb::{
    Batch, Db, Durability, ErrorKind, Isolation, KeyspaceOptions, Options, TransactionOptions,
};
use glintdb_simdisk::MemVolume;
use tempfile::TempDir;

fn small() -> Options {
    Options::default()
        .memory_budget_bytes(8 << 20)
        .log_segment_bytes(1 << 20)
        .log_ring_bytes(256 << 10)
        .background_threads(2)
}

fn open() -> (TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path().join("db")).unwrap();
    (dir, db)
}

#[test]
fn put_get_delete_and_reopen() {
    let (dir, db) = open();
    db.put("a", "1").unwrap();
    db.put("b", vec![7; 5000]).unwrap();
    db.put("c", "3").unwrap();
    db.delete("a").unwrap();
    db.put("", "empty key").unwrap();
    db.put("empty value", "").unwrap();
    drop(db);
    for _ in 0..3 {
        let db = small().open(dir.path().join("db")).unwrap();
        assert_eq!(db.get("a").unwrap(), None);
        assert_eq!(db.get("b").unwrap().unwrap(), vec![7; 5000]);
        assert_eq!(db.get("c").unwrap().as_deref(), Some(&b"3"[..]));
        assert_eq!(db.get("").unwrap().as_deref(), Some(&b"empty key"[..]));
        assert_eq!(db.get("empty value").unwrap().as_deref(), Some(&b""[..]));
        assert!(
            db.verify().unwrap().is_clean(),
            "{:?}",
            db.verify().unwrap()
        );
    }
}

#[test]
fn many_keys_survive_flush_compaction_and_reopen() {
    let (dir, db) = open();
    let keyspace = db.default_keyspace();
    let key = |n: u32| format!("key{:08}", n.wrapping_mul(2_654_435_761) % 1_000_000);
    for round in 0..3u32 {
        for n in 0..40_000 {
            keyspace
                .put(
                    key(n),
                    format!("{round}-{n}").repeat(if n % 10 == 0 { 100 } else { 3 }),
                )
                .unwrap();
        }
    }
    let check = |db: &Db| {
        let keyspace = db.default_keyspace();
        for n in (0..40_000).step_by(37) {
            let expected = format!("2-{n}").repeat(if n % 10 == 0 { 100 } else { 3 });
            assert_eq!(
                keyspace.get(key(n)).unwrap().unwrap(),
                expected.as_bytes(),
                "{n}"
            );
        }
        let keys: Vec<_> = keyspace.iter().keys().map(Result::unwrap).collect();
        assert_eq!(keys.len(), 40_000);
        assert!(keys.is_sorted());
        let mut back: Vec<_> = keyspace.iter().keys().rev().map(Result::unwrap).collect();
        back.reverse();
        assert_eq!(keys, back);
    };
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.compact().unwrap();
    check(&db);
    let report = db.verify().unwrap();
    assert!(report.is_clean(), "{:?}", report.errors);
    drop(keyspace);
    drop(db);
    let db = small().open(dir.path().join("db")).unwrap();
    check(&db);
    let report = db.verify().unwrap();
    assert!(report.is_clean(), "{:?}", report.errors);
}

#[test]
fn a_batch_over_keyspaces_is_whole_and_later_operations_win() {
    let (_dir, db) = open();
    let one = db
        .create_keyspace("one", KeyspaceOptions::default())
        .unwrap();
    let two = db
        .create_keyspace("two", KeyspaceOptions::default())
        .unwrap();
    let mut batch = Batch::new();
    batch
        .put(&one, "a", "1")
        .put(&two, "a", "2")
        .put(&one, "a", "3")
        .put(&one, "b", "x")
        .delete_range(&one, "b"..="c")
        .put(&one, "c", "kept");
    db.write(batch).unwrap();
    assert_eq!(one.get("a").unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!(two.get("a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(one.get("b").unwrap(), None);
    assert_eq!(one.get("c").unwrap().as_deref(), Some(&b"kept"[..]));
    db.flush().unwrap();
    assert_eq!(one.get("b").unwrap(), None);
    assert_eq!(one.get("c").unwrap().as_deref(), Some(&b"kept"[..]));
    assert_eq!(db.keyspaces(), ["default", "one", "two"]);
    db.drop_keyspace("one").unwrap();
    assert_eq!(one.get("a").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(one.put("a", "1").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(db.keyspace("one").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_snapshot_is_repeatable_through_flush_and_compaction() {
    let (_dir, db) = open();
    let keyspace = db.default_keyspace();
    for n in 0..1000 {
        keyspace
            .put(
                format!("{n:04}"),
                vec![1; if n % 2 == 0 { 10 } else { 900 }],
            )
            .unwrap();
    }
    db.flush().unwrap();
    let snapshot = db.snapshot();
    for n in 0..1000 {
        match n % 3 {
            0 => keyspace.delete(format!("{n:04}")).unwrap(),
            _ => keyspace.put(format!("{n:04}"), "new").unwrap(),
        }
    }
    keyspace.delete_range("0500".."0600").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    assert_eq!(snapshot.iter(&keyspace).count(), 1000);
    for entry in snapshot.iter(&keyspace).rev() {
        assert_eq!(entry.unwrap().1[0], 1);
    }
    assert_eq!(snapshot.get(&keyspace, "0003").unwrap().unwrap().len(), 900);
    assert_eq!(keyspace.get("0003").unwrap(), None);
    assert_eq!(keyspace.range("0500".."0600").count(), 0);
    let around: Vec<_> = keyspace
        .range("0497".."0603")
        .keys()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        around,
        ["0497", "0499", "0601", "0602"],
        "every third is deleted, and the range"
    );
}

#[test]
fn the_ends_of_an_iterator_never_pass_each_other() {
    let (_dir, db) = open();
    let keyspace = db.default_keyspace();
    for n in 0..100 {
        keyspace.put(format!("{n:03}"), "v").unwrap();
    }
    let mut iter = keyspace.range("010".."090");
    let mut seen = Vec::new();
    for turn in 0.. {
        let next = if turn % 3 == 0 {
            iter.next_back()
        } else {
            iter.next()
        };
        match next {
            Some(entry) => seen.push(entry.unwrap().0),
            None => break,
        }
    }
    assert!(iter.next().is_none() && iter.next_back().is_none());
    seen.sort();
    let expected: Vec<_> = (10..90).map(|n| format!("{n:03}")).collect();
    assert_eq!(seen, expected);
    assert_eq!(keyspace.range("5".."1").count(), 0);
    assert_eq!(keyspace.prefix("09").count(), 10);
}

#[test]
fn a_hint_says_how_many_values_are_fetched_at_first_and_changes_no_answer() {
    let (_dir, db) = open();
    let keyspace = db.default_keyspace();
    for n in 0..300 {
        keyspace.put(format!("{n:03}"), vec![7; 2000]).unwrap();
    }
    let looked_up = || {
        let stats = db.stats();
        stats.cache_hits + stats.cache_misses
    };
    for records in [1, 5, 50] {
        let before = looked_up();
        let taken = keyspace
            .range::<&str>(..)
            .limit_hint(records)
            .take(records)
            .count();
        assert_eq!(taken, records);
        assert_eq!(looked_up() - before, records as u64, "no value in vain");
    }
    let all: Vec<_> = keyspace.range::<&str>(..).map(Result::unwrap).collect();
    assert_eq!(all.len(), 300);
    for records in [0, 1, 7, 299, usize::MAX] {
        let hinted = keyspace.range::<&str>(..).limit_hint(records);
        assert!(hinted.map(Result::unwrap).eq(all.iter().cloned()));
        let hinted = keyspace.range::<&str>(..).limit_hint(records).rev();
        assert!(hinted.map(Result::unwrap).eq(all.iter().rev().cloned()));
    }
}

#[test]
fn of_two_transactions_that_write_a_key_the_first_to_commit_wins() {
    let (_dir, db) = open();
    let keyspace = db.default_keyspace();
    keyspace.put("k", "0").unwrap();
    let (mut a, mut b) = (db.transaction(), db.transaction());
    a.put(&keyspace, "k", "a").unwrap();
    b.put(&keyspace, "k", "b").unwrap();
    assert_eq!(b.get(&keyspace, "k").unwrap().as_deref(), Some(&b"b"[..]));
    a.commit().unwrap();
    assert_eq!(b.commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(keyspace.get("k").unwrap().as_deref(), Some(&b"a"[..]));
    // Flushed and compacted in between: the index knows.
    let mut c = db.transaction();
    c.put(&keyspace, "k", "c").unwrap();
    keyspace.delete("k").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    assert_eq!(
        c.commit().unwrap_err().kind(),
        ErrorKind::Conflict,
        "the tombstone outlives the transaction"
    );
}

#[test]
fn a_serializable_transaction_conflicts_on_what_it_read() {
    let (_dir, db) = open();
    let keyspace = db.default_keyspace();
    let serializable = TransactionOptions::default().isolation(Isolation::Serializable);
    for through_range in [false, true] {
        for flush in [false, true] {
            let mut transaction = db.transaction_with(serializable);
            if through_range {
                assert_eq!(transaction.prefix(&keyspace, "absent").count(), 0);
            } else {
                assert_eq!(transaction.get(&keyspace, "absent").unwrap(), None);
            }
            transaction.put(&keyspace, "other", "x").unwrap();
            keyspace.put("absent", "now there").unwrap();
            if flush {
                db.flush().unwrap();
            }
            assert_eq!(
                transaction.commit().unwrap_err().kind(),
                ErrorKind::Conflict
            );
            keyspace.delete("absent").unwrap();
        }
    }
}

#[test]
fn limits_are_exact() {
    let (_dir, db) = open();
    let keyspace = db.default_keyspace();
    keyspace.put(vec![1; 65_536], "v").unwrap();
    assert_eq!(
        keyspace.get(vec![1; 65_536]).unwrap().as_deref(),
        Some(&b"v"[..])
    );
    assert_eq!(
        keyspace.put(vec![1; 65_537], "v").unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    let large = vec![5; 3 << 20];
    keyspace.put("large", &large).unwrap();
    assert_eq!(keyspace.get("large").unwrap().unwrap(), large);
    assert_eq!(
        db.create_keyspace("", KeyspaceOptions::default())
            .unwrap_err()
            .kind(),
        ErrorKind::InvalidArgument
    );
    assert_eq!(
        db.create_keyspace("default", KeyspaceOptions::default())
            .unwrap_err()
            .kind(),
        ErrorKind::AlreadyExists
    );
}

#[test]
fn a_second_open_is_refused() {
    let (dir, _db) = open();
    assert_eq!(
        small().open(dir.path().join("db")).unwrap_err().kind(),
        ErrorKind::Locked
    );
}

#[test]
fn a_checkpoint_opens_as_a_database_and_does_not_change() {
    let (dir, db) = open();
    let keyspace = db.default_keyspace();
    for n in 0..2000 {
        keyspace
            .put(
                format!("{n:05}"),
                vec![n as u8; if n % 2 == 0 { 20 } else { 700 }],
            )
            .unwrap();
    }
    let copy = dir.path().join("copy");
    db.checkpoint(&copy).unwrap();
    assert_eq!(
        db.checkpoint(&copy).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    for n in 0..2000 {
        keyspace.put(format!("{n:05}"), "overwritten").unwrap();
    }
    db.compact().unwrap();
    let other = small().open(&copy).unwrap();
    assert_eq!(other.default_keyspace().iter().count(), 2000);
    assert_eq!(other.get("00001").unwrap().unwrap(), vec![1; 700]);
    other.put("new", "in the copy").unwrap();
    let report = other.verify().unwrap();
    assert!(report.is_clean(), "{:?}", report.errors);
    assert_eq!(db.get("new").unwrap(), None);
}

#[test]
fn every_durability_commits_and_survives_a_reopen() {
    let (dir, db) = open();
    for (n, durability) in [Durability::Buffered, Durability::Os, Durability::Sync]
        .into_iter()
        .enumerate()
    {
        db.default_keyspace()
            .put_with(format!("{n}"), "v", durability)
            .unwrap();
    }
    db.flush_log(Durability::Sync).unwrap();
    drop(db);
    let db = small().open(dir.path().join("db")).unwrap();
    assert_eq!(db.default_keyspace().iter().count(), 3);
}

#[test]
fn threads_write_and_read_at_once() {
    let (_dir, db) = open();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let keyspace = db.default_keyspace();
            scope.spawn(move || {
                for n in 0..20_000u32 {
                    let key = format!("{thread}-{n}");
                    keyspace.put(&key, n.to_le_bytes()).unwrap();
                    assert_eq!(
                        keyspace.get(&key).unwrap().as_deref(),
                        Some(&n.to_le_bytes()[..]),
                        "own writes are seen"
                    );
                }
            });
        }
    });
    assert_eq!(db.default_keyspace().iter().keys().count(), 80_000);
}

/// What is not flushed was shown as garbage, and all of it as hidden, where nothing had been overwritten.
#[test]
fn figures_tell_garbage_from_what_no_flush_has_told_of() {
    let db = crate::support::open(&MemVolume::new()).unwrap();
    let fill = || {
        for n in 0..40u32 {
            db.put(n.to_be_bytes(), vec![7; 1000]).unwrap();
        }
    };
    let gc = || db.stats().value_gc;
    fill();
    let (now, records) = (gc(), 40_000);
    assert!(
        now.unflushed_bytes >= records / 2 && now.garbage_bytes < 5000,
        "{now:?}"
    );
    assert_eq!(now.hidden_share, 0.0);
    db.flush().unwrap();
    let now = gc();
    assert!(now.unflushed_bytes < 5000 && now.garbage_bytes < records / 2);
    // Of the same keys: which of both is garbage a flush tells.
    fill();
    let now = gc();
    assert!(now.unflushed_bytes >= records / 2 && now.garbage_bytes < records / 2);
    db.flush().unwrap();
    let now = gc();
    assert!(
        now.unflushed_bytes < 5000 && now.garbage_bytes >= records,
        "{now:?}"
    );
}
