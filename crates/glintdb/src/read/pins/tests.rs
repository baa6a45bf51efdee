//! Tests of giving up the oldest pins.

use crate::snapshot::Pin;
use crate::{Durability, Env, Options};
use glintdb_core::DbId;
use glintdb_flash::ManualClock;
use glintdb_simdisk::MemVolume;
use std::sync::Arc;
use std::time::Duration;

/// Two snapshots of one commit differ in the number of their version. Slots of the slab are reused,
/// so they do not tell the age.
#[test]
fn of_two_snapshots_of_one_commit_that_of_the_older_version_is_older() {
    let db = Options::default()
        .background_threads(0)
        .open_volume(
            MemVolume::new(),
            Env::new(Arc::new(ManualClock::new(Duration::ZERO)), DbId([7; 16])),
        )
        .unwrap();
    db.put("a", "1").unwrap();
    let first = Pin::new(&db.handle);
    let older = Pin::new(&db.handle);
    db.flush().unwrap();
    drop(first);
    let newer = Pin::new(&db.handle);
    assert!(older.at() == newer.at() && newer.registered.key < older.registered.key);
    let all = db.handle.engine.shared.pins.all();
    assert!(
        Arc::ptr_eq(&all[0], &older.registered.held)
            && Arc::ptr_eq(&all[1], &newer.registered.held)
    );
    assert_eq!(db.stats().pins, 2);
    drop((older, newer));
    assert_eq!(db.stats().pins, 0);
}

/// A snapshot that is given up during a read frees its memory later. The memory counts as freed at
/// once, so that the next snapshots stay.
#[test]
fn giving_up_a_snapshot_during_a_read_gives_up_no_other() {
    let clock = Arc::new(ManualClock::new(Duration::ZERO));
    let db = Options::default()
        .memory_budget_bytes(8 << 20)
        .log_segment_bytes(64 << 10)
        .background_threads(0)
        .snapshot_pin_bytes_max(1 << 20)
        .open_volume(MemVolume::new(), Env::new(clock, DbId([7; 16])))
        .unwrap();
    let mut pins = Vec::new();
    let mut reading = None;
    let given_up = || db.stats().snapshots_given_up;
    while given_up() == 0 {
        for n in 0..400u64 {
            db.default_keyspace()
                .put_with(n.to_be_bytes(), [7; 300], Durability::Buffered)
                .unwrap();
        }
        let pin = Pin::new(&db.handle);
        // A read of the oldest one is under way.
        reading.get_or_insert_with(|| pin.version().unwrap());
        pins.push(pin);
        db.flush().unwrap();
    }
    assert!(pins.len() > 3);
    assert_eq!(given_up(), 1);
    assert!(pins[0].version().is_err());
    assert!(pins[1..].iter().all(|pin| pin.version().is_ok()));
    drop(reading);
    db.flush().unwrap();
    assert_eq!(given_up(), 1);
}
