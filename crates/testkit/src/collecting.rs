//! Value GC at work: rounds that begin at every occasion, beside threads that overwrite, delete, look through snapshots and compact; and with power cuts around them.
//!
//! Everything is checked against what the writers know: each has keys of its own, and a value names its key and the write it is of.
//!
//! Thread safety: functions that start threads end them.

use crate::options::{self, Lane, OptionSet};
use crate::place::Place;
use crate::rng::Rng;
use glintdb::{Db, Durability, Env, GcReads, IndexKind, Keyspace, Stats};
use glintdb_core::DbId;
use glintdb_flash::SystemClock;
use glintdb_simdisk::{CrashMode, HookedVolume, Hooks, MemVolume};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Name of the set in which segments are collected as soon as a little of them is dead.
pub const EAGER: &str = "GC eager";
/// The same with a B+tree.
const EAGER_BTREE: &str = "B+tree, GC eager";

/// Both ways to find what is live in them.
pub const READS: [GcReads; 2] = [GcReads::Segments, GcReads::Index];

/// What a run did.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Writes.
    pub writes: u64,
    /// Reads that were checked.
    pub reads: u64,
    /// Rounds of value GC, and records they moved.
    pub rounds: u64,
    /// See `rounds`.
    pub moved: u64,
}

impl Counts {
    fn of(&mut self, stats: &Stats) {
        self.rounds += stats.value_gc.rounds;
        self.moved += stats.value_gc.relocated_records;
    }
}

/// The set [`EAGER`] of a lane, with an index of this kind. Rounds find live values by `reads`.
///
/// # Panics
/// Where the lane does not have it.
#[must_use]
pub fn eager(lane: Lane, index: IndexKind, reads: GcReads) -> OptionSet {
    let mut sets = options::of(lane);
    let name = match index {
        IndexKind::BTree => EAGER_BTREE,
        _ => EAGER,
    };
    sets.retain(|set| set.name == name);
    let mut set = sets.pop().expect("the lane has the set");
    set.options.experiments.value_gc_reads = reads;
    set
}

fn name(key: u64) -> Vec<u8> {
    format!("key{key:06}").into_bytes()
}

/// The value of a write: the key, its number, and more to a length that follows from both.
fn value(key: u64, write: u64) -> Vec<u8> {
    let mut bytes = [key.to_le_bytes(), write.to_le_bytes()].concat();
    bytes.resize(
        200 + ((key * 31 + write * 17) % 1800) as usize,
        key as u8 ^ write as u8,
    );
    bytes
}

/// Which write a value is of; it must be one of this key, and whole.
fn write_of(key: u64, bytes: &[u8]) -> Result<u64, String> {
    let number = bytes.get(8..16).and_then(|bytes| bytes.try_into().ok());
    let write = number.map_or(0, u64::from_le_bytes);
    match bytes == value(key, write) {
        true => Ok(write),
        false => Err(format!(
            "key {key}: a value of {} bytes that nobody wrote",
            bytes.len()
        )),
    }
}

fn told(error: glintdb::Error) -> String {
    error.to_string()
}

/// One thread: overwrites, deletions of keys and ranges, snapshots that are read when everything has moved on. `steps` is called for every write.
///
/// # Errors
/// What is wrong.
pub fn alone(reads: GcReads, steps: &dyn Fn()) -> Result<Counts, String> {
    const KEYS: u64 = 120;
    let db = Place::memory()
        .open(eager(Lane::Model, IndexKind::Lsm, reads).options)
        .map_err(told)?;
    let space = db.default_keyspace();
    let mut rng = Rng::of(&[7]);
    let mut latest: Vec<Option<u64>> = vec![None; KEYS as usize];
    let mut counts = Counts::default();
    let mut held: Option<(glintdb::Snapshot, Vec<Option<u64>>)> = None;
    for write in 1..=2500 {
        let key = rng.below(KEYS);
        steps();
        counts.writes += 1;
        match rng.below(12) {
            0 => {
                space.delete(name(key)).map_err(told)?;
                latest[key as usize] = None;
            }
            1 if rng.one_in(4) => {
                let end = (key + 8).min(KEYS);
                space.delete_range(name(key)..name(end)).map_err(told)?;
                latest[key as usize..end as usize].fill(None);
            }
            _ => {
                space.put(name(key), value(key, write)).map_err(told)?;
                latest[key as usize] = Some(write);
            }
        }
        if write % 60 == 0 {
            db.flush().map_err(told)?;
            counts.reads += expect(&latest, |key| space.get(key))?;
        }
        if write % 400 == 0 {
            if let Some((snapshot, then)) = held.take() {
                counts.reads += expect(&then, |key| snapshot.get(&space, key))
                    .map_err(|message| format!("a snapshot: {message}"))?;
            }
            held = Some((db.snapshot(), latest.clone()));
            db.compact().map_err(told)?;
            whole(&db)?;
        }
    }
    drop(held);
    counts.of(&db.stats());
    expect(&latest, |key| space.get(key))?;
    whole(&db)?;
    Ok(counts)
}

/// A medium on which what must be durable takes a while.
struct SlowSyncs;

impl Hooks for SlowSyncs {
    fn before_sync(&self) {
        std::thread::sleep(Duration::from_millis(4));
    }
}

/// Overwrites as fast as it goes, on a medium on which background threads cannot keep up: the files never take more than `space_amp_max` allows. `steps` is called for every write.
///
/// # Errors
/// What is wrong.
pub fn bounded(steps: &dyn Fn()) -> Result<Counts, String> {
    const KEYS: u64 = 4000;
    const AMP: f64 = 1.5;
    // A segment that is written and one that a round writes, and what threads write while others wait for the processor: less than half a memtable's log.
    const SLACK_BYTES: f64 = 2.0 * SEGMENT_BYTES as f64 + (1 << 20) as f64;
    const SEGMENT_BYTES: u64 = 128 << 10;
    let options = glintdb::Options::default()
        .memory_budget_bytes(8 << 20)
        .log_segment_bytes(SEGMENT_BYTES)
        .log_ring_bytes(64 << 10)
        .replay_bytes_max(1 << 20)
        .background_threads(2)
        .space_amp_max(AMP);
    // Rounds sync several files, and here each takes its time: without the brake writers are far ahead of them. The clock is a real one, for it is by sleeping that writers are slowed.
    let volume = HookedVolume::new(MemVolume::new(), Arc::new(SlowSyncs));
    let env = Env::new(Arc::new(SystemClock::new()), DbId([9; 16]));
    let db = options.open_volume(volume, env).map_err(told)?;
    let space = db.default_keyspace();
    let mut rng = Rng::of(&[9]);
    let mut lengths = vec![0; KEYS as usize];
    let mut counts = Counts::default();
    for write in 0..8 * KEYS {
        let key = if write < KEYS { write } else { rng.below(KEYS) };
        steps();
        counts.writes += 1;
        let value = value(key, write);
        lengths[key as usize] = name(key).len() + value.len();
        space.put(name(key), value).map_err(told)?;
        if write % 100 == 0 && write > KEYS {
            let live = lengths.iter().sum::<usize>() as f64;
            let bytes = db.stats().disk_bytes as f64;
            if bytes > AMP * live + SLACK_BYTES {
                return Err(format!(
                    "write {write}: {bytes} bytes on disk for {live} that are live"
                ));
            }
        }
    }
    counts.of(&db.stats());
    whole(&db)?;
    Ok(counts)
}

fn expect(
    latest: &[Option<u64>],
    get: impl Fn(&[u8]) -> glintdb::Result<Option<glintdb::Bytes>>,
) -> Result<u64, String> {
    for (key, write) in (0..).zip(latest) {
        let found = get(&name(key)).map_err(told)?;
        let found = found.map(|bytes| write_of(key, &bytes)).transpose()?;
        if found != *write {
            return Err(format!("key {key}: write {found:?}, expected {write:?}"));
        }
    }
    Ok(latest.len() as u64)
}

fn whole(db: &Db) -> Result<(), String> {
    let report = db.verify().map_err(told)?;
    match report.errors.first() {
        Some(error) => Err(format!("verify: {error}")),
        None => Ok(()),
    }
}

/// Every key was written durably once, and is overwritten again and again without a sync. The power goes after each write that set off a round, and every key must have a value, an acknowledged one
/// or an older one.
///
/// # Errors
/// What is wrong.
pub fn power(reads: GcReads, steps: &dyn Fn()) -> Result<Counts, String> {
    const KEYS: u64 = 60;
    let set = eager(Lane::Sim, IndexKind::Lsm, reads);
    let volume = MemVolume::new();
    let db = Place::Memory(std::sync::Arc::clone(&volume))
        .open(set.options.clone())
        .map_err(told)?;
    let mut rng = Rng::of(&[8]);
    let mut counts = Counts::default();
    for key in 0..KEYS {
        db.put(name(key), value(key, 0)).map_err(told)?;
    }
    db.flush_log(Durability::Sync).map_err(told)?;
    let mut rounds = 0;
    for write in 1..=600 {
        let key = rng.below(KEYS);
        steps();
        counts.writes += 1;
        db.put(name(key), value(key, write)).map_err(told)?;
        let now = db.stats().value_gc.rounds;
        if std::mem::replace(&mut rounds, now) == now {
            continue;
        }
        for mode in [CrashMode::LoseUnsynced, CrashMode::Random { seed: write }] {
            let after = Place::Memory(volume.crash(mode))
                .open(set.options.clone())
                .map_err(told)?;
            for key in 0..KEYS {
                let found = after.get(name(key)).map_err(told)?;
                let found = found.ok_or_else(|| {
                    format!("key {key} has no value after write {write} and a power cut")
                })?;
                write_of(key, &found)?;
            }
            counts.reads += KEYS;
            whole(&after)?;
        }
    }
    counts.of(&db.stats());
    Ok(counts)
}

/// Threads that overwrite, delete keys and ranges, read, hold snapshots, flush and compact, until each writer has done `writes`; every read is checked.
///
/// # Errors
/// What is wrong first.
pub fn race(place: &Place, mut set: OptionSet, writes: u64, seed: u64) -> Result<Counts, String> {
    // With less, writers would wait for a round before every write.
    set.options.garbage_bytes_min = 256 << 10;
    let db = place.open(set.options.clone()).map_err(told)?;
    let race = Race {
        db: &db,
        space: (db.create_keyspace(RACED, set.keyspace.clone())).map_err(told)?,
        keys: (0..WRITERS * KEYS_OF_WRITER)
            .map(|_| Known::default())
            .collect(),
        done: AtomicBool::new(false),
        failure: Mutex::new(None),
        reads: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let race = &race;
        let writers: Vec<_> = (0..WRITERS)
            .map(|id| scope.spawn(move || race.note(race.write(id, writes, seed))))
            .collect();
        for id in 0..2 {
            scope.spawn(move || race.note(race.read(seed + id)));
        }
        scope.spawn(|| race.note(race.look_back()));
        scope.spawn(|| race.note(race.tidy()));
        scope.spawn(|| race.note(race.convert()));
        for writer in writers {
            writer.join().expect("a writer does not panic");
        }
        race.done.store(true, Ordering::Release);
    });
    if let Some(message) = race.failure.lock().expect("no panic").take() {
        return Err(message);
    }
    let latest = race.latest();
    let mut counts = Counts {
        writes: WRITERS * writes,
        reads: race.reads.load(Ordering::Relaxed),
        ..Counts::default()
    };
    counts.reads += expect(&latest, |key| race.space.get(key))?;
    counts.of(&db.stats());
    race.space.compact().map_err(told)?;
    whole(&db)?;
    expect(&latest, |key| race.space.get(key))?;
    drop(race);
    db.close().map_err(told)?;
    let db = place.open(set.options).map_err(told)?;
    let space = db.keyspace(RACED).map_err(told)?;
    expect(&latest, |key| space.get(key))?;
    drop(space);
    whole(&db)?;
    db.close().map_err(told)?;
    Ok(counts)
}

/// The keyspace of a race.
const RACED: &str = "raced";
const WRITERS: u64 = 3;
const KEYS_OF_WRITER: u64 = 150;

/// What everybody knows of a key: the newest write that was begun and the newest that was acknowledged, put or deletion; odd numbers are deletions.
#[derive(Default)]
struct Known {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

struct Race<'a> {
    db: &'a Db,
    space: Keyspace,
    keys: Vec<Known>,
    done: AtomicBool,
    failure: Mutex<Option<String>>,
    reads: AtomicU64,
}

impl Race<'_> {
    fn note(&self, result: Result<(), String>) {
        if let Err(message) = result {
            self.done.store(true, Ordering::Release);
            self.failure
                .lock()
                .expect("no panic")
                .get_or_insert(message);
        }
    }

    fn over(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    fn latest(&self) -> Vec<Option<u64>> {
        let newest = self
            .keys
            .iter()
            .map(|known| known.acknowledged.load(Ordering::Acquire));
        newest
            .map(|write| Some(write).filter(|write| *write > 0 && write % 2 == 0))
            .collect()
    }

    /// A write of the keys in a range, by their owner.
    fn change(
        &self,
        keys: Range<u64>,
        write: u64,
        change: impl FnOnce() -> glintdb::Result<()>,
    ) -> Result<(), String> {
        for key in keys.clone() {
            self.keys[key as usize]
                .begun
                .store(write, Ordering::Release);
        }
        change().map_err(told)?;
        for key in keys {
            self.keys[key as usize]
                .acknowledged
                .store(write, Ordering::Release);
        }
        Ok(())
    }

    fn write(&self, id: u64, writes: u64, seed: u64) -> Result<(), String> {
        let mut rng = Rng::of(&[seed, 1, id]);
        let own = id * KEYS_OF_WRITER;
        for number in 1..=writes {
            if self.over() {
                break;
            }
            let key = own + rng.below(KEYS_OF_WRITER);
            match rng.below(16) {
                0 => self.change(key..key + 1, number * 2 + 1, || {
                    self.space.delete(name(key))
                })?,
                1 if rng.one_in(4) => {
                    let end = (key + 10).min(own + KEYS_OF_WRITER);
                    self.change(key..end, number * 2 + 1, || {
                        self.space.delete_range(name(key)..name(end))
                    })?;
                }
                _ => self.change(key..key + 1, number * 2, || {
                    self.space.put(name(key), value(key, number * 2))
                })?,
            }
        }
        Ok(())
    }

    /// What was found of a key must not be older than what was acknowledged before, and not newer than what was begun after.
    fn check(&self, key: u64, oldest: u64, found: Option<&[u8]>) -> Result<(), String> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let newest = self.keys[key as usize].begun.load(Ordering::Acquire);
        match found.map(|bytes| write_of(key, bytes)).transpose()? {
            Some(write) if (oldest..=newest).contains(&write) => Ok(()),
            // Some deletion, or nothing yet.
            None if oldest % 2 == 1 || oldest == 0 || newest > oldest => Ok(()),
            found => Err(format!(
                "key {key}: found write {found:?}, acknowledged {oldest}, begun {newest}"
            )),
        }
    }

    fn read(&self, seed: u64) -> Result<(), String> {
        let mut rng = Rng::of(&[seed, 2]);
        while !self.over() {
            let key = rng.below(self.keys.len() as u64);
            if rng.one_in(50) {
                let known: Vec<u64> = self
                    .keys
                    .iter()
                    .map(|known| known.acknowledged.load(Ordering::Acquire))
                    .collect();
                let mut scan = self.space.iter().peekable();
                for (key, oldest) in (0..).zip(known) {
                    let next = scan.next_if(|entry| {
                        entry
                            .as_ref()
                            .map_or(true, |(found, _)| **found == *name(key))
                    });
                    let found = next.transpose().map_err(told)?;
                    self.check(key, oldest, found.as_ref().map(|(_, value)| &**value))?;
                }
            } else {
                let oldest = self.keys[key as usize].acknowledged.load(Ordering::Acquire);
                let found = self.space.get(name(key)).map_err(told)?;
                self.check(key, oldest, found.as_deref())?;
            }
        }
        Ok(())
    }

    /// A snapshot shows the same at first and at last.
    fn look_back(&self) -> Result<(), String> {
        let mut rng = Rng::of(&[3]);
        while !self.over() {
            let snapshot = self.db.snapshot();
            let keys: Vec<u64> = (0..40).map(|_| rng.below(self.keys.len() as u64)).collect();
            let look = || {
                keys.iter()
                    .map(|key| snapshot.get(&self.space, name(*key)))
                    .collect::<glintdb::Result<Vec<_>>>()
            };
            let first = look().map_err(told)?;
            for _ in 0..3 {
                std::thread::sleep(std::time::Duration::from_millis(5));
                if look().map_err(told)? != first {
                    return Err("a snapshot shows something else than before".into());
                }
            }
            self.reads
                .fetch_add(4 * keys.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn tidy(&self) -> Result<(), String> {
        let mut rng = Rng::of(&[4]);
        while !self.over() {
            match rng.below(4) {
                0 => self.space.compact().map_err(told)?,
                1 => self.space.compact_values().map_err(told)?,
                _ => self.db.flush().map_err(told)?,
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        Ok(())
    }

    /// Now and then the keyspace has an index of the other kind for a moment.
    fn convert(&self) -> Result<(), String> {
        let own = self.space.options();
        let other = own.of_kind(options::other_kind(own.index));
        while !self.over() {
            std::thread::sleep(Duration::from_millis(30));
            self.space.convert(other.clone()).map_err(told)?;
            std::thread::sleep(Duration::from_millis(10));
            self.space.convert(own.clone()).map_err(told)?;
        }
        Ok(())
    }
}
