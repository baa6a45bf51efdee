//! One execution of a case: the database, its threads, the cuts of power in between, and what is checked when.
//!
//! Checked while the threads run: own commits are read back, others' counts lie between what was acknowledged before and what was begun after, each snapshot twice.
//! Checked at the end: the last picture, every pair of snapshots (the later one holds at least the commits of the earlier one), `verify`, every image that a power cut or
//! a kill would have left in between, and the database opened again.
//!
//! Thread safety: see the head of the module above.

use super::expect::{
    COUNTER, PAIR, Picture, Step, check, count_key, own_key, steps, value, writer,
};
use crate::options::{self, Lane, OptionSet};
use crate::place::TestClock;
use crate::rng::Rng;
use glintdb::{Batch, Db, Durability, Env, ErrorKind, Keyspace, Snapshot};
use glintdb_core::DbId;
use glintdb_flash::Volume;
use glintdb_simdisk::{CrashMode, MemVolume};
use shuttle::thread;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What a case does, before any schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    threads: Vec<Vec<Step>>,
    background_threads: usize,
    separate_min_bytes: usize,
    ring_survives_kill: bool,
    set: usize,
    /// A thread that looks at the volume so many times, after so many turns each.
    cuts: Vec<(u64, Cut)>,
    /// Snapshots may be given up.
    small_pins: bool,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    Kill,
    Power(CrashMode),
}

/// Counts over all executions.
#[derive(Default)]
pub struct Totals {
    /// Commits acknowledged.
    pub commits: AtomicU64,
    /// Whole pictures held to the oracle.
    pub pictures: AtomicU64,
    /// Kills and power cuts recovered from.
    pub cuts: AtomicU64,
}

impl Plan {
    /// The plan of a case.
    #[must_use]
    pub fn of(case: u64) -> Plan {
        let mut rng = Rng::of(&[case, 0x5eed]);
        let threads = 2 + rng.below(3) as usize;
        let cut = |rng: &mut Rng| match rng.below(4) {
            0 => Cut::Kill,
            1 => Cut::Power(CrashMode::LoseUnsynced),
            _ => Cut::Power(CrashMode::Random { seed: rng.number() }),
        };
        Plan {
            threads: (0..threads)
                .map(|_| {
                    let count = 3 + rng.below(8) as usize;
                    steps(&mut rng, count)
                })
                .collect(),
            background_threads: rng.below(3) as usize,
            separate_min_bytes: [1, 64, usize::MAX][rng.below(3) as usize],
            ring_survives_kill: !rng.one_in(3),
            cuts: (0..rng.below(3))
                .map(|_| (rng.below(400), cut(&mut rng)))
                .collect(),
            small_pins: rng.one_in(5),
            seed: case,
            // Last, so that a new set does not make other cases of all.
            set: rng.below(options::of(Lane::Schedules).len() as u64) as usize,
        }
    }

    /// The option set, with what the case draws on top.
    fn set(&self) -> OptionSet {
        let mut set = options::of(Lane::Schedules).swap_remove(self.set);
        set.options.separate_min_bytes = self.separate_min_bytes;
        if self.small_pins {
            set.options.snapshot_pin_bytes_max = 1;
        }
        set.volume.ring_survives_kill = self.ring_survives_kill;
        set.volume.seed = self.seed;
        set
    }

    fn open(&self, volume: &Arc<MemVolume>, background_threads: usize) -> glintdb::Result<Db> {
        let env = Env::new(Arc::new(TestClock::default()), DbId(*b"a test's own id."));
        let options = self.set().options.background_threads(background_threads);
        options.open_volume(Arc::clone(volume) as Arc<dyn Volume>, env)
    }
}

/// What the threads of an execution share with the oracle.
struct Shared {
    plan: Plan,
    totals: Arc<Totals>,
    begun: Vec<AtomicU64>,
    /// Acknowledged, by level: at all, `Os`, `Sync`.
    acknowledged: [Vec<AtomicU64>; 3],
    /// Of every picture: its sequence number and what it holds of each thread.
    pictures: Mutex<Vec<(u64, Vec<u64>)>>,
    /// Images of the volume, with the counts that they must hold.
    images: Mutex<Vec<(Arc<MemVolume>, Vec<u64>, Cut)>>,
}

fn load(counts: &[AtomicU64]) -> Vec<u64> {
    counts
        .iter()
        .map(|count| count.load(Ordering::SeqCst))
        .collect()
}

/// Runs the case once, under whatever schedule is being explored.
pub fn execute(plan: &Plan, totals: &Arc<Totals>) {
    let counts = || {
        plan.threads
            .iter()
            .map(|_| AtomicU64::new(0))
            .collect::<Vec<_>>()
    };
    let shared = Arc::new(Shared {
        plan: plan.clone(),
        totals: Arc::clone(totals),
        begun: counts(),
        acknowledged: [counts(), counts(), counts()],
        pictures: Mutex::default(),
        images: Mutex::default(),
    });
    let set = plan.set();
    let volume = MemVolume::with_options(set.volume);
    let db = plan.open(&volume, plan.background_threads).unwrap();
    db.create_keyspace("second", set.keyspace).unwrap();
    let mut threads = Vec::new();
    for (number, steps) in plan.threads.iter().enumerate() {
        let (shared, db, steps) = (Arc::clone(&shared), db.clone(), steps.clone());
        threads.push(thread::spawn(move || {
            let worker = Worker::new(&shared, &db, number);
            steps.iter().for_each(|step| worker.step(step));
        }));
    }
    if !plan.cuts.is_empty() {
        let (shared, volume) = (Arc::clone(&shared), Arc::clone(&volume));
        threads.push(thread::spawn(move || shared.cut(&volume)));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    shared.finish(db, &volume);
}

impl Shared {
    fn cut(&self, volume: &MemVolume) {
        for (turns, cut) in &self.plan.cuts {
            for _ in 0..*turns {
                thread::yield_now();
            }
            let level = match cut {
                Cut::Kill => Durability::Os,
                Cut::Power(_) => Durability::Sync,
            };
            let promised = load(&self.acknowledged[level as usize]);
            let image = match cut {
                Cut::Kill => volume.kill(),
                Cut::Power(mode) => volume.crash(*mode),
            };
            self.images.lock().unwrap().push((image, promised, *cut));
        }
    }

    /// Holds a picture to the oracle and keeps what it holds.
    fn check(&self, picture: &Picture, seqno: u64, what: &str) -> Vec<u64> {
        self.totals.pictures.fetch_add(1, Ordering::Relaxed);
        match check(&self.plan.threads, picture, seqno) {
            Ok(counts) => {
                self.pictures.lock().unwrap().push((seqno, counts.clone()));
                counts
            }
            Err(message) => panic!("{what}: {message}"),
        }
    }

    fn finish(&self, db: Db, volume: &Arc<MemVolume>) {
        let all = load(&self.begun);
        let found = self.whole(&db, "at the end");
        assert_eq!(found, all, "everything was acknowledged");
        let report = db.verify().unwrap();
        assert!(report.is_clean(), "{report:?}");
        db.close().unwrap();
        let mut pictures = std::mem::take(&mut *self.pictures.lock().unwrap());
        pictures.sort();
        for pair in pictures.windows(2) {
            let holds = pair[0]
                .1
                .iter()
                .zip(&pair[1].1)
                .all(|(earlier, later)| earlier <= later);
            assert!(holds, "two prefixes of one order: {pair:?}");
        }
        let again = self.plan.open(volume, 0).unwrap();
        assert_eq!(self.whole(&again, "after closing"), all);
        drop(again);
        for (image, promised, cut) in std::mem::take(&mut *self.images.lock().unwrap()) {
            self.totals.cuts.fetch_add(1, Ordering::Relaxed);
            let what = format!("after {cut:?}");
            let db = self
                .plan
                .open(&image, 0)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            if db.keyspace("second").is_err() {
                assert!(
                    promised.iter().all(|&count| count == 0),
                    "{what}: the keyspace is gone"
                );
                continue;
            }
            let found = self.whole(&db, &what);
            let kept = found
                .iter()
                .zip(&promised)
                .all(|(found, promised)| found >= promised);
            assert!(
                kept,
                "{what}: {promised:?} were acknowledged, {found:?} are there"
            );
            let report = db.verify().unwrap();
            assert!(report.is_clean(), "{what}: {report:?}");
            // It takes writes.
            let next = found[0] + 1;
            db.put(count_key(0), value(0, next, 0)).unwrap();
            drop(db);
            let db = self.plan.open(&image, 0).unwrap();
            let read = db.get(count_key(0)).unwrap();
            assert_eq!(read.as_deref().and_then(writer), Some((0, next)), "{what}");
        }
    }

    /// Whether a snapshot was given up where that is what was asked for.
    fn too_old(&self, error: &glintdb::Error) -> bool {
        self.plan.small_pins && error.kind() == ErrorKind::SnapshotTooOld
    }

    fn whole(&self, db: &Db, what: &str) -> Vec<u64> {
        let keyspaces = [db.default_keyspace(), db.keyspace("second").unwrap()];
        loop {
            let snapshot = db.snapshot();
            match picture(&snapshot, &keyspaces, false) {
                Ok(picture) => return self.check(&picture, snapshot.seqno(), what),
                // A flush that was still under way has ended meanwhile. There are only so many.
                Err(error) if self.too_old(&error) => {}
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
}

fn picture(
    snapshot: &Snapshot,
    keyspaces: &[Keyspace; 2],
    backwards: bool,
) -> glintdb::Result<Picture> {
    let mut picture = Picture::default();
    for (found, keyspace) in picture.iter_mut().zip(keyspaces) {
        let mut entries = snapshot.iter(keyspace);
        loop {
            let next = if backwards {
                entries.next_back()
            } else {
                entries.next()
            };
            let Some(entry) = next else { break };
            let (key, value) = entry?;
            assert!(
                found.insert(key.to_vec(), value.to_vec()).is_none(),
                "a key twice"
            );
        }
    }
    Ok(picture)
}

struct Worker<'a> {
    shared: &'a Shared,
    db: &'a Db,
    number: usize,
    keyspaces: [Keyspace; 2],
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared, db: &'a Db, number: usize) -> Self {
        let keyspaces = [db.default_keyspace(), db.keyspace("second").unwrap()];
        Worker {
            shared,
            db,
            number,
            keyspaces,
        }
    }

    /// Runs the commit, then takes note that it was acknowledged.
    fn commit(&self, step: &Step, run: impl FnOnce(u64)) {
        let number = self.shared.begun[self.number].fetch_add(1, Ordering::SeqCst) + 1;
        run(number);
        for level in 0..=step.durability() as usize {
            self.shared.acknowledged[level][self.number].store(number, Ordering::SeqCst);
        }
        self.shared.totals.commits.fetch_add(1, Ordering::Relaxed);
        let read = self.db.get(count_key(self.number)).unwrap();
        assert_eq!(
            read.as_deref().and_then(writer),
            Some((self.number, number)),
            "read your writes"
        );
    }

    fn step(&self, step: &Step) {
        let me = self.number;
        match step {
            Step::Put { bytes, durability } => self.commit(step, |number| {
                let value = value(me, number, *bytes);
                self.keyspaces[0]
                    .put_with(count_key(me), value, *durability)
                    .unwrap();
            }),
            Step::Batch {
                own,
                clear,
                pair,
                durability,
            } => self.commit(step, |number| {
                let mut batch = Batch::new();
                batch.put(&self.keyspaces[0], count_key(me), value(me, number, 0));
                if *clear {
                    batch.delete_range(&self.keyspaces[1], own_key(me, 0)..own_key(me, 9));
                }
                for (key, bytes) in own {
                    match bytes {
                        Some(bytes) => batch.put(
                            &self.keyspaces[1],
                            own_key(me, *key),
                            value(me, number, *bytes),
                        ),
                        None => batch.delete(&self.keyspaces[1], own_key(me, *key)),
                    };
                }
                if *pair {
                    batch.put(&self.keyspaces[0], PAIR[0], value(me, number, 8));
                    batch.put(&self.keyspaces[1], PAIR[1], value(me, number, 8));
                }
                self.db.write_with(batch, *durability).unwrap();
            }),
            Step::Increment => self.commit(step, |number| self.increment(number)),
            Step::Get => self.get(),
            Step::Snapshot => self.snapshot(),
            Step::Flush => self.db.flush().unwrap(),
            Step::Compact => self.db.compact().unwrap(),
            Step::FlushLog => self.db.flush_log(Durability::Sync).unwrap(),
        }
    }

    fn increment(&self, number: u64) {
        loop {
            let mut transaction = self.db.transaction();
            let read = transaction.get(&self.keyspaces[0], COUNTER);
            let counter = match read {
                Ok(None) => 0,
                Ok(Some(value)) => std::str::from_utf8(&value).unwrap().parse::<u64>().unwrap(),
                Err(error) if self.too_old(&error) => {
                    thread::yield_now();
                    continue;
                }
                Err(error) => panic!("transaction: {error}"),
            };
            transaction
                .put(&self.keyspaces[0], COUNTER, (counter + 1).to_string())
                .unwrap();
            transaction
                .put(
                    &self.keyspaces[0],
                    count_key(self.number),
                    value(self.number, number, 0),
                )
                .unwrap();
            match transaction.commit() {
                Ok(()) => return,
                // With a commit, perhaps, that is numbered and not visible yet: its thread must get its turn.
                Err(error) if error.kind() == ErrorKind::Conflict || self.too_old(&error) => {
                    thread::yield_now();
                }
                Err(error) => panic!("transaction: {error}"),
            }
        }
    }

    fn too_old(&self, error: &glintdb::Error) -> bool {
        self.shared.too_old(error)
    }

    /// Others' counts lie between what was acknowledged before and what was begun after.
    fn get(&self) {
        let before = load(&self.shared.acknowledged[0]);
        let keys: Vec<_> = (0..before.len()).map(count_key).collect();
        let found = self.keyspaces[0].multi_get(&keys);
        let after = load(&self.shared.begun);
        for (thread, found) in found.into_iter().enumerate() {
            let count = found.unwrap().map_or(0, |value| writer(&value).unwrap().1);
            assert!(
                (before[thread]..=after[thread]).contains(&count),
                "thread {thread}: read {count}, acknowledged before {}, begun after {}",
                before[thread],
                after[thread]
            );
        }
    }

    fn snapshot(&self) {
        let before = load(&self.shared.acknowledged[0]);
        let snapshot = self.db.snapshot();
        let mut counts = Vec::new();
        for backwards in [false, true] {
            let picture = match picture(&snapshot, &self.keyspaces, backwards) {
                Ok(picture) => picture,
                Err(error) if self.too_old(&error) => return,
                Err(error) => panic!("snapshot: {error}"),
            };
            counts.push(self.shared.check(&picture, snapshot.seqno(), "snapshot"));
        }
        assert_eq!(counts[0], counts[1], "a snapshot is repeatable");
        let holds = counts[0]
            .iter()
            .zip(&before)
            .all(|(found, before)| found >= before);
        assert!(
            holds,
            "{before:?} were acknowledged before the snapshot, it holds {:?}",
            counts[0]
        );
        let read = snapshot.get(&self.keyspaces[0], count_key(self.number));
        match read {
            Ok(read) => {
                let count = read.map_or(0, |value| writer(&value).unwrap().1);
                assert_eq!(
                    count, counts[0][self.number],
                    "a snapshot's get and scan agree"
                );
            }
            Err(error) if self.too_old(&error) => {}
            Err(error) => panic!("snapshot: {error}"),
        }
    }
}
