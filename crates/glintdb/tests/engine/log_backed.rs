//! Runs of level 0 that the log holds and no file: read like all others, persisted together, there after a crash, and within their bounds.

use crate::support::{contents, open_with, options, pattern};
use glintdb::{Db, Durability, Keyspace, Options, PinMode, Result, Stats};
use glintdb_flash::MemVolume;
use std::collections::BTreeMap;
use std::sync::Arc;

const REPLAY: u64 = 1 << 20;

fn log_backed() -> Options {
    options()
        .replay_bytes_max(REPLAY)
        .pin_mode(PinMode::LogBacked)
        .value_gc(false)
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

struct Filled {
    keyspace: Keyspace,
    map: Map,
    n: u64,
}

impl Filled {
    fn new(db: &Db) -> Filled {
        Filled {
            keyspace: db.default_keyspace(),
            map: Map::new(),
            n: 0,
        }
    }

    /// One more operation: most put, some delete, a few delete a range.
    fn step(&mut self) {
        self.n += 1;
        let n = self.n;
        let key = |of: u64| format!("key{:04}", of * 7919 % 1500).into_bytes();
        if n.is_multiple_of(97) {
            let (from, to) = (key(n), [&key(n)[..], b"5"].concat());
            let range = from.clone()..to.clone();
            self.keyspace.delete_range(range.clone()).unwrap();
            self.map.retain(|key, _| !range.contains(key));
        } else if n.is_multiple_of(5) {
            self.keyspace.delete(key(n * 3)).unwrap();
            self.map.remove(&key(n * 3));
        } else {
            let value = pattern(n, if n.is_multiple_of(3) { 900 } else { 60 });
            self.keyspace.put(key(n), &value).unwrap();
            self.map.insert(key(n), value);
        }
    }

    /// Operations until the figures say so.
    fn until(&mut self, db: &Db, wanted: impl Fn(&Stats) -> bool) {
        for _ in 0..200 {
            (0..20).for_each(|_| self.step());
            if wanted(&db.stats()) {
                return;
            }
        }
        panic!("it does not come to that: {:?}", db.stats());
    }

    fn check(&self) {
        assert_eq!(contents(&self.keyspace).unwrap(), self.map);
        let keys: Vec<_> = (0..1500).map(|n| format!("key{n:04}")).collect();
        let together = self.keyspace.multi_get(&keys);
        for (key, together) in keys.iter().zip(together) {
            let wanted = self.map.get(key.as_bytes()).map(Vec::as_slice);
            assert_eq!(self.keyspace.get(key).unwrap().as_deref(), wanted, "{key}");
            assert_eq!(together.unwrap().as_deref(), wanted, "{key}");
        }
    }
}

fn flushes(stats: &Stats) -> u64 {
    stats
        .keyspaces
        .iter()
        .map(|keyspace| keyspace.flushes)
        .sum()
}

/// What the process left when it was killed, opened.
fn killed(volume: &Arc<MemVolume>, options: Options) -> (Arc<MemVolume>, Db) {
    let image = volume.kill();
    let db = open_with(&image, options).unwrap();
    (image, db)
}

#[test]
fn flushes_are_held_and_persisted_as_one_run() {
    let volume = MemVolume::new();
    let db = open_with(&volume, log_backed()).unwrap();
    let mut filled = Filled::new(&db);
    let tables = |db: &Db| {
        db.stats().keyspaces[0]
            .levels
            .iter()
            .map(|level| level.tables)
            .sum::<u32>()
    };
    filled.until(&db, |stats| stats.resident_runs == 2);
    let stats = db.stats();
    assert_eq!((flushes(&stats), tables(&db)), (0, 0), "nothing is written");
    assert!(stats.keyspaces[0].resident_entries > 100 && stats.resident_log_bytes > REPLAY / 8);
    filled.check();
    // A third one would keep more log than may be.
    filled.until(&db, |stats| stats.resident_runs == 0);
    assert_eq!((flushes(&db.stats()), tables(&db)), (1, 1), "as one run");
    filled.check();
    filled.until(&db, |stats| stats.resident_runs == 1);
    db.flush().unwrap();
    let stats = db.stats();
    assert_eq!(
        (stats.resident_runs, stats.keyspaces[0].resident_bytes),
        (0, 0)
    );
    assert_eq!(stats.keyspaces[0].memtable_keys, 0);
    filled.check();
    db.default_keyspace().compact().unwrap();
    filled.check();
    assert!(db.verify().unwrap().errors.is_empty());
}

#[test]
fn what_is_held_comes_back_after_a_kill() {
    let volume = MemVolume::new();
    let db = open_with(&volume, log_backed()).unwrap();
    let mut filled = Filled::new(&db);
    for runs in [1, 2, 0, 1, 2, 0, 2] {
        filled.until(&db, |stats| stats.resident_runs == runs);
        // Either mode reads what the other one left.
        for mode in [PinMode::LogBacked, PinMode::WrittenThrough] {
            let (_image, again) = killed(&volume, log_backed().pin_mode(mode));
            let replayed = again.stats().replayed_bytes;
            assert!((1..=REPLAY).contains(&replayed), "{replayed}");
            assert!(again.verify().unwrap().errors.is_empty());
            let mut there = Filled::new(&again);
            there.map = filled.map.clone();
            there.check();
        }
    }
}

/// Also where an opening has replayed nearly all that may be, and the process is killed again: for either mode.
#[test]
fn the_log_that_must_be_replayed_stays_within_its_bound() {
    for mode in [PinMode::WrittenThrough, PinMode::LogBacked] {
        let mut image = MemVolume::new();
        let (mut map, mut n, mut most) = (Map::new(), 0, 0);
        for life in 0..12 {
            let db = open_with(&image, log_backed().pin_mode(mode)).unwrap();
            let replayed = db.stats().replayed_bytes;
            assert!(replayed <= REPLAY, "{mode:?}, life {life}: {replayed}");
            most = most.max(replayed);
            let mut filled = Filled::new(&db);
            (filled.map, filled.n) = (map, n);
            filled.check();
            (0..700 + life * 137).for_each(|_| filled.step());
            (map, n) = (filled.map, filled.n);
            image = image.kill();
        }
        assert!(most > REPLAY / 3, "{mode:?}: {most}");
    }
}

#[test]
fn memory_stays_within_the_budget() {
    let volume = MemVolume::new();
    let budget = 8 << 20;
    // So much log that only memory bounds the runs.
    let options = log_backed()
        .replay_bytes_max(1 << 30)
        .separate_min_bytes(1 << 20);
    let db = open_with(&volume, options).unwrap();
    let keyspace = db.default_keyspace();
    let (mut most_runs, mut most) = (0, 0);
    for n in 0..60_000u64 {
        let key = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
        keyspace
            .put_with(key, pattern(n, 100), Durability::Buffered)
            .unwrap();
        if n.is_multiple_of(500) {
            let stats = db.stats();
            let resident = stats.keyspaces[0].resident_bytes;
            assert!(resident <= budget / 4, "{resident}");
            assert!(stats.memory.used_bytes <= budget, "{:?}", stats.memory);
            let (_, part) = stats
                .memory
                .parts
                .iter()
                .find(|(name, _)| *name == "resident")
                .unwrap();
            assert_eq!(*part, resident);
            most_runs = most_runs.max(stats.resident_runs);
            most = most.max(resident);
        }
    }
    assert!(
        most_runs >= 2 && most > budget / 8,
        "{most_runs} runs, {most} bytes"
    );
}

#[test]
fn snapshots_and_iterators_outlive_what_was_held() {
    let volume = MemVolume::new();
    let db = open_with(&volume, log_backed()).unwrap();
    let mut filled = Filled::new(&db);
    let mut snapshots = Vec::new();
    for runs in [1, 2, 0, 1, 0] {
        filled.until(&db, |stats| stats.resident_runs == runs);
        snapshots.push((db.snapshot(), filled.map.clone()));
    }
    let mut iterator = filled.keyspace.iter();
    let first = iterator.next().unwrap().unwrap();
    let expected = filled.map.clone();
    db.flush().unwrap();
    filled.until(&db, |stats| stats.resident_runs == 1);
    db.default_keyspace().compact().unwrap();
    for (snapshot, map) in &snapshots {
        let read: Result<Map> = snapshot
            .iter(&filled.keyspace)
            .map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())))
            .collect();
        assert_eq!(&read.unwrap(), map);
    }
    let rest = iterator.map(|record| record.unwrap());
    let read: Map = std::iter::once(first)
        .chain(rest)
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect();
    assert_eq!(read, expected);
    // What only they keep is told, and goes with them.
    assert!(db.stats().pinned_bytes > 0);
    drop(snapshots);
    db.flush().unwrap();
    assert_eq!(db.stats().pinned_bytes, 0);
}

/// What snapshots keep of persisted runs counts as what they keep of memtables.
#[test]
fn the_oldest_snapshot_goes_where_resident_runs_are_too_much() {
    let volume = MemVolume::new();
    let limit = 1 << 20;
    let options = log_backed()
        .replay_bytes_max(64 << 20)
        .separate_min_bytes(1 << 20)
        .snapshot_pin_bytes_max(limit);
    let db = open_with(&volume, options).unwrap();
    let keyspace = db.default_keyspace();
    let mut snapshots = Vec::new();
    let mut n = 0u64;
    for _ in 0..6 {
        while db.stats().resident_runs < 1 {
            for _ in 0..200u64 {
                n += 1;
                let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
                keyspace
                    .put_with(key, pattern(n, 400), Durability::Buffered)
                    .unwrap();
            }
        }
        snapshots.push(db.snapshot());
        db.flush().unwrap();
        let pinned = db.stats().pinned_bytes;
        assert!(pinned <= limit as u64, "{pinned}");
    }
    assert!(db.stats().snapshots_given_up > 0);
    assert!(snapshots[0].get(&keyspace, b"x").is_err());
}

/// The flush point moves for all keyspaces at once, so one that was not written to since is persisted too.
#[test]
fn keyspaces_are_persisted_together() {
    let volume = MemVolume::new();
    let db = open_with(&volume, log_backed()).unwrap();
    let other = db.create_keyspace("other", Default::default()).unwrap();
    let third = db.create_keyspace("third", Default::default()).unwrap();
    other.put("a", "1").unwrap();
    third.put("a", "1").unwrap();
    let mut filled = Filled::new(&db);
    filled.until(&db, |stats| stats.resident_runs == 1);
    let resident = |name: &str| {
        let stats = db.stats();
        let of = stats
            .keyspaces
            .iter()
            .find(|keyspace| keyspace.name == name);
        of.map(|of| of.resident_entries)
    };
    assert_eq!((resident("other"), resident("third")), (Some(1), Some(1)));
    db.drop_keyspace("third").unwrap();
    filled.until(&db, |stats| stats.resident_runs == 0);
    let (image, again) = killed(&volume, log_backed());
    assert_eq!(
        again
            .keyspace("other")
            .unwrap()
            .get("a")
            .unwrap()
            .as_deref(),
        Some(&b"1"[..])
    );
    assert!(again.keyspace("third").is_err());
    drop((image, again));
    assert_eq!(other.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    filled.check();
}

/// A transaction that began before what it read was held sees that it was overwritten, deleted, or deleted with a range.
#[test]
fn transactions_find_conflicts_in_what_is_held() {
    let volume = MemVolume::new();
    let db = open_with(&volume, log_backed()).unwrap();
    let keyspace = db.default_keyspace();
    for (n, write) in [0, 1, 2].into_iter().enumerate() {
        let key = format!("a{n}");
        keyspace.put(&key, "old").unwrap();
        db.flush().unwrap();
        let mut transaction = db.transaction();
        assert!(transaction.get(&keyspace, &key).unwrap().is_some());
        transaction.put(&keyspace, &key, "mine").unwrap();
        match write {
            0 => keyspace.put(&key, "theirs").unwrap(),
            1 => keyspace.delete(&key).unwrap(),
            _ => keyspace
                .delete_range(key.clone()..format!("{key}z"))
                .unwrap(),
        }
        let mut filled = Filled::new(&db);
        filled.until(&db, |stats| stats.resident_runs == 1);
        let error = transaction.commit().unwrap_err();
        assert_eq!(error.kind(), glintdb::ErrorKind::Conflict, "{write}");
    }
}

/// Overwritten at random, the space bound holds and values move, with everything there in the end and after a kill.
#[test]
fn value_gc_goes_on_beside_what_is_held() {
    let volume = MemVolume::new();
    let options = || {
        log_backed()
            .value_gc(true)
            .space_amp_max(1.5)
            .separate_min_bytes(64)
            .replay_bytes_max(256 << 10)
            .garbage_bytes_min(256 << 10)
    };
    let db = open_with(&volume, options()).unwrap();
    let keyspace = db.default_keyspace();
    let mut map = Map::new();
    let mut held = 0;
    for n in 0..12_000u64 {
        let key = format!("key{:04}", n.wrapping_mul(0x9e37_79b9) % 1000).into_bytes();
        let value = pattern(n, 500);
        keyspace.put(&key, &value).unwrap();
        map.insert(key, value);
        if n.is_multiple_of(100) {
            held += db.stats().resident_runs;
        }
    }
    let stats = db.stats();
    assert!(
        stats.value_gc.rounds > 3 && held > 0,
        "{held}: {:?}",
        stats.value_gc
    );
    assert!(stats.log.bytes < 3 << 20, "{}", stats.log.bytes);
    assert_eq!(contents(&keyspace).unwrap(), map);
    assert!(db.verify().unwrap().errors.is_empty());
    let (_image, again) = killed(&volume, options());
    assert_eq!(contents(&again.default_keyspace()).unwrap(), map);
    assert!(again.verify().unwrap().errors.is_empty());
}
