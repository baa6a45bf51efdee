//! What was written is what is read, in both directions, with every bound, seek and configuration.

use super::*;
use glintdb_core::Direction::{Forward, Reverse};
use glintdb_core::codec::Reader;
use glintdb_core::memory::MemoryPart;
use glintdb_core::{Direction, key};
use proptest::prelude::*;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::atomic::Ordering;

fn configs() -> Vec<TableConfig> {
    let mut configs = vec![
        TableConfig::default(),
        TableConfig {
            restart_interval: 1,
            filter_bits_per_key: 0.0,
            ..TableConfig::default()
        },
        TableConfig {
            restart_interval: 16,
            block_bytes: 16 << 10,
            ..TableConfig::default()
        },
        TableConfig::with_compression(Compression::Lz4),
        TableConfig {
            block_bytes: 5000,
            ..TableConfig::with_compression(Compression::Lz4)
        },
    ];
    if cfg!(feature = "zstd") {
        configs.push(TableConfig::with_compression(Compression::Zstd));
    }
    configs
}

/// Everything a cursor gives, checked against the model's range.
fn check_cursor(
    table: &Arc<Table>,
    model: &Model,
    (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
    purpose: Purpose,
) {
    let mut expected: Vec<_> = model
        .iter()
        .filter(|(k, _)| key::at_or_after(k, lower) && key::at_or_before(k, upper))
        .collect();
    if direction == Reverse {
        expected.reverse();
    }
    let mut cursor = table.cursor(lower, upper, direction, purpose);
    for (key, entry) in expected {
        assert!(cursor.advance().unwrap(), "{key:?} is missing");
        assert_eq!(cursor.key(), key);
        assert_eq!((cursor.seqno(), cursor.value()), value_ref(entry));
        assert_eq!(cursor.entry().value, entry.1);
    }
    assert!(!cursor.advance().unwrap());
    assert!(!cursor.advance().unwrap());
}

fn check_seeks(table: &Arc<Table>, model: &Model, targets: &[Vec<u8>], direction: Direction) {
    let mut cursor = table.cursor(Unbounded, Unbounded, direction, Purpose::Read);
    let mut at: Option<Vec<u8>> = None;
    for target in targets {
        // From where it is: never back.
        let from = match (&at, direction) {
            (Some(at), Forward) => at.max(target),
            (Some(at), Reverse) => at.min(target),
            (None, _) => target,
        };
        let expected = match direction {
            Forward => model.range(from.clone()..).next(),
            Reverse => model.range(..=from.clone()).next_back(),
        };
        let found = cursor.seek(target).unwrap();
        assert_eq!(found, expected.is_some(), "seek {target:?} from {at:?}");
        let Some((key, entry)) = expected else { break };
        assert_eq!(cursor.key(), key);
        assert_eq!((cursor.seqno(), cursor.value()), value_ref(entry));
        at = Some(key.clone());
    }
}

fn check_table(table: &Arc<Table>, model: &Model, probes: &[Vec<u8>]) {
    for (key, (seqno, value)) in model {
        let found = table.get(key, key_hash(key)).unwrap();
        let found = found.unwrap_or_else(|| panic!("{key:?} is missing"));
        assert_eq!((found.seqno, &found.value), (*seqno, value));
    }
    for probe in probes {
        let found = table.get(probe, key_hash(probe)).unwrap();
        assert_eq!(found.is_some(), model.contains_key(probe), "{probe:?}");
    }
    for purpose in [Purpose::Read, Purpose::Compaction] {
        for direction in [Forward, Reverse] {
            check_cursor(table, model, (Unbounded, Unbounded), direction, purpose);
            for pair in probes.chunks(2) {
                if let [a, b] = pair {
                    check_cursor(table, model, (Included(a), Excluded(b)), direction, purpose);
                    check_cursor(table, model, (Excluded(b), Included(a)), direction, purpose);
                    check_cursor(table, model, (Excluded(a), Unbounded), direction, purpose);
                    check_cursor(table, model, (Unbounded, Included(b)), direction, purpose);
                }
            }
        }
    }
    for direction in [Forward, Reverse] {
        check_seeks(table, model, probes, direction);
        let mut sorted = probes.to_vec();
        sorted.sort();
        if direction == Reverse {
            sorted.reverse();
        }
        check_seeks(table, model, &sorted, direction);
    }
    let (errors, pointed) = verify(table);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(pointed, table.meta().pointed_bytes);
}

pub(super) fn check_model(model: &Model, probes: &[Vec<u8>]) {
    for config in configs() {
        let (volume, env) = env();
        let meta = write(&env, 1, &config, model, &[]);
        assert_eq!(meta.entries, model.len() as u64);
        assert_eq!(
            Some(&meta.smallest[..]),
            model.keys().next().map(|k| &k[..])
        );
        assert_eq!(
            Some(&meta.largest[..]),
            model.keys().next_back().map(|k| &k[..])
        );
        assert_eq!(meta.bytes, volume.bytes(meta.id).len() as u64);
        assert_eq!(meta.bytes % 4096, 0);
        check_table(&Table::open(&env, meta.clone()), model, probes);
        let reopened = Table::open_file(&env, meta.id).unwrap();
        assert_eq!(reopened.meta(), &meta);
        moved_blocks_read_the_same(&env, &reopened, &config, model, probes);
    }
}

/// Copies a table with whole-block moves into one of every configuration.
fn moved_blocks_read_the_same(
    env: &Arc<TableEnv>,
    from: &Arc<Table>,
    config: &TableConfig,
    model: &Model,
    probes: &[Vec<u8>],
) {
    for (number, to) in configs().into_iter().enumerate() {
        let id = table_id(100 + number as u64);
        let mut writer = TableWriter::create(env, id, DataClass::Flush, &to, model.len()).unwrap();
        let mut cursor = from.cursor(Unbounded, Unbounded, Forward, Purpose::Compaction);
        let mut more = cursor.advance().unwrap();
        while more {
            if cursor.find_whole_block().unwrap() {
                writer.add_block(&cursor.take_block()).unwrap();
            } else {
                writer
                    .add(cursor.key(), cursor.seqno(), cursor.value())
                    .unwrap();
            }
            more = cursor.advance().unwrap();
        }
        let meta = writer.finish().unwrap();
        let few = &probes[..probes.len().min(4)];
        check_table(&Table::open(env, meta.clone()), model, few);
        if to == *config {
            assert!(meta.bytes <= from.meta().bytes + 8192);
        }
        env.volume.delete(id).unwrap();
    }
}

#[test]
fn sample_reads_back_in_every_configuration() {
    let model = sample(3000);
    let probes: Vec<Vec<u8>> = [
        "",
        "user/0100",
        "user/0100/000700",
        "user/0100/002100",
        "zzz",
    ]
    .iter()
    .chain(&["user/0200/004200", "user/0400/008500", "a", "user/04", "v"])
    .map(|probe| probe.as_bytes().to_vec())
    .collect();
    check_model(&model, &probes);
}

#[test]
fn huge_empty_and_oversized_entries_read_back() {
    let mut model = Model::new();
    let mut put = |key: Vec<u8>, value| {
        let seqno = SeqNum(key.len() as u64 * 1_000_003);
        model.insert(key, (seqno, value));
    };
    put(vec![], inline(b""));
    put(vec![0], EntryValue::Tombstone);
    put(vec![0xff; 65536], inline(b"longest key"));
    let mut long = vec![0xff; 65536];
    long[65535] = 0xfe;
    put(long, inline(&vec![9; 20_000]));
    put(vec![b'k'; 4000], inline(&[7; 50]));
    put([&vec![b'k'; 4000][..], b"z"].concat(), inline(&[7; 50]));
    put(b"big".to_vec(), inline(&vec![1; 1_500_000]));
    put(b"exact".to_vec(), inline(&vec![2; 4096 - 28 - 6 - 5 - 4]));
    put(
        b"exact2".to_vec(),
        inline(&vec![2; 4096 - 28 - 6 - 6 - 4 + 1]),
    );
    for n in 0..300u32 {
        put(format!("n{n:03}").into_bytes(), inline(&[3; 100]));
    }
    let probes = vec![
        vec![],
        vec![0xff; 65535],
        vec![b'k'; 3999],
        b"n150".to_vec(),
        b"exact1".to_vec(),
        b"n1".to_vec(),
    ];
    check_model(&model, &probes);
}

#[test]
fn keys_with_equal_heads_are_told_apart() {
    let mut model = Model::new();
    for n in 0..600u32 {
        // Zero bytes at every place where a head is filled up with zeros.
        let key = [
            b"p".as_slice(),
            &vec![0; n as usize % 30],
            &[(n / 30) as u8],
        ]
        .concat();
        model.insert(key, (SeqNum(u64::from(n)), inline(&[1; 40])));
        model.insert(
            format!("long common prefix of all {}", n).into_bytes(),
            (SeqNum(5), EntryValue::Tombstone),
        );
    }
    let probes: Vec<Vec<u8>> = (0..12)
        .map(|n| [b"p".as_slice(), &vec![0; n * 3]].concat())
        .collect();
    check_model(&model, &probes);
}

#[test]
fn range_tombstones_widen_the_range_and_read_back() {
    let (_, env) = env();
    let model: Model = [(b"m".to_vec(), (SeqNum(5), inline(b"v")))].into();
    let tombstones = [
        tombstone(b"x", Some(b"z"), 9),
        tombstone(b"c", Some(b"d"), 2),
        tombstone(b"c", Some(b"k"), 1),
    ];
    let meta = write(&env, 1, &TableConfig::default(), &model, &tombstones);
    assert_eq!(
        meta.range,
        (b"c".as_slice().into(), Some(b"z".as_slice().into()))
    );
    assert_eq!((meta.seqno_min, meta.seqno_max), (SeqNum(1), SeqNum(9)));
    let table = Table::open(&env, meta);
    let starts: Vec<_> = table.range_tombstones().unwrap().to_vec();
    assert_eq!(
        starts,
        [
            tombstones[2].clone(),
            tombstones[1].clone(),
            tombstones[0].clone()
        ]
    );
    assert!(verify(&table).0.is_empty());

    let only = write(
        &env,
        2,
        &TableConfig::default(),
        &Model::new(),
        &[tombstone(b"a", None, 3)],
    );
    assert_eq!(only.range, (b"a".as_slice().into(), None));
    assert_eq!((only.entries, only.blocks), (0, 0));
    let only = Table::open(&env, only);
    assert_eq!(only.range_tombstones().unwrap().len(), 1);
    assert_eq!(only.get(b"b", key_hash(b"b")).unwrap(), None);
    check_cursor(
        &only,
        &Model::new(),
        (Unbounded, Unbounded),
        Forward,
        Purpose::Read,
    );
    check_cursor(
        &only,
        &Model::new(),
        (Unbounded, Unbounded),
        Reverse,
        Purpose::Read,
    );
    assert!(verify(&only).0.is_empty());
}

#[test]
fn no_reads_before_first_use_one_a_lookup_and_memory_is_given_back() {
    let (volume, env) = env();
    let model = sample(3000);
    let meta = write(&env, 1, &TableConfig::default(), &model, &[]);
    let table = Table::open(&env, meta);
    let reads = || volume.reads.swap(0, Ordering::Relaxed);
    assert_eq!(reads(), 0);
    assert!(table.range_tombstones().unwrap().is_empty());
    assert_eq!(reads(), 0);
    table.load().unwrap();
    assert_eq!(reads(), 1);
    assert_eq!(env.memory.used_bytes_total(), table.memory_bytes());
    assert!(env.memory.used_bytes(MemoryPart::Filters) >= 3000 * 10 / 8);
    let key = model.keys().nth(1000).unwrap();
    let handle = table.locate(key, key_hash(key)).unwrap().unwrap();
    assert_eq!((handle.offset % 4096, handle.length), (0, 4096));
    table.get(key, key_hash(key)).unwrap().unwrap();
    assert_eq!(reads(), 1);
    table.get(key, key_hash(key)).unwrap().unwrap();
    assert_eq!(reads(), 0);
    assert_eq!(table.get(b"user/0000/zz", 0).unwrap(), None);
    drop(table);
    assert_eq!(env.memory.used_bytes_total(), 0);
}

#[test]
fn unfinished_and_obsolete_files_go() {
    let (volume, env) = env();
    let list = || glintdb_flash::Volume::list(&*volume).unwrap();
    let mut writer = TableWriter::create(
        &env,
        table_id(1),
        DataClass::Flush,
        &TableConfig::default(),
        0,
    )
    .unwrap();
    writer.add(b"k", SeqNum(1), EntryRef::Tombstone).unwrap();
    assert_eq!(list(), [table_id(1)]);
    drop(writer);
    assert_eq!(list(), []);
    let meta = write(&env, 2, &TableConfig::default(), &sample(10), &[]);
    let table = Table::open(&env, meta);
    let cursor = table.cursor(Unbounded, Unbounded, Forward, Purpose::Read);
    table.mark_obsolete();
    drop(table);
    assert_eq!(list(), [table_id(2)]);
    drop(cursor);
    assert_eq!(list(), []);
    volume.fail_writes.store(1, Ordering::Relaxed);
    let mut writer = TableWriter::create(
        &env,
        table_id(3),
        DataClass::Flush,
        &TableConfig::default(),
        0,
    )
    .unwrap();
    writer.add(b"k", SeqNum(1), EntryRef::Tombstone).unwrap();
    assert!(writer.finish().is_err());
    assert_eq!(list(), []);
    assert_eq!(env.memory.used_bytes(MemoryPart::Buffers), 0);
}

#[test]
fn meta_of_the_manifest_is_that_of_the_file() {
    let (_, env) = env();
    let meta = write(&env, 1, &TableConfig::default(), &sample(100), &[]);
    let mut bytes = Vec::new();
    meta.encode(&mut bytes);
    let decoded = TableMeta::decode(&mut Reader::new(&bytes)).unwrap();
    Table::open(&env, decoded).load().unwrap();
    let mut other = meta;
    other.entries += 1;
    assert!(Table::open(&env, other).load().is_err());
}

#[test]
#[should_panic(expected = "keys ascend")]
fn keys_out_of_order_are_a_programmers_error() {
    let (_, env) = env();
    let config = TableConfig::default();
    let mut writer = TableWriter::create(&env, table_id(1), DataClass::Flush, &config, 0).unwrap();
    writer.add(b"b", SeqNum(1), EntryRef::Tombstone).unwrap();
    writer.add(b"b", SeqNum(2), EntryRef::Tombstone).unwrap();
}

fn a_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(0u8..3, 0..6),
        proptest::collection::vec(any::<u8>(), 0..20),
        (0u32..2000).prop_map(|n| format!("key/{n:08}").into_bytes()),
        (0usize..300, 0u8..4).prop_map(|(n, b)| [vec![b'p'; n], vec![b]].concat()),
        // Long ones, of which several make a block.
        (4usize..20, any::<u8>()).prop_map(|(n, b)| [vec![b'p'; n * 512], vec![b]].concat()),
    ]
}

fn a_value() -> impl Strategy<Value = EntryValue> {
    prop_oneof![
        2 => Just(EntryValue::Tombstone),
        2 => any::<u32>().prop_map(|n| EntryValue::Pointer(pointer(n))),
        6 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(|v| inline(&v)),
        1 => (0usize..9000).prop_map(|n| inline(&vec![b'v'; n])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn prop_what_is_written_is_read(
        entries in proptest::collection::btree_map(a_key(), (0u64..=SeqNum::MAX.0, a_value()), 1..400),
        probes in proptest::collection::vec(a_key(), 2..12),
    ) {
        let model: Model = entries
            .into_iter()
            .map(|(key, (seqno, value))| (key, (SeqNum(seqno), value)))
            .collect();
        check_model(&model, &probes);
    }
}
