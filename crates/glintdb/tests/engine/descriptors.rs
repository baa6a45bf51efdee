//! Databases in processes that may have few descriptors, have none left for a while, or may not
//! write to the directory for a while.
//!
//! The child is this test binary again, with a lower limit, running [`child_with_few_descriptors`],
//! which does nothing without the environment variable.

use crate::support::*;
use glintdb::{Db, Durability, ErrorKind, KeyspaceOptions, Options, Result};
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const DIRECTORY: &str = "GLINTDB_DESCRIPTORS_DIRECTORY";
const WORK: &str = "GLINTDB_DESCRIPTORS_WORK";
/// What the child prints when its work is done.
const DONE: &str = "the work is done";

/// A child that may have `limit` descriptors and does `work`.
fn child(limit: u32, work: &str, path: &Path) -> Command {
    let limited = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command
        .args(["-c", &limited])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "descriptors::child_with_few_descriptors",
            "--nocapture",
        ])
        .env(DIRECTORY, path)
        .env(WORK, work);
    command
}

/// Runs a child. Returns its whole output.
fn run(mut child: Command) -> String {
    let output = child.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    out + &err
}

fn assert_done(limit: u32, work: &str, path: &Path) {
    let output = run(child(limit, work, path));
    assert!(
        output.contains(DONE),
        "{limit} descriptors, {work}: {output}"
    );
}

/// Not a test by itself: see [`run`].
#[test]
fn child_with_few_descriptors() {
    let (Some(path), Ok(work)) = (std::env::var_os(DIRECTORY), std::env::var(WORK)) else {
        return;
    };
    let path = Path::new(&path);
    match work.as_str() {
        "fill" => {
            fill(&small().open(path).unwrap());
            println!("{DONE}");
            // As by `kill -9`: no destructor runs.
            std::process::abort();
        }
        "read" => read(&small().open(path).unwrap()),
        "keyspaces" => many_keyspaces(path),
        "exhausted" => exhausted(path),
        "permission" => without_permission(path),
        "refused" => {
            let error = small().open(path).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            println!("{error}");
        }
        other => panic!("{other}"),
    }
    println!("{DONE}");
}

fn small() -> Options {
    Options::default()
        .memory_budget_bytes(16 << 20)
        .background_threads(2)
}

const RECORDS: u64 = 30_000;

fn value(n: u64) -> Vec<u8> {
    let length = match n % 100 {
        0 => 20_000,
        n if n % 10 == 0 => 2000,
        _ => 200,
    };
    pattern(n, length)
}

/// Fills three keyspaces, flushes and compacts: more files than a process with few descriptors can
/// have open.
fn fill(db: &Db) {
    let options = KeyspaceOptions::default;
    let spaces = ["a", "b", "c"].map(|name| db.keyspace_or_create(name, options()).unwrap());
    for n in 0..RECORDS {
        let space = &spaces[n as usize % 3];
        space.put(n.to_be_bytes(), value(n)).unwrap();
        if n % 3000 == 2999 {
            db.flush().unwrap();
            db.default_keyspace()
                .put_with("large", pattern(n, 3 << 20), Durability::Sync)
                .unwrap();
        }
    }
    db.compact().unwrap();
    db.default_keyspace()
        .put_with("last", "before the kill", Durability::Os)
        .unwrap();
}

fn read(db: &Db) {
    let spaces = ["a", "b", "c"].map(|name| db.keyspace(name).unwrap());
    assert_eq!(
        db.get("last").unwrap().as_deref(),
        Some(&b"before the kill"[..])
    );
    std::thread::scope(|scope| {
        for first in 0..4 {
            let spaces = &spaces;
            scope.spawn(move || {
                for n in (first..RECORDS).step_by(4) {
                    let found = spaces[n as usize % 3].get(n.to_be_bytes()).unwrap();
                    assert!(found.is_some_and(|found| found == value(n)), "{n}");
                }
            });
        }
    });
    let keys: Vec<_> = (0..RECORDS).step_by(300).map(u64::to_be_bytes).collect();
    let found = spaces[0].multi_get(&keys);
    assert!(found.iter().all(|found| matches!(found, Ok(Some(_)))));
    let counted: usize = (spaces.iter())
        .map(|space| space.iter().filter(Result::is_ok).count())
        .sum();
    assert_eq!(counted as u64, RECORDS);
    assert!(db.verify().unwrap().errors.is_empty());
}

/// With 32 descriptors writing failed, and with 20 the database did not open again after a kill.
#[test]
fn a_small_database_works_with_few_descriptors_and_opens_after_a_kill() {
    for limit in [64, 32, 24, 20] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        assert_done(limit, "fill", &path);
        assert_done(limit, "read", &path);
        assert_done(limit, "read", &path);
    }
}

#[test]
fn a_process_with_too_few_descriptors_is_told_how_many_are_needed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    drop(small().open(&path).unwrap());
    let output = run(child(19, "refused", &path));
    assert!(output.contains(DONE), "{output}");
    assert!(
        output.contains("RLIMIT_NOFILE") && output.contains("at least 20"),
        "{output}"
    );
}

const KEYSPACES: u64 = 300;

/// Each keyspace has a table of its own after each round.
fn many_keyspaces(path: &Path) {
    let db = small().open(path).unwrap();
    let spaces: Vec<_> = (0..KEYSPACES)
        .map(|n| db.keyspace_or_create(&format!("space{n}"), KeyspaceOptions::default()))
        .collect::<Result<_>>()
        .unwrap();
    let key = |round: u64, n: u64| (round * 100 + n).to_be_bytes();
    for round in 0..3 {
        for (number, space) in (0..).zip(&spaces) {
            for n in 0..5 {
                space.put(key(round, n), pattern(number + n, 700)).unwrap();
            }
        }
        db.flush().unwrap();
    }
    let files = std::fs::read_dir(path).unwrap().count() as u64;
    assert!(files > KEYSPACES, "{files} files");
    for _ in 0..2 {
        for (number, space) in (0..).zip(&spaces) {
            for (round, n) in [(0, 0), (1, 3), (2, 4)] {
                let found = space.get(key(round, n)).unwrap();
                assert!(found.is_some_and(|found| found == pattern(number + n, 700)));
            }
            assert_eq!(space.iter().filter(Result::is_ok).count(), 15);
        }
    }
    db.compact().unwrap();
    assert!(db.verify().unwrap().errors.is_empty());
    db.close().unwrap();
}

/// With 256, writing failed: "Too many open files".
#[test]
fn keyspaces_may_outnumber_descriptors() {
    for limit in [256, 64, 20] {
        let directory = tempfile::tempdir().unwrap();
        assert_done(limit, "keyspaces", &directory.path().join("db"));
    }
}

/// The program takes every descriptor that there is, and gives them back later.
fn exhausted(path: &Path) {
    let db = small().open(path).unwrap();
    db.put("before", "value").unwrap();
    db.flush().unwrap();
    let mut kept: Vec<String> = Vec::new();
    for round in 0..3 {
        let mut taken = Vec::new();
        while let Ok(file) = File::options().read(true).open("/dev/null") {
            taken.push(file);
        }
        assert!(!taken.is_empty());
        for n in 0..2000 {
            let length = if n % 50 == 0 { 2 << 20 } else { 3000 };
            let durability = [Durability::Os, Durability::Sync][usize::from(n % 25 == 0)];
            let key = format!("key{round}-{n}");
            match db
                .default_keyspace()
                .put_with(&key, pattern(n, length), durability)
            {
                Ok(()) => kept.push(key),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                }
            }
        }
        drop(taken);
        db.default_keyspace()
            .put_with("after", "value", Durability::Sync)
            .unwrap();
        db.default_keyspace()
            .put_with("after, large", pattern(round, 3 << 20), Durability::Sync)
            .unwrap();
        db.flush().unwrap();
        db.compact().unwrap();
    }
    for key in &kept {
        assert!(db.get(key).unwrap().is_some(), "{key}");
    }
    assert!(db.verify().unwrap().errors.is_empty());
    assert_eq!(db.stats().background_error, None);
    db.close().unwrap();
}

/// Commits of large values stayed `Poisoned` although there were descriptors again.
#[test]
fn commits_go_on_after_a_want_of_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    assert_done(64, "exhausted", &directory.path().join("db"));
}

/// The process may not write to the directory for a while, and may then again.
fn without_permission(path: &Path) {
    let allow = |mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let db = small().open(path).unwrap();
    let large = |n| db.put(format!("large{n}"), pattern(n, 3 << 20));
    let mut count = 0;
    for _ in 0..3 {
        allow(0o555);
        let error = loop {
            assert!(count < 1000, "a file can still be made");
            match large(count) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let error = db.flush().and_then(|()| db.compact()).err();
        assert!(error.is_none_or(|error| error.kind() == ErrorKind::Unavailable));
        allow(0o755);
        large(count).unwrap();
        count += 1;
        db.flush().unwrap();
        db.compact().unwrap();
    }
    for n in 0..count {
        let found = db.get(format!("large{n}")).unwrap();
        assert!(
            found.is_some_and(|found| found == pattern(n, 3 << 20)),
            "{n}"
        );
    }
    assert!(db.verify().unwrap().errors.is_empty());
    db.close().unwrap();
}

/// Commits stayed `Poisoned` although the permission had been given back.
#[test]
fn commits_go_on_when_permission_to_write_is_given_back() {
    /// `nobody` on every Linux.
    const NOBODY: u32 = 65_534;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    std::fs::create_dir(&path).unwrap();
    let mut child = child(1024, "permission", &path);
    if std::fs::metadata(&path).unwrap().uid() == 0 {
        // Root may write everywhere.
        for path in [directory.path(), &path] {
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        child.uid(NOBODY).gid(NOBODY);
    }
    let output = run(child);
    let may_not_run = output.contains("Permission denied") && !output.contains("running 1 test");
    assert!(output.contains(DONE) || may_not_run, "{output}");
}
