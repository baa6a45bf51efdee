//! Measures how long an engine needs to open after its process was killed with commits in its log.
//!
//! For each engine in turn a process puts records one by one, in random order, and reports when it
//! is done. It is killed with SIGKILL at that moment. Another process opens what it left, which is
//! measured, and reads one record, then all of them. The page cache stays warm, as it does when a
//! process dies.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use glintdb_bench::figures::Opened;
use glintdb_bench::keys::{KeySet, Permutation};
use glintdb_bench::values::ValuePool;
use glintdb_bench::{Durability, Result, grouped};
use serde::{Deserialize, Serialize};

use crate::args::RecoveryArgs;
use crate::engines::{self, Setup};
use crate::host::remove;
use crate::table::BASELINE;

/// What one of the two processes is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Life {
    engine: String,
    dir: PathBuf,
    memory_bytes: u64,
    num: u64,
    key_size: usize,
    value_size: usize,
    durability: Durability,
    seed: u64,
    /// Put everything and wait to be killed; otherwise open it and look.
    fill: bool,
}

/// What came of opening once.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Opening {
    open_ms: f64,
    first_read_us: f64,
    /// Records that are there, each with a value it can have.
    found: u64,
}

/// Measures and prints one table for each size of values. Returns whether no engine lost what it
/// may not lose.
///
/// # Errors
/// If a process fails.
pub(crate) fn run(args: &RecoveryArgs) -> Result<bool> {
    let mut all_there = true;
    for &value_size in &args.value_size {
        let (opened, there) = measure_all(args, value_size)?;
        all_there &= there;
        writeln!(std::io::stdout(), "{}", table(args, value_size, &opened))?;
    }
    Ok(all_there)
}

/// Kills and opens each engine in turn, `--repeat` times, with values of one size. The second
/// answer is whether no engine lost what it may not lose: redb below `sync` may lose its last
/// commits, and every engine may lose `buffered` ones.
///
/// # Errors
/// If a process fails.
pub(crate) fn measure_all(args: &RecoveryArgs, value_size: usize) -> Result<(Vec<Opened>, bool)> {
    let mut all_there = true;
    let mut openings: Vec<Vec<Opening>> = vec![Vec::new(); args.engines.len()];
    for repetition in 0..args.repeat {
        for place in 0..args.engines.len() {
            let at = (place + repetition) % args.engines.len();
            let one = measure(args, &args.engines[at], value_size)?;
            writeln!(std::io::stderr(), "{}: {one:?}", args.engines[at])?;
            let may_lose = args.durability == Durability::Buffered
                || args.engines[at] == "redb" && args.durability != Durability::Sync;
            all_there &= one.found == args.num || may_lose;
            openings[at].push(one);
        }
    }
    let engines = args.engines.iter().zip(openings);
    let opened = engines.map(|(engine, openings)| summary(engine, args.num, openings));
    Ok((opened.collect(), all_there))
}

/// The opening with the median time, and the range over all.
fn summary(engine: &str, records: u64, mut openings: Vec<Opening>) -> Opened {
    openings.sort_by(|a, b| a.open_ms.total_cmp(&b.open_ms));
    let median = openings[(openings.len() - 1) / 2];
    Opened {
        engine: engine.to_owned(),
        open_ms: median.open_ms,
        open_ms_min: openings[0].open_ms,
        open_ms_max: openings[openings.len() - 1].open_ms,
        first_read_us: median.first_read_us,
        records,
        found: openings.iter().map(|one| one.found).min().unwrap_or(0),
        runs: openings.len(),
    }
}

/// A life of an engine that ends by SIGKILL, and the next one's beginning.
fn measure(args: &RecoveryArgs, engine: &str, value_size: usize) -> Result<Opening> {
    let dir = args.dir.join(format!("recovery-{engine}"));
    remove(&dir)?;
    let life = Life {
        engine: engine.to_owned(),
        dir: dir.join("db"),
        memory_bytes: args.memory_mb << 20,
        num: args.num,
        key_size: args.key_size,
        value_size,
        durability: args.durability,
        seed: args.seed,
        fill: true,
    };
    let mut first = spawn(&life)?;
    let line = line_of(&mut first)?;
    first.kill()?;
    first.wait()?;
    if line.trim() != FULL {
        return Err(format!("{engine} did not take the records: {line}").into());
    }
    let mut second = spawn(&Life {
        fill: false,
        ..life
    })?;
    let line = line_of(&mut second)?;
    let status = second.wait()?;
    if !status.success() {
        return Err(format!("{engine} did not open after the kill: {status}").into());
    }
    remove(&dir)?;
    Ok(serde_json::from_str(&line)?)
}

/// What the first process says when everything is acknowledged.
const FULL: &str = "full";

/// One of the two processes.
///
/// # Errors
/// If the order is not one, or the engine fails.
pub(crate) fn live(order: &str) -> Result<()> {
    let life: Life = serde_json::from_str(order)?;
    let keys = KeySet::new(life.num, life.key_size, life.seed);
    let values = ValuePool::new(life.value_size, life.seed);
    let order = Permutation::new(life.num, life.seed);
    let setup = Setup {
        memory_bytes: life.memory_bytes,
        data_bytes: life.num * (life.key_size + life.value_size) as u64,
        durability: life.durability,
    };
    let began = Instant::now();
    let store = engines::open(&life.engine, &life.dir, setup)?;
    let open_ms = began.elapsed().as_secs_f64() * 1e3;
    let mut handle = store.handle()?;
    let mut key = vec![0; life.key_size];
    let mut out = std::io::stdout().lock();
    if life.fill {
        for i in 0..life.num {
            let index = order.at(i);
            keys.write(index, &mut key);
            handle.put(&key, values.get(index, 0))?;
        }
        writeln!(out, "{FULL}")?;
        out.flush()?;
        // The kill comes now. If the parent is gone instead, the end of the input ends the wait.
        std::io::stdin().read_line(&mut String::new())?;
        return Ok(());
    }
    let mut opened = Opening {
        open_ms,
        first_read_us: 0.0,
        found: 0,
    };
    for i in 0..life.num {
        let index = order.at(i);
        keys.write(index, &mut key);
        let began = Instant::now();
        let mut right = false;
        handle.get(&key, &mut |value| right = values.matches(index, value))?;
        if i == 0 {
            opened.first_read_us = began.elapsed().as_secs_f64() * 1e6;
        }
        opened.found += u64::from(right);
    }
    serde_json::to_writer(&mut out, &opened)?;
    writeln!(out)?;
    Ok(())
}

fn spawn(life: &Life) -> Result<Child> {
    Ok(Command::new(std::env::current_exe()?)
        .arg("life")
        .arg(serde_json::to_string(life)?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?)
}

/// The first line that a process prints; nothing where it ends before.
fn line_of(child: &mut Child) -> Result<String> {
    let out = child.stdout.as_mut().ok_or("no pipe")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    Ok(line)
}

fn table(args: &RecoveryArgs, value_size: usize, opened: &[Opened]) -> String {
    let baseline = opened.iter().find(|one| one.engine == BASELINE);
    let baseline = baseline.or(opened.first()).map_or(1.0, |one| one.open_ms);
    let mut out = format!(
        "**open after SIGKILL**: {} records of {} + {value_size} B, durability {}\n\n\
         | engine | open ms | x | range | first read us | records found |\n|---|---:|---:|---|---:|---:|\n",
        grouped(args.num as f64),
        args.key_size,
        args.durability
    );
    for one in opened {
        out += &format!(
            "| {} | {:.1} | {:.2} | {:.1} to {:.1} | {:.0} | {} |\n",
            one.engine,
            one.open_ms,
            one.open_ms / baseline,
            one.open_ms_min,
            one.open_ms_max,
            one.first_read_us,
            grouped(one.found as f64),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_opening_comes_with_the_range_and_the_fewest_records() {
        let opening = |open_ms: f64, found| Opening {
            open_ms,
            first_read_us: open_ms * 10.0,
            found,
        };
        let all = vec![opening(30.0, 9), opening(10.0, 10), opening(20.0, 10)];
        let opened = summary("redb", 10, all);
        assert_eq!((opened.open_ms, opened.first_read_us), (20.0, 200.0));
        assert_eq!((opened.open_ms_min, opened.open_ms_max), (10.0, 30.0));
        assert_eq!((opened.found, opened.records, opened.runs), (9, 10, 3));
    }
}
