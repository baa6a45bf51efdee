//! Range tombstones of a table: what they take in memory, and their order.

use super::*;
use crate::table::tombstones::{decode, encode};
use glintdb_core::checksum::FileSeed;

fn tombstones(count: u32) -> Vec<RangeTombstone> {
    let one = |n: u32| {
        let (start, end) = (format!("key{:09}", 2 * n), format!("key{:09}", 2 * n + 1));
        tombstone(start.as_bytes(), Some(end.as_bytes()), u64::from(n) + 1)
    };
    (0..count).map(one).collect()
}

/// They did not count, and each key had an allocation of its own.
#[test]
fn range_tombstones_share_one_section_that_counts_in_the_budget() {
    const COUNT: u32 = 1000;
    let (_volume, env) = env();
    let config = TableConfig::default();
    let meta = write(&env, 1, &config, &Model::new(), &tombstones(COUNT));
    let table = Table::open(&env, meta);
    let before = table.memory_bytes();
    table.load().unwrap();
    let (list, section) = (size_of::<RangeTombstone>(), 12 + 12 + 6);
    let bytes = table.memory_bytes() - before;
    let most = COUNT as usize * (list + section);
    assert!(bytes > COUNT as usize * list && bytes < most, "{bytes}");
    assert_eq!(env.memory.used_bytes_total(), table.memory_bytes());

    // The record of a table that a compaction writes keeps no section of its inputs.
    let carried = table.range_tombstones().unwrap();
    assert!(!carried[0].start.is_unique());
    let meta = write(&env, 2, &config, &Model::new(), carried);
    let (start, end) = &meta.range;
    assert!(start.is_unique() && end.as_ref().unwrap().is_unique());
    drop(table);
    assert_eq!(env.memory.used_bytes_total(), 0);
}

#[test]
fn range_tombstones_that_do_not_ascend_are_malformed() {
    let seed = FileSeed::new(DB, table_id(1));
    let mut all = tombstones(3);
    let section = encode(&all, seed, 0);
    assert_eq!(decode(&section, 3).as_ref(), Some(&all));
    assert_eq!(decode(&section, 2), None);
    all.swap(0, 1);
    assert_eq!(decode(&encode(&all, seed, 0), 3), None);
}
