//! A directory that lacks a file: opening refuses and names the file, or nothing is lost.

use crate::support::*;
use glintdb::{Db, ErrorKind, KeyspaceOptions, Options};
use std::fs;
use std::path::Path;

/// The log's ring.
const RING: &str = "ring";

fn open(path: &Path) -> glintdb::Result<Db> {
    options().open(path)
}

/// What the two keyspaces of a database hold.
fn state(db: &Db) -> (Map, Map) {
    let two = db
        .keyspace("two")
        .map_or(Map::new(), |two| contents(&two).unwrap());
    (contents(&db.default_keyspace()).unwrap(), two)
}

/// Writes records of which some are in tables, some in segments, and the last ones in the ring
/// alone.
fn fill(db: &Db) {
    let two = db
        .keyspace_or_create("two", KeyspaceOptions::default())
        .unwrap();
    for round in 0..3_u64 {
        for n in 0..200_u64 {
            let key = (round * 100 + n).to_be_bytes();
            db.put(key, pattern(n, 40)).unwrap();
            two.put(key, pattern(n, 700)).unwrap();
        }
        if round < 2 {
            db.flush().unwrap();
        }
    }
    db.put("last", "value").unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A database directory as a killed process and as a clean close leave it, with its contents.
fn killed_and_closed(directory: &Path) -> (Map, Map) {
    let live = directory.join("live");
    let db = open(&live).unwrap();
    fill(&db);
    let expected = state(&db);
    copy(&live, &directory.join("killed"));
    db.close().unwrap();
    copy(&live, &directory.join("closed"));
    expected
}

fn file_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn opening_without_a_file_names_it_or_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let expected = killed_and_closed(directory.path());
    for end in ["killed", "closed"] {
        let whole = directory.path().join(end);
        for name in file_names(&whole) {
            let lacking = directory.path().join(format!("{end} without {name}"));
            copy(&whole, &lacking);
            fs::remove_file(lacking.join(&name)).unwrap();
            match open(&lacking) {
                Ok(db) => assert!(state(&db) == expected, "{end} without {name}: loss"),
                Err(error) => {
                    let told = error.to_string();
                    let named = told.contains(&name)
                        || (name.starts_with("manifest-") && told.contains("manifest"));
                    assert!(named, "{end} without {name}: {told}");
                }
            }
        }
    }
}

#[test]
fn an_unclosed_database_does_not_open_without_its_ring_unless_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let (expected, _) = killed_and_closed(directory.path());
    let killed = directory.path().join("killed");
    let ring = fs::read(killed.join(RING)).unwrap();
    fs::remove_file(killed.join(RING)).unwrap();

    let error = open(&killed).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!(error.place(), Some((RING, 0)));
    assert!(error.to_string().contains("accept_missing_ring"), "{error}");
    let report = glintdb::check(&killed).unwrap();
    let places: Vec<_> = report.errors.iter().map(|error| error.place()).collect();
    assert_eq!(places, [Some((RING, 0))]);
    // A ring of another size holds no commit where it is looked for.
    fs::write(killed.join(RING), &ring[..ring.len() / 2]).unwrap();
    let error = open(&killed).unwrap_err();
    let end = ring.len() as u64 / 2;
    assert_eq!(error.place(), Some((RING, end)), "{error}");
    fs::write(killed.join(RING), &ring).unwrap();
    let copied = directory.path().join("copied");
    copy(&killed, &copied);
    let db = open(&copied).unwrap();
    assert_eq!(contents(&db.default_keyspace()).unwrap(), expected);
    drop(db);

    fs::remove_file(killed.join(RING)).unwrap();
    let accepting = || options().accept_missing_ring(true).open(&killed);
    let db = accepting().unwrap();
    assert_eq!(db.get("last").unwrap(), None, "the ring alone had it");
    let kept = contents(&db.default_keyspace()).unwrap();
    assert!(
        kept.iter()
            .all(|(key, value)| expected.get(key) == Some(value))
    );
    db.put("key", "value").unwrap();
    drop(db);
    assert_eq!(open(&killed).unwrap().get("key").unwrap().unwrap(), "value");
}

#[test]
fn a_closed_database_and_a_checkpoint_open_without_a_ring() {
    let directory = tempfile::tempdir().unwrap();
    let live = directory.path().join("live");
    let checkpoint = directory.path().join("checkpoint");
    let db = open(&live).unwrap();
    fill(&db);
    let expected = state(&db);
    db.checkpoint(&checkpoint).unwrap();
    drop(db);
    assert!(!checkpoint.join(RING).exists());
    fs::remove_file(live.join(RING)).unwrap();
    for path in [&live, &checkpoint] {
        assert!(glintdb::check(path).unwrap().errors.is_empty());
        assert!(state(&open(path).unwrap()) == expected);
    }
}

#[test]
fn an_unclosed_database_opens_with_another_ring_size_and_keeps_its_commits() {
    let directory = tempfile::tempdir().unwrap();
    let (expected, _) = killed_and_closed(directory.path());
    let killed = directory.path().join("killed");
    let with_ring = |bytes| -> Options { options().log_ring_bytes(bytes) };
    for bytes in [128 << 10, 256 << 10, 64 << 10] {
        let db = with_ring(bytes).open(&killed).unwrap();
        assert_eq!(contents(&db.default_keyspace()).unwrap(), expected);
        assert_eq!(fs::metadata(killed.join(RING)).unwrap().len(), bytes as u64);
        let copied = directory.path().join(format!("copied-{bytes}"));
        copy(&killed, &copied);
        fs::remove_file(copied.join(RING)).unwrap();
        let error = with_ring(bytes).open(&copied).unwrap_err();
        assert_eq!(error.place(), Some((RING, 0)), "{error}");
    }
}
