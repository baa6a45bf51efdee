//! Tests of retired segments: their files are removed while shadowed and hidden entries still point
//! into them.

mod relocated;

use crate::durable::manifest::Item;
use crate::space::value_gc::{Place, Round, Scans};
use crate::{Db, Durability, Experiments, Options, SalvageOptions, check, salvage};
use glintdb_core::SegmentId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(super) fn options() -> Options {
    Options::default()
        .memory_budget_bytes(8 << 20)
        .log_segment_bytes(64 << 10)
        .log_ring_bytes(64 << 10)
        .replay_bytes_max(1 << 20)
        .separate_min_bytes(100)
        .durability(Durability::Os)
        .background_threads(0)
        .experiments(Experiments::default().value_gc(false))
}

/// Runs a round over every complete segment, which moves every live value below the flush point.
/// Calls `visit` with each step before it runs.
pub(super) fn round(db: &Db, visit: impl FnMut(Place)) -> Vec<SegmentId> {
    round_by(db, Scans::New { keeps_values: true }, visit)
}

/// Runs a [`round`] that finds live records as `scans` says.
fn round_by(db: &Db, scans: Scans, visit: impl FnMut(Place)) -> Vec<SegmentId> {
    round_over(db, |_| true, scans, visit)
}

/// Runs a round like [`round_by`] over the `wanted` segments only.
pub(super) fn round_over(
    db: &Db,
    wanted: impl Fn(SegmentId) -> bool,
    scans: Scans,
    mut visit: impl FnMut(Place),
) -> Vec<SegmentId> {
    let engine = &db.handle.engine;
    let victims = |state: &crate::durable::manifest::State| {
        let mut live = state.live_segments();
        let whole = |id| id < state.flush_point.lsn.segment || engine.space.holds_moved(id);
        live.retain(|id| whole(*id) && wanted(*id));
        live
    };
    let mut round = Round::begin(&engine.value_gc, victims, scans)
        .unwrap()
        .unwrap();
    let victims = round.victims().collect();
    let mut place = None;
    loop {
        if place != Some(round.place()) {
            place = Some(round.place());
            visit(round.place());
        }
        if round.place() == Place::Over {
            return victims;
        }
        round.step(&engine.value_gc).unwrap();
    }
}

/// Returns the segments that hold moved values.
fn moved(db: &Db) -> Vec<SegmentId> {
    let engine = &db.handle.engine;
    let mut ids = engine.shared.log.segment_ids();
    ids.retain(|id| engine.space.holds_moved(*id));
    ids
}

pub(super) fn value(key: u32, round: u32) -> Vec<u8> {
    let byte = (key * 7 + round).to_le_bytes()[0];
    vec![byte; 1000 + (key % 100) as usize]
}

pub(super) fn key(n: u32) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

/// Puts 200 keys, puts half of them again, deletes some and a range, and puts the rest again. So
/// the segments of the first round hold no live value, and since level 0 has too few runs to be
/// compacted, entries still point into them. Returns the final records.
pub(super) fn filled(db: &Db, mut after_first: impl FnMut(&Db)) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let keyspace = db.default_keyspace();
    let mut expected = BTreeMap::new();
    let mut put = |n: u32, round: u32| {
        keyspace.put(key(n), value(n, round)).unwrap();
        expected.insert(key(n), value(n, round));
    };
    (0..200).for_each(|n| put(n, 0));
    db.flush().unwrap();
    after_first(db);
    (0..100).for_each(|n| put(n, 1));
    (100..120).for_each(|n| keyspace.delete(key(n)).unwrap());
    keyspace.delete_range(key(120)..key(150)).unwrap();
    db.flush().unwrap();
    (150..200).for_each(|n| put(n, 2));
    db.flush().unwrap();
    expected.retain(|at, _| *at < key(100) || *at >= key(150));
    expected
}

/// Retires every segment below the flush point that no live entry points into.
fn retire(db: &Db) -> Vec<SegmentId> {
    let engine = &db.handle.engine;
    let mut live = BTreeSet::new();
    for keyspace in engine.shared.version.load_full().live_keyspaces() {
        keyspace.view.verify(
            &mut |error| panic!("{error}"),
            &mut |_| {},
            &mut |_, pointer| {
                live.insert(pointer.segment);
            },
            &mut |_| {},
        );
    }
    let mut manifest = engine.shared.manifest.lock();
    let mut dead = manifest.state().live_segments();
    let flushed = manifest.state().flush_point.lsn.segment;
    dead.retain(|segment| !live.contains(segment) && *segment < flushed);
    let items: Vec<Item> = dead.iter().copied().map(Item::SegmentRetired).collect();
    manifest.commit(&items).unwrap();
    drop(manifest);
    engine.space.collect_garbage();
    assert!(dead.len() > 1);
    dead
}

pub(super) fn retired(db: &Db) -> Vec<SegmentId> {
    let manifest = db.handle.engine.shared.manifest.lock();
    manifest.state().retired.iter().copied().collect()
}

/// Returns how many of the segments exist.
pub(super) fn there(dir: &Path, segments: &[SegmentId]) -> usize {
    let file = |segment: &&SegmentId| dir.join(segment.file().to_string()).exists();
    segments.iter().filter(file).count()
}

pub(super) fn contents(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let keyspace = db.default_keyspace();
    let entries = keyspace.iter().map(|entry| {
        let (key, value) = entry.unwrap();
        (key.to_vec(), value.to_vec())
    });
    entries.collect()
}

pub(super) fn check_whole(db: &Db, expected: &BTreeMap<Vec<u8>, Vec<u8>>) {
    assert!(contents(db) == *expected);
    let report = db.verify().unwrap();
    assert!(report.is_clean(), "{:?}", report.errors);
    assert_eq!(report.table_values, expected.len() as u64);
    assert_eq!(report.leftovers, []);
}

#[test]
fn retired_segments_survive_rolls_checkpoints_and_salvage() {
    let home = tempfile::tempdir().unwrap();
    let (dir, copy, out) = ["db", "copy", "out"]
        .map(|name| home.path().join(name))
        .into();
    let db = options().open(&dir).unwrap();
    let expected = filled(&db, |_| {});
    let before = db.stats().log.live_value_bytes;
    let segments = retire(&db);
    assert_eq!(there(&dir, &segments), 0);
    check_whole(&db, &expected);
    let held: u64 = {
        let manifest = db.handle.engine.shared.manifest.lock();
        let held = segments.iter().map(|id| manifest.state().live_bytes(*id));
        held.sum()
    };
    assert!(held > 0);
    assert_eq!(db.stats().log.live_value_bytes, before - held);

    let engine = &db.handle.engine;
    let snapshots = engine.shared.index_snapshots();
    engine.shared.manifest.lock().roll(snapshots).unwrap();
    assert_eq!(retired(&db), segments);
    check_whole(&db, &expected);

    db.checkpoint(&copy).unwrap();
    let report = check(&copy).unwrap();
    assert!(report.is_clean(), "{:?}", report.errors);
    let copied = options().open(&copy).unwrap();
    assert_eq!(retired(&copied), segments);
    check_whole(&copied, &expected);
    copied.close().unwrap();

    db.close().unwrap();
    let report = check(&dir).unwrap();
    assert!(report.is_clean(), "{:?}", report.errors);
    let report = salvage(&dir, &out, &SalvageOptions::default()).unwrap();
    assert!(report.is_complete(), "{report:?}");
    let salvaged = options().open(&out).unwrap();
    assert!(contents(&salvaged) == expected);
    salvaged.close().unwrap();

    let db = options().open(&dir).unwrap();
    assert_eq!(retired(&db), segments);
    check_whole(&db, &expected);
    // No entry points into the segments any more.
    db.compact().unwrap();
    assert_eq!(retired(&db), []);
    check_whole(&db, &expected);
    db.close().unwrap();
    assert!(check(&dir).unwrap().is_clean());
}

#[test]
fn only_older_snapshots_read_a_retired_segment() {
    let home = tempfile::tempdir().unwrap();
    let db = options().open(home.path()).unwrap();
    let mut snapshot = None;
    let expected = filled(&db, |db| snapshot = Some(db.snapshot()));
    let segments = retire(&db);
    assert_eq!(there(home.path(), &segments), segments.len());
    assert!(contents(&db) == expected);
    let old = snapshot.take().unwrap();
    for n in 0..200 {
        let found = old.get(&db.default_keyspace(), key(n)).unwrap();
        assert!(found.is_some_and(|found| found == value(n, 0)), "{n}");
    }
    drop(old);
    db.handle.engine.space.collect_garbage_if_waiting();
    assert_eq!(there(home.path(), &segments), 0);
    check_whole(&db, &expected);
    db.close().unwrap();
}

#[test]
fn the_next_open_removes_a_retired_segment_after_a_crash() {
    let home = tempfile::tempdir().unwrap();
    let db = options().open(home.path()).unwrap();
    let mut snapshot = None;
    let expected = filled(&db, |db| snapshot = Some(db.snapshot()));
    let segments = retire(&db);
    assert_eq!(there(home.path(), &segments), segments.len());
    // The snapshot is dropped last, so no thread removes the segments.
    db.close().unwrap();
    drop(snapshot);
    let db = options().open(home.path()).unwrap();
    assert_eq!(there(home.path(), &segments), 0);
    assert_eq!(retired(&db), segments);
    check_whole(&db, &expected);
    db.close().unwrap();
}

#[test]
fn a_live_value_in_a_retired_segment_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let db = options().open(home.path()).unwrap();
    filled(&db, |_| {});
    let segment = {
        let mut manifest = db.handle.engine.shared.manifest.lock();
        let live = manifest.state().live_segments();
        let segment = live[live.len() - 1];
        manifest.commit(&[Item::SegmentRetired(segment)]).unwrap();
        segment
    };
    let is_reported = |errors: &[crate::Error]| {
        errors.iter().any(|error| {
            error.to_string().contains("retired")
                && error.to_string().contains(&segment.file().to_string())
        })
    };
    assert!(is_reported(&db.verify().unwrap().errors));
    db.close().unwrap();
    assert!(is_reported(&check(home.path()).unwrap().errors));
}

#[test]
fn a_round_that_walks_the_index_moves_the_same_values_as_one_that_scans() {
    let keeps = |keeps_values| Scans::New { keeps_values };
    let moved = [keeps(true), keeps(false), Scans::None].map(|scans| {
        let home = tempfile::tempdir().unwrap();
        let db = options().open(home.path()).unwrap();
        let expected = filled(&db, |_| {});
        let victims = round_by(&db, scans, |_| {});
        check_whole(&db, &expected);
        assert_eq!(there(home.path(), &victims), 0);
        (victims, db.stats().log.relocated_bytes)
    });
    assert!(moved[0].0.len() > 1 && moved[0].1 > 100_000, "{moved:?}");
    assert!(moved.iter().all(|one| *one == moved[0]), "{moved:?}");
}
