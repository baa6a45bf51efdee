//! Real threads on one database: what a thread was told is what it finds, no increment is lost, batches are whole.

use super::copies;
use super::lanes::Steps;
use crate::collecting;
use crate::options::Lane;
use crate::place::Place;
use glintdb::{
    Batch, Db, Durability, ErrorKind, Experiments, IndexKind, Keyspace, KeyspaceOptions, Options,
};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const WRITERS: u8 = 4;
const ROUNDS: u32 = 6000;
const INCREMENTS: u64 = 1000;
/// Races of value GC with everything else.
const RACES: u64 = 3;
const RACE_WRITES: u64 = 3000;
/// Values that several readers read together, and how often.
const SAME_READS: u32 = 3000;
const SAME_PASSES: u32 = 4;
/// Threads that put records into a queue, and how many each puts.
const QUEUE_WRITERS: u64 = 3;
const QUEUE_PUTS: u64 = 20_000;
/// Most records of the queue, about.
const QUEUE_RECORDS: u64 = 16;

pub(super) fn run(dir: &Path) -> Result<(), String> {
    let path = dir.join("threads");
    let options = Options::default()
        .background_threads(2)
        .memory_budget_bytes(8 << 20)
        .log_ring_bytes(64 << 10)
        .log_segment_bytes(64 << 10)
        .replay_bytes_max(1 << 20)
        .separate_min_bytes(64);
    let failed = |error: glintdb::Error| error.to_string();
    let db = options.clone().open(&path).map_err(failed)?;
    match options.clone().open(&path) {
        Err(error) if error.kind() == ErrorKind::Locked => {}
        _ => return Err("a second open of the same directory is not refused".into()),
    }
    let two = db
        .create_keyspace("two", KeyspaceOptions::default())
        .map_err(failed)?;
    let test = Test {
        db: &db,
        one: db.default_keyspace(),
        two,
        failure: Mutex::new(None),
        done: AtomicBool::new(false),
    };
    test.run();
    if let Some(message) = test.failure.lock().expect("no panic").take() {
        return Err(message);
    }
    let counted = test.counter().map_err(failed)?;
    let wanted = u64::from(WRITERS) * INCREMENTS;
    if counted != wanted {
        return Err(format!("{counted} increments of {wanted}"));
    }
    drop(test);
    db.close().map_err(failed)?;
    let db = options.open(&path).map_err(failed)?;
    for writer in 0..WRITERS {
        let found = db.get([writer, 200]).map_err(failed)?;
        if found.as_deref() != Some(&(ROUNDS - 1).to_le_bytes()[..]) {
            return Err(format!("the last write of writer {writer} is gone"));
        }
    }
    let report = db.verify().map_err(failed)?;
    match report.errors.first() {
        Some(error) => return Err(format!("verify: {error}")),
        None => db.close().map_err(failed)?,
    }
    copies::run()?;
    same_reads(&dir.join("same")).map_err(failed)??;
    queue(&dir.join("queue")).map_err(failed)??;
    collecting::bounded(&Steps::count)?;
    for seed in 1..=RACES {
        let reads = collecting::READS[(seed % 2) as usize];
        for index in [IndexKind::Lsm, IndexKind::BTree] {
            let set = collecting::eager(Lane::Histories, index, reads);
            let counts = collecting::race(&Place::memory(), set, RACE_WRITES / 2, seed)?;
            Steps::add(counts.writes);
        }
    }
    Ok(())
}

/// Readers that read the same at the same time, each thing once between them: each gets what it asked for, and none waits for ever.
fn same_reads(path: &Path) -> glintdb::Result<Result<(), String>> {
    let options = Options::default()
        .memory_budget_bytes(8 << 20)
        .log_ring_bytes(64 << 10)
        .log_segment_bytes(64 << 10)
        .separate_min_bytes(64);
    let value = |n: u32| [&n.to_be_bytes()[..], &[7; 300]].concat();
    let db = options.clone().open(path)?;
    for n in 0..SAME_READS {
        db.put(n.to_be_bytes(), value(n))?;
    }
    db.flush()?;
    db.close()?;
    for pass in 0..SAME_PASSES {
        // Nothing is cached.
        let db = options.clone().open(path)?;
        let all = db.default_keyspace();
        let read = |reader: u32| -> Result<(), String> {
            for n in 0..SAME_READS {
                Steps::count();
                // Two walk together, two a few values behind.
                let n = (n + reader % 2 * 3) % SAME_READS;
                let found = all.get(n.to_be_bytes());
                let found = found.map_err(|error| error.to_string())?;
                if found.as_deref() != Some(&value(n)[..]) {
                    return Err(format!("pass {pass}: value {n} is another one"));
                }
            }
            Ok(())
        };
        let done = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4)
                .map(|reader| {
                    scope.spawn({
                        let read = &read;
                        move || read(reader)
                    })
                })
                .collect();
            let mut done = readers.into_iter().map(|reader| reader.join());
            done.try_for_each(|done| done.map_err(|_| "a reader panicked".to_owned())?)
        });
        db.close()?;
        if done.is_err() {
            return Ok(done);
        }
    }
    Ok(Ok(()))
}

/// Threads put records into a queue, nearly in order, while another one takes the first record that
/// it finds. It finds each of them.
fn queue(path: &Path) -> glintdb::Result<Result<(), String>> {
    let experiments = Experiments::default().seek_after_deleted(1);
    let options = Options::default()
        .memory_budget_bytes(8 << 20)
        .experiments(experiments);
    let db = options.open(path)?;
    let records = db.default_keyspace();
    let (next, writing) = (AtomicU64::new(0), AtomicU64::new(QUEUE_WRITERS));
    // The last record that was taken.
    let front = AtomicU64::new(0);
    let put = || -> glintdb::Result<()> {
        for _ in 0..QUEUE_PUTS {
            Steps::count();
            let n = next.fetch_add(1, Ordering::Relaxed);
            // The queue is short, so that a put may come when its neighbours were taken.
            while n > front.load(Ordering::Relaxed) + QUEUE_RECORDS {
                std::thread::yield_now();
            }
            records.put(n.to_be_bytes(), "in the queue")?;
        }
        writing.fetch_sub(1, Ordering::Release);
        Ok(())
    };
    let take = || -> glintdb::Result<u64> {
        let mut taken = 0;
        loop {
            let over = writing.load(Ordering::Acquire) == 0;
            match records.iter().keys().next().transpose()? {
                Some(key) => {
                    records.delete(&key)?;
                    front.fetch_max(number(Some(&key[..])).swap_bytes(), Ordering::Relaxed);
                    taken += 1;
                }
                None if over => return Ok(taken),
                None => std::thread::yield_now(),
            }
        }
    };
    let taken = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..QUEUE_WRITERS).map(|_| scope.spawn(put)).collect();
        let taken = take();
        for writer in writers {
            writer.join().expect("no panic")?;
        }
        taken
    })?;
    db.close()?;
    let wanted = QUEUE_WRITERS * QUEUE_PUTS;
    Ok(match taken == wanted {
        true => Ok(()),
        false => Err(format!(
            "of {wanted} records {taken} were found in the queue"
        )),
    })
}

struct Test<'a> {
    db: &'a Db,
    one: Keyspace,
    two: Keyspace,
    failure: Mutex<Option<String>>,
    done: AtomicBool,
}

impl Test<'_> {
    fn run(&self) {
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .flat_map(|writer| {
                    [
                        scope.spawn(move || self.note(self.writes(writer))),
                        scope.spawn(move || self.note(self.increments())),
                    ]
                })
                .collect();
            scope.spawn(|| self.note(self.background()));
            scope.spawn(|| self.note(self.reader()));
            for writer in writers {
                writer.join().ok();
            }
            self.done.store(true, Ordering::Relaxed);
        });
    }

    fn note(&self, result: Result<(), String>) {
        if let Err(message) = result {
            self.done.store(true, Ordering::Relaxed);
            let mut failure = self.failure.lock().expect("no panic");
            failure.get_or_insert(message);
        }
    }

    fn counter(&self) -> glintdb::Result<u64> {
        let value = self.one.get("counter")?;
        Ok(number(value.as_deref()))
    }

    /// A thread finds what it was told is written, whatever level its neighbours write at.
    fn writes(&self, writer: u8) -> Result<(), String> {
        let failed = |error: glintdb::Error| error.to_string();
        let durability = match writer {
            0 => Durability::Sync,
            _ => Durability::Os,
        };
        for round in 0..ROUNDS {
            if self.done.load(Ordering::Relaxed) {
                break;
            }
            Steps::count();
            let key = [writer, 200];
            let value = round.to_le_bytes();
            if round % 8 == 0 {
                let mut batch = Batch::new();
                for key in 0..8_u8 {
                    batch.put(&self.one, [writer, key], value);
                    batch.put(&self.two, [writer, key], [value; 30].concat());
                }
                self.db.write_with(batch, durability).map_err(failed)?;
            }
            self.one.put_with(key, value, durability).map_err(failed)?;
            let found = self.one.get(key).map_err(failed)?;
            if found.as_deref() != Some(&value[..]) {
                return Err(format!(
                    "writer {writer} finds {} after it was told that {round} is written",
                    number(found.as_deref())
                ));
            }
        }
        Ok(())
    }

    fn increments(&self) -> Result<(), String> {
        for _ in 0..INCREMENTS {
            loop {
                if self.done.load(Ordering::Relaxed) {
                    return Ok(());
                }
                Steps::count();
                match self.increment() {
                    Ok(()) => break,
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
        }
        Ok(())
    }

    fn increment(&self) -> glintdb::Result<()> {
        let mut transaction = self.db.transaction();
        let old = number(transaction.get(&self.one, "counter")?.as_deref());
        transaction.put(&self.one, "counter", (old + 1).to_le_bytes())?;
        transaction.commit()
    }

    fn background(&self) -> Result<(), String> {
        while !self.done.load(Ordering::Relaxed) {
            let done = self.db.flush().and_then(|()| self.db.compact());
            done.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Batches over two keyspaces are seen whole.
    fn reader(&self) -> Result<(), String> {
        while !self.done.load(Ordering::Relaxed) {
            Steps::count();
            let snapshot = self.db.snapshot();
            // Meanwhile others overwrite what it shows, flush and compact.
            std::thread::sleep(Duration::from_millis(3));
            for writer in 0..WRITERS {
                let mut seen = None;
                for (space, key) in (0..8).flat_map(|key| [(&self.one, key), (&self.two, key)]) {
                    match snapshot.get(space, [writer, key]) {
                        Ok(value) => {
                            let round = value.as_deref().map(|value| value[..4].to_vec());
                            if *seen.get_or_insert(round.clone()) != round {
                                return Err(format!("half a batch of writer {writer}"));
                            }
                        }
                        Err(error) if error.kind() == ErrorKind::SnapshotTooOld => break,
                        Err(error) => return Err(error.to_string()),
                    }
                }
            }
        }
        Ok(())
    }
}

fn number(value: Option<&[u8]>) -> u64 {
    let mut bytes = [0; 8];
    let value = value.unwrap_or_default();
    let length = value.len().min(8);
    bytes[..length].copy_from_slice(&value[..length]);
    u64::from_le_bytes(bytes)
}
