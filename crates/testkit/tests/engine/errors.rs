//! Every kind of error, reached the way a user would reach it.

use glintdb::{Db, ErrorKind, KeyspaceOptions, Options, Result};
use glintdb_simdisk::{Fault, FaultKind, MemVolume};
use glintdb_testkit::place::Place;
use std::path::Path;
use std::sync::Arc;

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

fn small() -> Options {
    Options::default()
        .background_threads(0)
        .log_ring_bytes(128 << 10)
        .log_segment_bytes(256 << 10)
        .memory_budget_bytes(8 << 20)
}

/// Some of the last file's bytes of a kind, turned over.
fn damage(dir: &Path, prefix: &str) -> String {
    let files = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> = files.filter(|name| name.starts_with(prefix)).collect();
    files.sort();
    let name = files.pop().unwrap();
    let path = dir.join(&name);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    let end = (middle + 64).min(bytes.len());
    bytes[middle..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
    std::fs::write(&path, bytes).unwrap();
    name
}

#[test]
fn locked_names_a_second_open() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(kind(Db::open(dir.path())), Some(ErrorKind::Locked));
    db.close().unwrap();
    assert!(Db::open(dir.path()).is_ok());
}

#[test]
fn not_found_for_databases_and_keyspaces_that_are_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let missing = small().create_if_missing(false);
    assert_eq!(
        kind(missing.open(dir.path().join("nothing"))),
        Some(ErrorKind::NotFound)
    );
    let db = small().open(dir.path().join("db")).unwrap();
    assert_eq!(kind(db.keyspace("nothing")), Some(ErrorKind::NotFound));
    assert_eq!(kind(db.drop_keyspace("nothing")), Some(ErrorKind::NotFound));
}

#[test]
fn already_exists_where_a_database_should_not_be_there() {
    let dir = tempfile::tempdir().unwrap();
    small().open(dir.path()).unwrap().close().unwrap();
    let fresh = small().error_if_exists(true);
    assert_eq!(kind(fresh.open(dir.path())), Some(ErrorKind::AlreadyExists));
}

#[test]
fn conflict_for_the_second_committer() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let space = db.default_keyspace();
    let (mut first, mut second) = (db.transaction(), db.transaction());
    first.put(&space, "key", "1").unwrap();
    second.put(&space, "key", "2").unwrap();
    second.commit().unwrap();
    assert_eq!(kind(first.commit()), Some(ErrorKind::Conflict));
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn corruption_names_the_file_and_other_keys_stay_readable() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let space = db.default_keyspace();
    for number in 0..3000_u32 {
        db.put(format!("key{number:05}"), [number as u8; 200])
            .unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    drop(space);
    db.close().unwrap();
    let name = damage(dir.path(), "table-");
    let report = glintdb::check(dir.path()).unwrap();
    let error = report.errors.first().expect("the damage is found");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(
        error.to_string().contains(&name),
        "{error} does not name {name}"
    );
    let db = small().open(dir.path()).unwrap();
    let outcomes: Vec<_> = (0..3000_u32)
        .map(|number| (number, db.get(format!("key{number:05}"))))
        .collect();
    let mut readable = 0;
    for (number, outcome) in outcomes {
        match outcome {
            Ok(value) => {
                assert_eq!(
                    value.as_deref(),
                    Some(&[number as u8; 200][..]),
                    "a wrong value"
                );
                readable += 1;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption),
        }
    }
    assert!(readable > 1000, "only {readable} of 3000 keys are readable");
}

#[test]
fn io_then_poisoned_when_a_write_fails_and_reads_go_on() {
    let volume = MemVolume::new();
    let place = Place::Memory(Arc::clone(&volume));
    let db = place.open(small()).unwrap();
    let space = db.default_keyspace();
    space
        .put_with("before", "x", glintdb::Durability::Sync)
        .unwrap();
    volume.fail(Fault {
        at_operation: volume.operation_count(),
        kind: FaultKind::Io,
        sticky: true,
    });
    let failed = space.put_with("during", "y", glintdb::Durability::Sync);
    assert!(matches!(
        kind(failed),
        Some(ErrorKind::Io | ErrorKind::Poisoned)
    ));
    volume.clear_faults();
    let refused = space.put_with("after", "z", glintdb::Durability::Sync);
    assert_eq!(
        kind(refused),
        Some(ErrorKind::Poisoned),
        "no retry that pretends"
    );
    assert_eq!(space.get("before").unwrap().as_deref(), Some(&b"x"[..]));
    drop((db, space));
    let db = place.open(small()).unwrap();
    assert_eq!(db.get("before").unwrap().as_deref(), Some(&b"x"[..]));
    assert_eq!(db.get("after").unwrap(), None);
    db.put("again", "it takes writes").unwrap();
}

#[test]
fn no_space_loses_nothing_acknowledged_and_deleting_gets_out_of_it() {
    let volume = MemVolume::new();
    let place = Place::Memory(Arc::clone(&volume));
    let db = place.open(small()).unwrap();
    let space = db.default_keyspace();
    volume.set_capacity_bytes(Some(8 << 20));
    let value = vec![7; 8 << 10];
    let mut acknowledged = 0_u32;
    let error = loop {
        match space.put(acknowledged.to_be_bytes(), &value) {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 4000, "32 MiB went into 8 MiB");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(
        acknowledged > 50,
        "only {acknowledged} records of 8 KiB went into 8 MiB"
    );
    for number in 0..acknowledged {
        assert!(
            space.get(number.to_be_bytes()).unwrap().as_deref() == Some(&value[..]),
            "{number} is lost"
        );
    }
    volume.set_capacity_bytes(None);
    let db = match space.put("room", "again") {
        Ok(()) => db,
        // A failed append may have poisoned the writer; opening again heals it.
        Err(error) => {
            assert!(
                matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::NoSpace),
                "{error}"
            );
            drop((db, space));
            place.open(small()).unwrap()
        }
    };
    db.put("room", "again").unwrap();
    assert_eq!(
        db.default_keyspace().iter().count(),
        acknowledged as usize + 1
    );
    assert!(db.verify().unwrap().errors.is_empty());
}

#[test]
fn snapshot_too_old_instead_of_taking_the_database_down() {
    let dir = tempfile::tempdir().unwrap();
    let options = small()
        .snapshot_pin_bytes_max(256 << 10)
        // Values stay in the memtables, whose memory it is that a snapshot pins.
        .separate_min_bytes(4096);
    let db = options.open(dir.path()).unwrap();
    let space = db.default_keyspace();
    for number in 0..100_u32 {
        space.put(number.to_be_bytes(), [1; 1000]).unwrap();
    }
    let snapshot = db.snapshot();
    for round in 0..200_u8 {
        for number in 0..100_u32 {
            space.put(number.to_be_bytes(), vec![round; 1000]).unwrap();
        }
        // What a snapshot pins is the memtable that was active when it was taken: let it grow first.
        if round % 10 == 9 {
            db.flush().unwrap();
            db.compact().unwrap();
        }
    }
    match snapshot.get(&space, 5_u32.to_be_bytes()) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::SnapshotTooOld),
        Ok(_) => panic!("20 MB were overwritten under a snapshot that may pin 256 KiB"),
    }
    let fresh = db.snapshot();
    assert_eq!(
        fresh.get(&space, 5_u32.to_be_bytes()).unwrap().as_deref(),
        Some(&[199; 1000][..])
    );
}

#[test]
fn unsupported_or_corrupt_when_the_manifest_is_of_another_kind() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let manifest = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("manifest-")
        })
        .unwrap();
    let mut bytes = std::fs::read(&manifest).unwrap();
    bytes[..16].fill(0xee);
    std::fs::write(&manifest, bytes).unwrap();
    let refused = kind(small().open(dir.path()));
    assert!(
        matches!(
            refused,
            Some(ErrorKind::UnsupportedFormat | ErrorKind::Corruption)
        ),
        "{refused:?}"
    );
}

#[test]
fn a_dropped_keyspace_takes_no_writes_and_its_name_can_be_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let old = db
        .create_keyspace("space", KeyspaceOptions::default())
        .unwrap();
    old.put("key", "old").unwrap();
    db.drop_keyspace("space").unwrap();
    let refused = kind(old.put("key", "new"));
    assert!(
        matches!(
            refused,
            Some(ErrorKind::NotFound | ErrorKind::InvalidArgument)
        ),
        "{refused:?}"
    );
    let new = db
        .create_keyspace("space", KeyspaceOptions::default())
        .unwrap();
    assert_eq!(new.get("key").unwrap(), None);
    drop((old, new));
    db.close().unwrap();
    let db = small().open(dir.path()).unwrap();
    assert_eq!(db.keyspace("space").unwrap().iter().count(), 0);
}

#[test]
fn invalid_argument_where_a_part_of_the_path_is_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "not a directory").unwrap();
    let refused = kind(small().open(file.join("db")));
    assert_eq!(refused, Some(ErrorKind::InvalidArgument));
}
