//! What reads cost: which lookups and reads of the medium gets and scans do.

use crate::gate::Gate;
use crate::support::{env, open, options};
use bytes::Bytes;
use glintdb::{Durability, Experiments};
use glintdb_simdisk::{HookedVolume, MemVolume};
use std::collections::BTreeMap;
use std::sync::Arc;

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn value(n: u32, length: usize) -> Bytes {
    Bytes::from(vec![n.to_le_bytes()[0]; length])
}

/// The tables that flushes and compactions write are read by them: where their blocks are pinned, who looks for a key reads nothing. A get waited for each new table's filter and fences, while others wrote.
#[test]
fn tables_that_are_new_are_known_to_readers() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    for phase in 0..3 {
        for n in (0..400).filter(|n| n % 3 == phase) {
            db.put(key(n), value(n, 100)).unwrap();
        }
        match phase {
            2 => db.compact().unwrap(),
            _ => db.flush().unwrap(),
        }
        // Figures first: they open segments.
        let (_, before) = (db.stats(), db.stats().volume.reads);
        for n in (0..400).filter(|n| n % 3 <= phase) {
            assert_eq!(db.get(key(n)).unwrap(), Some(value(n, 100)));
        }
        assert_eq!(db.stats().volume.reads, before, "phase {phase}");
    }
}

/// Records in batches of all sizes, owned and borrowed, from both ends: each comes once, in order.
#[test]
fn scans_yield_every_record_once_however_they_are_taken() {
    for length in [10, 900] {
        let volume = MemVolume::new();
        let db = open(&volume).unwrap();
        for n in 0..1500 {
            let value = value(n, length);
            db.default_keyspace()
                .put_with(key(n), value, Durability::Os)
                .unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        let db = open(&volume).unwrap();
        let all = db.default_keyspace();
        for limit in [0, 1, 50, 300, 700, 5000] {
            // Of so many, one is taken from the back, and one borrowed.
            for (back, borrowed) in [(usize::MAX, 1), (usize::MAX, 3), (2, 3), (7, usize::MAX)] {
                let mut records = match limit {
                    0 => all.iter(),
                    limit => all.iter().limit_hint(limit),
                };
                let (mut first, mut behind) = (0, 1500);
                for turn in 1.. {
                    let found = if turn % back == 0 {
                        let last = records.next_back().transpose().unwrap();
                        last.inspect(|_| behind -= 1)
                            .map(|(found, read)| (behind, found, read))
                    } else {
                        let next = if turn % borrowed == 0 {
                            let next = records.next_ref().unwrap();
                            let copy = Bytes::copy_from_slice;
                            next.map(|(found, read)| (copy(found), copy(read)))
                        } else {
                            records.next().transpose().unwrap()
                        };
                        next.inspect(|_| first += 1)
                            .map(|(found, read)| (first - 1, found, read))
                    };
                    let Some((n, found, read)) = found else { break };
                    assert_eq!((&found[..], read), (&key(n)[..], value(n, length)));
                }
                assert_eq!(first, behind, "{length} {limit} {back} {borrowed}");
            }
        }
        db.close().unwrap();
    }
}

/// What is written for a key that is being read is still in memory when the ring has handed it to the log's file.
#[test]
fn a_value_that_is_read_is_cached_when_it_is_written_again() {
    for cached in [true, false] {
        let gate = Arc::new(Gate::default());
        let gated = HookedVolume::new(MemVolume::new(), gate.clone());
        let options = options().experiments(Experiments::default().hot_keys(cached));
        let db = options.open_volume(gated, env()).unwrap();
        let keyspace = db.default_keyspace();
        keyspace.put(key(1), value(1, 900)).unwrap();
        assert_eq!(keyspace.get(key(1)).unwrap(), Some(value(1, 900)));
        keyspace.put(key(1), value(2, 900)).unwrap();
        keyspace.put(key(2), value(2, 900)).unwrap();
        // Twice what the ring holds; nobody reads these.
        for n in 0..2 * (256 << 10) / 900 {
            keyspace.put(key(10 + n), value(n, 900)).unwrap();
        }
        db.flush().unwrap();
        // Its neighbour, so that the segment is open and the block of the index cached.
        let before = gate.reads();
        assert_eq!(keyspace.get(key(2)).unwrap(), Some(value(2, 900)));
        assert!(gate.reads() > before, "nobody had read that key");
        let before = gate.reads();
        assert_eq!(keyspace.get(key(1)).unwrap(), Some(value(2, 900)));
        assert_eq!(gate.reads() == before, cached);
    }
}

/// A key that is read often is found without memtables or index, whatever was done to it, by gets, batches and snapshots.
#[test]
fn a_key_that_is_read_often_is_found_without_the_index() {
    const KEYS: u32 = 100;
    for hot in [true, false] {
        let options = options().experiments(Experiments::default().hot_keys(hot));
        let db = options.open_volume(MemVolume::new(), env()).unwrap();
        let keyspace = db.default_keyspace();
        let keys: Vec<_> = (0..KEYS).map(key).collect();
        let mut expected: Vec<Option<u32>> = (0..KEYS).map(Some).collect();
        for n in 0..KEYS {
            keyspace.put(key(n), value(n, 900)).unwrap();
        }
        db.flush().unwrap();
        let lookups = || -> u64 { db.stats().keyspaces[0].lookups_by_reads.iter().sum() };
        let read_all = |expected: &[Option<u32>], snapshot: Option<&glintdb::Snapshot>| {
            let before = lookups();
            let expected: Vec<_> = expected.iter().map(|n| n.map(|n| value(n, 900))).collect();
            for (key, expected) in keys.iter().zip(&expected) {
                let found = match snapshot {
                    Some(snapshot) => snapshot.get(&keyspace, key),
                    None => keyspace.get(key),
                };
                assert_eq!(found.unwrap(), *expected);
            }
            let batch = match snapshot {
                Some(snapshot) => snapshot.multi_get(&keyspace, &keys),
                None => keyspace.multi_get(&keys),
            };
            let batch: Vec<_> = batch.into_iter().map(Result::unwrap).collect();
            assert_eq!(batch, expected);
            lookups() - before
        };
        // Of a bucket of the table a key may have pushed out another.
        let few = u64::from(KEYS / 10);
        for round in 1..6 {
            let _known = read_all(&expected, None) + read_all(&expected, None);
            let asked = read_all(&expected, None);
            assert_eq!(asked <= few, hot, "{asked} lookups in round {round}");
            let (before, snapshot) = (expected.clone(), db.snapshot());
            assert_eq!(read_all(&before, Some(&snapshot)) <= few, hot);
            for n in (0..KEYS).filter(|n| n % 3 != round % 3) {
                keyspace.put(key(n), value(n + round, 900)).unwrap();
                expected[n as usize] = Some(n + round);
            }
            read_all(&expected, None);
            for n in (0..KEYS).filter(|n| n % 7 == round) {
                keyspace.delete(key(n)).unwrap();
                expected[n as usize] = None;
            }
            if round % 2 == 0 {
                keyspace
                    .delete_range(key(10 * round)..key(10 * round + 5))
                    .unwrap();
                (10 * round..10 * round + 5).for_each(|n| expected[n as usize] = None);
            }
            read_all(&expected, None);
            read_all(&before, Some(&snapshot));
            db.flush().unwrap();
            read_all(&expected, None);
            read_all(&before, Some(&snapshot));
            for n in 0..KEYS {
                keyspace.put(key(n), value(n, 900)).unwrap();
            }
            expected = (0..KEYS).map(Some).collect();
            db.flush().unwrap();
            // So many reads that the table is in use again after a range was deleted.
            for _ in 0..2 * 2048 / (2 * KEYS) {
                read_all(&expected, None);
            }
        }
    }
}

/// Batches alone make keys hot, however long they are.
#[test]
fn batches_make_keys_hot() {
    let db = options().open_volume(MemVolume::new(), env()).unwrap();
    let keyspace = db.default_keyspace();
    let mut keys: Vec<Vec<u8>> = (0..50).map(|n| key(n).to_vec()).collect();
    keys.extend([vec![1; 255], vec![2; 256], vec![3; 5000]]);
    for key in &keys {
        keyspace.put(key, value(7, 900)).unwrap();
    }
    db.flush().unwrap();
    let lookups = || -> u64 { db.stats().keyspaces[0].lookups_by_reads.iter().sum() };
    for round in 0..4 {
        let before = lookups();
        for found in keyspace.multi_get(&keys) {
            assert_eq!(found.unwrap(), Some(value(7, 900)));
        }
        let asked = lookups() - before;
        // Some bucket may be full.
        let few = if round < 1 { 53 } else { 5 };
        assert!(asked <= few, "{asked} lookups in round {round}");
    }
}

/// Of a keyspace that was dropped, what was begun before still sees everything, and what was begun after nothing, whatever was hot.
#[test]
fn nothing_is_hot_in_a_keyspace_that_was_dropped() {
    let db = options().open_volume(MemVolume::new(), env()).unwrap();
    let space = db.keyspace_or_create("gone", Default::default()).unwrap();
    space.put(key(1), value(1, 900)).unwrap();
    db.flush().unwrap();
    for _ in 0..3 {
        assert_eq!(space.get(key(1)).unwrap(), Some(value(1, 900)));
    }
    let before = db.snapshot();
    db.drop_keyspace("gone").unwrap();
    let after = db.snapshot();
    assert_eq!(before.get(&space, key(1)).unwrap(), Some(value(1, 900)));
    assert_eq!(after.get(&space, key(1)).unwrap(), None);
    assert!(
        after.multi_get(&space, &[key(1)])[0]
            .as_ref()
            .unwrap()
            .is_none()
    );
    assert!(space.get(key(1)).is_err());
}

/// What is overwritten leaves the cache with that. It stayed, and of data that the budget holds twice over some were read from the device, one read in twenty beside as many writes.
#[test]
fn what_is_read_and_overwritten_all_the_time_takes_its_room_in_the_cache_once() {
    const KEYS: u32 = 2000;
    let gate = Arc::new(Gate::default());
    let gated = HookedVolume::new(MemVolume::new(), gate.clone());
    let options = options()
        .memory_budget_bytes(8 << 20)
        .experiments(Experiments::default().value_gc(false));
    let db = options.open_volume(gated, env()).unwrap();
    let keyspace = db.default_keyspace();
    for n in 0..KEYS {
        keyspace.put(key(n), value(n, 900)).unwrap();
    }
    let read_all = |round: u32| {
        for n in 0..KEYS {
            let found = keyspace.get(key(n)).unwrap();
            assert_eq!(found, Some(value(n + round, 900)));
        }
    };
    read_all(0);
    let cached = || {
        let parts = db.stats().memory.parts;
        parts
            .into_iter()
            .find(|(name, _)| *name == "cache")
            .unwrap()
            .1
    };
    let used = cached();
    for round in 1..12 {
        for n in 0..KEYS {
            keyspace.put(key(n), value(n + round, 900)).unwrap();
        }
        db.flush().unwrap();
        let before = gate.reads();
        read_all(round);
        let reads = gate.reads() - before;
        // Blocks of the index that flushes have just written.
        assert!(reads < KEYS as usize / 20, "{reads} reads in round {round}");
    }
    let now = cached();
    assert!(now < used + used / 2, "{used} and {now}");
}

/// Read buffers that are kept for the next reads are part of the budget.
#[test]
fn idle_read_buffers_are_bounded_and_counted() {
    let home = tempfile::tempdir().unwrap();
    let options = options().memory_budget_bytes(32 << 20);
    let db = options.open(home.path()).unwrap();
    let keyspace = db.default_keyspace();
    (0..3000).for_each(|n| keyspace.put(key(n), value(n, 3000)).unwrap());
    db.flush().unwrap();
    let keys: Vec<_> = (0..3000).map(key).collect();
    let found = keyspace.multi_get(&keys);
    assert!(found.iter().all(|found| matches!(found, Ok(Some(_)))));
    drop(found);
    let memory = db.stats().memory;
    let idle = (memory.parts.iter()).find(|(name, _)| *name == "idle_buffers");
    let idle = idle.unwrap().1;
    assert!((1 << 16..=2 << 20).contains(&idle), "{idle}");
}

/// What scans come by together is looked up together from the second scan on, and stays what it is when keys are written and deleted, in both directions, for snapshots and after value GC has moved it.
#[test]
fn what_scans_come_by_together_is_found_together() {
    const KEYS: u32 = 1000;
    for kept in [true, false] {
        let options = options()
            .experiments(Experiments::default().range_cache(kept))
            .memory_budget_bytes(32 << 20);
        let db = options.open_volume(MemVolume::new(), env()).unwrap();
        let keyspace = db.default_keyspace();
        let mut expected: BTreeMap<u32, u32> = (0..KEYS).map(|n| (n, n)).collect();
        for n in 0..KEYS {
            keyspace.put(key(n), value(n, 900)).unwrap();
        }
        db.flush().unwrap();
        let wanted = |expected: &BTreeMap<u32, u32>| -> Vec<(Bytes, Bytes)> {
            let records = expected.iter();
            records
                .map(|(&n, &v)| (Bytes::copy_from_slice(&key(n)), value(v, 900)))
                .collect()
        };
        let scan = |expected: &BTreeMap<u32, u32>| {
            let before = db.stats().cache_hits;
            let found: Result<Vec<_>, _> = keyspace.iter().limit_hint(256).collect();
            assert!(found.unwrap() == wanted(expected));
            let hits = db.stats().cache_hits - before;
            let mut back: Vec<_> = keyspace.iter().rev().map(Result::unwrap).collect();
            back.reverse();
            assert!(back == wanted(expected));
            let (mut lent, mut records) = (Vec::new(), keyspace.iter().limit_hint(50));
            while let Some((key, value)) = records.next_ref().unwrap() {
                lent.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            }
            assert!(lent == wanted(expected));
            hits
        };
        (0..3).for_each(|_| _ = scan(&expected));
        let hits = scan(&expected);
        assert_eq!(hits < u64::from(KEYS) / 3, kept, "{hits} lookups");

        let (snapshot, then) = (db.snapshot(), expected.clone());
        for n in (0..KEYS).step_by(7) {
            keyspace.put(key(n), value(n + 1, 900)).unwrap();
            keyspace.delete(key(n + 3)).unwrap();
            expected.insert(n, n + 1);
            expected.remove(&(n + 3));
        }
        keyspace.delete_range(key(500)..key(520)).unwrap();
        expected.retain(|n, _| !(500..520).contains(n));
        for _ in 0..3 {
            scan(&expected);
            let old: Result<Vec<_>, _> = snapshot.iter(&keyspace).collect();
            assert!(old.unwrap() == wanted(&then));
        }
        drop(snapshot);
        db.flush().unwrap();
        keyspace.compact_values().unwrap();
        (0..3).for_each(|_| _ = scan(&expected));
        let hits = scan(&expected);
        assert_eq!(hits < u64::from(KEYS) / 3, kept, "{hits} lookups");
    }
}

/// Values that lie beside their keys are lent by their blocks, and copied for who may keep them: both in one scan, and from both ends.
#[test]
fn lent_and_owned_values_of_one_scan_are_the_same() {
    const KEYS: u32 = 2000;
    let db = options().open_volume(MemVolume::new(), env()).unwrap();
    let keyspace = db.default_keyspace();
    for n in 0..KEYS {
        keyspace.put(key(n), value(n, 60)).unwrap();
    }
    db.compact().unwrap();
    // Some in a memtable, between those of one block, and some gone.
    for n in (0..KEYS).step_by(37) {
        keyspace.put(key(n), value(n + 1, 60)).unwrap();
        keyspace.delete(key(n + 1)).unwrap();
    }
    let wanted: Vec<(Bytes, Bytes)> = (0..KEYS)
        .filter(|n| n % 37 != 1)
        .map(|n| {
            let written = if n % 37 == 0 { n + 1 } else { n };
            (Bytes::copy_from_slice(&key(n)), value(written, 60))
        })
        .collect();
    for owned_each in [1, 2, 7, 50, 5000] {
        let mut records = keyspace.iter().limit_hint(100);
        let (mut front, mut back) = (Vec::new(), Vec::new());
        let mut kept = Vec::new();
        for n in 0.. {
            if n % 5 == 4 {
                let Some(record) = records.next_back() else {
                    break;
                };
                back.push(record.unwrap());
            } else if n % owned_each == 0 {
                let Some(record) = records.next() else { break };
                kept.push((front.len(), record.unwrap()));
                front.push(kept[kept.len() - 1].1.clone());
            } else {
                let Some((key, value)) = records.next_ref().unwrap() else {
                    break;
                };
                front.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            }
        }
        drop(records);
        for (at, record) in kept {
            assert!(record == front[at]);
        }
        front.extend(back.into_iter().rev());
        assert!(front == wanted, "every {owned_each}th owned");
    }
}

/// What scans come by together is cached once, and neither gets nor scans read any of it again, after value GC has moved it either.
#[test]
fn what_is_cached_together_is_cached_once_and_found_by_itself_too() {
    const KEYS: u32 = 2000;
    let options = options().memory_budget_bytes(32 << 20);
    let db = options.open_volume(MemVolume::new(), env()).unwrap();
    let keyspace = db.default_keyspace();
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    for n in 0..KEYS {
        keyspace.put(key(n), value(n, 900)).unwrap();
    }
    db.flush().unwrap();
    let scan = || {
        let found = keyspace.iter().limit_hint(256).map(Result::unwrap);
        assert!(
            found
                .zip(0..KEYS)
                .all(|((_, found), n)| found == value(n, 900))
        );
    };
    let get = || {
        let found = keyspace
            .multi_get(&keys[..1000])
            .into_iter()
            .map(Result::unwrap);
        assert!(
            found
                .zip(0..KEYS)
                .all(|(found, n)| found == Some(value(n, 900)))
        );
        for n in 1000..KEYS {
            assert_eq!(keyspace.get(key(n)).unwrap(), Some(value(n, 900)));
        }
    };
    let cached = || {
        let memory = db.stats().memory;
        let cache = memory.parts.iter().find(|(name, _)| *name == "cache");
        cache.unwrap().1
    };
    get();
    let alone = cached();
    (0..3).for_each(|_| scan());
    assert!(cached() < alone, "{} after {alone}", cached());
    let read = || db.stats().volume.read_bytes;
    let few = u64::from(KEYS) * 900 / 50;
    // What moves was cached in ranges, then one by one as well.
    for gets in [0, 0, 2, 2] {
        let before = read();
        (0..2).for_each(|_| scan());
        (0..gets).for_each(|_| get());
        assert!(read() - before <= few, "{} bytes", read() - before);
        keyspace.compact_values().unwrap();
        // The index is another one now.
        keyspace.iter().keys().for_each(|key| drop(key.unwrap()));
    }
}

/// Flushes whose keys lie between each other, fewer than would be compacted for themselves, and scans over them.
#[test]
fn scans_over_runs_that_lie_between_each_other_have_them_compacted() {
    const KEYS: u32 = 3000;
    for compacts in [true, false] {
        let options = options()
            .experiments(Experiments::default().compact_for_scans(compacts))
            .background_threads(1);
        let db = options.open_volume(MemVolume::new(), env()).unwrap();
        let keyspace = db.default_keyspace();
        for part in 0..3 {
            for n in (part..KEYS).step_by(3) {
                keyspace.put(key(n), value(n, 20)).unwrap();
            }
            db.flush().unwrap();
        }
        let runs = || db.stats().keyspaces[0].levels[0].tables;
        assert!(runs() > 1);
        // As many entries as the compaction would cost, and then some for it to come about.
        let mut scans = 0;
        while runs() > 0 && scans < 100 {
            assert_eq!(keyspace.iter().map(Result::unwrap).count(), KEYS as usize);
            scans += 1;
        }
        assert_eq!(runs() == 0, compacts, "after {scans} scans");
        assert!(scans > 20, "after {scans} scans");
        let found: Vec<_> = keyspace.iter().keys().map(Result::unwrap).collect();
        assert!(
            found
                .iter()
                .zip(0..KEYS)
                .all(|(found, n)| *found == key(n)[..])
        );
    }
}
