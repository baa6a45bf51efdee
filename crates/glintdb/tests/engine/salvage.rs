//! Salvage of databases that are damaged in every way: what is intact comes back, nothing is invented, the directory stays as it is.

use glintdb::{
    BTreeOptions, Batch, Db, Durability, IndexKind, KeyspaceOptions, Options, SalvageOptions,
    SalvageReport, salvage,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Contents = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn options() -> Options {
    Options::default()
        .memory_budget_bytes(8 << 20)
        .log_segment_bytes(64 << 10)
        .log_ring_bytes(64 << 10)
        .replay_bytes_max(1 << 20)
        .separate_min_bytes(100)
        .durability(Durability::Os)
        .background_threads(0)
}

fn contents(db: &Db) -> Contents {
    let mut all = Contents::new();
    for name in db.keyspaces() {
        for entry in db.keyspace(&name).unwrap().iter() {
            let (key, value) = entry.unwrap();
            all.insert((name.clone(), key.to_vec()), value.to_vec());
        }
    }
    all
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        // Whoever opens a directory writes its number into the lock file.
        .filter(|path| !path.ends_with("LOCK"))
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

/// The files of one kind, oldest first.
fn named(dir: &Path, kind: &str) -> Vec<PathBuf> {
    let name = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(kind)
    };
    files(dir).into_keys().filter(name).collect()
}

/// What a kill at this moment would leave.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for (path, bytes) in files(from) {
        std::fs::write(to.join(path.file_name().unwrap()), bytes).unwrap();
    }
}

/// Salvages `dir`: the report, and what the new database holds. It is sound, and `dir` is as it was.
fn salvaged(dir: &Path) -> (SalvageReport, Contents) {
    let before = files(dir);
    let out = dir.with_extension("out");
    let report = salvage(dir, &out, &SalvageOptions::default()).unwrap();
    assert!(files(dir) == before, "the damaged directory was changed");
    let db = Options::default()
        .create_if_missing(false)
        .open(&out)
        .unwrap();
    assert_eq!(db.verify().unwrap().errors.len(), 0);
    let found = contents(&db);
    assert_eq!(report.records(), found.len() as u64);
    db.close().unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    (report, found)
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

/// Place of `needle` in the file.
fn find(path: &Path, needle: &[u8]) -> Option<usize> {
    let bytes = std::fs::read(path).unwrap();
    bytes
        .windows(needle.len())
        .position(|window| window == needle)
}

fn key(number: u32) -> Vec<u8> {
    format!("key:{number:05}").into_bytes()
}

fn value(number: u32, round: &str, length: usize) -> Vec<u8> {
    let mut value = format!("{round}:{number}:").into_bytes();
    value.resize(length.max(value.len()), b'.');
    value
}

/// 2,000 small records in tables, 100 large ones in the log, and some of both only in the log.
fn filled(dir: &Path) -> Contents {
    let db = options().open(dir).unwrap();
    let users = db
        .create_keyspace("users", KeyspaceOptions::default())
        .unwrap();
    for number in 0..2000 {
        db.put(key(number), value(number, "small", 40)).unwrap();
    }
    for number in 0..100 {
        users.put(key(number), value(number, "large", 300)).unwrap();
    }
    db.default_keyspace()
        .delete_range(key(500)..key(600))
        .unwrap();
    db.delete(key(7)).unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    for number in 1000..1050 {
        db.put(key(number), value(number, "later", 40)).unwrap();
        users.put(key(number), value(number, "later", 300)).unwrap();
    }
    let all = contents(&db);
    db.close().unwrap();
    all
}

fn differing(found: &Contents, expected: &Contents) -> BTreeSet<(String, Vec<u8>)> {
    let names = found.keys().chain(expected.keys());
    names
        .filter(|name| found.get(*name) != expected.get(*name))
        .cloned()
        .collect()
}

#[test]
fn salvage_keeps_the_options_of_every_keyspace_the_default_one_too() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("db");
    let out = place.path().join("out");
    let db = options().open(&dir).unwrap();
    let compressed = KeyspaceOptions::default().compression(glintdb::Compression::Lz4);
    let users = db.create_keyspace("users", compressed.clone()).unwrap();
    db.default_keyspace()
        .set_options(compressed.clone())
        .unwrap();
    users.put("ann", "1").unwrap();
    db.put("bob", "2").unwrap();
    drop(users);
    db.close().unwrap();
    salvage(&dir, &out, &SalvageOptions::default()).unwrap();
    let db = options().open(&out).unwrap();
    for name in ["default", "users"] {
        assert_eq!(db.keyspace(name).unwrap().options(), compressed, "{name}");
    }
    assert_eq!(contents(&db).len(), 2);
}

#[test]
fn an_undamaged_database_comes_back_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("db");
    let expected = filled(&dir);
    let (report, found) = salvaged(&dir);
    assert!(report.is_complete() && report.closed, "{report:?}");
    assert!(found == expected);
    assert_eq!((report.uncertain, report.keyspaces["users"]), (0, 150));
    // It is not written over anything.
    let error = salvage(&dir, &dir, &SalvageOptions::default()).unwrap_err();
    assert_eq!(error.kind(), glintdb::ErrorKind::AlreadyExists);
    let nothing = place.path().join("empty");
    std::fs::create_dir(&nothing).unwrap();
    assert!(
        salvage(
            &nothing,
            place.path().join("out"),
            &SalvageOptions::default()
        )
        .is_err()
    );
    assert!(!place.path().join("out").exists() && !place.path().join("out.candidates").exists());
}

#[test]
fn a_rotten_key_block_costs_its_own_keys() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("db");
    let expected = filled(&dir);
    let hit = named(&dir, "table-")
        .into_iter()
        .find_map(|path| find(&path, b"small:300:").map(|at| (path, at)));
    let (path, at) = hit.unwrap();
    flip(&path, at);
    let (report, found) = salvaged(&dir);
    assert!(report.manifest_whole && report.damaged == 1 && !report.is_complete());
    assert_eq!(
        report.damage[0].place().unwrap().0,
        path.file_name().unwrap().to_str().unwrap()
    );
    let lost = differing(&found, &expected);
    assert!((1..200).contains(&lost.len()), "{} keys", lost.len());
    for (keyspace, key) in &lost {
        // The old frames of the log are gone, so they are lost, not old.
        assert_eq!(keyspace, "default");
        assert!(!found.contains_key(&(keyspace.clone(), key.clone())));
        let number: i32 = String::from_utf8_lossy(&key[4..]).parse().unwrap();
        assert!((number - 300).abs() < 200, "{number} is far from the block");
    }
}

#[test]
fn a_rotten_value_gives_way_to_an_older_one_and_is_named() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("db");
    let db = options().open(&dir).unwrap();
    for round in ["first", "second"] {
        for number in 0..50 {
            db.put(key(number), value(number, round, 300)).unwrap();
        }
    }
    // Deleted, and the deletion forgotten by the index: an old frame must not bring it back.
    db.delete(key(30)).unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    let expected = contents(&db);
    db.close().unwrap();
    let hit = named(&dir, "log-")
        .into_iter()
        .find_map(|path| find(&path, &value(20, "second", 300)).map(|at| (path, at)));
    let (path, at) = hit.unwrap();
    flip(&path, at + 200);
    // The ring has it too, and nothing is lost.
    let (report, found) = salvaged(&dir);
    assert!(report.is_complete() && found == expected, "{report:?}");
    assert_eq!(report.uncertain, 0);
    std::fs::remove_file(dir.join("ring")).unwrap();
    let (report, found) = salvaged(&dir);
    let name = ("default".to_owned(), key(20));
    assert_eq!((report.lost, &report.lost_keys[0]), (1, &name));
    assert_eq!(report.uncertain, 1);
    assert_eq!(differing(&found, &expected), BTreeSet::from([name.clone()]));
    assert_eq!(found[&name], value(20, "first", 300));
}

/// A value that came behind a range deletion of its own batch was lost, and salvage took it for deleted: it said that nothing was missing.
#[test]
fn a_rotten_value_behind_a_range_deletion_of_its_own_batch_is_named() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("db");
    let db = options().open(&dir).unwrap();
    let mut batch = Batch::new();
    batch.delete_range(&db.default_keyspace(), key(1)..key(5));
    batch.put(&db.default_keyspace(), key(1), value(1, "only", 150));
    db.write(batch).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let needle = value(1, "only", 150);
    for path in named(&dir, "log-") {
        if let Some(at) = find(&path, &needle) {
            flip(&path, at + 20);
        }
    }
    // The ring has another copy.
    let ring = dir.join("ring");
    let at = find(&ring, &needle).unwrap();
    flip(&ring, at + 20);
    let (report, found) = salvaged(&dir);
    assert!(found.is_empty() && !report.is_complete(), "{report:?}");
    assert_eq!(report.lost_keys, [("default".to_owned(), key(1))]);
}

#[test]
fn without_a_manifest_records_come_back_under_ids() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("db");
    let expected = filled(&dir);
    for path in named(&dir, "manifest-") {
        std::fs::remove_file(path).unwrap();
    }
    let (report, found) = salvaged(&dir);
    assert!(!report.manifest_whole && !report.is_complete() && !report.notes.is_empty());
    let renamed: Contents = expected
        .into_iter()
        .map(|((keyspace, key), value)| match keyspace.as_str() {
            "users" => (("keyspace-1".to_owned(), key), value),
            _ => ((keyspace, key), value),
        })
        .collect();
    let missing: Vec<_> = renamed
        .iter()
        .filter(|(name, value)| {
            let other = |found: &BTreeMap<_, _>| {
                found
                    .iter()
                    .any(|((_, key), other): (&(String, Vec<u8>), &Vec<u8>)| {
                        *key == name.1 && other == *value
                    })
            };
            found.get(*name) != Some(*value) && !other(&found)
        })
        .collect();
    assert!(
        missing.is_empty(),
        "{} records are missing: {:?}",
        missing.len(),
        report.notes
    );
    assert!(found.keys().any(|(keyspace, _)| keyspace == "keyspace-1"));
}

#[test]
fn what_is_left_of_a_damaged_manifest_still_tells_names() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("db");
    let expected = filled(&dir);
    // Its header: no record is touched, and the file is none of ours any more.
    let path = named(&dir, "manifest-").pop().unwrap();
    flip(&path, 3);
    let (report, found) = salvaged(&dir);
    assert!(!report.manifest_whole && report.damaged >= 1);
    for (name, value) in &expected {
        assert_eq!(found.get(name), Some(value), "{name:?}");
    }
}

#[test]
fn tables_and_segments_that_are_gone_are_named() {
    for kind in ["table-", "log-"] {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("db");
        let expected = filled(&dir);
        // The table of the small records, the segment of the large ones.
        let needle: &[u8] = match kind {
            "table-" => b"small:300:",
            _ => b"large:50:",
        };
        let has = |path: &PathBuf| find(path, needle).is_some();
        let path = named(&dir, kind).into_iter().find(has).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(dir.join("ring")).unwrap();
        let (report, found) = salvaged(&dir);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            report
                .damage
                .iter()
                .any(|error| error.to_string().contains(name)),
            "{report:?}"
        );
        assert!(!differing(&found, &expected).is_empty());
        // What is there is right, or counted as uncertain, or a missing commit's (each wrote one record).
        let wrong = found
            .iter()
            .filter(|(name, value)| expected.get(*name) != Some(*value));
        let wrong = wrong.count() as u64;
        assert!(
            wrong <= report.uncertain + report.commits_lost,
            "{wrong} are wrong: {report:?}"
        );
    }
}

/// What a round of value GC had written to a file that was a dead segment before, when the power went: nothing of it was synced, and its header is still the older one.
#[test]
fn relocated_values_that_nothing_names_and_that_have_no_header_are_no_damage() {
    use glintdb_core::{DbId, FileId, FileKind, FileNumbers, KeyspaceId, SegmentId};
    use glintdb_flash::Volume;
    use glintdb_log::{Log, LogOptions, LogSetup, Space};
    use glintdb_simdisk::MemVolume;
    use std::sync::Arc;

    struct From(std::sync::atomic::AtomicU64);
    impl FileNumbers for From {
        fn next(&self) -> glintdb::Result<u64> {
            Ok(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
        }
    }

    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("db");
    let expected = filled(&dir);
    let segments = named(&dir, "log-");
    let header = std::fs::read(segments.last().unwrap()).unwrap()[..512].to_vec();
    let newest = files(&dir).into_keys();
    let newest = newest.filter_map(|path| FileId::parse(path.file_name()?.to_str()?));
    let next = newest.map(|file| file.number).max().unwrap() + 100;

    // A log of the same database elsewhere writes them.
    let volume = MemVolume::new();
    let setup = LogSetup {
        volume: Arc::clone(&volume) as Arc<dyn Volume>,
        db: DbId(header[16..32].try_into().unwrap()),
        clock: Arc::new(glintdb_flash::ManualClock::default()),
        numbers: Arc::new(From(next.into())),
        options: LogOptions {
            segment_bytes: 64 << 10,
            ring_bytes: 64 << 10,
            reserve_segments: 0,
        },
    };
    let log = Log::create(setup).unwrap();
    let mut writer = log.values_writer(Space::Normal, u64::MAX).unwrap();
    let (key, value) = (key(3), value(3, "large", 300));
    let checksum = glintdb_core::checksum::crc32c(&value);
    writer
        .put(&log, KeyspaceId(0), &key, &value, checksum)
        .unwrap();
    let moved = writer.finish(&log).unwrap();
    let SegmentId(number) = moved.segments().next().unwrap();
    moved.leave();
    let id = FileId::new(FileKind::Log, number);
    let bytes = volume.open(id).unwrap().read_at(0, 64 << 10).unwrap();
    let orphan = [&header[..], &bytes[512..]].concat();
    std::fs::write(dir.join(id.to_string()), orphan).unwrap();

    let (report, found) = salvaged(&dir);
    assert_eq!(report.damaged, 0, "{report:?}");
    assert!(differing(&found, &expected).is_empty());
}

/// A B+tree whose runs are settled at once.
fn tree_options() -> KeyspaceOptions {
    let mut btree = BTreeOptions::default();
    btree.experiments.shelf_runs_settle = 1;
    KeyspaceOptions::default()
        .index(IndexKind::BTree)
        .btree(btree)
}

/// A B+tree with dead leaves: of 1,000 records in some ten leaves, four are deleted later, and the
/// tombstones are gone from the tree.
fn tree_filled(dir: &Path) -> Contents {
    let db = options().open(dir).unwrap();
    let space = db.create_keyspace("tree", tree_options()).unwrap();
    for number in 0..1000 {
        space.put(key(number), value(number, "first", 60)).unwrap();
    }
    db.flush().unwrap();
    for number in [10, 310, 610, 910] {
        space.delete(key(number)).unwrap();
        space
            .put(key(number + 1), value(number, "later", 150))
            .unwrap();
    }
    db.flush().unwrap();
    for number in 2000..2010 {
        space.put(key(number), value(number, "log", 60)).unwrap();
    }
    let all = contents(&db);
    assert_eq!(all.len(), 1006);
    let index = db.stats().keyspaces.remove(1);
    assert!(index.index_bytes > index.index_live_bytes, "{index:?}");
    db.close().unwrap();
    all
}

#[test]
fn records_that_were_deleted_from_a_tree_stay_deleted() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("db");
    let expected = tree_filled(&dir);
    let (report, found) = salvaged(&dir);
    assert!(report.is_complete() && report.closed, "{report:?}");
    assert_eq!(differing(&found, &expected), BTreeSet::new());
    assert_eq!((report.uncertain, &*report.notes), (0, &[][..]));
}

#[test]
fn a_rotten_leaf_costs_its_own_keys() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("db");
    let expected = tree_filled(&dir);
    // Its neighbours' first copies are dead.
    let hit = named(&dir, "table-")
        .into_iter()
        .find_map(|path| find(&path, b"first:450:").map(|at| (path, at)));
    let (path, at) = hit.unwrap();
    flip(&path, at);
    let (report, found) = salvaged(&dir);
    assert!(report.manifest_whole && !report.is_complete());
    assert_eq!(report.damaged, 1, "{report:?}");
    let name = path.file_name().unwrap().to_str().unwrap();
    assert_eq!(report.damage[0].place().unwrap().0, name);
    let lost = differing(&found, &expected);
    assert!((1..100).contains(&lost.len()), "{} keys", lost.len());
    for (_, key) in &lost {
        let number: i32 = String::from_utf8_lossy(&key[4..]).parse().unwrap();
        assert!((number - 450).abs() < 100, "{number} is far from the leaf");
    }
    assert!(lost.iter().all(|name| !found.contains_key(name)));
}

#[test]
fn leaves_beneath_a_lost_branch_come_back_as_uncertain() {
    for gone in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("db");
        let expected = tree_filled(&dir);
        // The root: an older one is in another file, and not needed.
        let path = named(&dir, "tree-").pop().unwrap();
        match gone {
            false => flip(&path, 4096 + 100),
            true => std::fs::remove_file(&path).unwrap(),
        }
        let (report, found) = salvaged(&dir);
        assert!(report.manifest_whole && !report.is_complete());
        assert_eq!(report.damaged, 1, "{report:?}");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(report.damage[0].place().unwrap().0, name);
        assert!(
            report.notes.iter().any(|note| note.contains("\"tree\"")),
            "{:?}",
            report.notes
        );
        // Everything is there, and so is what was deleted.
        let differ = differing(&found, &expected);
        assert!(
            expected.keys().all(|name| !differ.contains(name)),
            "{differ:?}"
        );
        assert!(differ.len() <= 4, "{differ:?}");
        assert_eq!(
            report.uncertain,
            found.len() as u64 - 10,
            "all but those of the log"
        );
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(usize, u32, bool),
    Delete(usize, u32),
    DeleteRange(usize, u32, u32),
    Batch(Vec<(usize, u32)>),
    Flush,
    Compact,
    Reopen,
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index, prop::sample::Index),
    Zero(prop::sample::Index, prop::sample::Index),
    Truncate(prop::sample::Index, prop::sample::Index),
    Delete(prop::sample::Index),
    NoManifest,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0u32..60;
    prop_oneof![
        12 => (0usize..3, key(), any::<bool>()).prop_map(|(s, k, large)| Op::Put(s, k, large)),
        3 => (0usize..3, key()).prop_map(|(s, k)| Op::Delete(s, k)),
        1 => (0usize..3, key(), key()).prop_map(|(s, a, b)| Op::DeleteRange(s, a.min(b), a.max(b))),
        2 => prop::collection::vec((0usize..3, key()), 1..8).prop_map(Op::Batch),
        1 => Just(Op::Flush),
        1 => Just(Op::Compact),
        1 => Just(Op::Reopen),
    ]
}

/// The options of each keyspace: the last one has a B+tree.
fn kinds() -> [KeyspaceOptions; 3] {
    let lsm = KeyspaceOptions::default();
    [lsm.clone(), lsm, tree_options()]
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (index(), index()).prop_map(|(f, o)| Damage::Flip(f, o)),
        2 => (index(), index()).prop_map(|(f, o)| Damage::Zero(f, o)),
        1 => (index(), index()).prop_map(|(f, o)| Damage::Truncate(f, o)),
        1 => index().prop_map(Damage::Delete),
        1 => Just(Damage::NoManifest),
    ]
}

fn hurt(dir: &Path, damage: &Damage) {
    let all: Vec<PathBuf> = files(dir)
        .into_iter()
        .filter(|(_, bytes)| !bytes.is_empty())
        .map(|(path, _)| path)
        .collect();
    if all.is_empty() {
        return;
    }
    let (Damage::Flip(file, _)
    | Damage::Zero(file, _)
    | Damage::Truncate(file, _)
    | Damage::Delete(file)) = damage
    else {
        for path in named(dir, "manifest-") {
            std::fs::remove_file(path).unwrap();
        }
        return;
    };
    let path = file.get(&all);
    let mut bytes = std::fs::read(path).unwrap();
    match damage {
        Damage::Flip(_, offset) => *offset.get_mut(&mut bytes) ^= 4,
        Damage::Zero(_, offset) => {
            let at = offset.index(bytes.len()) / 512 * 512;
            let end = bytes.len().min(at + 512);
            bytes[at..end].fill(0);
        }
        Damage::Truncate(_, offset) => bytes.truncate(offset.index(bytes.len())),
        _ => return std::fs::remove_file(path).unwrap(),
    }
    std::fs::write(path, bytes).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn prop_what_is_intact_comes_back_and_nothing_is_invented(
        ops in prop::collection::vec(op(), 1..120),
        killed: bool,
        damages in prop::collection::vec(damage(), 0..4),
    ) {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("db");
        let names = ["default", "a", "b"];
        let open = || {
            let db = options().open(&dir).unwrap();
            for (name, options) in names.into_iter().zip(kinds()) {
                db.keyspace_or_create(name, options).unwrap();
            }
            db
        };
        let mut db = open();
        let mut ever: BTreeSet<(Vec<u8>, Vec<u8>)> = BTreeSet::new();
        let mut round = 0;
        for op in &ops {
            let space = |s: usize| db.keyspace(names[s]).unwrap();
            let mut make = |k: u32, large: bool| {
                round += 1;
                let value = value(k, &format!("{round}"), if large { 150 } else { 20 });
                ever.insert((key(k), value.clone()));
                value
            };
            match op {
                Op::Put(s, k, large) => space(*s).put(key(*k), make(*k, *large)).unwrap(),
                Op::Delete(s, k) => space(*s).delete(key(*k)).unwrap(),
                Op::DeleteRange(s, a, b) => space(*s).delete_range(key(*a)..key(*b)).unwrap(),
                Op::Batch(puts) => {
                    let mut batch = Batch::new();
                    for (s, k) in puts {
                        if k % 7 == 0 {
                            batch.delete_range(&space(*s), key(*k)..key(*k + 5));
                        }
                        batch.put(&space(*s), key(*k), make(*k, k % 2 == 0));
                        if k % 5 == 0 {
                            batch.delete(&space(*s), key(*k));
                        }
                    }
                    db.write(batch).unwrap();
                }
                Op::Flush => db.flush().unwrap(),
                Op::Compact => db.compact().unwrap(),
                Op::Reopen => {
                    db.close().unwrap();
                    db = open();
                }
            }
        }
        let expected = contents(&db);
        let image = place.path().join("image");
        if killed {
            copy(&dir, &image);
            db.close().unwrap();
        } else {
            db.close().unwrap();
            copy(&dir, &image);
        }
        for damage in &damages {
            hurt(&image, damage);
        }
        let before = files(&image);
        let nothing_left = !before.keys().any(|path| path.extension().is_some_and(|e| e == "glint"));
        if nothing_left {
            return Ok(());
        }
        let out = place.path().join("out");
        let report = match salvage(&image, &out, &SalvageOptions::default()) {
            Ok(report) => report,
            Err(error) => {
                // Only where not one file tells which database it was.
                prop_assert!(!damages.is_empty() && error.to_string().contains("which database"), "{error}");
                prop_assert!(!out.exists());
                return Ok(());
            }
        };
        prop_assert!(files(&image) == before, "the damaged directory was changed");
        let db = Options::default().create_if_missing(false).open(&out).unwrap();
        prop_assert_eq!(db.verify().unwrap().errors.len(), 0);
        let found = contents(&db);
        db.close().unwrap();
        for ((keyspace, key), value) in &found {
            prop_assert!(ever.contains(&(key.clone(), value.clone())), "{keyspace} {key:?} was never so");
        }
        // Where the mark of a clean close is gone, nobody can know what stood behind the last frame (docs/format/log.md, "Tail or corruption").
        if report.is_complete() && (report.closed || damages.is_empty()) {
            let differ = differing(&found, &expected);
            prop_assert!(differ.is_empty(), "said to be complete, and {differ:?} differ; {report:?}");
        }
        if damages.is_empty() {
            prop_assert!(report.is_complete(), "{report:?}");
        }
        // What differs is where something is said to be lost: with a whole manifest and nothing of the log missing, only suspected keys come back older.
        if report.closed && report.manifest_whole && report.commits_lost == 0 && report.damaged == 0 {
            let older = differing(&found, &expected).len() as u64;
            prop_assert!(older <= report.lost, "{older} differ, {} are said to be lost", report.lost);
        }
    }
}
