//! Options that change on a keyspace that exists: they are refused or durable, they count at once, and they shape the tree from then on.

use crate::support::*;
use glintdb::{Compression, ErrorKind, IndexKind, KeyspaceOptions, PinnedLevels};
use glintdb_simdisk::{CrashMode, FaultKind, MemVolume};

fn changed(options: KeyspaceOptions) -> KeyspaceOptions {
    let mut options = options
        .compression(Compression::Lz4)
        .pinned_levels(PinnedLevels::Levels(2));
    options.lsm.size_ratio = 4;
    options.lsm.block_bytes = 8192;
    options
}

#[test]
fn options_are_kept_whatever_comes_after_and_are_the_keyspaces_own() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let other = db
        .create_keyspace("other", KeyspaceOptions::default())
        .unwrap();
    let wanted = changed(other.options());
    other.set_options(wanted.clone()).unwrap();
    assert_eq!(other.options(), wanted);
    assert_eq!(db.keyspace("other").unwrap().options(), wanted);
    let untouched = db.default_keyspace().options();
    assert_ne!(untouched, wanted);
    let killed = volume.kill();
    let cut = volume.crash(CrashMode::LoseUnsynced);
    db.close().unwrap();
    for after in [volume, killed, cut] {
        // Twice: the second opening reads what the first one wrote anew.
        for _ in 0..2 {
            let db = open(&after).unwrap();
            assert_eq!(db.keyspace("other").unwrap().options(), wanted);
            assert_eq!(db.default_keyspace().options(), untouched);
            db.close().unwrap();
        }
    }
}

#[test]
fn what_is_beyond_the_limits_or_cannot_be_written_changes_nothing() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let keyspace = db.default_keyspace();
    let before = keyspace.options();
    let mut wrong = before.clone();
    wrong.lsm.size_ratio = 1;
    let error = keyspace.set_options(wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("size_ratio"), "{error}");
    assert_eq!(keyspace.options(), before);

    let gone = db
        .create_keyspace("gone", KeyspaceOptions::default())
        .unwrap();
    db.drop_keyspace("gone").unwrap();
    let error = gone.set_options(changed(before.clone())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);

    fail_at(&volume, volume.operation_count(), FaultKind::Io, true);
    keyspace.set_options(changed(before.clone())).unwrap_err();
    assert_eq!(keyspace.options(), before);
    drop((keyspace, gone, db));
    let db = open(&volume.crash(CrashMode::LoseUnsynced)).unwrap();
    assert_eq!(db.default_keyspace().options(), before);
}

#[test]
fn tables_written_from_then_on_are_as_the_new_options_say() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let keyspace = db.default_keyspace();
    let fill = |from: u32| {
        for n in from..from + 2000 {
            keyspace.put(format!("key {n:06}"), [b'v'; 100]).unwrap();
        }
        keyspace.compact().unwrap();
        db.stats().keyspaces[0].index_bytes
    };
    let plain = fill(0);
    keyspace.set_options(changed(keyspace.options())).unwrap();
    let both = fill(10_000);
    assert!(both < 2 * plain - plain / 2, "{both} beside {plain}");
    assert_eq!(keyspace.iter().count(), 4000);
    check_clean(&db, &"with tables of both kinds");
    // The level that all of it is in, and level 0.
    assert_eq!(db.stats().keyspaces[0].pinned_levels, 2);
    keyspace
        .set_options(keyspace.options().pinned_levels(PinnedLevels::Levels(0)))
        .unwrap();
    let stats = db.stats();
    assert_eq!(
        (
            stats.keyspaces[0].pinned_levels,
            stats.keyspaces[0].pinned_index_bytes
        ),
        (0, 0)
    );
    db.close().unwrap();
}

#[test]
fn keyspace_or_create_names_the_options_that_the_keyspace_does_not_have() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let wanted = changed(KeyspaceOptions::default());
    let logs = db.keyspace_or_create("logs", wanted.clone()).unwrap();
    assert_eq!(logs.options(), wanted);
    db.keyspace_or_create("logs", wanted.clone()).unwrap();

    // As after a later call of `set_options`, by a tool or a newer version of the program.
    let mut tuned = wanted.clone();
    tuned.lsm.size_ratio = 6;
    logs.set_options(tuned.pinned_levels(PinnedLevels::Auto))
        .unwrap();
    let error = db.keyspace_or_create("logs", wanted.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(
        error.to_string(),
        "invalid argument: keyspace \"logs\" exists with other options: size_ratio is 6, not 4, pinned_levels is auto, not 2; \
         call Keyspace::set_options to change them"
    );
    logs.set_options(wanted.clone()).unwrap();
    db.keyspace_or_create("logs", wanted).unwrap();
}

#[test]
fn options_left_at_their_defaults_open_a_keyspace_whatever_its_options_are() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let wanted = changed(KeyspaceOptions::default());
    db.create_keyspace("logs", wanted.clone()).unwrap();
    let compressed = KeyspaceOptions::default().compression(Compression::Lz4);
    for asked in [KeyspaceOptions::default(), compressed] {
        let opened = db.keyspace_or_create("logs", asked).unwrap();
        assert_eq!(opened.options(), wanted, "they stay as they are");
    }
}

#[test]
fn a_b_tree_takes_its_own_options_alone_and_keeps_its_kind() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    let tree = KeyspaceOptions::default().index(IndexKind::BTree);
    let mut of_lsm = tree.clone();
    of_lsm.lsm.size_ratio = 4;
    let mut of_btree = KeyspaceOptions::default();
    of_btree.btree.experiments.leaf_batch = 7;
    for (wrong, name) in [(of_lsm, "size_ratio"), (of_btree, "leaf_batch")] {
        let error = db.create_keyspace("wrong", wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(name), "{error}");
        assert!(db.keyspace("wrong").is_err());
    }
    let wanted = tree.clone().compression(Compression::Lz4);
    let keyspace = db.create_keyspace("tree", wanted.clone()).unwrap();
    for n in 0..2000_u32 {
        keyspace.put(n.to_be_bytes(), n.to_string()).unwrap();
    }
    keyspace.compact().unwrap();
    let error = keyspace
        .set_options(KeyspaceOptions::default())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let mut other = KeyspaceOptions::default();
    other.lsm.size_ratio = 6;
    let error = db.keyspace_or_create("tree", other).unwrap_err();
    assert!(error.to_string().contains("index is btree"), "{error}");
    assert!(error.to_string().contains("Keyspace::convert"), "{error}");
    drop(keyspace);
    db.close().unwrap();
    let db = open(&volume).unwrap();
    for options in [KeyspaceOptions::default(), tree] {
        let keyspace = db.keyspace_or_create("tree", options).unwrap();
        assert_eq!(keyspace.options(), wanted);
        let found = keyspace.get(1234_u32.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&b"1234"[..]));
    }
    let report = db.verify().unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}
