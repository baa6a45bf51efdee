//! Tests of values that are put in key order, alone and while others write.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::space::value_gc::tests::{KEYS, Random, check_all, env, filled, key, options, value};
use crate::state::scattered::beside;
use crate::{Db, Experiments, Options, check_volume};
use glintdb_core::{DbId, Direction, EntryRef, ValuePointer};
use glintdb_flash::Volume;
use glintdb_simdisk::MemVolume;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn open(volume: &Arc<MemVolume>, options: &Options) -> Db {
    let env = env(options, DbId([5; 16]));
    options
        .clone()
        .open_volume(Arc::clone(volume) as _, env)
        .unwrap()
}

/// Returns the places of the values of the default keyspace, in the order of keys.
fn pointers(db: &Db) -> Vec<ValuePointer> {
    db.flush().unwrap();
    let view = db.default_keyspace().state.index().view();
    let mut cursor = (view.cursor(Bound::Unbounded, Bound::Unbounded, Direction::Forward)).unwrap();
    let mut pointers = Vec::new();
    cursor
        .walk(&mut |_, _, value, _| {
            if let EntryRef::Pointer(pointer) = value {
                pointers.push(pointer);
            }
            true
        })
        .unwrap();
    pointers
}

/// Counts the places in the log that the values are at, where neighbours share a place.
fn places<'a>(pointers: impl Iterator<Item = &'a ValuePointer>) -> u64 {
    let pointers: Vec<_> = pointers.collect();
    let apart = pointers.windows(2).filter(|two| !beside(two[0], two[1]));
    apart.count() as u64 + 1
}

fn is_clean(volume: &Arc<MemVolume>) -> bool {
    let report = check_volume(&(Arc::clone(volume) as Arc<dyn Volume>));
    report.unwrap().is_clean()
}

#[test]
fn a_pass_puts_values_in_key_order_and_moves_each_once() {
    for threads in [0, 2] {
        let (volume, options) = (MemVolume::new(), options().background_threads(threads));
        let db = open(&volume, &options);
        let mut expected = filled(&db);
        let mut random = Random(7);
        for round in 1..2 * KEYS {
            let n = random.below(KEYS);
            db.put(key(n), value(n, round)).unwrap();
            expected.insert(key(n), value(n, round));
        }
        for n in (0..KEYS).step_by(7) {
            db.delete(key(n)).unwrap();
            expected.remove(&key(n));
        }
        db.default_keyspace()
            .delete_range(key(1000)..key(1100))
            .unwrap();
        expected.retain(|one, _| !(key(1000)..key(1100)).contains(one));
        let before = pointers(&db);
        assert!(places(before.iter()) > KEYS / 3, "random at first");
        let snapshot = db.snapshot();
        let keyspace = db.default_keyspace();
        keyspace.compact_values().unwrap();
        check_all(&db, &expected);
        let scanned = snapshot.iter(&keyspace).count();
        assert_eq!(scanned, expected.len());
        drop(snapshot);
        let after = pointers(&db);
        assert_eq!(after.len(), expected.len());
        // Segments have 256 KiB here, and pieces no more.
        assert!(places(after.iter()) < 200, "{}", places(after.iter()));
        let moved = db.stats().log.relocated_bytes;
        keyspace.compact_values().unwrap();
        let again = db.stats().log.relocated_bytes - moved;
        assert!(again < moved / 10, "{again} of {moved}");
        let space = db.stats();
        assert!(space.value_gc.error.is_none());
        db.close().unwrap();
        assert!(is_clean(&volume));
        let db = open(&volume, &options);
        check_all(&db, &expected);
        db.close().unwrap();
    }
}

#[test]
fn a_pass_reads_as_many_values_together_as_the_option_says() {
    let batches = |values: usize| {
        let experiments = Experiments::default().value_batch(values);
        let (volume, options) = (MemVolume::new(), options().experiments(experiments));
        let db = open(&volume, &options);
        let expected = filled_apart(&db, KEYS);
        db.flush().unwrap();
        let before = db.stats().volume.read_batches;
        db.compact_values().unwrap();
        check_all(&db, &expected);
        db.stats().volume.read_batches - before
    };
    // The difference is that of the values' batches alone.
    let [of_1, of_8, of_64] = [1, 8, 64].map(batches);
    let fewer = |more: u64, fewer: u64| (more - fewer) as f64 / KEYS as f64;
    let (from_1, from_8) = (fewer(of_1, of_8), fewer(of_8, of_64));
    assert!((0.8..1.0).contains(&(from_1 + 1.0 / 8.0)), "{from_1}");
    assert!(
        (0.8..1.2).contains(&((from_8 + 1.0 / 64.0) * 8.0)),
        "{from_8}"
    );
}

#[test]
fn a_pass_over_a_range_moves_no_other_values() {
    let (volume, options) = (MemVolume::new(), options());
    let db = open(&volume, &options);
    let mut random = Random(9);
    for _ in 0..KEYS {
        let n = random.below(KEYS);
        db.put(key(n), value(n, 0)).unwrap();
    }
    let keyspace = db.default_keyspace();
    keyspace.compact().unwrap();
    let moved = || db.stats().log.relocated_bytes;
    let before = moved();
    keyspace.compact_values_range(key(100)..key(200)).unwrap();
    let bytes = moved() - before;
    assert!((20_000..150_000).contains(&bytes), "{bytes}");
    keyspace.compact_values_range(key(100)..key(100)).unwrap();
    assert_eq!(moved() - before, bytes, "nothing is in it");
    assert!(db.verify().unwrap().is_clean());
}

/// Writes or deletes one of `keys` keys, and reads another one.
fn write_and_read(
    db: &Db,
    random: &mut Random,
    keys: u64,
    round: u64,
    expected: &mut BTreeMap<Vec<u8>, Vec<u8>>,
) {
    let n = random.below(keys);
    match random.below(8) {
        0 => {
            db.delete(key(n)).unwrap();
            expected.remove(&key(n));
        }
        _ => {
            db.put(key(n), value(n, round)).unwrap();
            expected.insert(key(n), value(n, round));
        }
    }
    let n = random.below(keys);
    let found = db.get(key(n)).unwrap();
    assert_eq!(found.as_deref(), expected.get(&key(n)).map(Vec::as_slice));
}

fn check_closed_and_opened(
    db: Db,
    volume: &Arc<MemVolume>,
    options: &Options,
    expected: &BTreeMap<Vec<u8>, Vec<u8>>,
) {
    check_all(&db, expected);
    db.close().unwrap();
    assert!(is_clean(volume));
    check_all(&open(volume, options), expected);
}

/// Each writer owns keys, so it knows what it must find, while values are put in order again and
/// again.
#[test]
fn concurrent_writes_survive_key_order_rewrite() {
    let (volume, options) = (MemVolume::new(), options().background_threads(2));
    let db = open(&volume, &options);
    let mut expected = filled(&db);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pass = || {
            while !over.load(Ordering::Relaxed) {
                db.default_keyspace().compact_values().unwrap();
            }
        };
        scope.spawn(pass);
        let mut random = Random(3);
        for round in 1..3 * KEYS {
            write_and_read(&db, &mut random, KEYS, round, &mut expected);
        }
        over.store(true, Ordering::Relaxed);
    });
    check_closed_and_opened(db, &volume, &options, &expected);
}

/// A pass that fails queues the compactions of level 0 that waited for its place. Otherwise stopped
/// writers would wait forever if there is no flush and no job.
#[test]
fn writers_continue_when_the_place_of_a_failed_pass_is_given_up() {
    let experiments = Experiments::default().value_gc(false).help(false);
    let options = options().background_threads(2).experiments(experiments);
    let volume = MemVolume::new();
    let db = open(&volume, &options);
    let engine = &db.handle.engine;
    let place = db.default_keyspace().state.index().begin_relocation();
    let mut n = 0;
    while !db.default_keyspace().state.debt.stopped() {
        db.put(key(n), value(n, 0)).unwrap();
        db.flush().unwrap();
        n += 1;
    }
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            db.put("last", "one").unwrap();
            done.send(()).unwrap();
        });
        let stopped = is_done.recv_timeout(Duration::from_millis(50));
        assert!(stopped.is_err(), "nothing to be tested");
        drop(place);
        let gone_on = is_done.recv_timeout(Duration::from_secs(20));
        // Otherwise the test would wait as well.
        engine.shared.schedule();
        gone_on.unwrap();
    });
}

/// A piece is limited by the bytes of keys and values. By values alone, a piece of long keys with
/// short values could take hundreds of megabytes.
#[test]
fn a_piece_is_limited_by_the_bytes_of_keys_and_values() {
    let options = options().separate_min_bytes(1);
    let volume = MemVolume::new();
    let db = open(&volume, &options);
    for n in 0..600u64 {
        let mut long = key(n * 7919 % 600);
        long.resize(8000, b'k');
        db.put(long, "v").unwrap();
    }
    db.flush().unwrap();
    let keyspace = db.default_keyspace();
    let view = keyspace.state.index().view();
    let bounds = (Bound::Unbounded, Bound::Unbounded);
    let engine = &db.handle.engine;
    let (records, next) = engine
        .value_gc
        .gather_piece(
            &keyspace.state,
            &*view,
            bounds,
            engine.value_gc.piece_limits(),
        )
        .unwrap();
    assert!(
        next.is_some() && records.all.len() < 200,
        "{}",
        records.all.len()
    );
    keyspace.compact_values().unwrap();
    assert!(db.verify().unwrap().is_clean());
    assert_eq!(keyspace.iter().count(), 600);
}

/// Writes `keys` keys once each, so that neighbours are far apart, and flushes them.
fn filled_apart(db: &Db, keys: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    // A prime number, of which no number of keys here is a multiple.
    let shuffled = (0..keys).map(|n| n * 4_801 % keys);
    let record = |n| {
        db.put(key(n), value(n, 0)).unwrap();
        (key(n), value(n, 0))
    };
    let filled = shuffled.map(record).collect();
    db.flush().unwrap();
    filled
}

/// Scans of values that the cache cannot hold have them put in order once they have paid for it,
/// but not if the values are in order already, and not without the option.
#[test]
fn scans_pay_for_putting_values_in_key_order() {
    const MANY: u64 = 12_000;
    for (threads, wanted, shuffled) in [
        (0, true, true),
        (2, true, true),
        (0, false, true),
        (0, true, false),
    ] {
        let volume = MemVolume::new();
        let options = options().background_threads(threads);
        let options = options.experiments(Experiments::default().order_for_scans(wanted));
        let options = options.garbage_bytes_min(4 << 20);
        let db = open(&volume, &options);
        for n in 0..MANY {
            // An odd factor, so that each key comes once.
            let n = if shuffled { n * 4_801 % MANY } else { n };
            db.put(key(n), [value(n, 0).as_slice(), &[7; 600]].concat())
                .unwrap();
        }
        let before = pointers(&db);
        let apart = places(before.iter());
        assert_eq!(apart > MANY / 2, shuffled, "{apart} places");
        let (keyspace, mut random) = (db.default_keyspace(), Random(11));
        let reads = db.stats().volume.reads;
        let scan = |from: u64, reverse: bool| {
            let until = (from + 100).min(MANY);
            let range = keyspace.range(key(from)..key(until)).limit_hint(100);
            let found: Vec<_> = match reverse {
                false => range.map(Result::unwrap).collect(),
                true => range.rev().map(Result::unwrap).collect(),
            };
            assert_eq!(found.len() as u64, until - from);
            for (at, (found, had)) in found.into_iter().enumerate() {
                let n = if reverse {
                    until - 1 - at as u64
                } else {
                    from + at as u64
                };
                assert_eq!((&*found, &had[..4]), (&*key(n), &value(n, 0)[..4]));
            }
        };
        let ordered = || db.stats().value_gc.ordered_records;
        // Background threads may be late.
        for turn in (0..30_000).take_while(|turn| *turn < 1500 || ordered() > 0) {
            if ordered() > MANY / 5 * 4 {
                break;
            }
            scan(random.below(MANY), turn % 4 == 0);
            if turn % 8 == 0 {
                // Without background threads, writers run jobs.
                db.put("zz", "1").unwrap();
            }
        }
        let stats = db.stats();
        let (ordered, spent) = (stats.value_gc.ordered_records, stats.volume.reads - reads);
        assert_eq!(ordered > 0, wanted && shuffled, "{ordered}");
        assert!(
            2 * ordered <= spent,
            "{ordered} were moved for {spent} reads"
        );
        db.delete("zz").unwrap();
        let after = places(pointers(&db).iter());
        assert_eq!(
            after < apart / 2,
            wanted && shuffled,
            "{apart}, then {after}"
        );
        drop(keyspace);
        db.close().unwrap();
        assert!(is_clean(&volume));
    }
}

/// Values are put in order for scans again and again, while other threads overwrite and delete, and
/// value GC removes the old copies.
#[test]
fn concurrent_writes_survive_reordering_for_scans() {
    const MANY: u64 = 8000;
    let (volume, options) = (MemVolume::new(), options().background_threads(2));
    let db = open(&volume, &options);
    let mut expected = filled_apart(&db, MANY);
    let ordered = || db.stats().value_gc.ordered_records;
    std::thread::scope(|scope| {
        let scans = scope.spawn(|| {
            let (keyspace, mut random) = (db.default_keyspace(), Random(5));
            while ordered() < 3 * MANY {
                let from = random.below(MANY);
                let mut last = Vec::new();
                for found in keyspace.range(key(from)..).limit_hint(200).take(200) {
                    let (key, value) = found.unwrap();
                    assert!(*key > *last);
                    last = key.to_vec();
                    let n: u64 = String::from_utf8_lossy(&key[3..]).parse().unwrap();
                    assert_eq!(value.len() as u64, 900 + n % 200);
                }
            }
        });
        let mut random = Random(3);
        for round in 1.. {
            if scans.is_finished() {
                break;
            }
            write_and_read(&db, &mut random, MANY, round, &mut expected);
        }
        scans.join().unwrap();
    });
    assert!(db.stats().value_gc.error.is_none());
    check_closed_and_opened(db, &volume, &options, &expected);
}

/// Snapshots keep the old copies of values. Pieces make no more of them than the allowed garbage.
#[test]
fn beside_a_snapshot_values_are_put_in_order_within_the_allowed_garbage() {
    const MANY: u64 = 12_000;
    let mut worst = Vec::new();
    for kept in [false, true] {
        let options = options().background_threads(2).space_amp_max(1.3);
        let db = open(&MemVolume::new(), &options);
        filled_apart(&db, MANY);
        let snapshot = kept.then(|| db.snapshot());
        let (keyspace, mut random, mut most) = (db.default_keyspace(), Random(11), 0);
        for _ in 0..2500 {
            let from = random.below(MANY);
            let scan = keyspace.range(key(from)..).limit_hint(100).take(100);
            assert!(scan.filter(Result::is_ok).count() > 0);
            most = db.stats().disk_bytes.max(most);
        }
        let ordered = db.stats().value_gc.ordered_records;
        assert_eq!(
            ordered > MANY / 2,
            !kept,
            "{ordered} with a snapshot: {kept}"
        );
        worst.push(most);
        drop(snapshot);
    }
    assert!(worst[1] < worst[0] + (2 << 20), "{worst:?}");
}

/// A value that cannot be read ends the passes over its keyspace, is reported, and stops nothing
/// else.
#[test]
fn a_damaged_value_ends_passes_over_its_keyspace_only() {
    const MANY: u64 = 12_000;
    let volume = MemVolume::new();
    // Otherwise a round of value GC would find and report it too.
    let options = options().garbage_bytes_min(1 << 30);
    let db = open(&volume, &options);
    filled_apart(&db, MANY);
    let lost = pointers(&db)[6000];
    db.close().unwrap();
    let segment = glintdb_core::FileId::new(glintdb_core::FileKind::Log, lost.segment.0);
    volume.flip_bits(segment, lost.offset.into(), 1).unwrap();
    let db = open(&volume, &options);
    let (keyspace, mut random) = (db.default_keyspace(), Random(11));
    for _ in 0..3000 {
        let from = random.below(MANY);
        keyspace
            .range(key(from)..)
            .limit_hint(100)
            .take(100)
            .for_each(drop);
        db.put("zz", "1").unwrap();
    }
    let error = db.stats().value_gc.error.unwrap_or_default();
    assert!(error.contains("in key order for scans"), "{error}");
    assert!(db.stats().background_error.is_none());
    db.flush().unwrap();
}

/// A close in the middle of a piece leaves only files of the database behind.
#[test]
fn a_close_during_a_pass_leaves_a_clean_database() {
    const MANY: u64 = 3000;
    for round in 0..60 {
        let (volume, options) = (MemVolume::new(), options().background_threads(2));
        let db = open(&volume, &options);
        filled_apart(&db, MANY);
        let (keyspace, mut random) = (db.default_keyspace(), Random(round));
        let engine = &db.handle.engine;
        for _ in 0..400 {
            let from = random.below(MANY);
            keyspace
                .range(key(from)..)
                .limit_hint(100)
                .take(100)
                .for_each(drop);
            if engine.space.gc().ordering.load(Ordering::Relaxed) {
                break;
            }
        }
        std::thread::sleep(Duration::from_micros(100 * round));
        drop(keyspace);
        db.close().unwrap();
        assert!(is_clean(&volume), "round {round}");
    }
}
