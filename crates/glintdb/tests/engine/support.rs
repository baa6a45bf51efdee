//! A workload whose state after every commit is known, on a simulated volume, and the checks that recovery must pass.

use bytes::Bytes;
use glintdb::{Batch, Db, Durability, Env, Keyspace, KeyspaceOptions, Options, Result};
use glintdb_core::{DbId, FileKind};
use glintdb_flash::{ManualClock, Volume};
use glintdb_simdisk::{Fault, FaultKind, MemOptions, MemVolume};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Small everything, and jobs on the caller's thread: a run is the same every time.
pub(crate) fn options() -> Options {
    Options::default()
        .memory_budget_bytes(8 << 20)
        .log_segment_bytes(64 << 10)
        .log_ring_bytes(64 << 10)
        .replay_bytes_max(256 << 10)
        .background_threads(0)
}

pub(crate) fn env() -> Env {
    Env::new(Arc::new(ManualClock::new(Duration::ZERO)), DbId([7; 16]))
}

pub(crate) fn open_with(volume: &Arc<MemVolume>, options: Options) -> Result<Db> {
    options.open_volume(Arc::clone(volume) as Arc<dyn Volume>, env())
}

pub(crate) fn open(volume: &Arc<MemVolume>) -> Result<Db> {
    open_with(volume, options())
}

pub(crate) fn volume_of(capacity_bytes: u64) -> Arc<MemVolume> {
    MemVolume::with_options(MemOptions {
        capacity_bytes: Some(capacity_bytes),
        ..MemOptions::default()
    })
}

pub(crate) fn fail_at(volume: &Arc<MemVolume>, at_operation: u64, kind: FaultKind, sticky: bool) {
    volume.fail(Fault {
        at_operation,
        kind,
        sticky,
    });
}

/// Bytes that depend on `seed` alone and do not compress.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Everything in a keyspace, read forwards, and checked against reading backwards.
pub(crate) fn contents(keyspace: &Keyspace) -> Result<Map> {
    let forwards: Vec<(Bytes, Bytes)> = keyspace.iter().collect::<Result<_>>()?;
    let mut backwards: Vec<(Bytes, Bytes)> = keyspace.iter().rev().collect::<Result<_>>()?;
    backwards.reverse();
    assert_eq!(forwards, backwards, "both directions show the same");
    Ok(forwards
        .into_iter()
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect())
}

/// The state of the two keyspaces of the workload.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) one: Map,
    pub(crate) two: Map,
}

/// Commit `n` of the workload: a batch over both keyspaces, with inline and separated values, deletes and, now and then, a range delete. `newest` says in each
/// keyspace which commit it was, so that a torn batch shows.
pub(crate) fn operations(n: u64) -> Vec<(u8, Operation)> {
    let key = |of: u64| format!("key{:02}", of % 23).into_bytes();
    let long = if n.is_multiple_of(3) { 1500 } else { 40 };
    let mut operations = vec![
        (1, Operation::Put(key(n * 7), pattern(n, long))),
        (
            2,
            Operation::Put(key(n * 5), pattern(n + 1_000_000, 2000 - long)),
        ),
    ];
    if n.is_multiple_of(4) {
        operations.push((1, Operation::Delete(key(n * 3))));
    }
    if n.is_multiple_of(11) {
        operations.push((2, Operation::DeleteRange(key(n), key(n + 4))));
    }
    for keyspace in [1, 2] {
        operations.push((
            keyspace,
            Operation::Put(b"newest".to_vec(), n.to_le_bytes().to_vec()),
        ));
    }
    operations
}

#[derive(Clone)]
pub(crate) enum Operation {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

impl Model {
    /// The state after commits `1..=n`.
    pub(crate) fn after(n: u64) -> Model {
        let mut model = Model::default();
        (1..=n).for_each(|n| model.apply(n));
        model
    }

    pub(crate) fn apply(&mut self, n: u64) {
        for (keyspace, operation) in operations(n) {
            let map = if keyspace == 1 {
                &mut self.one
            } else {
                &mut self.two
            };
            match operation {
                Operation::Put(key, value) => drop(map.insert(key, value)),
                Operation::Delete(key) => drop(map.remove(&key)),
                Operation::DeleteRange(start, end) => {
                    map.retain(|key, _| *key < start || *key >= end);
                }
            }
        }
    }
}

pub(crate) fn keyspaces(db: &Db) -> Result<(Keyspace, Keyspace)> {
    Ok((
        db.default_keyspace(),
        db.keyspace_or_create("two", KeyspaceOptions::default())?,
    ))
}

pub(crate) fn commit(db: &Db, n: u64, durability: Durability) -> Result<()> {
    let (one, two) = (db.default_keyspace(), db.keyspace("two")?);
    let mut batch = Batch::new();
    for (keyspace, operation) in operations(n) {
        let keyspace = if keyspace == 1 { &one } else { &two };
        match operation {
            Operation::Put(key, value) => batch.put(keyspace, key, value),
            Operation::Delete(key) => batch.delete(keyspace, key),
            Operation::DeleteRange(start, end) => batch.delete_range(keyspace, start..end),
        };
    }
    db.write_with(batch, durability)
}

/// What was acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promises {
    /// Newest commit tried.
    pub(crate) tried: u64,
    /// Newest commit that was acknowledged at its own level.
    pub(crate) acknowledged: u64,
    pub(crate) os: u64,
    pub(crate) synced: u64,
}

/// Runs commits `from..=to` with flushes and compactions in between, until an error, or until the power is off (a copy into the ring cannot fail, so an
/// acknowledgement counts only while the operation that cuts the power has not come).
pub(crate) fn run(
    volume: &Arc<MemVolume>,
    db: &Db,
    commits: std::ops::RangeInclusive<u64>,
    power_off_at: u64,
    promises: &mut Promises,
) -> Result<()> {
    let on = || volume.operation_count() <= power_off_at;
    for n in commits {
        let durability = match n % 5 {
            0 => Durability::Sync,
            3 => Durability::Buffered,
            _ => Durability::Os,
        };
        promises.tried = n;
        commit(db, n, durability)?;
        if !on() {
            break;
        }
        promises.acknowledged = n;
        // The ring takes a buffered commit too, so a kill does not lose it; no promise of that is made, and a later `Os` commit makes it good.
        if durability >= Durability::Os {
            promises.os = n;
        }
        if durability >= Durability::Sync {
            promises.synced = n;
        }
        if n % 9 == 0 {
            db.flush()?;
            if !on() {
                break;
            }
            (promises.os, promises.synced) = (n, n);
        }
        if n % 20 == 0 {
            db.compact()?;
            if !on() {
                break;
            }
        }
    }
    Ok(())
}

/// Checks an opened database: its state is that after one commit, no older than promised; everything verifies; no file is left over. Answers the commit.
pub(crate) fn check(
    volume: &Arc<MemVolume>,
    db: &Db,
    promised: u64,
    tried: u64,
    context: &dyn std::fmt::Display,
) -> u64 {
    let one = db.default_keyspace();
    let number = |keyspace: &Keyspace| {
        let found = keyspace
            .get("newest")
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        found.map_or(0, |bytes| u64::from_le_bytes((*bytes).try_into().unwrap()))
    };
    let found = number(&one);
    assert!(
        (promised..=tried).contains(&found),
        "{context}: commits up to {promised} were promised and {tried} tried, {found} is the newest there"
    );
    let model = Model::after(found);
    assert!(
        contents(&one).unwrap() == model.one,
        "{context}: the default keyspace is not as after commit {found}"
    );
    match db.keyspace("two") {
        Ok(two) => {
            assert_eq!(number(&two), found, "{context}: a torn batch");
            assert!(
                contents(&two).unwrap() == model.two,
                "{context}: keyspace two is not as after commit {found}"
            );
        }
        Err(_) => assert_eq!(found, 0, "{context}: keyspace two is gone"),
    }
    check_clean(db, context);
    check_files(volume, db, context);
    found
}

pub(crate) fn check_clean(db: &Db, context: &dyn std::fmt::Display) {
    let report = db.verify().unwrap();
    assert!(report.is_clean(), "{context}: {:?}", report.errors);
}

/// Every file of an index is named by one, every segment by the log, and there is one manifest.
pub(crate) fn check_files(volume: &Arc<MemVolume>, db: &Db, context: &dyn std::fmt::Display) {
    let stats = db.stats();
    let of_indexes: u64 = stats
        .keyspaces
        .iter()
        .map(|keyspace| keyspace.index_files)
        .sum();
    let there = files(volume, FileKind::Table) + files(volume, FileKind::Tree);
    assert_eq!(there, of_indexes, "{context}: files of indexes");
    assert_eq!(files(volume, FileKind::Manifest), 1, "{context}: manifests");
    let spare = files(volume, FileKind::Log) - stats.log.segments;
    assert!(spare <= 2, "{context}: {spare} files of the log are spare");
}

pub(crate) fn files(volume: &Arc<MemVolume>, kind: FileKind) -> u64 {
    let files = volume.list().unwrap();
    files.iter().filter(|file| file.kind == kind).count() as u64
}

/// A database with commits `1..=n` made by [`run`] without a fault.
pub(crate) fn built(n: u64) -> (Arc<MemVolume>, Db) {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    keyspaces(&db).unwrap();
    run(&volume, &db, 1..=n, u64::MAX, &mut Promises::default()).unwrap();
    (volume, db)
}
