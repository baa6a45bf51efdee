//! Compares counts with scans, for all kinds of writes that make entries and keys differ.

use super::*;
use crate::{Db, Env, KeyspaceOptions, Options};
use glintdb_core::DbId;
use glintdb_flash::ManualClock;
use glintdb_simdisk::MemVolume;
use std::collections::BTreeSet;
use std::time::Duration;

const KEYS: u64 = 40_000;

fn open() -> Db {
    let volume = MemVolume::new();
    let env = Env::new(Arc::new(ManualClock::new(Duration::ZERO)), DbId([5; 16]));
    let options = Options::default()
        .memory_budget_bytes(16 << 20)
        .log_segment_bytes(1 << 20)
        .replay_bytes_max(2 << 20)
        .background_threads(0);
    options.open_volume(volume, env).unwrap()
}

/// A keyspace with small tables, so that it has several levels of many tables.
fn keyspace(db: &Db) -> Keyspace {
    let mut options = KeyspaceOptions::default();
    options.lsm.table_bytes_target = 64 << 10;
    options.lsm.experiments.base_level_bytes = 256 << 10;
    options.lsm.size_ratio = 3;
    db.create_keyspace("counted", options).unwrap()
}

/// The `n`th of [`KEYS`] keys in an order that looks random.
fn shuffled(n: u64) -> u64 {
    n * 7919 % KEYS
}

fn put(keyspace: &Keyspace, keys: impl Iterator<Item = u64>) {
    for key in keys {
        let key = format!("key{key:08}");
        keyspace.put(&key, &key).unwrap();
    }
}

fn delete(keyspace: &Keyspace, keys: impl Iterator<Item = u64>) {
    for key in keys {
        keyspace.delete(format!("key{key:08}")).unwrap();
    }
}

fn scanned(keyspace: &Keyspace) -> u64 {
    keyspace.iter().keys().count() as u64
}

fn estimate(keyspace: &Keyspace) -> u64 {
    let counted = count(&keyspace.handle.engine.shared, &keyspace.state, 0).unwrap();
    assert!(!counted.is_exact());
    counted.keys()
}

/// Asserts that the estimate is within 10 % of the keys, with memtables as they are, and after a
/// flush.
fn assert_estimate_is_close(keyspace: &Keyspace) {
    let keys = scanned(keyspace);
    for flushed in [false, true] {
        if flushed {
            keyspace.db().flush().unwrap();
        }
        let estimate = estimate(keyspace);
        let error = (estimate as f64 - keys as f64) / keys as f64;
        assert!(
            error.abs() <= 0.10,
            "flushed: {flushed}, {keys} keys, about {estimate}: {:+.1} %",
            100.0 * error
        );
    }
    let exact = count(&keyspace.handle.engine.shared, &keyspace.state, u64::MAX).unwrap();
    assert_eq!(exact, KeyCount::Exact(keys));
}

fn levels_in_use(db: &Db) -> usize {
    let stats = db.stats();
    let counted = stats.keyspaces.iter().find(|one| one.name == "counted");
    let levels = counted.unwrap().levels.iter();
    levels.filter(|level| level.tables > 0).count()
}

#[test]
fn estimate_is_close_after_inserts_in_any_order() {
    let db = open();
    let keyspace = keyspace(&db);
    put(&keyspace, (0..KEYS).map(shuffled));
    assert_estimate_is_close(&keyspace);
    // A dense region behind all others, most of it in memtables and level 0.
    put(&keyspace, KEYS..KEYS + 20_000);
    assert_estimate_is_close(&keyspace);
}

#[test]
fn estimate_is_close_when_keys_are_overwritten_in_several_levels() {
    let db = open();
    let keyspace = keyspace(&db);
    put(&keyspace, (0..KEYS).map(shuffled));
    for round in 0..4 {
        put(&keyspace, (0..KEYS / 4).map(|n| shuffled(n * 3 + round)));
    }
    assert!(levels_in_use(&db) >= 3, "{:?}", db.stats().keyspaces);
    assert_estimate_is_close(&keyspace);
}

#[test]
fn estimate_is_close_when_few_keys_are_overwritten_very_often() {
    let db = open();
    let keyspace = keyspace(&db);
    put(&keyspace, (0..KEYS).map(shuffled));
    for round in 0..200 {
        put(&keyspace, 17_000..17_300);
        if round % 20 == 0 {
            db.flush().unwrap();
        }
    }
    assert_estimate_is_close(&keyspace);
}

#[test]
fn estimate_is_close_when_scattered_keys_are_deleted() {
    let db = open();
    let keyspace = keyspace(&db);
    put(&keyspace, (0..KEYS).map(shuffled));
    db.flush().unwrap();
    delete(&keyspace, (0..KEYS / 2).map(shuffled));
    assert_estimate_is_close(&keyspace);
}

#[test]
fn estimate_is_close_when_whole_regions_are_deleted() {
    let db = open();
    let keyspace = keyspace(&db);
    put(&keyspace, (0..KEYS).map(shuffled));
    db.flush().unwrap();
    delete(&keyspace, 5000..17_000);
    keyspace.delete_range("key00020000".."key00028000").unwrap();
    assert_estimate_is_close(&keyspace);
}

#[test]
fn estimate_is_close_when_everything_is_in_memtables() {
    let db = open();
    let keyspace = keyspace(&db);
    put(&keyspace, 0..3000);
    put(&keyspace, 0..3000);
    delete(&keyspace, (0..3000).step_by(3));
    let keys = scanned(&keyspace);
    let estimate = estimate(&keyspace);
    assert_eq!(keys, 2000);
    assert!(estimate.abs_diff(keys) <= keys / 10, "about {estimate}");
}

#[test]
fn count_is_exact_up_to_the_limit_of_entries_and_an_estimate_beyond() {
    let db = open();
    let keyspace = keyspace(&db);
    put(&keyspace, 0..100);
    db.flush().unwrap();
    put(&keyspace, 0..50);
    // 150 entries of 100 keys.
    let counted = |max| count(&keyspace.handle.engine.shared, &keyspace.state, max).unwrap();
    assert_eq!(counted(150), KeyCount::Exact(100));
    assert!(matches!(counted(149), KeyCount::About(90..=110)));
    assert_eq!(keyspace.count().unwrap(), KeyCount::Exact(100));
    db.drop_keyspace("counted").unwrap();
    let error = keyspace.count().unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::NotFound);
}

#[test]
fn empty_keyspace_has_exactly_zero_keys() {
    let db = open();
    assert_eq!(keyspace(&db).count().unwrap(), KeyCount::Exact(0));
}

#[test]
fn sampled_keys_are_live_and_spread_over_the_keyspace() {
    let db = open();
    let keyspace = keyspace(&db);
    put(&keyspace, (0..KEYS).map(shuffled));
    delete(&keyspace, 10_000..20_000);
    let sampled = keyspace.sample_keys(120).unwrap();
    // Of 50,000 entries 10,000 are deletions, and 10,000 are deleted by them.
    assert!((60..=100).contains(&sampled.len()), "{}", sampled.len());
    assert!(sampled.is_sorted());
    let number = |key: &Bytes| -> u64 { std::str::from_utf8(&key[3..]).unwrap().parse().unwrap() };
    let numbers: BTreeSet<u64> = sampled.iter().map(number).collect();
    assert!(numbers.iter().all(|n| !(10_000..20_000).contains(n)));
    let thousands: BTreeSet<u64> = numbers.iter().map(|n| n / 1000).collect();
    assert!(thousands.len() >= 27, "of 30: {thousands:?}");
    assert!(keyspace.sample_keys(0).unwrap().len() <= 1);
}

#[test]
fn sample_spreads_over_the_keys() {
    let db = open();
    let keyspace = keyspace(&db);
    put(&keyspace, (0..KEYS).map(shuffled));
    db.flush().unwrap();
    let point = keyspace.handle.engine.shared.read_point();
    let counted = Counted {
        version: &point.version,
        at: point.at,
        keyspace: &keyspace.state,
    };
    let starts = counted.starts(counted.entries().div_ceil(SAMPLES)).unwrap();
    assert!((900..=1100).contains(&starts.len()), "{}", starts.len());
    // Each thousand of keys, by the digits before its last three; fences can be shorter.
    let thousands: BTreeSet<_> = starts.iter().filter_map(|key| key.get(..8)).collect();
    assert_eq!(thousands.len() as u64, KEYS / 1000, "{thousands:?}");
    let mut longest = 0;
    for start in &starts {
        let end = counted.end(start).unwrap();
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let entries = counted
            .entries_within(Bound::Included(start), upper)
            .unwrap();
        longest = longest.max(entries);
    }
    // Two blocks of each source; a block holds about 150 of these entries.
    assert!((100..=3000).contains(&longest), "{longest}");
}
