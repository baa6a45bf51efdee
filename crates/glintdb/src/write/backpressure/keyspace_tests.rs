//! A keyspace that owes compactions, or that takes more than its share of memory and log, stalls no
//! other keyspace.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::background::Background;
use crate::background::queue::{Job, Progress};
use crate::env::Env;
use crate::{Batch, Db, ErrorKind, Experiments, Keyspace, KeyspaceOptions, Options, Result};
use glintdb_core::DbId;
use glintdb_core::index::{JobPriority, Relocation};
use glintdb_flash::{SystemClock, Volume};
use glintdb_simdisk::{HookedVolume, Hooks, MemVolume};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::Duration;

/// Longest wait for another thread: only a test that fails takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options::default()
        .memory_budget_bytes(8 << 20)
        .log_ring_bytes(1 << 20)
        .log_segment_bytes(16 << 20)
        .background_threads(0)
        .experiments(Experiments::default().value_gc(false).help(false))
}

fn open(volume: Arc<dyn Volume>, options: Options) -> (Db, Keyspace, Keyspace) {
    let env = Env::new(Arc::new(SystemClock::new()), DbId([5; 16]));
    let db = options.open_volume(volume, env).unwrap();
    let [loud, quiet] = ["loud", "quiet"].map(|name| {
        db.create_keyspace(name, KeyspaceOptions::default())
            .unwrap()
    });
    (db, loud, quiet)
}

/// Number of waits of a name that have ended, and that go on.
fn waits(db: &Db, name: &str) -> (u64, u64) {
    let stats = db.stats();
    let wait = stats.waits.iter().find(|wait| wait.name == name).unwrap();
    (wait.count, wait.waiting)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let look = Duration::from_millis(1);
    let mut waited = Duration::ZERO;
    while !is_so() {
        assert!(waited < PATIENCE, "{what}");
        std::thread::sleep(look);
        waited += look;
    }
}

/// Puts and flushes until writers are stopped. No run leaves level 0 as long as the place lives.
fn stop(db: &Db, keyspace: &Keyspace) -> Box<dyn Relocation> {
    let place = keyspace.state.index().begin_relocation();
    let mut n = 0_u32;
    while !keyspace.state.debt.stopped() {
        keyspace.put(n.to_be_bytes(), [7; 100]).unwrap();
        db.flush().unwrap();
        n += 1;
    }
    place
}

#[test]
fn an_index_that_owes_slows_only_the_writers_of_its_keyspace() {
    let (db, loud, quiet) = open(MemVolume::new(), options());
    let place = stop(&db, &loud);
    let stats = db.stats();
    let stopped = |name: &str| {
        let mut keyspaces = stats.keyspaces.iter();
        let of = keyspaces.find(|keyspace| keyspace.name == name).unwrap();
        (of.writes_stopped, of.write_rate_max > 0)
    };
    assert_eq!(stopped("loud"), (true, true));
    assert_eq!(stopped("quiet"), (false, false));
    assert!(stats.writes_stopped && stats.write_rate_max > 0);
    let debts = [
        "compaction_debt",
        "runs_stop",
        "memtable_debt",
        "memtable_full",
        "space",
    ];
    let counts = || debts.map(|name| waits(&db, name));
    let before = counts();
    for n in 0..1000_u32 {
        quiet.put(n.to_be_bytes(), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    quiet.delete(0_u32.to_be_bytes()).unwrap();
    assert_eq!(counts(), before);
    // A batch pays for every keyspace that it names.
    std::thread::scope(|scope| {
        let both = scope.spawn(|| {
            let mut batch = Batch::new();
            batch.put(&quiet, "key", "of both");
            batch.put(&loud, "key", "of both");
            db.write(batch)
        });
        wait_until("the batch waits", || waits(&db, "runs_stop").1 == 1);
        quiet.put("key", "of one").unwrap();
        drop(place);
        both.join().unwrap().unwrap();
    });
    assert_eq!(quiet.get("key").unwrap().as_deref(), Some(&b"of both"[..]));
    assert!(!loud.state.debt.stopped());
}

#[test]
fn a_stopped_writer_is_told_that_its_keyspace_was_dropped() {
    let (db, loud, _) = open(MemVolume::new(), options());
    let _place = stop(&db, &loud);
    std::thread::scope(|scope| {
        let put = scope.spawn(|| loud.put("key", "value"));
        wait_until("the writer waits", || waits(&db, "runs_stop").1 == 1);
        db.drop_keyspace("loud").unwrap();
        let error = put.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

/// A job that keeps the only background thread busy.
struct Busy {
    begun: Sender<()>,
    end: Receiver<()>,
}

impl Job<Background> for Busy {
    fn step(&mut self, _: &Background) -> Result<Progress> {
        self.begun.send(()).ok();
        self.end.recv().ok();
        Ok(Progress::Done)
    }

    fn name(&self) -> String {
        "busy".to_owned()
    }

    fn priority(&self) -> JobPriority {
        JobPriority::Spill
    }

    fn abandon(self: Box<Self>, _: &Background, _: Option<&crate::Error>) {}
}

/// Keeps the only background thread busy until the result is dropped.
fn keep_busy(db: &Db) -> Sender<()> {
    let ((begun, has_begun), (end, ends)) = (channel(), channel());
    (db.handle.engine.background).push(Box::new(Busy { begun, end: ends }));
    has_begun.recv_timeout(PATIENCE).unwrap();
    end
}

/// Puts values of `bytes` until `done`.
fn begin_puts<'scope>(
    scope: &'scope Scope<'scope, '_>,
    keyspace: &'scope Keyspace,
    bytes: usize,
    done: &'scope AtomicBool,
) {
    scope.spawn(move || {
        for n in 0_u32.. {
            if done.load(Ordering::Relaxed) {
                break;
            }
            keyspace.put(n.to_be_bytes(), vec![7; bytes]).unwrap();
        }
    });
}

/// Puts 100 small values on another thread, so that a wait for them has an end.
fn end_puts<'scope>(scope: &'scope Scope<'scope, '_>, keyspace: &'scope Keyspace) {
    let (done, is_done) = channel();
    scope.spawn(move || {
        for n in 0..100_u32 {
            keyspace.put(n.to_be_bytes(), [7; 100]).unwrap();
        }
        done.send(()).ok();
    });
    is_done.recv_timeout(PATIENCE).unwrap();
}

/// Sets a flag when it is dropped, also by an assertion that fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_keyspace_that_fills_the_memtables_leaves_room_for_others() {
    let options = options()
        .memory_budget_bytes(64 << 20)
        .background_threads(1);
    let (db, loud, quiet) = open(MemVolume::new(), options);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let busy = keep_busy(&db);
        let _done = SetAtEnd(&done);
        let full = || waits(&db, "memtable_full");
        begin_puts(scope, &loud, 100, &done);
        wait_until("memtables fill", || full() == (0, 1));
        end_puts(scope, &quiet);
        assert_eq!(full(), (0, 1));
        // What is kept has an end too.
        begin_puts(scope, &quiet, 100, &done);
        wait_until("memtables are full", || full() == (0, 2));
        let options = &db.handle.engine.shared.options;
        let active = Arc::clone(&db.handle.engine.shared.version.load().active);
        assert!(active.filled_bytes() <= options.memtable_bytes_max() + (256 << 10));
        drop(busy);
    });
    assert!(waits(&db, "memtable_full").0 >= 2);
}

/// Can hold up writes to files.
#[derive(Default)]
struct HeldUp(AtomicBool);

/// Lets writes to files go on when it is dropped.
struct GoesOn<'a>(&'a AtomicBool);

impl HeldUp {
    fn hold_up(&self) -> GoesOn<'_> {
        self.0.store(true, Ordering::Relaxed);
        GoesOn(&self.0)
    }
}

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Hooks for HeldUp {
    fn before_write(&self) {
        while self.0.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_keyspace_that_fills_the_ring_leaves_room_for_others() {
    let held_up = Arc::new(HeldUp::default());
    let volume = HookedVolume::new(MemVolume::new(), held_up.clone());
    let (db, loud, quiet) = open(volume, options().background_threads(1));
    let (done, log) = (AtomicBool::new(false), &db.handle.engine.shared.log);
    // Until the ring has all of its space.
    for n in 0..3000_u32 {
        loud.put(n.to_be_bytes(), [7; 1000]).unwrap();
    }
    db.flush().unwrap();
    std::thread::scope(|scope| {
        let _done = SetAtEnd(&done);
        let _goes_on = held_up.hold_up();
        begin_puts(scope, &loud, 1000, &done);
        let is_full = || log.stats().unspilled_bytes > (1 << 20) * 15 / 16 - (16 << 10);
        let space = || waits(&db, "log_space");
        wait_until("the ring fills", || is_full() && space().1 == 1);
        let before = space();
        end_puts(scope, &quiet);
        assert_eq!(space(), before);
    });
}

/// An index that asks for a compaction again and again holds up no other.
#[test]
fn indexes_take_turns_at_compactions() {
    let (db, loud, quiet) = open(MemVolume::new(), options().background_threads(1));
    let busy = keep_busy(&db);
    let add_runs = |keyspace: &Keyspace| {
        for n in 0..4_u32 {
            keyspace.put(n.to_be_bytes(), [7; 100]).unwrap();
            db.flush().unwrap();
        }
    };
    add_runs(&loud);
    let background = &db.handle.engine.background;
    let queued = |name: &str| {
        let names = background.job_names();
        names.iter().any(|job| job.starts_with(name))
    };
    assert!(queued("loud: compaction"), "{:?}", background.job_names());
    add_runs(&quiet);
    add_runs(&loud);
    assert!(!queued("quiet"), "one compaction at a time");
    let compactions = || {
        let stats = db.stats();
        let mut keyspaces = stats.keyspaces.iter();
        let loud = keyspaces.find(|keyspace| keyspace.name == "loud").unwrap();
        loud.compactions
    };
    while compactions() == 0 {
        assert!(background.run_step());
    }
    assert!(queued("quiet"), "{:?}", background.job_names());
    drop(busy);
}
