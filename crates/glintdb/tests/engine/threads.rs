//! Real threads over tiny memtables: every read is held against a model of the thread's own keys. A hang fails with what everybody waits for.
#![allow(
    clippy::disallowed_methods,
    reason = "real threads, and a watchdog over them"
)]

use crate::support::*;
use glintdb::{Batch, Db, Durability, ErrorKind, Experiments, Result};
use glintdb_simdisk::{FaultKind, HookedVolume, Hooks, MemVolume};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Runs `work` on threads of its own; where they are not through in time, fails with what the engine says it waits for, instead of waiting for them.
fn with_watchdog(db: &Db, limit: Duration, work: Vec<Box<dyn FnOnce() + Send>>) {
    let (done, ended) = channel();
    let count = work.len();
    for (number, work) in work.into_iter().enumerate() {
        let done = done.clone();
        std::thread::spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(work));
            done.send((number, result.is_ok())).ok();
        });
    }
    drop(done);
    let until = Instant::now() + limit;
    for left in (1..=count).rev() {
        match ended.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((_, true)) => {}
            Ok((number, false)) => panic!("thread {number} failed, see above"),
            Err(RecvTimeoutError::Timeout) => {
                let stats = db.stats();
                let waits: Vec<_> = stats.waits.iter().filter(|wait| wait.waiting > 0).collect();
                panic!(
                    "{left} of {count} threads hang after {limit:?}: waits {waits:?}; jobs waiting {:?}, running {}; log {:?}; stopped {}; background error {:?}",
                    stats.jobs_waiting,
                    stats.jobs_running,
                    stats.log,
                    stats.writes_stopped,
                    stats.background_error
                );
            }
            Err(RecvTimeoutError::Disconnected) => panic!("a thread is gone"),
        }
    }
}

fn own_keys(db: &Db, prefix: &str) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let entries = db.default_keyspace().prefix(prefix);
    entries
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect()
}

/// One thread's life: it alone writes keys of its prefix, so it knows what it must see.
fn live(db: &Db, thread: u64, rounds: u64) {
    let keyspace = db.default_keyspace();
    let mut dice = Dice(0x1234_5678_9abc_def1 ^ (thread << 40));
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let prefix = format!("{thread}/");
    let key = |n: u64| format!("{thread}/{n:03}").into_bytes();
    let durabilities = [Durability::Buffered, Durability::Os, Durability::Sync];
    for round in 0..rounds {
        let n = dice.below(150);
        let value = pattern(
            round * 8 + thread,
            [20, 90, 400, 1500][dice.below(4) as usize],
        );
        match dice.below(20) {
            0..=7 => {
                let durability = durabilities[dice.below(3) as usize];
                keyspace.put_with(key(n), &value, durability).unwrap();
                model.insert(key(n), value);
            }
            8 | 9 => {
                keyspace.delete(key(n)).unwrap();
                model.remove(&key(n));
            }
            10 | 11 => {
                let mut batch = Batch::new();
                for step in 0..5 {
                    batch.put(&keyspace, key(n + step), &value);
                    model.insert(key(n + step), value.clone());
                }
                batch.delete(&keyspace, key(n + 1));
                model.remove(&key(n + 1));
                db.write(batch).unwrap();
            }
            12 => {
                keyspace.delete_range(key(n)..key(n + 8)).unwrap();
                model.retain(|k, _| *k < key(n) || *k >= key(n + 8));
            }
            13 => {
                let expected: Vec<_> = model.clone().into_iter().rev().collect();
                let found: Vec<_> = keyspace.prefix(&prefix).rev().map(Result::unwrap).collect();
                assert_eq!(
                    found.len(),
                    expected.len(),
                    "thread {thread}, round {round}"
                );
                for (found, expected) in found.iter().zip(&expected) {
                    assert!(found.0 == expected.0 && found.1 == expected.1);
                }
            }
            14 => {
                let snapshot = db.snapshot();
                let then = model.clone();
                keyspace.put(key(n), "later").unwrap();
                model.insert(key(n), b"later".to_vec());
                let keys: Vec<_> = (0..150).map(key).collect();
                for (key, found) in keys.iter().zip(snapshot.multi_get(&keyspace, &keys)) {
                    assert_eq!(
                        found.unwrap().as_deref(),
                        then.get(key).map(Vec::as_slice),
                        "thread {thread}, round {round}"
                    );
                }
            }
            _ => {
                let found = keyspace.get(key(n)).unwrap();
                assert_eq!(
                    found.as_deref(),
                    model.get(&key(n)).map(Vec::as_slice),
                    "thread {thread}, round {round}"
                );
            }
        }
    }
    assert!(own_keys(db, &prefix).unwrap() == model, "thread {thread}");
}

/// All keys of the shared counter batch always show one and the same number.
fn watch_shared(db: &Db, stop: &AtomicBool) {
    let keyspace = db.default_keyspace();
    let keys = ["shared/a", "shared/b", "shared/c"];
    let mut last = 0;
    while !stop.load(Ordering::Relaxed) {
        let values = keyspace.multi_get(&keys);
        let values: Vec<_> = values
            .into_iter()
            .map(|value| {
                value
                    .unwrap()
                    .map_or(0, |v| u64::from_le_bytes((*v).try_into().unwrap()))
            })
            .collect();
        assert!(
            values.iter().all(|value| *value == values[0]),
            "a batch is seen in part: {values:?}"
        );
        assert!(values[0] >= last, "time goes back: {last}, {values:?}");
        last = values[0];
    }
}

#[test]
fn four_threads_beside_flushes_and_compactions_see_what_they_wrote() {
    let volume = MemVolume::new();
    let tiny = options().background_threads(2).replay_bytes_max(128 << 10);
    let db = open_with(&volume, tiny).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(4));
    let mut work: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for thread in 0..4u64 {
        let (db, stop, left) = (db.clone(), Arc::clone(&stop), Arc::clone(&left));
        work.push(Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(|| {
                live(&db, thread, 2500);
            }));
            if left.fetch_sub(1, Ordering::SeqCst) == 1 || result.is_err() {
                stop.store(true, Ordering::SeqCst);
            }
            result.unwrap();
        }));
    }
    let (of_writer, stop_writer) = (db.clone(), Arc::clone(&stop));
    work.push(Box::new(move || {
        let keyspace = of_writer.default_keyspace();
        let mut n = 0u64;
        while !stop_writer.load(Ordering::Relaxed) {
            n += 1;
            let mut batch = Batch::new();
            for key in ["shared/a", "shared/b", "shared/c"] {
                batch.put(&keyspace, key, n.to_le_bytes());
            }
            of_writer.write(batch).unwrap();
            if n.is_multiple_of(300) {
                of_writer.compact().unwrap();
            }
        }
    }));
    let (of_watcher, stop_watcher) = (db.clone(), Arc::clone(&stop));
    work.push(Box::new(move || watch_shared(&of_watcher, &stop_watcher)));
    with_watchdog(&db, Duration::from_secs(90), work);
    let stats = db.stats();
    assert!(
        stats.keyspaces[0].flushes > 5,
        "{}",
        stats.keyspaces[0].flushes
    );
    assert!(stats.keyspaces[0].compactions > 0);
    assert_eq!(stats.background_error, None);
    check_clean(&db, &"after");
    let before = contents(&db.default_keyspace()).unwrap();
    db.flush_log(Durability::Os).unwrap();
    let killed = volume.kill();
    let db = open(&killed).unwrap();
    assert!(contents(&db.default_keyspace()).unwrap() == before);
    check_clean(&db, &"reopened");
    check_files(&killed, &db, &"reopened");
}

/// A sync fails under four threads: each gets an error and none hangs; what was acknowledged is there.
#[test]
fn a_failure_reaches_every_thread() {
    for at in [400, 900, 1500] {
        let volume = MemVolume::new();
        let db = open_with(&volume, options().background_threads(2)).unwrap();
        fail_at(&volume, at, FaultKind::SyncLosesData, false);
        let work = (0..4u64)
            .map(|thread| {
                let db = db.clone();
                Box::new(move || {
                    let keyspace = db.default_keyspace();
                    for n in 0u64.. {
                        let durability = if n % 7 == thread {
                            Durability::Sync
                        } else {
                            Durability::Os
                        };
                        let key = format!("{thread}/{n:06}");
                        if keyspace
                            .put_with(&key, pattern(n, 200), durability)
                            .is_err()
                        {
                            // Seen is what was acknowledged, no more and no less.
                            assert_eq!(keyspace.prefix(format!("{thread}/")).count() as u64, n);
                            assert!(keyspace.put("x", "y").is_err());
                            return;
                        }
                    }
                }) as Box<dyn FnOnce() + Send>
            })
            .collect();
        with_watchdog(&db, Duration::from_secs(60), work);
        let seen = db.default_keyspace().iter().count();
        let killed = volume.kill();
        let reopened = open(&killed).unwrap();
        assert!(reopened.default_keyspace().iter().count() >= seen);
        check_clean(&reopened, &"reopened");
    }
}

/// Panics in the so-many-th sync of the database's own threads, or of all others.
struct PanicsAt {
    syncs: AtomicUsize,
    at: usize,
    in_background: bool,
}

impl PanicsAt {
    fn new(at: usize, in_background: bool) -> Arc<PanicsAt> {
        let syncs = AtomicUsize::new(0);
        Arc::new(PanicsAt {
            syncs,
            at,
            in_background,
        })
    }
}

impl Hooks for PanicsAt {
    fn before_sync(&self) {
        let current = std::thread::current();
        let in_job = current
            .name()
            .is_some_and(|name| name.starts_with("glintdb-"));
        if in_job == self.in_background && self.syncs.fetch_add(1, Ordering::Relaxed) == self.at {
            panic!("in a sync, for a test");
        }
    }
}

/// A bug of ours in a background job: writers waited for it for ever. They are told, readers are not disturbed, and the next open finds everything.
#[test]
fn a_panic_in_the_background_reaches_every_writer_and_loses_nothing() {
    for at in 0..60 {
        let volume = MemVolume::new();
        let hooked = HookedVolume::new(volume.clone(), PanicsAt::new(at, true));
        let options = options()
            .background_threads(2)
            .experiments(Experiments::default().help(false));
        let eager = || {
            let options = options.clone().separate_min_bytes(1);
            let options = options.log_segment_bytes(64 << 10).log_ring_bytes(64 << 10);
            options.space_amp_max(1.1).garbage_bytes_min(1)
        };
        let options = [eager(), options.clone()][at % 2].clone();
        let db = options.open_volume(hooked, env()).unwrap();
        let (tell, told) = channel();
        let work = (0..3u64)
            .map(|thread| {
                let (db, tell) = (db.clone(), tell.clone());
                Box::new(move || {
                    let keyspace = db.default_keyspace();
                    for n in 0u64.. {
                        let level = [Durability::Os, Durability::Sync][usize::from(n % 16 == 0)];
                        let put = |key: String| keyspace.put_with(key, pattern(n, 200), level);
                        let overwritten = put(format!("overwritten {}", n % 50));
                        let written = overwritten.and_then(|()| put(format!("{thread}/{n:06}")));
                        if let Err(error) = written {
                            assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
                            assert_eq!(keyspace.prefix(format!("{thread}/")).count() as u64, n);
                            // Where there is something to do they fail; they do not wait.
                            _ = (db.flush(), db.compact());
                            tell.send((thread, n)).unwrap();
                            return;
                        }
                    }
                }) as Box<dyn FnOnce() + Send>
            })
            .collect();
        with_watchdog(&db, Duration::from_secs(60), work);
        let error = db.stats().background_error.unwrap();
        // Another job may note first that the thread that synced the log panicked.
        assert!(error.to_string().contains("panic"), "{error}");
        drop(db);
        let reopened = open(&volume.kill()).unwrap();
        for (thread, acknowledged) in told.try_iter() {
            let prefix = format!("{thread}/");
            let found = reopened.default_keyspace().prefix(prefix).count() as u64;
            assert!(found >= acknowledged, "{at}: {found} of {acknowledged}");
        }
        check_clean(&reopened, &"reopened");
    }
}

/// The same on a caller's thread, where the caller may catch it and go on with what is half made.
#[test]
fn a_panic_in_a_callers_change_stops_writers_and_loses_nothing() {
    let mut stopped = 0;
    for at in 0..60 {
        let volume = MemVolume::new();
        let hooked = HookedVolume::new(volume.clone(), PanicsAt::new(at, false));
        let options = options().background_threads(1).separate_min_bytes(1);
        let opened = catch_unwind(AssertUnwindSafe(|| options.open_volume(hooked, env())));
        // Else it panicked while there was no database.
        let Ok(db) = opened else { continue };
        let db = db.unwrap();
        let (tell, told) = channel();
        let of_thread = db.clone();
        let work = move || {
            let keyspace = of_thread.default_keyspace();
            let put = |n: u64| keyspace.put(format!("{n:06}"), pattern(n, 200));
            let acknowledged = (0u64..400).take_while(|&n| {
                // What they say is not believed: one of them has panicked.
                _ = catch_unwind(AssertUnwindSafe(|| match n % 60 {
                    20 | 40 => of_thread.flush().is_ok(),
                    50 => of_thread.compact().is_ok(),
                    55 => keyspace.compact_values().is_ok(),
                    _ => true,
                }));
                put(n).is_ok()
            });
            tell.send(acknowledged.count() as u64).unwrap();
        };
        with_watchdog(&db, Duration::from_secs(60), vec![Box::new(work)]);
        let acknowledged = told.recv().unwrap();
        stopped += usize::from(acknowledged < 400);
        let keyspace = db.default_keyspace();
        assert_eq!(keyspace.iter().count() as u64, acknowledged, "{at}");
        drop((keyspace, db));
        let reopened = open(&volume.kill()).unwrap();
        let found = reopened.default_keyspace().iter().count() as u64;
        assert!(found >= acknowledged, "{at}: {found} of {acknowledged}");
        check_clean(&reopened, &"reopened");
    }
    assert!(stopped > 5, "{stopped} of 60 panics were in a change");
}

#[test]
#[should_panic(expected = "1 of 1 threads hang")]
fn a_hang_fails_with_what_is_waited_for() {
    let gate = Arc::new(crate::gate::Gate::default());
    let gated = HookedVolume::new(MemVolume::new(), gate.clone());
    let db = options().open_volume(gated, env()).unwrap();
    let of_thread = db.clone();
    gate.close();
    let put = move || {
        let keyspace = of_thread.default_keyspace();
        keyspace.put_with("a", "b", Durability::Sync).unwrap();
    };
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(400));
        gate.open();
    });
    let caught = catch_unwind(AssertUnwindSafe(|| {
        with_watchdog(&db, Duration::from_millis(100), vec![Box::new(put)]);
    }));
    opener.join().unwrap();
    let message = caught.unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    assert!(message.contains("log_sync"), "{message}");
    panic!("{message}");
}

/// A flush that ended between the checkpoint's seal of the active segment and its look at the manifest put pointers into the segment behind the seal; the copy had
/// only that segment's header, and did not open: "expected a segment with live values, found no such file". Found by `cargo xtask kill`, seed 20261122, kill 1729.
#[test]
fn checkpoints_beside_flushes_open_and_hold_a_prefix() {
    let key = |writer: u8, number: u32| [&[writer][..], &number.to_be_bytes()].concat();
    let directory = tempfile::tempdir().unwrap();
    let db = options()
        .background_threads(1)
        .separate_min_bytes(1)
        .open(directory.path().join("db"))
        .unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Set also where an assertion below fails.
        let _done = SetAtEnd(&done);
        // The seal writes the ring out for as long as writers fill it, and a flush may end meanwhile.
        for writer in 0..3_u8 {
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                let mut number = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    db.put(key(writer, number), [writer; 3000]).unwrap();
                    number += 1;
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                db.flush().unwrap();
            }
        });
        for round in 0..10 {
            let copy = directory.path().join(format!("copy-{round}"));
            db.checkpoint(&copy).unwrap();
            let opened = options().create_if_missing(false).open(&copy);
            let mut next = [0; 3];
            for record in opened.unwrap().default_keyspace().iter() {
                let (found, value) = record.unwrap();
                let writer = value[0];
                let expected = &mut next[usize::from(writer)];
                assert_eq!(&found[..], key(writer, *expected), "no hole");
                *expected += 1;
            }
            std::fs::remove_dir_all(&copy).unwrap();
        }
    });
}

struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A background thread that gave up the oldest snapshot held all of them for a moment, and with each a handle of the database. Where the last handle of the caller went meanwhile, the
/// background thread was the one that closed the database, when the caller had gone on already: opening it again said `Locked`.
#[test]
fn a_database_can_be_opened_again_as_soon_as_its_last_handle_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..6 {
        let options = options()
            .background_threads(2)
            .log_segment_bytes(64 << 10)
            .replay_bytes_max(64 << 10)
            .snapshot_pin_bytes_max(1);
        let db = options
            .open(directory.path())
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        let mut snapshots = Vec::new();
        for n in 0..400u64 {
            db.put(n.to_be_bytes(), pattern(n, 300)).unwrap();
            snapshots.extend((0..5).map(|_| db.snapshot()));
        }
        let flushes = db.stats().keyspaces[0].flushes;
        for n in 0..1000u64 {
            db.put(n.to_be_bytes(), pattern(n, 300)).unwrap();
            if db.stats().keyspaces[0].flushes > flushes {
                break;
            }
        }
        drop(db);
        drop(snapshots);
    }
}
