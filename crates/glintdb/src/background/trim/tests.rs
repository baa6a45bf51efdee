//! Tests of trims: they give space back, and no commit loses its part of the reserve.

use crate::state::version::IndexNeeds;
use crate::{Db, Env, Options};
use glintdb_core::DbId;
use glintdb_flash::Volume;
use glintdb_simdisk::{CrashMode, MemOptions, MemVolume};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const CAPACITY_BYTES: u64 = 1 << 40;

fn options() -> Options {
    Options::default()
        .memory_budget_bytes(64 << 20)
        .background_threads(0)
}

fn open(volume: &Arc<MemVolume>) -> Db {
    let env = Env::new(crate::test_clock(), DbId([9; 16]));
    options()
        .open_volume(Arc::clone(volume) as Arc<dyn Volume>, env)
        .unwrap()
}

fn volume() -> Arc<MemVolume> {
    MemVolume::with_options(MemOptions {
        capacity_bytes: Some(CAPACITY_BYTES),
        ..MemOptions::default()
    })
}

fn used_bytes(volume: &MemVolume) -> u64 {
    CAPACITY_BYTES - volume.free_bytes().unwrap()
}

fn put(db: &Db, keys: std::ops::Range<u64>, value_bytes: usize) {
    for n in keys {
        db.put(format!("key{n:09}"), vec![7; value_bytes]).unwrap();
    }
}

/// All records but the last ones are overwritten. By then segments have 2 MiB and the ring has 4
/// MiB.
#[test]
fn a_flush_gives_back_the_preallocated_space_of_a_busy_log() {
    let volume = volume();
    let db = open(&volume);
    for _ in 0..300 {
        put(&db, 0..1000, 100);
    }
    let engine = &db.handle.engine;
    let before = (
        engine.shared.log.segment_bytes(),
        engine.shared.log.stats().ring_space_bytes,
    );
    assert!(before.0 > MIB && before.1 == 4 * MIB, "{before:?}");
    db.flush().unwrap();
    let after = (
        engine.shared.log.segment_bytes(),
        engine.shared.log.stats().ring_space_bytes,
    );
    assert_eq!(after, (MIB, MIB));
    // The active segment, perhaps the next one, two in reserve, the ring, and little else.
    let used = used_bytes(&volume);
    assert!(used <= 5 * MIB + MIB / 2, "{used}");
    // No earlier commit is replayed.
    assert_eq!(
        engine.shared.manifest.lock().state().flush_point.lsn,
        engine.shared.log.next_lsn()
    );
    put(&db, 1000..1100, 100);
    for volume in [volume.kill(), volume.crash(CrashMode::LoseUnsynced)] {
        let kept = open(&volume).default_keyspace().iter().keys().count();
        assert!((1000..=1100).contains(&kept), "{kept}");
    }
    drop(db);
    let db = open(&volume.kill());
    assert_eq!(db.default_keyspace().iter().keys().count(), 1100);
}

/// A little garbage is not worth a new segment and two syncs.
#[test]
fn a_flush_of_little_begins_no_segment() {
    let volume = volume();
    let db = open(&volume);
    put(&db, 0..1000, 100);
    let segment = db.handle.engine.shared.log.next_lsn().segment;
    db.flush().unwrap();
    put(&db, 0..1000, 100);
    db.compact().unwrap();
    assert_eq!(db.handle.engine.shared.log.next_lsn().segment, segment);
}

/// A flush gives back the part of the reserve that only the memtable needed.
#[test]
fn a_flush_gives_back_the_reserve_that_the_memtable_needed() {
    let volume = volume();
    let db = open(&volume);
    put(&db, 0..40_000, 100);
    let before = db.stats().reserve_bytes;
    assert!(before >= 6 * MIB, "{before}");
    db.flush().unwrap();
    let after = db.stats().reserve_bytes;
    let needed = db.stats().keyspaces[0].index_bytes / 4;
    assert!((needed..=needed + MIB).contains(&after), "{after}");
    assert!(!db.stats().reserve_lent);
    // The reserve grows again before more puts are taken.
    put(&db, 40_000..80_000, 100);
    assert!(db.stats().reserve_bytes >= before);
}

/// A commit that was numbered while the reserve was larger keeps its space.
#[test]
fn commits_in_memory_keep_their_part_of_the_reserve() {
    let volume = volume();
    let db = open(&volume);
    put(&db, 0..40_000, 100);
    let (engine, before) = (&db.handle.engine, db.stats().reserve_bytes);
    // As if everything was flushed when the surplus was computed, and commits came before it was
    // removed.
    let looks = std::cell::Cell::new(0);
    let unflushed = || {
        looks.set(looks.get() + 1);
        match looks.get() {
            1 => 0,
            _ => engine.sequencer.unflushed_bytes(),
        }
    };
    let numbers = &*engine.shared.numbers;
    engine
        .shared
        .reserve
        .trim(numbers, IndexNeeds::default(), unflushed)
        .unwrap();
    assert_eq!((looks.get(), db.stats().reserve_bytes), (2, before));
    let files = engine.shared.reserve.files();
    let there = volume.list().unwrap();
    assert!(files.iter().all(|file| there.contains(file)));
    db.put("one more", "record").unwrap();
}
