//! The golden files: a table of leaves, a file of branches, and the edit that names them. A change
//! that makes these tests fail changes the format: it needs a new version, and these files stay.

use super::harness::Harness;
use crate::{BTree, BTreeOptions};
use bytes::Bytes;
use glintdb_core::index::Index;
use glintdb_core::{EntryValue, FileId, FileKind, SegmentId, SeqNum, ValuePointer};
use glintdb_flash::{CreateOptions, DataClass, Volume};
use glintdb_indextest::{VecRun, env};
use glintdb_simdisk::MemVolume;
use std::ops::Bound;
use std::path::{Path, PathBuf};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

/// The name of the golden file for a file of the index.
fn name_of(file: FileId) -> &'static str {
    match file.kind {
        FileKind::Tree => "tree-v1.glint",
        _ => "leaves-v1.glint",
    }
}

/// Record `n` of the golden tree: every tenth has a pointer.
fn record(n: u32) -> (Bytes, SeqNum, EntryValue) {
    let value = match n % 10 {
        3 => EntryValue::Pointer(ValuePointer {
            segment: SegmentId(1),
            offset: 4096 + n,
            length: 1000 + n,
            checksum: n,
        }),
        _ => EntryValue::Inline(Bytes::from(vec![b'a' + (n % 26) as u8; 40])),
    };
    let key = Bytes::from(format!("row{:06}", 7 * n));
    (key, SeqNum(u64::from(n) + 1), value)
}

const RECORDS: u32 = 200;

/// An index with the golden records in its tree.
fn written() -> Harness {
    let mut harness = Harness::new(BTreeOptions::default());
    harness.checks = false;
    let mut run = VecRun {
        entries: (0..RECORDS).map(record).collect(),
        ..VecRun::default()
    };
    let change = harness.index.write_run(&mut run).unwrap();
    harness.apply(&change);
    harness.compact(Bound::Unbounded, Bound::Unbounded);
    harness
}

fn bytes_of(volume: &MemVolume, file: FileId) -> Bytes {
    let file = volume.open(file).unwrap();
    let length = usize::try_from(file.len().unwrap()).unwrap();
    file.read_at(0, length).unwrap()
}

#[test]
fn golden_files_are_what_is_written() {
    let harness = written();
    let mut files = harness.index.files();
    files.sort();
    assert_eq!(files.len(), 2, "{files:?}");
    let mut golden: Vec<(&str, Bytes)> = (files.iter())
        .map(|file| (name_of(*file), bytes_of(&harness.volume, *file)))
        .collect();
    golden.push(("edit-v1.bin", harness.index.snapshot_edit().into()));
    for (name, bytes) in golden {
        if std::env::var_os("GLINTDB_BLESS").is_some() {
            std::fs::write(path(name), &bytes).unwrap();
        }
        let expected = std::fs::read(path(name)).unwrap();
        assert!(bytes == expected, "{name} is not what is written now");
    }
}

#[test]
fn golden_files_are_read() {
    let edit = std::fs::read(path("edit-v1.bin")).unwrap();
    let volume = MemVolume::new();
    for change in BTree::file_changes(&edit).unwrap() {
        let options = CreateOptions {
            class: DataClass::Flush,
            reserve_bytes: 0,
            direct: false,
        };
        let file = volume.create(change.id, options).unwrap();
        let bytes = std::fs::read(path(name_of(change.id))).unwrap();
        file.write_at(0, &bytes).unwrap();
        file.sync().unwrap();
    }
    let index = BTree::open(env(&volume), BTreeOptions::default(), &[edit]).unwrap();
    let view = index.view();
    view.verify(
        &mut |error| panic!("{error}"),
        &mut |_| {},
        &mut |_, _| {},
        &mut |_| {},
    );
    assert_eq!(view.stats().entries, u64::from(RECORDS));
    for (key, seqno, value) in (0..RECORDS).map(record) {
        let found = view.get(&key).unwrap().unwrap();
        assert_eq!((found.seqno, found.value), (seqno, value));
    }
}
