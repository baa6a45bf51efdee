//! What a database takes on disk after deletions, without any call that asks for the space.
//!
//! - `cargo run --release -p glintdb-bench --example deletions -- all DB HOW [VALUE_BYTES [MIB]]`:
//!   puts `MIB` MiB of values (1,024) of `VALUE_BYTES` bytes (4,096), deletes all of them, then
//!   only waits, and opens the database again. `HOW` is `keys`, `range` or `drop`.
//! - `cargo run --release -p glintdb-bench --example deletions -- window DB HOW [MIB]`: writes
//!   `MIB` MiB of records of 300 bytes (4,096) into a window of 256 MiB, from which the oldest are
//!   deleted by `keys` or in `ranges`.
//! - `cargo run --release -p glintdb-bench --example deletions -- held DB [RECORDS]`: holds a
//!   transaction while `RECORDS` records (1,000,000) pass through a queue, then drops it and only
//!   waits.
//! - `cargo run --release -p glintdb-bench --example deletions -- memtable DB [RANGES]`: times
//!   gets, seeks and scans of 10,000 beside `RANGES` range deletions (100,000) in the memtable,
//!   each between two records, and without them. The records are in the memtable too, then in
//!   tables.
//! - `cargo run --release -p glintdb-bench --example deletions -- loads DB`: times short loads with
//!   deletions: a large batch, a log that is confirmed from its front, a range deletion over
//!   1,000,000 records, queues, and a large transaction.
//!
//! `DB` is a new directory, which is removed at the end.
#![allow(
    clippy::disallowed_methods,
    reason = "real time and real files are measured here"
)]

use glintdb::{Batch, Db, Error, Keyspace, KeyspaceOptions, Options, Result};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Live bytes of the window.
const WINDOW_BYTES: u64 = 256 << 20;
/// Bytes of a record in the window.
const RECORD_BYTES: u64 = 300;
/// Records of the window that are deleted by one range deletion.
const RANGE_RECORDS: u64 = 1000;

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").map_err(|error| Error::io("print", error))
}

/// MiB that the files in `directory` take on disk.
fn disk_mib(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    let blocks = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_mib(&entry.path()) * 2048,
        Ok(metadata) => metadata.blocks(),
        Err(_) => 0,
    });
    blocks.sum::<u64>() / 2048
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Values that do not compress.
fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut state = number;
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        value.extend_from_slice(&(state ^ (state >> 31)).to_le_bytes());
    }
    value.truncate(bytes);
    value
}

/// Prints the disk use after each of these numbers of seconds.
fn wait(path: &Path, seconds: &[u64]) -> Result<()> {
    let start = Instant::now();
    let mut figures = Vec::new();
    for &second in seconds {
        std::thread::sleep(Duration::from_secs(second).saturating_sub(start.elapsed()));
        figures.push(format!("{} after {second} s", disk_mib(path)));
    }
    say(&format!("  MiB on disk: {}", figures.join(", ")))
}

fn delete_all(path: &Path, how: &str, value_bytes: usize, mib: u64) -> Result<()> {
    let db = Options::default().open(path)?;
    let keyspace = db.create_keyspace("loaded", KeyspaceOptions::default())?;
    say(&format!("empty: {} MiB", disk_mib(path)))?;
    let records = (mib << 20) / value_bytes.max(1) as u64;
    for number in 0..records {
        keyspace.put(key(number), value(number, value_bytes))?;
    }
    say(&format!("loaded: {} MiB", disk_mib(path)))?;
    match how {
        "keys" => (0..records).try_for_each(|number| keyspace.delete(key(number)))?,
        "range" => keyspace.delete_range::<[u8; 16]>(..)?,
        _ => db.drop_keyspace("loaded")?,
    }
    say(&format!("deleted by {how}:"))?;
    wait(path, &[0, 1, 2, 3, 5, 10, 15])?;
    drop(keyspace);
    db.close()?;
    let db = Options::default().open(path)?;
    say("opened again:")?;
    wait(path, &[0, 1, 2, 5, 10])?;
    db.close()
}

fn window(path: &Path, how: &str, mib: u64) -> Result<()> {
    let db = Options::default().open(path)?;
    let keyspace = db.default_keyspace();
    let (records, window) = ((mib << 20) / RECORD_BYTES, WINDOW_BYTES / RECORD_BYTES);
    let value_bytes = usize::try_from(RECORD_BYTES).unwrap_or_default() - 16;
    let (start, mut peak) = (Instant::now(), 0);
    for number in 0..records {
        keyspace.put(key(number), value(number, value_bytes))?;
        if let Some(oldest) = number.checked_sub(window) {
            match how {
                "keys" => keyspace.delete(key(oldest))?,
                _ if oldest % RANGE_RECORDS == 0 => keyspace.delete_range(..key(oldest))?,
                _ => {}
            }
        }
        if number % 10_000 == 0 {
            peak = peak.max(disk_mib(path));
        }
    }
    let rate = records as f64 / start.elapsed().as_secs_f64();
    say(&format!(
        "window of {} MiB by {how}: {rate:.0} records a second, at most {peak} MiB on disk",
        WINDOW_BYTES >> 20
    ))?;
    wait(path, &[0, 1, 2, 5, 10])?;
    db.close()
}

/// The time of a look at the first record, in microseconds, and the tombstones in the index.
fn look(db: &Db, keyspace: &Keyspace) -> Result<()> {
    let start = Instant::now();
    let first = keyspace.iter().next().transpose()?;
    let micros = start.elapsed().as_micros();
    let stats = db.stats();
    let tombstones: u64 = (stats.keyspaces.iter())
        .map(|keyspace| keyspace.index_tombstones)
        .sum();
    say(&format!(
        "  look at the {} queue: {micros} µs, {tombstones} tombstones in the index",
        if first.is_some() { "full" } else { "empty" }
    ))
}

fn held(path: &Path, records: u64) -> Result<()> {
    let db = Options::default().open(path)?;
    let keyspace = db.default_keyspace();
    let transaction = db.transaction();
    for number in 0..records {
        keyspace.put(key(number), value(number, 100))?;
        if let Some(oldest) = number.checked_sub(1000) {
            keyspace.delete(key(oldest))?;
        }
    }
    db.flush()?;
    say("transaction held:")?;
    look(&db, &keyspace)?;
    drop(transaction);
    say("dropped:")?;
    wait(path, &[0, 1, 2, 5, 10])?;
    look(&db, &keyspace)?;
    look(&db, &keyspace)?;
    db.close()
}

/// Calls `read` with numbers below `records` in random order, `count` of them, five times. Returns
/// the median of the times for one, in microseconds.
fn time(records: u64, count: u64, mut read: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let mut state = 1u64;
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..count {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            read((state >> 33) % records.max(1))?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e6 / count as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[2])
}

/// Prints the times of a get, a seek and a scan of 10,000 records.
fn reads(keyspace: &Keyspace, records: u64, what: &str) -> Result<()> {
    let get = time(records, 200_000, |number| {
        keyspace.get(key(4 * number)).map(drop)
    })?;
    let seek = time(records, 50_000, |number| {
        let mut iter = keyspace.range(key(4 * number)..);
        iter.next().transpose().map(drop)
    })?;
    let scan = time(records.saturating_sub(10_000), 50, |number| {
        let iter = keyspace.range(key(4 * number)..);
        iter.take(10_000).try_for_each(|entry| entry.map(drop))
    })?;
    say(&format!(
        "  {what}: get {get:.2} µs, seek {seek:.2} µs, scan of 10,000 {scan:.0} µs"
    ))
}

fn memtable(path: &Path, ranges: u64) -> Result<()> {
    for flushed in [false, true] {
        // Background threads would flush the memtable.
        let db = Options::default().background_threads(0).open(path)?;
        let keyspace = db.default_keyspace();
        for number in 0..ranges {
            keyspace.put(key(4 * number), value(number, 100))?;
        }
        say(match flushed {
            false => "records in the memtable:",
            true => "records in tables:",
        })?;
        if flushed {
            db.compact()?;
        }
        reads(&keyspace, ranges, "without range deletions")?;
        for number in 0..ranges {
            keyspace.delete_range(key(4 * number + 1)..key(4 * number + 3))?;
        }
        reads(&keyspace, ranges, "with them")?;
        db.close()?;
        std::fs::remove_dir_all(path).map_err(|error| Error::io("remove", error))?;
    }
    Ok(())
}

/// Microseconds that `run` takes.
fn micros<T>(run: impl FnOnce() -> Result<T>) -> Result<f64> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

/// Looks at the first and at the last record. Prints the times.
fn looks(keyspace: &Keyspace, what: &str) -> Result<()> {
    let front = micros(|| keyspace.iter().next().transpose())?;
    let back = micros(|| keyspace.iter().next_back().transpose())?;
    say(&format!("  {what}: front {front:.1} µs, back {back:.1} µs"))
}

/// A queue that always has 1,000 records: one is pushed and one popped a turn.
fn queue(keyspace: &Keyspace, turns: u64) -> Result<f64> {
    let start = Instant::now();
    for number in 0..turns + 1000 {
        keyspace.put(key(number), value(number, 100))?;
        if number >= 1000
            && let Some((oldest, _)) = keyspace.iter().next().transpose()?
        {
            keyspace.delete(oldest)?;
        }
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / turns as f64)
}

fn loads(path: &Path) -> Result<()> {
    let db = Options::default().open(path)?;
    let keyspace = |name: &str| db.create_keyspace(name, KeyspaceOptions::default());

    let batched = keyspace("batched")?;
    let mut batch = Batch::new();
    for number in 0..40_000 {
        batch.put(&batched, key(2 * number), value(number, 100));
        batch.delete_range(&batched, key(2 * number + 1)..key(2 * number + 2));
    }
    let took = micros(|| db.write(batch))?;
    say(&format!(
        "batch of 40,000 puts and 40,000 range deletions: {:.0} ms",
        took / 1e3
    ))?;

    let confirmed = keyspace("confirmed")?;
    for turns in [1000, 100_000] {
        let start = Instant::now();
        for number in 0..turns {
            confirmed.put(key(number), value(number, 100))?;
            confirmed.delete_range(..=key(number))?;
            confirmed.iter().next().transpose()?;
        }
        let turn = start.elapsed().as_secs_f64() * 1e6 / turns as f64;
        say(&format!(
            "put, delete_range(..=n), look: {turn:.1} µs a turn of {turns}"
        ))?;
    }

    let million = keyspace("million")?;
    for number in 0..1_000_000 {
        million.put(key(number), value(number, 100))?;
    }
    million.delete_range::<[u8; 16]>(..)?;
    say("looks after a range deletion over 1,000,000 records:")?;
    looks(&million, "first")?;
    looks(&million, "second")?;
    db.flush()?;
    looks(&million, "flushed")?;

    let popped = keyspace("popped")?;
    for number in 0..300_000 {
        popped.put(key(number), value(number, 100))?;
    }
    let pops = micros(|| {
        while let Some((oldest, _)) = popped.iter().next().transpose()? {
            popped.delete(oldest)?;
        }
        Ok(())
    })?;
    say(&format!(
        "300,000 records popped: {:.1} µs a pop",
        pops / 3e5
    ))?;
    looks(&popped, "empty")?;
    looks(&popped, "again")?;
    db.flush()?;
    looks(&popped, "flushed")?;

    for turns in [7000, 70_000] {
        let turn = queue(&keyspace(&format!("queue {turns}"))?, turns)?;
        say(&format!("queue of 1,000: {turn:.1} µs a turn of {turns}"))?;
    }

    let written = keyspace("written")?;
    let mut transaction = db.transaction();
    for number in 0..100_000 {
        transaction.put(&written, key(number), value(number, 100))?;
    }
    let scan = time(100_000, 10_000, |number| {
        (transaction.range(&written, key(number)..).next())
            .transpose()
            .map(drop)
    })?;
    let delete = time(100_000, 10_000, |number| {
        transaction.delete_range(&written, key(number)..key(number + 1))
    })?;
    say(&format!(
        "transaction of 100,000 writes: scan {scan:.1} µs, delete_range {delete:.1} µs"
    ))?;
    drop(transaction);
    db.close()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |at: usize, default: u64| match arguments.get(at) {
        None => Ok(default),
        Some(text) => text
            .parse::<u64>()
            .map_err(|_| Error::invalid(format!("{text:?} is no number"))),
    };
    let (db, measured) = match arguments[..] {
        ["all", db, how @ ("keys" | "range" | "drop"), ..] => {
            let bytes = usize::try_from(number(3, 4096)?)
                .map_err(|_| Error::invalid("the value is too long"))?;
            (db, delete_all(db.as_ref(), how, bytes, number(4, 1024)?))
        }
        ["window", db, how @ ("keys" | "ranges"), ..] => {
            (db, window(db.as_ref(), how, number(3, 4096)?))
        }
        ["held", db, ..] => (db, held(db.as_ref(), number(2, 1_000_000)?)),
        ["loads", db] => (db, loads(db.as_ref())),
        ["memtable", db, ..] => (db, memtable(db.as_ref(), number(2, 100_000)?)),
        _ => {
            return Err(Error::invalid(
                "all DB keys|range|drop [VALUE_BYTES [MIB]] | window DB keys|ranges [MIB] | \
                 held DB [RECORDS] | memtable DB [RANGES] | \
                 loads DB",
            ));
        }
    };
    std::fs::remove_dir_all(db).ok();
    measured
}
