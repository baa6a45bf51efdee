//! Keys of 0 to 65,536 bytes, values of 0 bytes to 1 GiB, names of 1 to 255 bytes; beyond, `InvalidArgument` and nothing changed.

use glintdb::{Batch, Db, ErrorKind, KeyspaceOptions, Options};

const KEY_MAX: usize = 65_536;
const VALUE_MAX: usize = 1 << 30;

fn open() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().log_ring_bytes(1 << 20);
    let db = options.open(dir.path().join("db")).unwrap();
    (dir, db)
}

fn invalid<T>(result: glintdb::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::InvalidArgument)
}

#[test]
fn the_longest_key_is_taken_and_a_longer_one_refused_everywhere() {
    let (_dir, db) = open();
    let space = db.default_keyspace();
    let longest = vec![b'k'; KEY_MAX];
    let longer = vec![b'k'; KEY_MAX + 1];
    db.put(&longest, "value").unwrap();
    db.put("", "the empty key is a key").unwrap();
    assert!(invalid(db.put(&longer, "value")));
    assert!(invalid(db.delete(&longer)));
    // A bound is no key: no key lies behind this one, so nothing is deleted.
    let deleted = space.delete_range(longer.clone()..);
    assert!(deleted.is_ok() || invalid(deleted));
    let mut batch = Batch::new();
    batch.put(&space, "innocent", "x").put(&space, &longer, "y");
    assert!(invalid(db.write(batch)));
    assert_eq!(
        db.get("innocent").unwrap(),
        None,
        "nothing of a refused batch is applied"
    );
    let mut transaction = db.transaction();
    let refused = transaction.put(&space, &longer, "x");
    assert!(invalid(refused) || invalid(transaction.commit()));
    db.flush().unwrap();
    assert_eq!(db.get(&longest).unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(
        db.get("").unwrap().as_deref(),
        Some(&b"the empty key is a key"[..])
    );
    let found: Vec<_> = space.iter().map(|record| record.unwrap().0.len()).collect();
    assert_eq!(found, [0, KEY_MAX]);
    db.delete(&longest).unwrap();
    assert_eq!(space.iter().count(), 1);
}

#[test]
fn values_go_from_nothing_to_more_than_a_segment() {
    let (dir, db) = open();
    // Larger than a log segment (64 MiB) and than the log's ring.
    let large = glintdb_testkit::rng::Rng::new(5).bytes(70 << 20);
    db.put("empty", "").unwrap();
    db.put("large", &large).unwrap();
    assert_eq!(db.get("empty").unwrap().as_deref(), Some(&b""[..]));
    assert!(db.get("large").unwrap().as_deref() == Some(&large[..]));
    drop(db);
    let db = Db::open(dir.path().join("db")).unwrap();
    assert_eq!(db.get("empty").unwrap().as_deref(), Some(&b""[..]));
    assert!(db.get("large").unwrap().as_deref() == Some(&large[..]));
    assert!(db.verify().unwrap().errors.is_empty());
}

#[test]
fn a_value_over_one_gib_is_refused() {
    let (_dir, db) = open();
    // Zeroed memory that nobody reads takes no pages.
    let longer = vec![0; VALUE_MAX + 1];
    assert!(invalid(db.put("key", &longer)));
    assert_eq!(db.get("key").unwrap(), None);
}

#[test]
fn names_of_keyspaces_have_one_to_255_bytes() {
    let (_dir, db) = open();
    let create = |name: &str| db.create_keyspace(name, KeyspaceOptions::default());
    assert!(invalid(create("")));
    assert!(invalid(create(&"n".repeat(256))));
    assert!(create(&"n".repeat(255)).is_ok());
    assert!(create("\u{e4}").is_ok());
    for taken in ["\u{e4}", "default"] {
        let error = create(taken).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    }
    let mut names = db.keyspaces();
    names.sort();
    assert_eq!(
        names,
        ["default".to_string(), "n".repeat(255), "\u{e4}".to_string()]
    );
}

#[test]
fn later_operations_of_a_batch_win() {
    let (_dir, db) = open();
    let space = db.default_keyspace();
    let mut batch = Batch::new();
    batch
        .put(&space, "a", "1")
        .put(&space, "a", "2")
        .delete(&space, "b")
        .put(&space, "b", "3")
        .put(&space, "c", "4")
        .delete_range(&space, "c".."d")
        .put(&space, "cc", "5");
    assert_eq!((batch.len(), batch.is_empty()), (7, false));
    assert!(batch.size_bytes() > 0);
    db.write(batch).unwrap();
    let found: Vec<_> = space.iter().map(Result::unwrap).collect();
    let found: Vec<_> = found
        .iter()
        .map(|(key, value)| (&key[..], &value[..]))
        .collect();
    assert_eq!(found, [(&b"a"[..], &b"2"[..]), (b"b", b"3"), (b"cc", b"5")]);
    let mut emptied = Batch::new();
    emptied.put(&space, "z", "z");
    emptied.clear();
    assert!(emptied.is_empty());
    db.write(emptied).unwrap();
    assert_eq!(db.get("z").unwrap(), None);
}
