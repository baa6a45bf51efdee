//! Tests of rounds of value GC over all segments, with writes meanwhile and power cuts at any
//! point.

use super::tests::{
    check_whole, contents, filled, key, options, retired, round, round_over, there, value,
};
use crate::space::value_gc::{Place, Scans};
use crate::{Db, Env, Keyspace, Options, SalvageOptions, check, salvage};
use glintdb_core::DbId;
use glintdb_flash::{ManualClock, Volume};
use glintdb_simdisk::{CrashMode, MemVolume};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes while a round is under way: puts some keys again, deletes some and a range, and flushes
/// them, with as many runs as start a compaction of level 0.
fn meanwhile(db: &Db, expected: &mut Records) {
    let keyspace = db.default_keyspace();
    let mut put = |keyspace: &Keyspace, n: u32| {
        keyspace.put(key(n), value(n, 3)).unwrap();
        expected.insert(key(n), value(n, 3));
    };
    for run in 0..4 {
        (run * 5..run * 5 + 5).for_each(|n| put(&keyspace, n));
        keyspace.delete(key(50 + run)).unwrap();
        db.flush().unwrap();
    }
    keyspace.delete_range(key(160)..key(170)).unwrap();
    db.flush().unwrap();
    // This deletion is not flushed.
    keyspace.delete(key(180)).unwrap();
    put(&keyspace, 181);
    for deleted in [50, 51, 52, 53, 180].into_iter().chain(160..170) {
        expected.remove(&key(deleted));
    }
}

#[test]
fn moved_values_are_found_after_writes_flushes_and_compactions() {
    let home = tempfile::tempdir().unwrap();
    let [dir, copy, out] = ["db", "copy", "out"].map(|name| home.path().join(name));
    let db = options().open(&dir).unwrap();
    let mut expected = filled(&db, |_| {});
    let snapshot = db.snapshot();
    let before = expected.clone();
    let victims = round(&db, |place| {
        if place == Place::Scan {
            meanwhile(&db, &mut expected);
        }
    });
    assert!(!retired(&db).is_empty());
    // The snapshot reads moved values at their old places.
    assert_eq!(there(&dir, &victims), victims.len());
    for (key, value) in &before {
        let found = snapshot.get(&db.default_keyspace(), key).unwrap();
        assert!(found.is_some_and(|found| found == *value));
    }
    drop(snapshot);
    db.flush().unwrap();
    db.handle.engine.space.collect_garbage_if_waiting();
    assert_eq!(there(&dir, &victims), 0);
    check_whole(&db, &expected);

    db.checkpoint(&copy).unwrap();
    let report = check(&copy).unwrap();
    assert!(report.is_clean(), "{:?}", report.errors);
    let copied = options().open(&copy).unwrap();
    check_whole(&copied, &expected);
    copied.close().unwrap();

    // Moves the values again.
    let again = round(&db, |_| {});
    assert!(again.len() > 1);
    assert_eq!(there(&dir, &again), 0);
    check_whole(&db, &expected);
    db.close().unwrap();
    let report = check(&dir).unwrap();
    assert!(report.is_clean(), "{:?}", report.errors);
    let report = salvage(&dir, &out, &SalvageOptions::default()).unwrap();
    assert!(report.is_complete(), "{report:?}");
    let salvaged = options().open(&out).unwrap();
    assert!(contents(&salvaged) == expected);
    salvaged.close().unwrap();

    let db = options().open(&dir).unwrap();
    check_whole(&db, &expected);
    db.compact().unwrap();
    assert_eq!(retired(&db), []);
    check_whole(&db, &expected);
    db.default_keyspace().delete_range::<&[u8]>(..).unwrap();
    db.compact().unwrap();
    check_whole(&db, &Records::new());
    assert_eq!(db.stats().log.live_value_bytes, 0);
    db.close().unwrap();
}

/// A cached value is cached at its new place. A value that is not cached stays uncached.
#[test]
fn a_cached_value_stays_cached_when_it_moves() {
    let home = tempfile::tempdir().unwrap();
    let db = options().open(home.path()).unwrap();
    let expected = filled(&db, |_| {});
    let get = |n: &u32| db.get(key(*n)).unwrap();
    let there = |n: &u32| expected.contains_key(&key(*n));
    let (hot, cold): (Vec<u32>, Vec<u32>) = (0..200).filter(there).partition(|n| n % 3 > 0);
    assert!(hot.iter().all(|n| get(n).is_some()));
    for moves in 1..=2 {
        assert!(round(&db, |_| {}).len() > 1);
        let reads = || db.stats().volume.reads;
        // The first reads open the segments and cache the blocks of the index.
        let before = reads();
        let (first, _) = (get(&cold[moves]), get(&cold[cold.len() - moves]));
        assert!(first.is_some() && reads() > before, "the value was cached");
        let before = reads();
        for n in &hot {
            assert_eq!(get(n).as_deref(), expected.get(&key(*n)).map(Vec::as_slice));
        }
        assert_eq!(reads(), before, "move {moves}");
    }
}

/// Some values of a cached run move. They are cached by themselves at their new places, and the
/// others at their old ones.
#[test]
fn a_value_that_moves_leaves_its_cached_run() {
    let home = tempfile::tempdir().unwrap();
    let db = options().open(home.path()).unwrap();
    let mut second = None;
    for phase in [0, 1] {
        (phase..400)
            .step_by(2)
            .for_each(|n| db.put(key(n), value(n, 0)).unwrap());
        db.flush().unwrap();
        second = second.or(db.handle.engine.shared.log.segment_ids().into_iter().max());
    }
    let scan = || {
        let found = db
            .default_keyspace()
            .iter()
            .limit_hint(256)
            .map(Result::unwrap);
        assert!(
            found
                .zip(0..400)
                .all(|((_, found), n)| found == value(n, 0))
        );
    };
    (0..3).for_each(|_| scan());
    let entries = || db.handle.engine.shared.cache.stats().entries;
    assert!(entries() < 200, "they are cached together: {}", entries());
    let scans = Scans::New { keeps_values: true };
    let moved = round_over(&db, |id| Some(id) < second, scans, |_| {});
    assert!(moved.len() > 1);
    // The index has other blocks now.
    db.default_keyspace()
        .iter()
        .keys()
        .for_each(|key| drop(key.unwrap()));
    let reads = || db.stats().volume.reads;
    let before = reads();
    scan();
    for n in 0..400 {
        assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n, 0)[..]));
    }
    assert_eq!(reads(), before);
}

/// A cached value that has moved and is then written is cached once. Otherwise its old value would
/// take room too.
#[test]
fn a_moved_value_leaves_the_cache_when_its_key_is_written() {
    let home = tempfile::tempdir().unwrap();
    let db = options().open(home.path()).unwrap();
    let expected = filled(&db, |_| {});
    let keys = || (0..200).filter(|n| expected.contains_key(&key(*n)));
    assert!(keys().all(|n| db.get(key(n)).unwrap().is_some()));
    let entries = || db.handle.engine.shared.cache.stats().entries;
    let moved = round(&db, |_| {});
    assert!(moved.len() > 1);
    let before = entries();
    keys().for_each(|n| db.put(key(n), value(n, 4)).unwrap());
    assert!(entries() <= before, "{before}, then {}", entries());
    let reads = db.stats().volume.reads;
    for n in keys() {
        assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n, 4)[..]));
    }
    assert_eq!(db.stats().volume.reads, reads);
}

#[test]
fn segments_stay_until_a_round_has_read_them() {
    let home = tempfile::tempdir().unwrap();
    let db = options().open(home.path()).unwrap();
    filled(&db, |_| {});
    std::thread::scope(|scope| {
        let mut compaction = None;
        let victims = round(&db, |place| {
            if place == Place::Scan {
                db.default_keyspace().delete_range::<&[u8]>(..).unwrap();
                db.flush().unwrap();
                // The compaction drops all hidden entries, and then waits for the round.
                compaction = Some(scope.spawn(|| db.compact().unwrap()));
                while db.stats().log.live_value_bytes > 0 {
                    std::thread::yield_now();
                }
                assert!(
                    compaction
                        .as_ref()
                        .is_some_and(|thread| !thread.is_finished())
                );
            }
        });
        compaction.unwrap().join().unwrap();
        db.handle.engine.space.collect_garbage();
        assert_eq!(there(home.path(), &victims), 0);
    });
    check_whole(&db, &Records::new());
    db.close().unwrap();
}

fn open(volume: &Arc<MemVolume>, options: Options) -> Db {
    let clock = Arc::new(ManualClock::new(Duration::ZERO));
    let env = Env::new(clock, DbId([7; 16]));
    let volume = Arc::clone(volume) as Arc<dyn Volume>;
    options.open_volume(volume, env).unwrap()
}

#[test]
fn a_round_is_atomic_across_power_cuts() {
    let volume = MemVolume::new();
    let db = open(&volume, options());
    let mut expected = filled(&db, |_| {});
    let mut images = Vec::new();
    round(&db, |place| {
        if place == Place::Scan {
            meanwhile(&db, &mut expected);
            db.flush_log(crate::Durability::Sync).unwrap();
        }
        let modes = (0..3).map(|seed| CrashMode::Random { seed });
        for mode in modes.chain([CrashMode::LoseUnsynced, CrashMode::KeepUnsynced]) {
            images.push((place, volume.crash(mode)));
        }
    });
    let mut moved = 0;
    for (place, image) in images {
        let db = open(&image, options());
        let has_moved = !retired(&db).is_empty();
        assert_eq!(has_moved, place == Place::Over, "{place:?}");
        moved += u32::from(has_moved);
        db.flush().unwrap();
        check_whole(&db, &expected);
        db.compact().unwrap();
        check_whole(&db, &expected);
        db.close().unwrap();
    }
    assert_eq!(moved, 5);
}
