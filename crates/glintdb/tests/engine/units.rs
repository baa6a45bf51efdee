//! A database over several directories, through the public interface.

use crate::support;
use glintdb::{Db, Error, ErrorKind, Options, Placement};
use glintdb_flash::{Root, Units, Volume};
use glintdb_simdisk::MemVolume;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn options() -> Options {
    Options::default()
        .memory_budget_bytes(8 << 20)
        .log_segment_bytes(64 << 10)
        .log_ring_bytes(64 << 10)
        .separate_min_bytes(256)
        .background_threads(1)
}

fn two(directory: &Path) -> [PathBuf; 2] {
    ["one", "two"].map(|name| directory.join(name))
}

fn named(paths: &[PathBuf; 2]) -> String {
    format!("dirs:{},{}", paths[0].display(), paths[1].display())
}

fn value(number: usize) -> Vec<u8> {
    vec![number as u8; 1 + number % 700]
}

fn fill(db: &Db) {
    for number in 0..2000 {
        db.put(format!("{number:05}"), value(number)).unwrap();
        if number % 500 == 499 {
            db.flush().unwrap();
        }
    }
    db.default_keyspace()
        .delete_range("01500".."01510")
        .unwrap();
}

fn assert_whole(db: &Db) {
    for number in 0..2000 {
        let found = db.get(format!("{number:05}")).unwrap();
        let expected = (!(1500..1510).contains(&number)).then(|| value(number));
        assert_eq!(found.as_deref(), expected.as_deref(), "{number}");
    }
}

/// Number of files of each kind in a directory.
fn files(path: &Path) -> [usize; 3] {
    let names: Vec<String> = path
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    ["log-", "table-", "manifest-"]
        .map(|prefix| names.iter().filter(|name| name.starts_with(prefix)).count())
}

fn assert_refused(opened: Result<Db, Error>, kind: ErrorKind, part: &str) {
    let error = opened.err().unwrap();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[test]
fn a_database_over_two_directories_opens_again_in_any_order() {
    let directory = tempfile::tempdir().unwrap();
    let paths = two(directory.path());
    let db = options().open_units(&paths).unwrap();
    fill(&db);
    let [one, two] = [files(&paths[0]), files(&paths[1])];
    assert!(one[0] > 0 && one[1] > 0 && one[2] == 1, "{one:?}");
    assert!(two[0] > 0 && two[1] > 0 && two[2] == 0, "{two:?}");
    let stats = db.stats().volume;
    assert_eq!(stats.units.len(), 2);
    assert!(stats.units.iter().all(|unit| unit.written_bytes > 0));
    assert!(
        stats
            .classes
            .iter()
            .any(|class| class.name == "flush" && class.written_bytes > 0)
    );
    assert!(stats.description.starts_with("2 units, striping; "));
    db.close().unwrap();
    let [one, two] = paths;
    let db = options().open_units(&[&two, &one]).unwrap();
    assert_whole(&db);
    assert!(db.verify().unwrap().is_clean());
    db.compact().unwrap();
    assert_whole(&db);
    drop(db);
    let db = options().open(named(&[one, two])).unwrap();
    assert_whole(&db);
}

#[test]
fn isolation_puts_the_log_and_tables_into_directories_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let paths = two(directory.path());
    let placement = Placement::parse("isolation:1:1").unwrap();
    let mut isolated = options().placement(placement);
    // Segments of moved values are with the tables.
    isolated.set("value_gc", "false").unwrap();
    let db = isolated.open_units(&paths).unwrap();
    fill(&db);
    let [one, two] = [files(&paths[0]), files(&paths[1])];
    assert!(one[0] > 0 && one[1] == 0, "{one:?}");
    assert!(two[0] == 0 && two[1] > 0, "{two:?}");
    // An opening with another placement finds the files that exist.
    db.close().unwrap();
    let db = options().open_units(&paths).unwrap();
    assert_whole(&db);
    fill(&db);
    let two = files(&paths[1]);
    assert!(two[0] > 0, "{two:?}");
    assert_whole(&db);
}

#[test]
fn a_checkpoint_is_one_directory() {
    let directory = tempfile::tempdir().unwrap();
    let paths = two(directory.path());
    let db = options().open_units(&paths).unwrap();
    fill(&db);
    let copy = directory.path().join("copy");
    db.checkpoint(&copy).unwrap();
    db.put("later", "").unwrap();
    drop(db);
    let db = options().open(&copy).unwrap();
    assert_whole(&db);
    assert_eq!(db.get("later").unwrap(), None);
}

#[test]
fn tools_take_several_directories_and_refuse_one_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let paths = two(directory.path());
    let db = options().open_units(&paths).unwrap();
    fill(&db);
    db.close().unwrap();
    let whole = named(&paths);
    let report = glintdb::check(&whole).unwrap();
    assert!(report.is_clean() && report.entries() > 1900, "{report:?}");
    let listed = glintdb::inspect::files(&whole).unwrap();
    let counted: usize = paths.iter().flat_map(|path| files(path)).sum();
    assert!(listed.len() >= counted, "{listed:?}");
    let out = directory.path().join("out");
    let report = glintdb::salvage(&whole, &out, &Default::default()).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_whole(&Db::open(&out).unwrap());
    for path in &paths {
        let part = "give all of them, as in `dirs:";
        assert_refused(options().open(path), ErrorKind::InvalidArgument, part);
        let error = glintdb::check(path).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_database_that_is_open_locks_all_its_directories() {
    let directory = tempfile::tempdir().unwrap();
    let paths = two(directory.path());
    let db = options().open_units(&paths).unwrap();
    assert_refused(
        options().open_units(&paths),
        ErrorKind::Locked,
        "1 Db handle",
    );
    // Handles live on, and the directories are free.
    let snapshot = db.snapshot();
    db.close().unwrap();
    drop(options().open_units(&paths).unwrap());
    drop(snapshot);
}

#[test]
fn wrong_directories_and_placements_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let paths = two(directory.path());
    let placement = Placement::parse("isolation:3:3:2").unwrap();
    let opened = options().placement(placement).open_units(&paths);
    assert_refused(
        opened,
        ErrorKind::InvalidArgument,
        "do not each get one of 2 units",
    );
    assert!(!paths[0].exists() && !paths[1].exists());
    let opened = options().create_if_missing(false).open_units(&paths);
    assert_refused(opened, ErrorKind::NotFound, "no database in");
    let opened = options().open(format!("dirs:{},", paths[0].display()));
    assert_refused(opened, ErrorKind::InvalidArgument, "`dirs:PATH,PATH`");
    drop(options().open_units(&paths).unwrap());
    let opened = options().open_units(&paths[..1]);
    assert_refused(opened, ErrorKind::InvalidArgument, "2 to 64");
    let other = directory.path().join("three");
    let opened = options().open_units(&[&paths[0], &other]);
    assert_refused(opened, ErrorKind::NotFound, "three is not there");
    assert!(!other.exists());
}

fn over(volumes: &[Arc<MemVolume>; 2]) -> Db {
    let root = |(medium, volume): (u64, &Arc<MemVolume>)| Root {
        volume: Arc::clone(volume) as Arc<dyn Volume>,
        name: format!("unit {medium}"),
        medium,
    };
    let roots = (0..).zip(volumes).map(root).collect();
    let units = Units::new(roots, Placement::Striping).unwrap();
    support::options()
        .open_volume(units, support::env())
        .unwrap()
}

/// The reserve is in the first unit and serves both units: deletions, flushes and compactions find
/// its space, whichever unit is larger.
#[test]
fn deleting_gets_out_of_two_full_units() {
    for (sizes, value_bytes) in [[3, 3], [2, 6], [6, 2]]
        .into_iter()
        .flat_map(|sizes| [(sizes, 100), (sizes, 2000)])
    {
        let context = format!("{sizes:?} MiB, values of {value_bytes}");
        let volumes = sizes.map(|mib: u64| support::volume_of(mib << 20));
        let db = over(&volumes);
        let key = |n: u64| format!("key{n:06}");
        let fill = |db: &Db, from: u64| {
            for n in from.. {
                if let Err(error) = db.put(key(n), support::pattern(n, value_bytes)) {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{context}: {error}");
                    return n;
                }
            }
            unreachable!("the loop has no other end")
        };
        let count = fill(&db, 0);
        let user_bytes = count * value_bytes as u64;
        assert!(
            user_bytes > sizes.iter().sum::<u64>() << 18,
            "{context}: {user_bytes}"
        );
        drop(db);
        let volumes = volumes.map(|volume| volume.kill());
        let db = over(&volumes);
        for n in 0..count {
            let value = db.get(key(n)).unwrap();
            assert!(
                value.is_some_and(|value| value == support::pattern(n, value_bytes)),
                "{context}: {n}"
            );
        }
        for n in 0..count - 20 {
            let deleted = db.delete(key(n));
            deleted.unwrap_or_else(|error| panic!("{context}: delete {n} of {count}: {error}"));
        }
        db.flush().and_then(|()| db.compact()).unwrap();
        let again = fill(&db, count) - count;
        assert!(again > count / 2, "{context}: {again} of {count}");
        assert!(db.verify().unwrap().is_clean(), "{context}");
    }
}
