//! Deterministic simulation as a program: `cargo xtask sim`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for people, in real time"
)]

use glintdb_testkit::options::{self, Lane, OptionSet};
use glintdb_testkit::report::Report;
use glintdb_testkit::sim::{self, Counts};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const HELP: &str = "\
cargo xtask sim [--seed S] [--ops N] [--options NAME]
cargo xtask sim --minutes M [--threads T] [--seed S] [--ops N] [--options NAME]

The engine on a simulated volume, cut by kills and power cuts at every operation of the volume, and again while it recovers.
  --seed S        what everything follows from (1; of a campaign the first one, from the clock)
  --ops N         operations of a history (40)
  --options NAME  the option set, instead of one that the seed chooses
  --minutes M     a campaign: seeds S, S+1 … for so long; fractions are taken
  --threads T     of a campaign (1)";

struct Arguments {
    seed: u64,
    length: usize,
    set: Option<OptionSet>,
    minutes: Option<f64>,
    threads: u64,
}

fn parse() -> Result<Option<Arguments>, String> {
    let mut seed = None;
    let mut arguments = Arguments {
        seed: 1,
        length: 40,
        set: None,
        minutes: None,
        threads: 1,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            return Ok(None);
        }
        let value = words
            .next()
            .ok_or_else(|| format!("{word} needs a value\n\n{HELP}"))?;
        let wrong = || format!("{word} {value}: not a number");
        let number = || value.parse::<u64>().map_err(|_| wrong());
        match word.as_str() {
            "--seed" => seed = Some(number()?),
            "--ops" => arguments.length = value.parse().map_err(|_| wrong())?,
            "--threads" => arguments.threads = number()?.max(1),
            "--minutes" => arguments.minutes = Some(value.parse().map_err(|_| wrong())?),
            "--options" => {
                let sets = options::of(Lane::Sim);
                let names: Vec<_> = sets.iter().map(|set| set.name).collect();
                let found = sets.iter().find(|set| set.name == value);
                let unknown = || format!("no options `{value}`; there are {}", names.join(", "));
                arguments.set = Some(found.cloned().ok_or_else(unknown)?);
            }
            _ => return Err(format!("no option `{word}`\n\n{HELP}")),
        }
    }
    let clock = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(1, |now| now.as_secs() % 1_000_000 * 1_000)
    };
    arguments.seed = seed.unwrap_or_else(|| arguments.minutes.map_or(1, |_| clock()));
    Ok(Some(arguments))
}

/// Processor time of this process so far, in seconds, where the system tells (Linux: in ticks of 10 ms).
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the program's name, which may hold anything: user and system time are the 12th and 13th field.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

fn print(counts: &Counts, seconds: f64, threads: u64) {
    for (name, number) in counts.named() {
        println!("{number:12}  {name}");
    }
    println!(
        "sim: {} crash points in {seconds:.1} s on {threads} threads, {:.0} a second a thread, {:.0} a second of processor time",
        counts.crash_points,
        counts.crash_points as f64 / seconds / threads as f64,
        counts.crash_points as f64 / processor_seconds().unwrap_or(seconds * threads as f64)
    );
}

/// One seed. Where it fails, the history is made as short as it can be in a minute.
fn one(arguments: &Arguments) -> Result<(), String> {
    let (plan, budget) = sim::planned(arguments.seed, arguments.length, arguments.set.as_ref());
    println!(
        "sim: seed {}, {} operations, options {}",
        plan.seed,
        plan.operations.len(),
        plan.set.name
    );
    let start = Instant::now();
    match sim::run_plan(&plan, &budget) {
        Ok(ran) => {
            println!("trace {:016x}", ran.trace);
            print(&ran.counts, start.elapsed().as_secs_f64(), 1);
            Ok(())
        }
        Err(failure) => {
            println!("{failure}\nmaking the history shorter …");
            let start = Instant::now();
            let (shorter, failure) = sim::shrink(&plan, &budget, failure, &|| {
                start.elapsed() > Duration::from_secs(60)
            });
            println!(
                "{} of {} operations are enough:",
                shorter.operations.len(),
                plan.operations.len()
            );
            for (index, operation) in shorter.operations.iter().enumerate() {
                println!("  {:3}  {operation:?}", index + 1);
            }
            Err(failure.to_string())
        }
    }
}

fn campaign(arguments: &Arguments, minutes: f64) -> Result<(), String> {
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    println!("sim: campaign from seed {}", arguments.seed);
    let start = Instant::now();
    let end = Duration::from_secs_f64(minutes * 60.0);
    let outcome = sim::campaign(
        arguments.seed,
        arguments.length,
        arguments.threads,
        arguments.set.as_ref(),
        &|| start.elapsed() >= end,
    );
    let seconds = start.elapsed().as_secs_f64();
    let mut report = Report::new("sim", format!("cargo xtask sim {command}"));
    report.seconds = seconds;
    report.threads = u32::try_from(arguments.threads).unwrap_or(u32::MAX);
    outcome.counts.report(&mut report);
    report.failures = outcome.failures.clone();
    report.save_where_asked()?;
    print(&outcome.counts, seconds, arguments.threads);
    match outcome.failures.as_slice() {
        [] => Ok(()),
        failures => Err(failures.join("\n\n")),
    }
}

fn main() -> ExitCode {
    let outcome = match parse() {
        Ok(None) => {
            println!("{HELP}");
            Ok(())
        }
        Ok(Some(arguments)) => match arguments.minutes {
            Some(minutes) => campaign(&arguments, minutes),
            None => one(&arguments),
        },
        Err(message) => Err(message),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("glint-sim: {message}");
            ExitCode::FAILURE
        }
    }
}
