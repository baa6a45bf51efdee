//! How long a put waits beside something that could stop it.
//!
//! - `cargo run --release -p glintdb-bench --example stalls -- checkpoint DB COPY [MIB]`: beside a
//!   checkpoint of a database of `MIB` MiB (2,000) into `COPY`. A directory on another file system
//!   gets copies of files instead of hard links. - `cargo run --release -p glintdb-bench --example
//!   stalls -- keyspaces DB [VALUE_BYTES [SECONDS]]`: in a quiet keyspace beside another one that
//!   two threads write to as fast as they can.
//!
//! `DB` and `COPY` are new directories, which are removed at the end.
#![allow(
    clippy::disallowed_methods,
    reason = "real time and real threads are measured here"
)]

use glintdb::{Db, Keyspace, KeyspaceOptions, Options, Result};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time between two puts of a quiet thread.
const PAUSE: Duration = Duration::from_millis(2);

/// The times that calls took.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn measure<T>(&mut self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = call();
        self.0.push(start.elapsed());
        result
    }

    /// A sentence with percentiles.
    fn sentence(mut self) -> String {
        self.0.sort_unstable();
        let at = |part: usize| {
            let place = self.0.len() * part / 1000;
            let time = self.0.get(place.min(self.0.len().saturating_sub(1)));
            time.map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        format!(
            "{} calls, p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms, at most {:.3} ms",
            self.0.len(),
            at(500),
            at(990),
            at(999),
            at(1000)
        )
    }
}

/// A key of 16 bytes that looks random.
fn key(number: u64) -> [u8; 16] {
    let mixed = number
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").map_err(|error| glintdb::Error::io("print", error))
}

/// Puts into `keyspace`, as fast as it can or with pauses, until `done`.
fn put_until(
    keyspace: &Keyspace,
    value: &[u8],
    pause: Duration,
    numbers: &AtomicU64,
    done: &AtomicBool,
) -> Result<Times> {
    let mut times = Times::default();
    while !done.load(Ordering::Relaxed) {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        times.measure(|| keyspace.put(key(number), value))?;
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    Ok(times)
}

/// The waits that ended since `before`.
fn waits(db: &Db, before: &[(String, u64)]) -> String {
    let stats = db.stats();
    let mut parts = Vec::new();
    for (wait, (_, count)) in stats.waits.iter().zip(before) {
        if wait.count > *count {
            parts.push(format!(
                "{} {} (longest {:.1} ms)",
                wait.name,
                wait.count - count,
                wait.max_us as f64 / 1e3
            ));
        }
    }
    parts.join(", ")
}

fn counts(db: &Db) -> Vec<(String, u64)> {
    let stats = db.stats();
    let counts = stats.waits.iter();
    counts
        .map(|wait| (wait.name.to_owned(), wait.count))
        .collect()
}

fn checkpoint(path: &Path, copy: &Path, mib: u64) -> Result<()> {
    let db = Options::default().open(path)?;
    let keyspace = db.default_keyspace();
    let value = [7; 4096];
    for number in 0..mib * 256 {
        keyspace.put(key(number), value)?;
    }
    db.flush()?;
    let numbers = AtomicU64::new(mib * 256);
    for beside in [false, true] {
        let done = AtomicBool::new(false);
        let before = counts(&db);
        let small = [7; 100];
        let (took, fast, quiet, made) = std::thread::scope(|scope| {
            let put = |pause| put_until(&keyspace, &small, pause, &numbers, &done);
            let fast = scope.spawn(move || put(Duration::ZERO));
            let quiet = scope.spawn(move || put(PAUSE));
            let makes = scope.spawn(|| -> Result<Times> {
                let mut times = Times::default();
                for number in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("made {beside} {number}");
                    times.measure(|| db.create_keyspace(&name, KeyspaceOptions::default()))?;
                    std::thread::sleep(Duration::from_millis(500));
                }
                Ok(times)
            });
            let start = Instant::now();
            let copied = match beside {
                true => db.checkpoint(copy),
                false => {
                    std::thread::sleep(Duration::from_secs(3));
                    Ok(())
                }
            };
            let took = start.elapsed();
            done.store(true, Ordering::Relaxed);
            let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<Times>>| {
                thread.join().unwrap_or_else(|_| Ok(Times::default()))
            };
            copied.map(|()| (took, ended(fast), ended(quiet), ended(makes)))
        })?;
        say(&format!(
            "{}: {:.2} s",
            if beside { "checkpoint" } else { "alone" },
            took.as_secs_f64()
        ))?;
        let fast = fast?;
        let rate = fast.0.len() as f64 / took.as_secs_f64();
        say(&format!(
            "  fast thread: {rate:.0} a second, {}",
            fast.sentence()
        ))?;
        say(&format!("  quiet thread: {}", quiet?.sentence()))?;
        say(&format!("  new keyspaces: {}", made?.sentence()))?;
        say(&format!("  waits: {}", waits(&db, &before)))?;
    }
    db.close()
}

fn keyspaces(path: &Path, value_bytes: usize, seconds: u64) -> Result<()> {
    let db = Options::default()
        .memory_budget_bytes(64 << 20)
        .open(path)?;
    let loud = db.create_keyspace("loud", KeyspaceOptions::default())?;
    let quiet = db.create_keyspace("quiet", KeyspaceOptions::default())?;
    let (value, small) = (vec![7; value_bytes], [7; 100]);
    let (loud_numbers, quiet_numbers) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let before = counts(&db);
    let (louds, quiets) = std::thread::scope(|scope| {
        let loud = [0, 1].map(|_| {
            scope.spawn(|| put_until(&loud, &value, Duration::ZERO, &loud_numbers, &done))
        });
        let quiet = scope.spawn(|| put_until(&quiet, &small, PAUSE, &quiet_numbers, &done));
        std::thread::sleep(Duration::from_secs(seconds));
        done.store(true, Ordering::Relaxed);
        let mut all = Times::default();
        for thread in loud {
            if let Ok(times) = thread.join() {
                all.0.extend(times?.0);
            }
        }
        let quiet = quiet.join().unwrap_or_else(|_| Ok(Times::default()));
        Result::Ok((all, quiet?))
    })?;
    let rate = louds.0.len() as u64 / seconds.max(1);
    say(&format!("loud: {rate} a second, {}", louds.sentence()))?;
    say(&format!("quiet: {}", quiets.sentence()))?;
    say(&format!("waits: {}", waits(&db, &before)))?;
    db.close()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| {
        text.parse()
            .map_err(|_| glintdb::Error::invalid(format!("{text:?} is no number")))
    };
    let size = |text: &str| {
        let bytes = number(text)?;
        usize::try_from(bytes).map_err(|_| glintdb::Error::invalid(format!("{bytes} is too much")))
    };
    let (directories, measured) = match arguments[..] {
        ["checkpoint", db, copy] => (vec![db, copy], checkpoint(db.as_ref(), copy.as_ref(), 2000)),
        ["checkpoint", db, copy, mib] => {
            let mib = number(mib)?;
            (vec![db, copy], checkpoint(db.as_ref(), copy.as_ref(), mib))
        }
        ["keyspaces", db] => (vec![db], keyspaces(db.as_ref(), 100, 20)),
        ["keyspaces", db, bytes] => {
            let bytes = size(bytes)?;
            (vec![db], keyspaces(db.as_ref(), bytes, 20))
        }
        ["keyspaces", db, bytes, seconds] => {
            let (bytes, seconds) = (size(bytes)?, number(seconds)?);
            (vec![db], keyspaces(db.as_ref(), bytes, seconds))
        }
        _ => {
            let usage = "checkpoint DB COPY [MIB] | keyspaces DB [VALUE_BYTES [SECONDS]]";
            return Err(glintdb::Error::invalid(usage));
        }
    };
    for directory in directories {
        std::fs::remove_dir_all(directory).ok();
    }
    measured
}
