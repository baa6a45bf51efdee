//! Damaged, misplaced, truncated and hostile tables: an error or the right answer, never a wrong value, never a panic.

use super::*;
use crate::table::format::{FOOTER_BYTES, Footer, PAGE_BYTES};
use glintdb_core::checksum::FileSeed;
use glintdb_core::{Direction, ErrorKind, Result};
use proptest::prelude::*;
use std::ops::Bound::Unbounded;

fn small_configs() -> [TableConfig; 2] {
    [
        TableConfig {
            restart_interval: 3,
            ..TableConfig::default()
        },
        TableConfig {
            restart_interval: 3,
            block_bytes: 4096,
            ..TableConfig::with_compression(Compression::Lz4)
        },
    ]
}

/// Some 100 entries in two blocks.
fn small() -> Model {
    let mut model = sample(90);
    for n in 0..10u32 {
        model.insert(
            format!("user/0002/x{n}").into_bytes(),
            (SeqNum(n.into()), inline(&[n as u8; 200])),
        );
    }
    model
}

/// Some 60 entries in a few blocks, each with one restart point.
fn small_of_long_keys() -> Model {
    let entry = |n: u32| {
        let key = [
            &vec![b'k'; 2200 + n as usize % 3 * 100][..],
            &n.to_be_bytes(),
        ]
        .concat();
        (key, (SeqNum(n.into()), inline(&[n as u8; 150])))
    };
    (0..60).map(entry).collect()
}

/// Everything one can ask of a table: each answer that is no error must be right.
fn ask_everything(table: &Arc<Table>, model: &Model) -> Result<()> {
    let mut first_error = Ok(());
    let mut note = |error| {
        if first_error.is_ok() {
            first_error = Err(error);
        }
    };
    for (key, (seqno, value)) in model.iter().step_by(3) {
        match table.get(key, key_hash(key)) {
            Ok(found) => {
                let found = found.unwrap_or_else(|| panic!("{key:?} is missing"));
                assert_eq!((found.seqno, &found.value), (*seqno, value));
            }
            Err(error) => note(error),
        }
        let absent = [key.as_slice(), b"\0"].concat();
        match table.get(&absent, key_hash(&absent)) {
            Ok(found) => assert_eq!(found, None),
            Err(error) => note(error),
        }
    }
    let mut cursor = table.cursor(
        Unbounded,
        Unbounded,
        Direction::Forward,
        Purpose::Compaction,
    );
    let mut expected = model.iter();
    loop {
        match cursor.advance() {
            Ok(true) => {
                let (key, entry) = expected.next().expect("no more than was written");
                assert_eq!(cursor.key(), key);
                assert_eq!((cursor.seqno(), cursor.value()), value_ref(entry));
            }
            Ok(false) => {
                assert!(expected.next().is_none());
                break;
            }
            Err(error) => {
                note(error);
                assert!(!cursor.advance().unwrap(), "after an error it is over");
                break;
            }
        }
    }
    first_error
}

fn assert_is_damage(error: &glintdb_core::Error) {
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Corruption | ErrorKind::UnsupportedFormat
        ),
        "{error}"
    );
}

#[test]
fn every_flipped_bit_is_found_by_verify_and_never_gives_a_wrong_answer() {
    let model = small();
    for config in small_configs() {
        let (volume, env) = env();
        let meta = write(&env, 7, &config, &model, &[tombstone(b"a", Some(b"b"), 3)]);
        assert!(meta.blocks >= 2);
        let good = volume.bytes(meta.id);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            volume.put(meta.id, bad);
            // A new environment, so that nothing is cached.
            let env = env_of(&volume, DB);
            let table = Table::open(&env, meta.clone());
            // Zeros between parts matter only to `verify`; asking for everything is needed only where something lies.
            if (good[bit / 8] != 0 || bit % 8 == 0)
                && let Err(error) = ask_everything(&table, &model)
            {
                assert_is_damage(&error);
            }
            let (errors, _) = verify(&table);
            assert!(!errors.is_empty(), "bit {bit} of {}", good.len() * 8);
            errors.iter().for_each(assert_is_damage);
        }
    }
}

#[test]
fn every_pair_of_swapped_pages_is_found() {
    let model = sample(400);
    let (volume, env) = env();
    let meta = write(&env, 7, &TableConfig::default(), &model, &[]);
    let good = volume.bytes(meta.id);
    let pages = good.len() / PAGE_BYTES;
    assert!(pages >= 5);
    for (a, b) in (0..pages).flat_map(|a| (a + 1..pages).map(move |b| (a, b))) {
        let mut bad = good.clone();
        let (low, high) = bad.split_at_mut(b * PAGE_BYTES);
        low[a * PAGE_BYTES..][..PAGE_BYTES].swap_with_slice(&mut high[..PAGE_BYTES]);
        volume.put(meta.id, bad);
        let table = Table::open(&env_of(&volume, DB), meta.clone());
        if let Err(error) = ask_everything(&table, &model) {
            assert_is_damage(&error);
        }
        let (errors, _) = verify(&table);
        assert!(!errors.is_empty(), "pages {a} and {b}");
        errors.iter().for_each(assert_is_damage);
    }
}

#[test]
fn every_other_length_is_refused() {
    let (volume, env) = env();
    let meta = write(&env, 7, &TableConfig::default(), &small(), &[]);
    let good = volume.bytes(meta.id);
    let longer = good.len() + 1..good.len() + 3;
    for length in (0..good.len()).chain(longer) {
        let mut bad = good.clone();
        bad.resize(length, 0);
        volume.put(meta.id, bad);
        let error = Table::open(&env, meta.clone()).load().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        let error = Table::open_file(&env, meta.id).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
    volume.put(meta.id, good);
    let table = Table::open(&env, meta.clone());
    table.load().unwrap();
    // Cut while open: reads come back short.
    let file = glintdb_flash::Volume::open(&*volume, meta.id).unwrap();
    file.set_len(PAGE_BYTES as u64 + 10).unwrap();
    assert_is_damage(&ask_everything(&table, &small()).unwrap_err());
}

#[test]
fn tables_of_another_database_or_number_are_refused() {
    let (volume, env) = env();
    let model = small();
    let meta = write(&env, 7, &TableConfig::default(), &model, &[]);
    let foreign = env_of(&volume, DbId(*b"0123456789abcdeF"));
    let error = Table::open(&foreign, meta.clone()).load().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(Table::open_file(&foreign, meta.id).is_err());

    let mut renamed = meta.clone();
    renamed.id = table_id(8);
    volume.put(renamed.id, volume.bytes(meta.id));
    assert!(Table::open(&env, renamed.clone()).load().is_err());
    assert!(Table::open_file(&env, renamed.id).is_err());

    // A block of another table at the same offset.
    write(&env, 9, &TableConfig::default(), &model, &[]);
    let mut mixed = volume.bytes(meta.id);
    let other = volume.bytes(table_id(9));
    mixed[PAGE_BYTES..2 * PAGE_BYTES].copy_from_slice(&other[PAGE_BYTES..2 * PAGE_BYTES]);
    volume.put(meta.id, mixed);
    let error = ask_everything(&Table::open(&env, meta), &model).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!(
        error.place(),
        Some(("table-0000000000000007.glint", PAGE_BYTES as u64))
    );
}

#[test]
fn missing_files_and_newer_formats_are_told_apart_from_damage() {
    let (volume, env) = env();
    let meta = write(&env, 7, &TableConfig::default(), &small(), &[]);
    let seed = FileSeed::new(DB, meta.id);
    let mut newer = volume.bytes(meta.id);
    let at = newer.len() - FOOTER_BYTES;
    newer[at + 80] = 2;
    let checksum = seed.checksum(at as u64, &newer[at..at + 84]);
    newer[at + 84..at + 88].copy_from_slice(&checksum.to_le_bytes());
    volume.put(meta.id, newer);
    let error = Table::open(&env, meta.clone()).load().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedFormat);
    glintdb_flash::Volume::delete(&*volume, meta.id).unwrap();
    let error = Table::open(&env, meta).load().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// Walks, seeks, verifies, copies; answers may be anything.
fn survive(env: &Arc<TableEnv>, table: &Arc<Table>, model: &Model) {
    for key in model.keys().step_by(5) {
        table.get(key, key_hash(key)).ok();
        table.get(&[key.as_slice(), b"!"].concat(), 0).ok();
    }
    for direction in [Direction::Forward, Direction::Reverse] {
        for purpose in [Purpose::Read, Purpose::Compaction] {
            let mut cursor = table.cursor(Unbounded, Unbounded, direction, purpose);
            for key in model.keys().step_by(11) {
                if !matches!(cursor.seek(key), Ok(true)) {
                    break;
                }
            }
            let mut cursor = table.cursor(Unbounded, Unbounded, direction, purpose);
            let mut steps = 0;
            while matches!(cursor.advance(), Ok(true)) && steps < 1_000_000 {
                steps += 1;
                let _ = (cursor.key().len(), cursor.seqno(), cursor.value());
                cursor.find_whole_block().ok();
            }
        }
    }
    table.range_tombstones().map(|_| ()).ok();
    verify(table);
    let mut cursor = table.cursor(
        Unbounded,
        Unbounded,
        Direction::Forward,
        Purpose::Compaction,
    );
    if matches!(cursor.advance(), Ok(true)) && matches!(cursor.find_whole_block(), Ok(true)) {
        let stored = cursor.take_block();
        let config = TableConfig::default();
        let mut writer =
            TableWriter::create(env, table_id(99), DataClass::Flush, &config, 0).unwrap();
        writer.add_block(&stored).map(drop).ok();
    }
}

/// Parts of the file that have a checksum of their own: what the checksum covers, and where it stands.
fn sealed_parts(table: &Table, file: &[u8]) -> Vec<(std::ops::Range<usize>, usize)> {
    let footer_at = file.len() - FOOTER_BYTES;
    let seed = FileSeed::new(DB, table.meta().id);
    let (_, footer) = Footer::decode(seed, footer_at as u64, &file[footer_at..]).unwrap();
    let mut parts = vec![(footer_at..footer_at + 84, footer_at + 84)];
    let spans = [
        footer.filter,
        footer.fences,
        footer.tombstones,
        footer.properties,
    ];
    for span in spans {
        let (start, end) = (span.offset as usize, (span.offset + span.bytes) as usize);
        if end > start {
            parts.push((start + 4..end, start));
        }
    }
    for fence in table.fences().unwrap() {
        let start = fence.handle.offset as usize;
        parts.push((start + 4..start + fence.handle.length as usize, start));
    }
    parts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn prop_hostile_bytes_under_right_checksums_do_not_panic(
        config in 0usize..2,
        part in any::<prop::sample::Index>(),
        near in any::<bool>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        long in any::<bool>(),
    ) {
        let model = if long { small_of_long_keys() } else { small() };
        let (volume, env) = env();
        let config = &small_configs()[config];
        let meta = write(&env, 7, config, &model, &[tombstone(b"a", Some(b"b"), 3)]);
        let mut bytes = volume.bytes(meta.id);
        let parts = sealed_parts(&Table::open(&env, meta.clone()), &bytes);
        let (covered, at) = part.get(&parts).clone();
        for (place, value) in changes {
            // Headers and arrays are at the front of a part.
            let span = if near { covered.len().min(60) } else { covered.len() };
            bytes[covered.start + place.index(span)] = value;
        }
        let start = at.min(covered.start) as u64;
        let checksum = FileSeed::new(DB, meta.id).checksum(start, &bytes[covered]);
        bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
        volume.put(meta.id, bytes);
        survive(&env, &Table::open(&env, meta.clone()), &model);
        if let Ok(table) = Table::open_file(&env, meta.id) {
            survive(&env, &table, &model);
        }
    }
}
