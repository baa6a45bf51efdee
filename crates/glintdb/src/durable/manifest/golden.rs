//! Locks format version 1 of the manifest: what is written today is `testdata/manifest-v1.bin` and, of retired segments, `manifest-v1-retired.bin`, byte for byte, and those are read as
//! `docs/format/manifest.md` says.
//!
//! To look at a deliberate change: `GLINTDB_BLESS=1 cargo test -p glintdb golden`, and a new version in the format page.

use super::*;
use bytes::Bytes;
use glintdb_core::{FileId, FileKind};
use glintdb_flash::{CreateOptions, DataClass};
use glintdb_lsm::{Lsm, PinnedLevels};
use glintdb_runs::Compression;
use glintdb_runs::table::TableMeta;
use glintdb_simdisk::MemVolume;
use std::path::Path;

const DB: DbId = DbId(*b"0123456789abcdef");
const NUMBER: u64 = 7;
const ID: FileId = FileId {
    kind: FileKind::Manifest,
    number: NUMBER,
};
const GOLDEN: &[u8] = include_bytes!("../../../testdata/manifest-v1.bin");
const RETIRED: &[u8] = include_bytes!("../../../testdata/manifest-v1-retired.bin");
const GOLDEN_PINS: &[u8] = include_bytes!("../../../testdata/manifest-v1-options-v2.bin");
const CHANGED: &[u8] = include_bytes!("../../../testdata/manifest-v1-options-changed.bin");
const INDEX: &[u8] = include_bytes!("../../../testdata/manifest-v1-index.bin");
const SIZES: &[u8] = include_bytes!("../../../testdata/manifest-v1-options-sizes.bin");
const PAGE: &str = include_str!("../../../../../docs/format/manifest.md");

/// The defaults of the day on which the files were made.
fn options() -> KeyspaceOptions {
    let mut options = KeyspaceOptions::default();
    options.lsm.experiments.base_level_bytes = 512 << 20;
    options
}

/// A keyspace whose levels have the sizes that the engine chooses: 0 is stored.
fn written_with_sizes() -> Bytes {
    let volume: Arc<dyn Volume> = MemVolume::new();
    let mut state = State::empty();
    let item = Item::KeyspaceCreated {
        id: KeyspaceId(0),
        name: "default".to_owned(),
        options: KeyspaceOptions::default(),
    };
    state.apply(&item).unwrap();
    Manifest::create(Arc::clone(&volume), DB, NUMBER, state, Vec::new()).unwrap();
    read_whole(&*volume, ID).unwrap()
}

#[test]
fn sizes_of_levels_that_are_chosen_are_stored_as_0_and_those_that_were_given_stay() {
    let base = |bytes| {
        let keyspaces = read(bytes).state.keyspaces;
        keyspaces[&KeyspaceId(0)]
            .options
            .lsm
            .experiments
            .base_level_bytes
    };
    assert_eq!((base(SIZES), base(GOLDEN)), (0, 512 << 20));
}

fn created(id: u32, name: &str, compression: Compression) -> Item {
    Item::KeyspaceCreated {
        id: KeyspaceId(id),
        name: name.to_owned(),
        options: options().compression(compression),
    }
}

fn live(segment: u64, bytes: i64) -> Item {
    Item::Liveness {
        keyspace: KeyspaceId(0),
        segment: SegmentId(segment),
        bytes,
    }
}

fn point(segment: u64, offset: u32, seqno: u64) -> FlushPoint {
    FlushPoint {
        lsn: Lsn::new(SegmentId(segment), offset),
        seqno: SeqNum(seqno),
    }
}

/// The edit of an index to which table 42 is added, at level 6, as the page gives it.
fn table_42_at_the_bottom() -> Vec<u8> {
    let meta = TableMeta {
        id: FileId::new(FileKind::Table, 42),
        bytes: 12_288,
        tail_offset: 8192,
        blocks: 1,
        entries: 3,
        tombstones: 1,
        range_tombstones: 1,
        pointed_bytes: 1024,
        smallest: Bytes::from_static(b"apple"),
        largest: Bytes::from_static(b"banana"),
        range: (Bytes::from_static(b"apple"), Some(Bytes::from_static(b"d"))),
        seqno_min: SeqNum(5),
        seqno_max: SeqNum(300),
    };
    let mut edit = vec![1, 1, 6, 0];
    meta.encode(&mut edit);
    edit
}

/// The edit of a compaction that leaves nothing: table 42 goes.
const TABLE_42_REMOVED: [u8; 5] = [1, 2, 6, 0, 42];

/// State and edits of the worked example, written by the code that writes manifests.
fn written() -> Bytes {
    let volume: Arc<dyn Volume> = MemVolume::new();
    let mut state = State::empty();
    for item in [
        Item::NumbersReserved(257),
        created(0, "default", Compression::None),
        created(2, "fruit", Compression::Lz4),
        Item::FlushPoint(point(1, 4096, 300)),
        Item::KeyspaceDropped {
            id: KeyspaceId(3),
            seqno: SeqNum(301),
        },
        live(1, 1024),
    ] {
        state.apply(&item).unwrap();
    }
    let edits = vec![
        (KeyspaceId(0), table_42_at_the_bottom()),
        (KeyspaceId(2), Vec::new()),
    ];
    let mut manifest = Manifest::create(Arc::clone(&volume), DB, NUMBER, state, edits).unwrap();
    manifest.commit(&[Item::NumbersReserved(513)]).unwrap();
    manifest
        .commit(&[
            Item::IndexEdit {
                keyspace: KeyspaceId(0),
                edit: TABLE_42_REMOVED.to_vec(),
            },
            live(1, -1024),
            Item::FlushPoint(point(258, 4136, 302)),
        ])
        .unwrap();
    read_whole(&*volume, ID).unwrap()
}

/// The second example: of two segments one is retired; its last bytes go, and the other one is retired.
fn written_retired() -> Bytes {
    let volume: Arc<dyn Volume> = MemVolume::new();
    let mut state = State::empty();
    for item in [
        Item::NumbersReserved(257),
        created(0, "default", Compression::None),
        Item::FlushPoint(point(9, 4096, 300)),
        live(1, 1024),
        live(2, 512),
        Item::SegmentRetired(SegmentId(1)),
    ] {
        state.apply(&item).unwrap();
    }
    let edits = vec![(KeyspaceId(0), Vec::new())];
    let mut manifest = Manifest::create(Arc::clone(&volume), DB, NUMBER, state, edits).unwrap();
    manifest
        .commit(&[
            live(1, -1024),
            live(300, 256),
            Item::SegmentRetired(SegmentId(2)),
        ])
        .unwrap();
    read_whole(&*volume, ID).unwrap()
}

/// A keyspace that is created with LZ4, and then has it no longer.
fn written_changed() -> Bytes {
    let volume: Arc<dyn Volume> = MemVolume::new();
    let mut state = State::empty();
    for item in [
        created(0, "default", Compression::None),
        created(2, "fruit", Compression::Lz4),
    ] {
        state.apply(&item).unwrap();
    }
    let mut manifest =
        Manifest::create(Arc::clone(&volume), DB, NUMBER, state, Vec::new()).unwrap();
    let mut changed = options().pinned_levels(PinnedLevels::Levels(3));
    changed.lsm.levels_max = 2;
    let changed = Item::KeyspaceOptions {
        id: KeyspaceId(2),
        options: changed,
    };
    manifest.commit(&[changed]).unwrap();
    read_whole(&*volume, ID).unwrap()
}

/// A keyspace whose index is replaced by another one, with other options.
fn written_index() -> Bytes {
    let volume: Arc<dyn Volume> = MemVolume::new();
    let mut state = State::empty();
    state
        .apply(&created(0, "default", Compression::None))
        .unwrap();
    let mut manifest =
        Manifest::create(Arc::clone(&volume), DB, NUMBER, state, Vec::new()).unwrap();
    let replaced = Item::KeyspaceIndex {
        id: KeyspaceId(0),
        options: options().compression(Compression::Lz4),
        edit: Vec::new(),
    };
    manifest.commit(&[replaced]).unwrap();
    read_whole(&*volume, ID).unwrap()
}

#[test]
fn writing_gives_the_golden_bytes() {
    for (name, written, golden) in [
        ("manifest-v1.bin", written(), GOLDEN),
        ("manifest-v1-retired.bin", written_retired(), RETIRED),
        (
            "manifest-v1-options-changed.bin",
            written_changed(),
            CHANGED,
        ),
        ("manifest-v1-options-sizes.bin", written_with_sizes(), SIZES),
        ("manifest-v1-index.bin", written_index(), INDEX),
    ] {
        if std::env::var_os("GLINTDB_BLESS").is_some() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
            std::fs::write(path.join(name), &written).unwrap();
        }
        assert!(written == golden, "the format of {name} changed");
    }
}

/// What the bytes of a file are read as.
fn read(bytes: &[u8]) -> Loaded {
    let volume: Arc<dyn Volume> = MemVolume::new();
    let options = CreateOptions {
        class: DataClass::Manifest,
        reserve_bytes: 0,
        direct: false,
    };
    let file = volume.create(ID, options).unwrap();
    file.write_at(0, bytes).unwrap();
    read_newest(&*volume).unwrap().loaded.unwrap()
}

#[test]
fn options_that_changed_are_those_of_the_last_item() {
    let read_options = |bytes| {
        let lsm = read(bytes).state.keyspaces[&KeyspaceId(2)]
            .options
            .lsm
            .clone();
        (lsm.compression, lsm.pinned_levels, lsm.levels_max)
    };
    assert_eq!(
        read_options(CHANGED),
        (Compression::None, PinnedLevels::Levels(3), 2)
    );
    // Without the last record.
    let before = &CHANGED[..CHANGED.len() - 32];
    assert_eq!(
        read_options(before),
        (Compression::Lz4, PinnedLevels::Auto, 6)
    );
}

#[test]
fn the_golden_manifest_of_retired_segments_reads_as_the_page_says() {
    let state = read(RETIRED).state;
    // Nothing points into segment 1 any more, so it is not remembered.
    assert_eq!(state.retired, [SegmentId(2)].into());
    let held = [1, 2, 300].map(|id| state.live_bytes(SegmentId(id)));
    assert_eq!(held, [0, 512, 256]);
    assert_eq!(state.live_segments(), [SegmentId(300)]);
    let before = read(&RETIRED[..RETIRED.len() - 8]).state;
    assert_eq!(before.retired, [SegmentId(1)].into());
    assert_eq!(before.live_segments(), [SegmentId(2)]);
}

#[test]
fn the_golden_manifest_reads_as_the_page_says() {
    let loaded = read(GOLDEN);
    assert_eq!(
        (loaded.db, loaded.number, loaded.end),
        (DB, NUMBER, GOLDEN.len() as u64)
    );
    let state = &loaded.state;
    assert_eq!(state.numbers_reserved, 513);
    assert_eq!(state.keyspace_next, KeyspaceId(4));
    let names: Vec<_> = state
        .keyspaces
        .iter()
        .map(|(id, record)| (id.0, record.name.as_str(), record.options.lsm.compression))
        .collect();
    assert_eq!(
        names,
        [
            (0, "default", Compression::None),
            (2, "fruit", Compression::Lz4)
        ]
    );
    // The flush point has passed the drop, and the segment's last live bytes are gone.
    assert_eq!(state.flush_point, point(258, 4136, 302));
    assert!(state.dropped.is_empty() && state.liveness.is_empty());
    assert_eq!(
        loaded.edits[&KeyspaceId(0)],
        [table_42_at_the_bottom(), TABLE_42_REMOVED.to_vec()]
    );
    assert_eq!(loaded.edits[&KeyspaceId(2)], [Vec::<u8>::new()]);
}

/// A keyspace for each way in which pinned levels are stored: version 1 of the options, and twice version 2.
fn written_with_pins() -> Bytes {
    let volume: Arc<dyn Volume> = MemVolume::new();
    let mut state = State::empty();
    for (id, name, levels) in PINNED {
        let item = Item::KeyspaceCreated {
            id: KeyspaceId(id),
            name: name.to_owned(),
            options: options().pinned_levels(levels),
        };
        state.apply(&item).unwrap();
    }
    Manifest::create(Arc::clone(&volume), DB, NUMBER, state, Vec::new()).unwrap();
    read_whole(&*volume, ID).unwrap()
}

const PINNED: [(u32, &str, PinnedLevels); 3] = [
    (0, "default", PinnedLevels::Auto),
    (1, "three", PinnedLevels::Levels(3)),
    (2, "none", PinnedLevels::Levels(0)),
];

#[test]
fn options_with_pinned_levels_are_the_golden_ones() {
    let written = written_with_pins();
    if std::env::var_os("GLINTDB_BLESS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
        std::fs::write(path.join("manifest-v1-options-v2.bin"), &written).unwrap();
    }
    assert!(written == GOLDEN_PINS, "the format changed");
    let volume: Arc<dyn Volume> = MemVolume::new();
    let options = CreateOptions {
        class: DataClass::Manifest,
        reserve_bytes: 0,
        direct: false,
    };
    let file = volume.create(ID, options).unwrap();
    file.write_at(0, GOLDEN_PINS).unwrap();
    let loaded = read_newest(&*volume).unwrap().loaded.unwrap();
    let read = |(id, record): (&KeyspaceId, &KeyspaceRecord)| {
        (id.0, record.name.clone(), record.options.lsm.pinned_levels)
    };
    let read: Vec<_> = loaded.state.keyspaces.iter().map(read).collect();
    assert_eq!(
        read,
        PINNED.map(|(id, name, pins)| (id, name.to_owned(), pins))
    );
}

#[test]
fn the_index_edits_of_the_page_are_edits() {
    let changes = |edit: &[u8]| Lsm::table_changes(edit).unwrap();
    let added = changes(&table_42_at_the_bottom());
    let [change] = &added[..] else {
        panic!("{added:?}")
    };
    let meta = change.added.as_ref().unwrap();
    assert_eq!((change.id.number, change.level, change.run), (42, 6, None));
    assert_eq!((meta.id, meta.bytes, meta.entries), (change.id, 12_288, 3));
    let removed = changes(&TABLE_42_REMOVED);
    let [change] = &removed[..] else {
        panic!("{removed:?}")
    };
    assert_eq!((change.id.number, change.level, change.run), (42, 6, None));
    assert!(change.added.is_none());
}

/// Rows like `0010  30 31 …  what it is` of an example of the page.
fn rows_under(heading: &str) -> Vec<(usize, Vec<u8>)> {
    let (_, example) = PAGE.split_once(heading).unwrap();
    let (_, block) = example.split_once("```text\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let row = |line: &str| {
        let (offset, rest) = line.split_once("  ").unwrap();
        let hex = rest.split("   ").next().unwrap();
        let bytes = hex
            .split_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
        (usize::from_str_radix(offset, 16).unwrap(), bytes)
    };
    block
        .lines()
        .filter(|line| !line.is_empty())
        .map(row)
        .collect()
}

#[test]
fn the_bytes_in_the_page_are_the_whole_golden_manifests() {
    for (heading, golden) in [
        ("## Worked example\n", GOLDEN),
        ("## Worked example: retired segments\n", RETIRED),
    ] {
        let mut next = 0;
        for (offset, bytes) in rows_under(heading) {
            assert_eq!(offset, next, "a row is missing before {offset:#x}");
            assert_eq!(
                golden.get(offset..offset + bytes.len()),
                Some(&bytes[..]),
                "at {offset:#x}"
            );
            next = offset + bytes.len();
        }
        assert_eq!(next, golden.len());
    }
}
