//! What a database takes on a real file system, in allocated blocks, follows its data.

use crate::support::{open_with, pattern, volume_of};
use glintdb::{Batch, Db, ErrorKind, Options};
use glintdb_simdisk::MemVolume;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const MB: u64 = 1_000_000;
/// Bytes of keys and values of a filled database.
const DATA_BYTES: u64 = 50 * MB;
/// Names the directory that a child process fills.
const CHILD_DIRECTORY: &str = "GLINTDB_FOOTPRINT_DIRECTORY";

/// Sizes of values.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Values {
    /// 100 to 1,500 bytes, 800 on average, as in a package index: some inlined, most separated.
    Mixed,
    /// 80 bytes, all inlined.
    Inlined,
}

impl Values {
    fn bytes(self, n: u64) -> usize {
        match self {
            Values::Mixed => 100 + (n * 7919 % 1400) as usize,
            Values::Inlined => 80,
        }
    }
}

fn key(n: u64) -> String {
    // In no order.
    format!("key{:017}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8)
}

/// What `du` says of a directory.
fn used_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap();
    let blocks = entries.map(|entry| entry.unwrap().metadata().unwrap().blocks());
    blocks.sum::<u64>() * 512
}

fn files(directory: &Path) -> String {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut files: Vec<String> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let bytes = entry.metadata().unwrap().blocks() * 512;
            format!("{} {bytes}", entry.file_name().to_string_lossy())
        })
        .collect();
    files.sort();
    files.join("\n")
}

fn assert_at_most(directory: &Path, bytes: u64, context: &str) {
    let used = used_bytes(directory);
    let files = files(directory);
    assert!(used <= bytes, "{context}: {used} of {bytes} bytes\n{files}");
}

/// Writes [`DATA_BYTES`] in batches, as an import; returns the number of records.
fn fill(db: &Db, values: Values) -> u64 {
    let keyspace = db.default_keyspace();
    let (mut n, mut bytes) = (0, 0);
    while bytes < DATA_BYTES {
        let mut batch = Batch::new();
        for _ in 0..500 {
            let (key, value) = (key(n), pattern(n, values.bytes(n)));
            bytes += (key.len() + value.len()) as u64;
            batch.put(&keyspace, key, value);
            n += 1;
        }
        db.write(batch).unwrap();
    }
    n
}

fn check(db: &Db, values: Values, records: u64) {
    assert_eq!(db.default_keyspace().iter().keys().count() as u64, records);
    for n in (0..records).step_by(997) {
        let value = db.get(key(n)).unwrap();
        assert!(value.is_some_and(|value| value == pattern(n, values.bytes(n))));
    }
}

#[test]
fn an_empty_database_and_one_record_take_at_most_8_mib() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    for opening in 0..3 {
        let db = Options::default().open(&path).unwrap();
        assert_at_most(&path, 8 * MIB, &format!("opening {opening}"));
        if opening > 0 {
            db.put("key", "value").unwrap();
            assert_at_most(&path, 8 * MIB, "one record");
            db.flush().unwrap();
            db.compact().unwrap();
            assert_at_most(&path, 8 * MIB, "one record, compacted");
        }
        db.close().unwrap();
        assert_at_most(&path, 8 * MIB, &format!("closed {opening}"));
    }
}

#[test]
fn fifty_megabytes_of_records_take_at_most_ninety() {
    for values in [Values::Mixed, Values::Inlined] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = Options::default().open(&path).unwrap();
        let records = fill(&db, values);
        db.flush().unwrap();
        assert_at_most(&path, 90 * MB, &format!("{values:?}, flushed"));
        check(&db, values, records);
        db.compact().unwrap();
        assert_at_most(&path, 90 * MB, &format!("{values:?}, compacted"));
        check(&db, values, records);
        db.close().unwrap();
        assert_at_most(&path, 90 * MB, &format!("{values:?}, closed"));
        let db = Options::default().open(&path).unwrap();
        check(&db, values, records);
        db.put("one more", "record").unwrap();
        assert_at_most(&path, 90 * MB, &format!("{values:?}, opened again"));
        assert!(db.verify().unwrap().errors.is_empty());
    }
}

/// The segment behind a seal begins at the ring's front, which always has space: a large value ends
/// that segment at once, by a seal in the ring.
#[test]
fn a_large_value_behind_a_checkpoint_needs_no_space_of_the_ring() {
    let directory = tempfile::tempdir().unwrap();
    let [path, copy] = ["db", "copy"].map(|name| directory.path().join(name));
    let db = Options::default().open(&path).unwrap();
    db.put("small", "value").unwrap();
    db.checkpoint(&copy).unwrap();
    let large = pattern(1, 3 * MIB as usize / 2);
    db.put("large", &large).unwrap();
    db.close().unwrap();
    let db = Options::default().open(&path).unwrap();
    assert!(db.get("large").unwrap().is_some_and(|value| value == large));
    let copy = Options::default().open(&copy).unwrap();
    assert_eq!(copy.get("small").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(copy.get("large").unwrap(), None);
}

/// In another process, which then ends as by `kill -9`.
fn fill_and_be_killed(path: &Path, values: Values, flush: bool) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "footprint::child_that_is_killed", "--nocapture"])
        .env(CHILD_DIRECTORY, path)
        .env("GLINTDB_FOOTPRINT_INLINED", format!("{values:?}"))
        .env("GLINTDB_FOOTPRINT_FLUSH", flush.to_string())
        .output()
        .unwrap()
        .status;
    assert!(!status.success());
}

/// Not a test by itself: see [`fill_and_be_killed`].
#[test]
fn child_that_is_killed() {
    let Some(path) = std::env::var_os(CHILD_DIRECTORY) else {
        return;
    };
    let values = match std::env::var("GLINTDB_FOOTPRINT_INLINED").as_deref() {
        Ok("Mixed") => Values::Mixed,
        _ => Values::Inlined,
    };
    let db = Options::default().open(Path::new(&path)).unwrap();
    fill(&db, values);
    if std::env::var("GLINTDB_FOOTPRINT_FLUSH").as_deref() == Ok("true") {
        db.flush().unwrap();
    }
    // No destructor runs, and nothing is written any more.
    std::process::abort();
}

#[test]
fn an_unclean_restart_takes_no_more_than_a_clean_one() {
    for (values, flush) in [
        (Values::Mixed, true),
        (Values::Mixed, false),
        (Values::Inlined, true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let [clean, killed] = ["clean", "killed"].map(|name| directory.path().join(name));
        let db = Options::default().open(&clean).unwrap();
        let records = fill(&db, values);
        if flush {
            db.flush().unwrap();
        }
        db.close().unwrap();
        fill_and_be_killed(&killed, values, flush);
        let [after_clean, after_kill] = [&clean, &killed].map(|path| {
            // Without threads, which preallocate segments at any moment.
            let db = Options::default().background_threads(0).open(path).unwrap();
            check(&db, values, records);
            db.put("one more", "record").unwrap();
            used_bytes(path)
        });
        let context = format!("{values:?}, flush {flush}");
        let slack = MIB;
        assert!(
            after_kill <= after_clean + slack,
            "{context}: {after_kill} bytes after a kill, {after_clean} after a close\n{}",
            files(&killed)
        );
        if flush {
            assert_at_most(&killed, 90 * MB, &context);
        }
    }
}

/// With the default options, whose ring alone has 32 MiB.
#[test]
fn a_file_system_of_30_mib_holds_a_small_database() {
    let volume = volume_of(30 << 20);
    let options = Options::default().background_threads(0);
    let mut db = open_with(&volume, options.clone()).unwrap();
    let put = |db: &Db, n: u64| db.put(key(n), pattern(n, Values::Mixed.bytes(n)));
    let holds = |db: &Db, range: std::ops::Range<u64>| {
        assert_eq!(
            db.default_keyspace().iter().keys().count() as u64,
            range.end - range.start
        );
        for n in range {
            let value = db.get(key(n)).unwrap();
            assert!(value.is_some_and(|value| value == pattern(n, Values::Mixed.bytes(n))));
        }
    };
    // 4 MB, written 20 times: 80 MB of log.
    for _ in 0..20 {
        (0..5000).for_each(|n| put(&db, n).unwrap());
    }
    holds(&db, 0..5000);
    db.flush().unwrap();
    db.compact().unwrap();
    for n in 0..1000 {
        db.delete(key(n)).unwrap();
    }
    holds(&db, 1000..5000);
    let reopened = |volume: &Arc<MemVolume>, db: Db| {
        drop(db);
        let killed = volume.kill();
        let db = open_with(&killed, options.clone()).unwrap();
        (killed, db)
    };
    let (volume, again) = reopened(&volume, db);
    db = again;
    holds(&db, 1000..5000);
    // Until it is full, and a third of that is deleted.
    let full = (5000..)
        .find(|&n| match put(&db, n) {
            Ok(()) => false,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                true
            }
        })
        .unwrap();
    // 800 bytes each: more than half of the file system is records.
    assert!(full - 1000 > 20_000, "{full}");
    holds(&db, 1000..full);
    let (volume, again) = reopened(&volume, db);
    db = again;
    holds(&db, 1000..full);
    for n in 1000..full / 2 {
        db.delete(key(n))
            .unwrap_or_else(|error| panic!("delete {n} of {full}: {error}"));
    }
    db.compact().unwrap();
    holds(&db, full / 2..full);
    for n in full..full + 3000 {
        put(&db, n).unwrap_or_else(|error| panic!("put {n} after {full}: {error}"));
    }
    let (_volume, db) = reopened(&volume, db);
    holds(&db, full / 2..full + 3000);
    assert!(db.verify().unwrap().errors.is_empty());
}
