//! Tests of waiting threads that begin reads of compactions. The only background thread is blocked,
//! so that no other thread can begin them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::background::Background;
use crate::background::queue::{Job, Progress};
use crate::{Db, Env, Experiments, KeyspaceOptions, Options, Result};
use glintdb_core::index::JobPriority;
use glintdb_core::{DbId, FileKind};
use glintdb_flash::{Piece, SystemClock};
use glintdb_lsm::PinnedLevels;
use glintdb_simdisk::MemVolume;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const RUNS_STOP: u32 = 4;
const KEYS: u64 = 20_000;

/// Opens a database whose background thread is blocked until the sender is dropped, and whose
/// writers are stopped as soon as level 0 has `RUNS_STOP` runs.
fn held_up(options: Options) -> (Db, crate::Keyspace, Sender<()>) {
    let env = Env::new(Arc::new(SystemClock::new()), DbId([9; 16]));
    let options = options
        .memory_budget_bytes(16 << 20)
        .log_ring_bytes(1 << 20)
        .background_threads(1);
    let db = options.open_volume(MemVolume::new(), env).unwrap();
    let mut of_keyspace = KeyspaceOptions::default();
    of_keyspace.lsm.experiments.level0_runs_compact = 2;
    of_keyspace.lsm.experiments.level0_runs_slow = 3;
    of_keyspace.lsm.experiments.level0_runs_stop = RUNS_STOP;
    of_keyspace.lsm.pinned_levels = PinnedLevels::Levels(0);
    let keyspace = db.create_keyspace("stops", of_keyspace).unwrap();
    let (hold, held) = channel();
    let (tell, begun) = channel();
    let engine = &db.handle.engine;
    engine.background.push(Box::new(Held { tell, held }));
    begun.recv().unwrap();
    (db, keyspace, hold)
}

/// A job that blocks its thread.
struct Held {
    tell: Sender<()>,
    held: Receiver<()>,
}

impl Job<Background> for Held {
    fn step(&mut self, _: &Background) -> Result<Progress> {
        self.tell.send(()).unwrap();
        assert!(self.held.recv().is_err());
        Ok(Progress::Done)
    }
    fn name(&self) -> String {
        "held up".to_owned()
    }
    fn priority(&self) -> JobPriority {
        JobPriority::Spill
    }
    fn abandon(self: Box<Self>, _: &Background, _error: Option<&crate::Error>) {}
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Makes `RUNS_STOP` runs in level 0.
fn fill(db: &Db, keyspace: &crate::Keyspace) {
    for round in 0..RUNS_STOP {
        let mut batch = crate::Batch::new();
        for n in 0..KEYS {
            batch.put(keyspace, key(n), [u8::try_from(round).unwrap(); 100]);
        }
        db.write(batch).unwrap();
        db.flush().unwrap();
    }
    assert!(db.stats().writes_stopped);
}

/// A flush is one long step, and all background threads may be in one. It spills the log itself, so
/// that writers do not wait for room in the ring until it ends.
#[test]
fn a_flush_spills_the_log_before_writers_must_wait_for_it() {
    let (db, keyspace, _hold) = held_up(Options::default());
    let engine = &db.handle.engine;
    for n in 0..KEYS {
        if engine.shared.log.spill_urgent() {
            break;
        }
        keyspace.put(key(n), [7; 100]).unwrap();
    }
    assert!(engine.shared.log.spill_urgent());
    let flush = engine
        .background
        .flush_progress(engine.shared.version.load_full().active.entries(), 0);
    flush.add(1);
    assert!(!engine.shared.log.spill_urgent());
}

/// Offers the first 8 KiB of a table, in pieces of 1 KiB, as a compaction does.
fn offer(db: &Db) -> Vec<Piece> {
    let engine = &db.handle.engine;
    let files = engine.shared.volume.list().unwrap();
    let table = files.into_iter().find(|file| file.kind == FileKind::Table);
    let table = engine.shared.volume.open(table.unwrap()).unwrap();
    let reads = engine.shared.reads.as_ref().unwrap();
    (0..8)
        .map(|n| reads.offer(&table, n << 10, 1 << 10))
        .collect()
}

/// Runs `check` beside a put of a stopped writer, and then lets the background thread go.
fn beside_a_stopped_writer(options: Options, check: impl FnOnce(&Db)) {
    let (db, keyspace, hold) = held_up(options);
    fill(&db, &keyspace);
    let pieces = offer(&db);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| keyspace.put(key(1), "after").unwrap());
        check(&db);
        assert!(!writer.is_finished());
        assert!(db.stats().writes_stopped);
        drop(hold);
    });
    drop(pieces);
    let waits = db.stats().waits;
    let stop = waits.iter().find(|wait| wait.name == "runs_stop");
    assert_eq!(stop.unwrap().count, 1);
    assert!(db.verify().unwrap().is_clean());
    let value = keyspace.get(key(1)).unwrap();
    assert_eq!(value.as_deref(), Some(&b"after"[..]));
}

#[test]
fn a_stopped_writer_begins_all_reads_that_were_offered() {
    beside_a_stopped_writer(Options::default(), |db| {
        let all = |db: &Db| db.stats().compaction_reads.helper_bytes == 8 << 10;
        for _ in 0..20_000 {
            if all(db) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("not after 20 seconds: {:?}", db.stats());
    });
}

#[test]
fn no_thread_helps_without_the_option() {
    beside_a_stopped_writer(
        Options::default().experiments(Experiments::default().help(false)),
        |db| {
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(db.stats().compaction_reads.helper_bytes, 0);
        },
    );
}

#[test]
fn help_ends_when_the_wait_is_over() {
    let (db, keyspace, hold) =
        held_up(Options::default().experiments(Experiments::default().read_batch_max(1)));
    fill(&db, &keyspace);
    let pieces = offer(&db);
    let looks = Cell::new(0);
    db.handle.engine.shared.help_while(|| {
        looks.set(looks.get() + 1);
        looks.get() > 5
    });
    assert_eq!(db.stats().compaction_reads.helper_bytes, 5 << 10);
    drop((pieces, hold));
}

#[test]
fn help_ends_when_no_reads_are_left_to_begin() {
    let (db, _keyspace, hold) = held_up(Options::default());
    let looks = Cell::new(0);
    db.handle.engine.shared.help_while(|| {
        looks.set(looks.get() + 1);
        false
    });
    assert_eq!(looks.get(), 1);
    drop(hold);
}
