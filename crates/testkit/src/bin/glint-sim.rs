//! Deterministic simulation as a program: `cargo xtask sim`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for people, in real time"
)]

use clap::Parser;
use glintdb_testkit::options::{self, Lane, OptionSet};
use glintdb_testkit::program;
use glintdb_testkit::report::Report;
use glintdb_testkit::sim::{self, Counts};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The engine on a simulated volume, cut by kills and power cuts at every operation of the volume, and again while it recovers.
#[derive(Parser)]
#[command(bin_name = "cargo xtask sim")]
struct Arguments {
    /// The seed (default: 1, and of a campaign one from the clock); a campaign takes several, and
    /// divides its time
    #[arg(long, value_name = "S")]
    seed: Vec<u64>,
    /// Operations of a history.
    #[arg(long = "ops", value_name = "N", default_value_t = 40)]
    length: usize,
    /// The option set, instead of one that the seed chooses.
    #[arg(long = "options", value_name = "NAME", value_parser = options_named)]
    set: Option<OptionSet>,
    /// Run a campaign of M minutes (fractions too) with the seeds S, S+1 …
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// Of a campaign.
    #[arg(long, value_name = "T", default_value_t = 1)]
    threads: u64,
}

fn options_named(name: &str) -> Result<OptionSet, String> {
    let sets = options::of(Lane::Sim);
    let names: Vec<_> = sets.iter().map(|set| set.name).collect();
    let found = sets.iter().find(|set| set.name == name).cloned();
    found.ok_or_else(|| format!("no options `{name}`; there are {}", names.join(", ")))
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
    let seed = arguments.seed.first().copied().unwrap_or(1);
    let (plan, budget) = sim::planned(seed, arguments.length, arguments.set.as_ref());
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
    let mut seeds = arguments.seed.clone();
    if seeds.is_empty() {
        seeds.push(program::seed());
    }
    let threads = arguments.threads.max(1);
    let time = Duration::from_secs_f64(minutes * 60.0 / seeds.len() as f64);
    let start = Instant::now();
    let mut outcome = sim::Outcome::default();
    for seed in seeds {
        println!("sim: campaign from seed {seed}");
        let until = Instant::now() + time;
        let set = arguments.set.as_ref();
        outcome.add(sim::campaign(seed, arguments.length, threads, set, until));
    }
    let seconds = start.elapsed().as_secs_f64();
    let mut report = Report::new("sim", format!("cargo xtask sim {command}"));
    report.seconds = seconds;
    report.threads = u32::try_from(threads).unwrap_or(u32::MAX);
    outcome.counts.report(&mut report);
    report.failures = outcome.failures.clone();
    report.save_where_asked()?;
    print(&outcome.counts, seconds, threads);
    match outcome.failures.as_slice() {
        [] => Ok(()),
        failures => Err(failures.join("\n\n")),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.minutes {
        Some(minutes) => campaign(&arguments, minutes),
        None => one(&arguments),
    };
    program::end("glint-sim", outcome.map(|()| true))
}
