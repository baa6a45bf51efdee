//! Keys of many kibibytes that share most of their bytes: what they take on the medium and in
//! memory, and that they read back.

use super::round_trip::check_model;
use super::*;
use glintdb_core::Direction::Reverse;
use std::ops::Bound::Unbounded;

/// Keys of the lengths that `length` gives, which share all but their last 8 bytes.
fn model(entries: u32, length: impl Fn(u32) -> usize) -> Model {
    let entry = |n: u32| {
        let scattered = n.wrapping_mul(0x9e37_79b1);
        let shared = vec![b's'; length(n) - 8];
        let key = [&shared[..], format!("{scattered:08x}").as_bytes()].concat();
        let value = match n % 4 {
            0 => EntryValue::Tombstone,
            1 => EntryValue::Pointer(pointer(n)),
            _ => inline(&[n as u8; 60]),
        };
        (key, (SeqNum(u64::from(n) + 1), value))
    };
    (0..entries).map(entry).collect()
}

fn open(env: &Arc<TableEnv>, model: &Model) -> Arc<Table> {
    let meta = write(env, 1, &TableConfig::default(), model, &[]);
    let table = Table::open(env, meta);
    table.load().unwrap();
    table
}

#[test]
fn long_keys_of_any_length_read_back() {
    let lengths = |n: u32| 1500 + n as usize * 7919 % 62_000;
    for model in [
        model(60, |_| 4096),
        model(40, |_| 65_536),
        model(60, lengths),
    ] {
        let keys: Vec<&Vec<u8>> = model.keys().collect();
        let middle = keys[keys.len() / 2];
        let probes = vec![
            b"s".to_vec(),
            middle.clone(),
            [middle, &b"0"[..]].concat(),
            middle[..middle.len() - 3].to_vec(),
            vec![b's'; 5000],
            [&vec![b's'; 3000][..], b"t"].concat(),
        ];
        check_model(&model, &probes);
    }
}

#[test]
fn long_keys_that_share_their_bytes_share_blocks_and_fences() {
    for (bytes, least) in [(4096, 30), (65_536, 120)] {
        let (_volume, env) = env();
        let model = model(1000, |_| bytes);
        let table = open(&env, &model);
        let meta = table.meta();
        let a_block = meta.entries / u64::from(meta.blocks);
        assert!(a_block >= least, "{a_block} entries of {bytes} B a block");
        let keys = 1000 * bytes as u64;
        assert!(meta.bytes < keys / 12, "{} of {keys}", meta.bytes);
        // Its first key and its last, and little else.
        let memory = table.memory_bytes();
        assert!(memory < 2 * bytes + 6000, "{memory} for {bytes}");
    }
}

/// Fences that share less than the table's first key and last key do.
#[test]
fn fences_of_many_lengths_take_a_fraction_of_their_bytes() {
    let (_volume, env) = env();
    let model = model(1500, |n| 4096 + n as usize * 7919 % 60_000);
    let table = open(&env, &model);
    let whole: usize = (table.fences().unwrap())
        .map(|fence| fence.lower.len())
        .sum();
    let keys = 2 * (65_536 + 1);
    let memory = table.memory_bytes() - keys;
    assert!(whole > 300_000, "{whole}");
    assert!(memory < whole / 5, "{memory} of {whole}");
}

/// Backwards a cursor had the keys of a restart interval in memory, 16 MiB of them.
#[test]
fn a_block_of_the_longest_keys_is_walked_back() {
    let (_volume, env) = env();
    let model = model(255, |_| 65_536);
    let table = open(&env, &model);
    assert!(table.meta().blocks <= 2);
    let mut cursor = table.cursor(Unbounded, Unbounded, Reverse, Purpose::Read);
    for (key, entry) in model.iter().rev() {
        assert!(cursor.advance().unwrap());
        assert_eq!(cursor.key(), key);
        assert_eq!((cursor.seqno(), cursor.value()), value_ref(entry));
    }
    assert!(!cursor.advance().unwrap());
}

#[test]
fn blocks_of_few_long_keys_are_joined_when_they_are_moved() {
    let (_volume, env) = env();
    let model = model(64, |_| 8192);
    let entries: Vec<_> = model.iter().collect();
    let config = TableConfig::default();
    let mut joined = TableWriter::create(&env, table_id(99), DataClass::Flush, &config, 0).unwrap();
    // 32 tables of two entries, which were moved as 32 blocks of 8 KiB.
    for (number, pair) in entries.chunks(2).enumerate() {
        let pair: Model = pair
            .iter()
            .map(|(key, entry)| ((*key).clone(), (*entry).clone()))
            .collect();
        let meta = write(&env, number as u64, &config, &pair, &[]);
        let table = Table::open(&env, meta);
        let forward = glintdb_core::Direction::Forward;
        let mut cursor = table.cursor(Unbounded, Unbounded, forward, Purpose::Compaction);
        assert!(cursor.advance().unwrap() && cursor.find_whole_block().unwrap());
        joined.add_block(&cursor.take_block()).unwrap();
    }
    let meta = joined.finish().unwrap();
    assert_eq!((meta.entries, meta.blocks), (64, 1));
    assert!(verify(&Table::open(&env, meta)).0.is_empty());
}
