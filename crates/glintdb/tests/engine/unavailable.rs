//! No descriptor, or no permission, for a while: what nothing was written for is refused or tried
//! again, and works when the cause is gone. Nothing is poisoned.

use crate::support::*;
use glintdb::{Db, Durability, Env, Error, ErrorKind, Result};
use glintdb_core::DbId;
use glintdb_core::clock::Clock;
use glintdb_flash::{ManualClock, SystemClock, Volume};
use glintdb_simdisk::{CrashMode, FaultKind, MemVolume};
use std::sync::Arc;
use std::time::Duration;

const CAUSES: [FaultKind; 2] = [FaultKind::NoDescriptor, FaultKind::NoPermission];
const COMMITS: u64 = 60;

/// A volume whose files cannot be opened, or made, from some operation on.
struct Refusing<'a> {
    volume: &'a Arc<MemVolume>,
    cause: FaultKind,
    /// Operations between the end of the cause and its return.
    pause: u64,
    refusals: u64,
}

impl Refusing<'_> {
    fn begin(&self) {
        let at = self.volume.operation_count() + self.pause;
        fail_at(self.volume, at, self.cause, true);
    }

    /// Calls `act`. If it is refused, calls it once more without the cause.
    fn retried<T>(&mut self, what: &str, act: impl Fn() -> Result<T>) -> T {
        let error = match act() {
            Ok(done) => return done,
            Err(error) => error,
        };
        let context = format!("{:?}, pause {}, {what}", self.cause, self.pause);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{context}: {error}");
        self.refusals += 1;
        self.volume.clear_faults();
        let done = act().unwrap_or_else(|error| panic!("{context}, without the cause: {error}"));
        self.begin();
        done
    }
}

/// A life in which the cause comes and goes. Returns how often something was refused.
fn life(cause: FaultKind, pause: u64) -> u64 {
    let volume = MemVolume::new();
    let mut refusing = Refusing {
        volume: &volume,
        cause,
        pause,
        refusals: 0,
    };
    refusing.begin();
    let db = refusing.retried("open", || open(&volume));
    refusing.retried("keyspaces", || keyspaces(&db).map(drop));
    for n in 1..=COMMITS {
        let durability = match n % 3 {
            0 => Durability::Sync,
            _ => Durability::Os,
        };
        refusing.retried("commit", || commit(&db, n, durability));
        let large = pattern(n, 40_000);
        match n % 10 {
            3 => refusing.retried("large", || {
                db.default_keyspace().put_with("large", &large, durability)
            }),
            5 => refusing.retried("flush", || db.flush()),
            9 => refusing.retried("compact", || db.compact()),
            _ => {}
        }
        if n % 7 == 0 {
            refusing.retried("read", || contents(&db.default_keyspace()));
        }
        refusing.retried("delete", || db.delete("large"));
    }
    volume.clear_faults();
    db.flush().unwrap();
    assert!(contents(&db.default_keyspace()).unwrap() == Model::after(COMMITS).one);
    assert!(db.verify().unwrap().errors.is_empty());
    for after in [volume.kill(), volume.crash(CrashMode::LoseUnsynced)] {
        let db = open(&after).unwrap();
        check(
            &after,
            &db,
            COMMITS,
            COMMITS,
            &format!("{cause:?}, {pause}"),
        );
    }
    refusing.refusals
}

#[test]
fn what_is_refused_works_as_soon_as_the_cause_is_gone() {
    for cause in CAUSES {
        let refusals: u64 = (0..60).map(|pause| life(cause, pause)).sum();
        assert!(refusals > 500, "{cause:?}: {refusals} refusals");
    }
}

/// Commits that have their place need no descriptor: their segment is kept open.
#[test]
fn commits_that_need_no_new_file_go_on_without_descriptors() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    keyspaces(&db).unwrap();
    commit(&db, 1, Durability::Sync).unwrap();
    fail_at(&volume, 0, FaultKind::NoDescriptor, true);
    let mut done = 1;
    for n in 2..COMMITS {
        match commit(&db, n, Durability::Sync) {
            Ok(()) => done = n,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                break;
            }
        }
    }
    assert!(
        (5..COMMITS - 1).contains(&done),
        "a segment of 64 KiB is full at some time: {done}"
    );
    // Whatever could be put is there after a power cut.
    let cut = volume.crash(CrashMode::LoseUnsynced);
    let reopened = open(&cut).unwrap();
    check(&cut, &reopened, done, done, &"without descriptors");
    // Closing needs none either.
    db.close().unwrap();
}

/// The error of a background job, without asking for anything else.
fn background_error(db: &Db) -> Option<String> {
    db.stats().background_error
}

fn open_with_clock(volume: &Arc<MemVolume>, threads: usize, clock: Arc<dyn Clock>) -> Db {
    let volume = Arc::clone(volume) as Arc<dyn Volume>;
    let env = Env::new(clock, DbId([7; 16]));
    // A segment takes more than memtables do before they are flushed.
    let options = options()
        .log_segment_bytes(1 << 20)
        .replay_bytes_max(1 << 20)
        .background_threads(threads);
    options.open_volume(volume, env).unwrap()
}

/// Puts before the cause begins: almost a memtable, so that the reserve has space for the flush.
const PUTS_BEFORE: u64 = 1400;

/// Puts until a flush has failed for the cause. Returns how many puts were acknowledged.
fn fail_a_flush(volume: &Arc<MemVolume>, db: &Db, cause: FaultKind) -> u64 {
    let put = |n| db.put(format!("key{n}"), pattern(n, 300));
    (0..PUTS_BEFORE).for_each(|n| put(n).unwrap());
    assert_eq!(db.stats().keyspaces[0].flushes, 0);
    fail_at(volume, 0, cause, true);
    let clock = SystemClock::new();
    for n in PUTS_BEFORE.. {
        // The flush runs on another thread.
        clock.sleep(Duration::from_millis(1));
        if background_error(db).is_some() {
            return n;
        }
        put(n).unwrap_or_else(|error| panic!("put {n}, before a flush has failed: {error}"));
    }
    unreachable!("a flush becomes due")
}

fn all_there(db: &Db, count: u64) {
    for n in 0..count {
        let value = db.get(format!("key{n}")).unwrap();
        assert!(value.is_some_and(|value| value == pattern(n, 300)), "{n}");
    }
}

/// An idle engine, which nobody asks for anything, flushes once there are descriptors.
#[test]
fn a_failed_job_is_tried_again_without_a_writer() {
    for cause in CAUSES {
        let volume = MemVolume::new();
        let clock = SystemClock::new();
        let db = open_with_clock(&volume, 1, Arc::new(clock));
        let count = fail_a_flush(&volume, &db, cause);
        volume.clear_faults();
        let flushes = |db: &Db| db.stats().keyspaces[0].flushes;
        let begun = clock.monotonic();
        while flushes(&db) == 0 || background_error(&db).is_some() {
            let waited = clock.monotonic() - begun;
            assert!(
                waited < Duration::from_secs(60),
                "{:?}",
                background_error(&db)
            );
            clock.sleep(Duration::from_millis(5));
        }
        all_there(&db, count);
    }
}

/// The pause is one of the engine's clock, and doubles.
#[test]
fn retries_of_a_failed_job_wait_longer_and_longer() {
    let volume = MemVolume::new();
    let clock = Arc::new(ManualClock::default());
    let db = open_with_clock(&volume, 1, Arc::clone(&clock) as Arc<dyn Clock>);
    let count = fail_a_flush(&volume, &db, FaultKind::NoDescriptor);
    let machine = SystemClock::new();
    let hits = || volume.fault_count();
    let settled = || {
        let mut before = hits();
        loop {
            machine.sleep(Duration::from_millis(50));
            let now = hits();
            if now == before {
                return now;
            }
            before = now;
        }
    };
    let mut tries = settled();
    machine.sleep(Duration::from_millis(300));
    assert_eq!(settled(), tries, "no time has passed");
    for _ in 0..4 {
        clock.advance(Duration::from_secs(5));
        let begun = machine.monotonic();
        while hits() == tries {
            assert!(machine.monotonic() - begun < Duration::from_secs(60));
            machine.sleep(Duration::from_millis(5));
        }
        tries = settled();
    }
    volume.clear_faults();
    clock.advance(Duration::from_secs(5));
    db.put("one more", "value").unwrap();
    db.flush().unwrap();
    assert_eq!(background_error(&db), None);
    all_there(&db, count);
}

/// A failed write is another matter: it may have been half done.
#[test]
fn a_failed_write_of_committed_bytes_still_poisons() {
    let volume = MemVolume::new();
    let db = open(&volume).unwrap();
    keyspaces(&db).unwrap();
    commit(&db, 1, Durability::Sync).unwrap();
    fail_at(&volume, 0, FaultKind::ShortWrite, false);
    let kinds: Vec<ErrorKind> = (2..5)
        .map(|n| commit(&db, n, Durability::Sync).map_err(|error: Error| error.kind()))
        .map(|done| done.unwrap_err())
        .collect();
    assert_eq!(
        kinds,
        [ErrorKind::Io, ErrorKind::Poisoned, ErrorKind::Poisoned]
    );
}
