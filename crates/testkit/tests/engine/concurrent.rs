//! Many threads at once: nothing acknowledged is lost, batches are seen whole, read-modify-write through transactions loses no update.

use glintdb::{Batch, Db, ErrorKind, Keyspace, KeyspaceOptions, Options};
use std::sync::atomic::{AtomicBool, Ordering};

fn open() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default()
        .memory_budget_bytes(8 << 20)
        .log_ring_bytes(1 << 20)
        .log_segment_bytes(1 << 20);
    let db = options.open(dir.path().join("db")).unwrap();
    (dir, db)
}

#[test]
fn transactions_of_eight_threads_lose_no_increment() {
    const THREADS: u64 = 8;
    const INCREMENTS: u64 = 300;
    let (_dir, db) = open();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let space = db.default_keyspace();
                for _ in 0..INCREMENTS {
                    loop {
                        let mut transaction = db.transaction();
                        let old = transaction.get(&space, "counter").unwrap();
                        let old = old
                            .map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()));
                        transaction
                            .put(&space, "counter", (old + 1).to_le_bytes())
                            .unwrap();
                        match transaction.commit() {
                            Ok(()) => break,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict),
                        }
                    }
                }
            });
        }
    });
    let value = db.get("counter").unwrap().unwrap();
    assert_eq!(
        u64::from_le_bytes(value[..].try_into().unwrap()),
        THREADS * INCREMENTS
    );
}

#[test]
fn readers_never_see_half_a_batch_while_flushes_and_compactions_run() {
    let (dir, db) = open();
    let one = db.default_keyspace();
    let two = db
        .create_keyspace("two", KeyspaceOptions::default())
        .unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3_u8)
            .map(|writer| {
                let (db, one, two) = (&db, &one, &two);
                scope.spawn(move || {
                    for round in 0..400_u32 {
                        let mut batch = Batch::new();
                        for key in 0..10_u8 {
                            batch.put(one, [writer, key], round.to_le_bytes());
                            batch.put(two, [writer, key], vec![round as u8; 300]);
                        }
                        db.write(batch).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                db.flush().unwrap();
                db.compact().unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) || seen == 0 {
                    seen += u32::from(a_snapshot_shows_whole_batches(&db, &one, &two));
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    drop((one, two));
    db.close().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    assert_eq!(db.default_keyspace().iter().count(), 30);
    assert!(db.verify().unwrap().errors.is_empty());
}

/// `false`: the snapshot was given up, as it may be with little memory.
fn a_snapshot_shows_whole_batches(db: &Db, one: &Keyspace, two: &Keyspace) -> bool {
    let snapshot = db.snapshot();
    for writer in 0..3_u8 {
        let read = |space| {
            let records = snapshot
                .prefix(space, [writer])
                .collect::<Result<Vec<_>, _>>();
            records.map(|records| {
                records
                    .into_iter()
                    .map(|(_, value)| value[0])
                    .collect::<Vec<_>>()
            })
        };
        let (rounds, copies) = match (read(one), read(two)) {
            (Ok(rounds), Ok(copies)) => (rounds, copies),
            (Err(error), _) | (_, Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error}");
                return false;
            }
        };
        assert!(rounds.is_empty() || rounds.len() == 10);
        assert!(
            rounds.iter().all(|round| *round == rounds[0]),
            "half a batch: {rounds:?}"
        );
        assert_eq!(rounds, copies, "half a batch across keyspaces");
    }
    true
}
