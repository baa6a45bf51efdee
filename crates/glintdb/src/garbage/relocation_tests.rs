//! Values that move: the parts that value GC is made of, put together by hand. A place in the index, values segments, one manifest record; whatever is written meanwhile, and wherever
//! the power is cut.

use super::tests::{check_whole, contents, filled, key, options, retired, there, value};
use crate::flush::{Pending, items_of};
use crate::manifest::Item;
use crate::version::KeyspaceVersion;
use crate::{Db, Env, Keyspace, Options, SalvageOptions, check, salvage};
use bytes::Bytes;
use glintdb_core::index::SortedRun;
use glintdb_core::{
    DbId, Direction, EntryRef, RangeTombstone, Result, SegmentId, SeqNum, ValuePointer,
};
use glintdb_flash::{CrashMode, ManualClock, MemVolume, Volume};
use glintdb_log::Space;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// Entries with their new pointers.
struct Moved {
    entries: Vec<(Bytes, SeqNum, ValuePointer)>,
    at: usize,
}

impl SortedRun for Moved {
    fn next(&mut self) -> Result<Option<(&[u8], SeqNum, EntryRef<'_>)>> {
        let entry = self.entries.get(self.at);
        self.at += 1;
        Ok(entry.map(|(key, seqno, pointer)| (key.as_ref(), *seqno, EntryRef::Pointer(*pointer))))
    }

    fn range_tombstones(&self) -> &[RangeTombstone] {
        &[]
    }

    fn entries_hint(&self) -> usize {
        self.entries.len()
    }
}

/// Places of a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Begun,
    ValuesWritten,
    RunWritten,
    Recorded,
    Collected,
}

/// Moves every value that is live below the flush point, and retires the segments they were in. `visit` is called in between.
fn round(db: &Db, mut visit: impl FnMut(Place)) -> Vec<SegmentId> {
    let engine = &db.handle.engine;
    let keyspace = {
        let version = engine.version.load_full();
        let default = version.live_keyspaces().next().unwrap();
        Arc::clone(&default.state)
    };
    // The version keeps what the relocation's view points to: a range deletion that comes now hides it, and compactions drop what is hidden.
    let (relocation, version) = {
        let _no_flush = engine.flush_lock.lock();
        (
            keyspace.index.begin_relocation(),
            engine.version.load_full(),
        )
    };
    let victims: Vec<SegmentId> = {
        let manifest = engine.manifest.lock();
        let mut victims = manifest.state().live_segments();
        let flushed = manifest.state().flush_point.lsn.segment;
        victims.retain(|id| *id < flushed || engine.holds_moved(*id));
        victims
    };
    visit(Place::Begun);
    let mut entries = Vec::new();
    let view = relocation.view();
    let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = view.cursor(lower, upper, Direction::Forward).unwrap();
    let mut writer = engine.log.values_writer(Space::Reserve).unwrap();
    while cursor.advance().unwrap() {
        let EntryRef::Pointer(pointer) = cursor.value() else {
            continue;
        };
        if !victims.contains(&pointer.segment) {
            continue;
        }
        let value = engine.log.read(&pointer).unwrap();
        let put = writer.put(
            &engine.log,
            keyspace.id,
            cursor.key(),
            &value,
            pointer.checksum,
        );
        put.unwrap();
        let key = Bytes::copy_from_slice(cursor.key());
        entries.push((key, cursor.seqno(), pointer));
    }
    let values = writer.finish(&engine.log).unwrap();
    drop(version);
    for (entry, pointer) in entries.iter_mut().zip(values.pointers()) {
        entry.2 = *pointer;
    }
    visit(Place::ValuesWritten);
    let change = relocation.write(&mut Moved { entries, at: 0 }).unwrap();
    visit(Place::RunWritten);
    let pending = [Pending { keyspace, change }];
    let mut manifest = engine.manifest.lock();
    let mut items = items_of(&pending, None);
    let held = manifest.state().live_segments();
    let retired = victims.iter().filter(|id| held.contains(id));
    items.extend(retired.copied().map(Item::SegmentRetired));
    items.push(Item::LogDurable(engine.log.durable()));
    manifest.commit(&items).unwrap();
    visit(Place::Recorded);
    let [Pending { keyspace, change }] = pending;
    keyspace.index.apply(&change).unwrap();
    engine.log.publish_values(values);
    engine.install(|version| {
        let (state, view) = (Arc::clone(&keyspace), keyspace.index.view());
        version
            .clone()
            .with_keyspace(KeyspaceVersion { state, view })
    });
    drop(manifest);
    engine.collect_garbage();
    visit(Place::Collected);
    victims
}

/// What comes while a round is under way: some keys again, some deleted, a range deleted; flushed, with as many runs as level 0 is compacted at.
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
    // Not flushed.
    keyspace.delete(key(180)).unwrap();
    put(&keyspace, 181);
    for gone in [50, 51, 52, 53, 180].into_iter().chain(160..170) {
        expected.remove(&key(gone));
    }
}

#[test]
fn values_that_moved_are_found_after_everything() {
    let home = tempfile::tempdir().unwrap();
    let [dir, copy, out] = ["db", "copy", "out"].map(|name| home.path().join(name));
    let db = options().open(&dir).unwrap();
    let mut expected = filled(&db, |_| {});
    let snapshot = db.snapshot();
    let before = expected.clone();
    let victims = round(&db, |place| {
        if place == Place::Begun {
            meanwhile(&db, &mut expected);
        }
    });
    assert!(!retired(&db).is_empty());
    // The snapshot reads what has moved where it was.
    assert_eq!(there(&dir, &victims), victims.len());
    for (key, value) in &before {
        let found = snapshot.get(&db.default_keyspace(), key).unwrap();
        assert!(found.is_some_and(|found| found == *value));
    }
    drop(snapshot);
    db.flush().unwrap();
    db.handle.engine.collect_garbage_if_waiting();
    assert_eq!(there(&dir, &victims), 0);
    check_whole(&db, &expected);

    db.checkpoint(&copy).unwrap();
    let report = check(&copy).unwrap();
    assert!(report.is_clean(), "{:?}", report.errors);
    let copied = options().open(&copy).unwrap();
    check_whole(&copied, &expected);
    copied.close().unwrap();

    // What has moved moves again.
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

#[test]
fn what_a_round_reads_stays_until_it_is_read() {
    let home = tempfile::tempdir().unwrap();
    let db = options().open(home.path()).unwrap();
    filled(&db, |_| {});
    std::thread::scope(|scope| {
        let mut compaction = None;
        let victims = round(&db, |place| {
            if place == Place::Begun {
                db.default_keyspace().delete_range::<&[u8]>(..).unwrap();
                db.flush().unwrap();
                // Drops everything that is hidden, and then waits for the round.
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
        db.handle.engine.collect_garbage();
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
fn a_round_that_the_power_cuts_has_happened_or_not() {
    let volume = MemVolume::new();
    let db = open(&volume, options());
    let mut expected = filled(&db, |_| {});
    let mut images = Vec::new();
    round(&db, |place| {
        if place == Place::Begun {
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
        assert_eq!(has_moved, place >= Place::Recorded, "{place:?}");
        moved += u32::from(has_moved);
        db.flush().unwrap();
        check_whole(&db, &expected);
        db.compact().unwrap();
        check_whole(&db, &expected);
        db.close().unwrap();
    }
    assert_eq!(moved, 10);
}
