//! Threads that wait, with the only background thread held up: whatever gets done, they do.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::background::queue::{Job, Progress};
use crate::engine::Engine;
use crate::{Db, Env, KeyspaceOptions, Options, Result};
use glintdb_core::DbId;
use glintdb_core::index::JobPriority;
use glintdb_flash::{MemVolume, SystemClock};
use glintdb_lsm::PinnedLevels;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const RUNS_STOP: u32 = 4;
const KEYS: u64 = 20_000;

/// A database whose background thread does nothing until the sender goes, and whose writers are stopped as soon as it has `RUNS_STOP` runs.
fn held_up(options: Options) -> (Db, crate::Keyspace, Sender<()>) {
    let env = Env::new(Arc::new(SystemClock::new()), DbId([9; 16]));
    let options = options
        .memory_budget_bytes(16 << 20)
        .log_ring_bytes(1 << 20)
        .background_threads(1);
    let db = options.open_volume(MemVolume::new(), env).unwrap();
    let mut of_keyspace = KeyspaceOptions::default();
    of_keyspace.lsm.level0_runs_compact = 2;
    of_keyspace.lsm.level0_runs_slow = 3;
    of_keyspace.lsm.level0_runs_stop = RUNS_STOP;
    of_keyspace.lsm.pinned_levels = PinnedLevels::Levels(0);
    let keyspace = db.create_keyspace("stops", of_keyspace).unwrap();
    let (hold, held) = channel();
    let (tell, told) = channel();
    let engine = &db.handle.engine;
    engine.jobs.push(engine, Box::new(Held { tell, held }));
    told.recv().unwrap();
    (db, keyspace, hold)
}

/// Keeps the thread that takes it.
struct Held {
    tell: Sender<()>,
    held: Receiver<()>,
}

impl Job for Held {
    fn step(&mut self, _engine: &Engine) -> Result<Progress> {
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
    fn abandon(self: Box<Self>, _engine: &Engine, _error: Option<&crate::Error>) {}
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A run in level 0 for each round.
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

/// A flush is one long step. The log's ring filled up beside it where the other threads were in long steps too, and writers stood for 30 ms.
#[test]
fn a_flush_lets_the_log_go_first_where_writers_will_wait_for_it() {
    let (db, keyspace, _hold) = held_up(Options::default());
    let engine = &db.handle.engine;
    for n in 0..KEYS {
        if engine.log.spill_urgent() {
            break;
        }
        keyspace.put(key(n), [7; 100]).unwrap();
    }
    assert!(engine.log.spill_urgent());
    let flush = engine.begin_drain(engine.version.load_full().active.entries(), 0);
    flush.progress(1);
    assert!(!engine.log.spill_urgent());
}

/// Without help it would wait until the background thread is let go, which is after the test.
#[test]
fn a_stopped_writer_helps_and_returns_when_its_wait_is_over() {
    let (db, keyspace, hold) = held_up(Options::default());
    fill(&db, &keyspace);
    keyspace.put(key(1), "after").unwrap();
    let stats = db.stats();
    assert!(!stats.writes_stopped && stats.help.steps > 0, "{stats:?}");
    assert!(
        stats
            .waits
            .iter()
            .any(|wait| wait.name == "level0_stop" && wait.count == 1)
    );
    drop(hold);
    assert!(db.verify().unwrap().is_clean());
    assert_eq!(
        keyspace.get(key(1)).unwrap().as_deref(),
        Some(&b"after"[..])
    );
    assert_eq!(
        keyspace.get(key(2)).unwrap().as_deref(),
        Some(&[3; 100][..])
    );
}

#[test]
fn a_wait_that_is_over_ends_the_help_after_the_step_it_is_in() {
    let (db, keyspace, hold) = held_up(Options::default());
    fill(&db, &keyspace);
    let engine = &db.handle.engine;
    let looks = Cell::new(0);
    engine.help_while(|| {
        looks.set(looks.get() + 1);
        looks.get() > 5
    });
    let stats = db.stats();
    assert!((1..=5).contains(&stats.help.steps), "{stats:?}");
    assert!(stats.writes_stopped, "there was more to do: {stats:?}");
    drop(hold);
}

/// Where there is nothing to do a helper sleeps; it does not look again and again.
#[test]
fn a_helper_that_finds_nothing_looks_once_or_twice() {
    let (db, _keyspace, hold) = held_up(Options::default());
    let looks = Cell::new(0);
    db.handle.engine.help_while(|| {
        looks.set(looks.get() + 1);
        false
    });
    assert!(looks.get() <= 3, "{}", looks.get());
    drop(hold);
}

#[test]
fn nobody_helps_where_it_is_switched_off() {
    let (db, keyspace, hold) = held_up(Options::default().help(false));
    fill(&db, &keyspace);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| keyspace.put(key(1), "after").unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!writer.is_finished());
        assert_eq!(db.stats().help.steps, 0);
        drop(hold);
    });
}
