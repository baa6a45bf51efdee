//! Databases with many deletions: scans pass deleted records by seeks, and show all others.

use crate::support::*;
use glintdb::{Batch, Db, Experiments, Keyspace, Options};
use glintdb_simdisk::MemVolume;

fn key(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

/// Puts records `from..to`.
fn fill(keyspace: &Keyspace, from: u64, to: u64) {
    for n in from..to {
        keyspace.put(key(n), pattern(n, 40)).unwrap();
    }
}

fn first(keyspace: &Keyspace) -> Option<Vec<u8>> {
    let record = keyspace.iter().keys().next();
    record.map(|record| record.unwrap().to_vec())
}

fn last(keyspace: &Keyspace) -> Option<Vec<u8>> {
    let record = keyspace.iter().keys().next_back();
    record.map(|record| record.unwrap().to_vec())
}

fn passed(db: &Db) -> u64 {
    db.stats().deleted_passed
}

#[test]
fn pops_from_both_ends_of_a_queue_pass_few_deleted_records() {
    for flushed in [false, true] {
        let db = open(&MemVolume::new()).unwrap();
        let queue = db.default_keyspace();
        let records = 4000;
        fill(&queue, 0, records);
        if flushed {
            db.flush().unwrap();
        }
        for n in 0..records / 2 {
            assert_eq!(first(&queue), Some(key(n)));
            queue.delete(key(n)).unwrap();
            let n = records - 1 - n;
            assert_eq!(last(&queue), Some(key(n)));
            queue.delete(key(n)).unwrap();
        }
        assert_eq!(first(&queue), None);
        // One by one it would be 4 million.
        let pops = passed(&db);
        assert!(pops < records * 90, "{pops} deleted records were passed");
        for _ in 0..100 {
            assert_eq!((first(&queue), last(&queue)), (None, None));
        }
        let looks = passed(&db) - pops;
        assert!(looks < 200 * 150, "{looks} deleted records were passed");
    }
}

#[test]
fn a_queue_that_goes_on_for_ever_passes_few_deleted_records() {
    let db = open(&MemVolume::new()).unwrap();
    let queue = db.default_keyspace();
    fill(&queue, 0, 100);
    let turns = 6000;
    for n in 0..turns {
        assert_eq!(first(&queue), Some(key(n)));
        queue.delete(key(n)).unwrap();
        queue.put(key(n + 100), pattern(n, 40)).unwrap();
    }
    let passed = passed(&db);
    assert!(passed < turns * 90, "{passed} deleted records were passed");
}

#[test]
fn a_range_deletion_is_passed_by_a_seek() {
    let db = open(&MemVolume::new()).unwrap();
    let records = db.default_keyspace();
    fill(&records, 0, 20_000);
    records.delete_range(key(10)..key(19_990)).unwrap();
    let all: Vec<_> = (0..10).chain(19_990..20_000).map(key).collect();
    let before = passed(&db);
    let found: Vec<_> = contents(&records).unwrap().into_keys().collect();
    assert_eq!(found, all);
    // The records in the memtable of the range deletion are passed one by one, once.
    let once = passed(&db) - before;
    assert!(once < 12_000, "{once} deleted records were passed");
    for _ in 0..2 {
        db.flush().unwrap();
        let before = passed(&db);
        assert_eq!(contents(&records).unwrap().len(), 20);
        let once = passed(&db) - before;
        assert!(once < 100, "{once} deleted records were passed");
    }
}

#[test]
fn a_put_among_deleted_records_is_found() {
    let db = open(&MemVolume::new()).unwrap();
    let records = db.default_keyspace();
    fill(&records, 0, 3000);
    let before = db.snapshot();
    for n in 0..3000 {
        records.delete(key(n)).unwrap();
    }
    for n in [700, 2999, 0, 1500, 1501, 2200] {
        assert_eq!((first(&records), last(&records)), (None, None));
        records.put(key(n), "back").unwrap();
        assert_eq!(first(&records), Some(key(n)));
        assert_eq!(last(&records), Some(key(n)));
        let mut transaction = db.transaction();
        transaction.delete(&records, key(n)).unwrap();
        transaction.put(&records, key(n + 1), "mine").unwrap();
        let own = transaction.iter(&records).keys().next().unwrap().unwrap();
        assert_eq!(own, key(n + 1));
        transaction.rollback();
        let mut batch = Batch::new();
        batch.delete(&records, key(n));
        db.write(batch).unwrap();
    }
    // A snapshot from before the deletions shows everything.
    assert_eq!(before.iter(&records).count(), 3000);
    assert_eq!(before.iter(&records).rev().count(), 3000);
}

#[test]
fn a_snapshot_shows_records_in_a_gap_that_is_younger() {
    for flushed in [false, true] {
        let db = open(&MemVolume::new()).unwrap();
        let records = db.default_keyspace();
        fill(&records, 0, 3000);
        if flushed {
            db.flush().unwrap();
        }
        let delete = |from, to| {
            for n in from..to {
                records.delete(key(n)).unwrap();
            }
        };
        delete(0, 1000);
        delete(2000, 3000);
        let before = db.snapshot();
        delete(1000, 2000);
        // Each scan finds a gap of all records.
        assert_eq!((first(&records), last(&records)), (None, None));
        // From both ends the snapshot comes to deleted records first, and they are in the gap.
        assert_eq!(before.iter(&records).count(), 1000);
        assert_eq!(before.iter(&records).rev().count(), 1000);
    }
}

#[test]
fn deletions_of_a_transaction_are_not_passed_by_others() {
    let db = open(&MemVolume::new()).unwrap();
    let records = db.default_keyspace();
    fill(&records, 0, 500);
    let mut transaction = db.transaction();
    for n in 0..500 {
        transaction.delete(&records, key(n)).unwrap();
    }
    for _ in 0..3 {
        assert!(transaction.iter(&records).next().is_none());
        assert!(transaction.iter(&records).next_back().is_none());
        assert_eq!(contents(&records).unwrap().len(), 500);
    }
}

#[test]
fn scans_that_never_seek_show_the_same() {
    let options = |seek_after| -> Options {
        let experiments = Experiments::default().seek_after_deleted(seek_after);
        options().experiments(experiments)
    };
    let [never, soon] = [0, 1].map(|seek_after| {
        let db = open_with(&MemVolume::new(), options(seek_after)).unwrap();
        let records = db.default_keyspace();
        fill(&records, 0, 2000);
        for n in 0..2000_u64 {
            match n % 7 {
                0 => records.delete_range(key(n)..key(n + n % 50)).unwrap(),
                1 => records.delete(key(n / 2)).unwrap(),
                2 if n % 100 == 2 => db.flush().unwrap(),
                3 if n % 20 == 3 => drop(first(&records)),
                4 => records.put(key(n), "again").unwrap(),
                _ => {}
            }
        }
        contents(&records).unwrap()
    });
    assert_eq!(never, soon);
}

#[test]
fn iterators_of_a_transaction_show_its_writes_of_their_beginning() {
    let db = open(&MemVolume::new()).unwrap();
    let records = db.default_keyspace();
    fill(&records, 0, 100);
    let mut transaction = db.transaction();
    transaction
        .delete_range(&records, key(20)..key(80))
        .unwrap();
    transaction.put(&records, key(50), "mine").unwrap();
    let early = transaction.range(&records, key(10)..key(90));
    transaction.delete_range::<Vec<u8>>(&records, ..).unwrap();
    transaction.put(&records, key(7), "alone").unwrap();
    let late = transaction.iter(&records);
    let keys = |iter: glintdb::Iter| -> Vec<Vec<u8>> {
        iter.keys().map(|key| key.unwrap().to_vec()).collect()
    };
    let expected: Vec<_> = (10..20).chain([50]).chain(80..90).map(key).collect();
    assert_eq!(keys(early), expected);
    assert_eq!(keys(late), [key(7)]);
    transaction.commit().unwrap();
    assert_eq!(
        contents(&records).unwrap().into_keys().collect::<Vec<_>>(),
        [key(7)]
    );
}

#[test]
fn transactions_over_an_empty_range_do_not_conflict() {
    use glintdb::{Isolation, TransactionOptions};
    let db = open(&MemVolume::new()).unwrap();
    let records = db.default_keyspace();
    let serializable = || {
        let options = TransactionOptions::default().isolation(Isolation::Serializable);
        db.transaction_with(options)
    };
    let mut transaction = serializable();
    assert!(transaction.range(&records, "k".."k").next().is_none());
    transaction.put(&records, "a", "1").unwrap();
    records.put("k", "meanwhile").unwrap();
    transaction.commit().unwrap();
}
