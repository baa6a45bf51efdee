//! The fuzz targets without cargo-fuzz: `cargo xtask fuzz --builtin`. Replays corpora and regressions, then tries seeded random mutations of them.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for people, in real time"
)]

use clap::Parser;
use glintdb_testkit::fuzz::campaign::{Case, Inputs, fuzz_dir};
use glintdb_testkit::fuzz::{Meter, TARGETS, Target};
use glintdb_testkit::program;
use glintdb_testkit::report::Report;
use peak_alloc::PeakAlloc;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// No case may take longer.
const CASE_TIME_MAX: Duration = Duration::from_secs(10);

/// What is being run since when, for the watching thread.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

struct Running {
    since: Instant,
    target: &'static str,
    what: String,
    data: Vec<u8>,
}

fn running(now: Option<Running>) {
    if let Ok(mut running) = RUNNING.lock() {
        *running = now;
    }
}

/// Keeps an input that did harm; where, as a sentence.
fn keep(target: &str, data: &[u8]) -> String {
    let dir = fuzz_dir().join("artifacts").join(target);
    let file = dir.join(format!("{:08x}", glintdb_core::checksum::crc32c(data)));
    match std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&file, data)) {
        Ok(()) => format!("the input is kept in {}", file.display()),
        Err(error) => format!("the input could not be kept: {error}"),
    }
}

fn watch() {
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let Ok(running) = RUNNING.lock() else { return };
        if let Some(running) = running.as_ref()
            && running.since.elapsed() > CASE_TIME_MAX
        {
            let (what, kept) = (&running.what, keep(running.target, &running.data));
            eprintln!("glint-fuzz: a case takes longer than {CASE_TIME_MAX:?}: {what}\n({kept})");
            std::process::exit(1);
        }
    }
}

/// Every target in turn: its seeds, corpus and regressions as they are, then random mutations of them.
#[derive(Parser)]
#[command(bin_name = "cargo xtask fuzz --builtin")]
struct Arguments {
    /// Only this one.
    #[arg(long, value_name = "T", value_parser = target_named)]
    target: Option<Target>,
    /// How long each target gets.
    #[arg(long, value_name = "S", default_value_t = 5)]
    seconds: u64,
    /// Or how many mutations.
    #[arg(long, value_name = "N")]
    cases: Option<u64>,
    /// Chooses the mutations (from the clock; printed).
    #[arg(long, value_name = "S", default_value_t = program::seed(), hide_default_value = true)]
    seed: u64,
    /// Only this mutation of the seed.
    #[arg(long, value_name = "N")]
    case: Option<u64>,
    /// Only this input.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// The targets' names and limits.
    #[arg(long)]
    list: bool,
    /// Writes the targets' seeds to DIR/TARGET/ and ends.
    #[arg(long, value_name = "DIR")]
    seeds: Option<PathBuf>,
}

fn target_named(name: &str) -> Result<Target, String> {
    Target::named(name).ok_or_else(|| format!("no target `{name}`"))
}

/// Runs one input; what was wrong, as a sentence.
fn check(target: &Target, what: &str, data: &[u8]) -> Result<(), String> {
    running(Some(Running {
        since: Instant::now(),
        target: target.name,
        what: what.to_string(),
        data: data.to_vec(),
    }));
    let outcome = catch_unwind(AssertUnwindSafe(|| target.check(data, Meter::PEAK)));
    running(None);
    outcome.map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        format!("{what}: {}", text.unwrap_or("a panic without words"))
    })
}

/// Runs one target as asked; the number of executions.
fn campaign(target: &Target, arguments: &Arguments) -> Result<u64, String> {
    let inputs = Inputs::of(target)?;
    let again = |number| {
        let (name, seed) = (target.name, arguments.seed);
        format!("cargo xtask fuzz --builtin --target {name} --seed {seed} --case {number}")
    };
    let run = |number| {
        let case = Case {
            seed: arguments.seed,
            number,
        };
        let data = inputs.case(target, case);
        check(target, &again(number), &data)
            .map_err(|message| format!("{message}\n({})", keep(target.name, &data)))
    };
    if let Some(number) = arguments.case {
        return run(number).map(|()| 1);
    }
    let mut executions = 0;
    for (name, data) in &inputs.inputs {
        check(target, &format!("{} {name}", target.name), data)?;
        executions += 1;
    }
    let time = Duration::from_secs(arguments.seconds);
    let start = Instant::now();
    let mut number = 0;
    loop {
        let over = match arguments.cases {
            Some(cases) => number >= cases,
            None => start.elapsed() >= time,
        };
        if over {
            return Ok(executions);
        }
        run(number)?;
        number += 1;
        executions += 1;
    }
}

fn all(arguments: &Arguments) -> Result<(), String> {
    println!("fuzz: builtin mutator, seed {}", arguments.seed);
    let command = format!("cargo xtask fuzz --builtin --seed {}", arguments.seed);
    let mut report = Report::new("fuzz-builtin", command);
    let start = Instant::now();
    for target in TARGETS {
        if arguments
            .target
            .is_some_and(|only| only.name != target.name)
        {
            continue;
        }
        let began = Instant::now();
        match campaign(target, arguments) {
            Ok(executions) => {
                let seconds = began.elapsed().as_secs_f64();
                println!(
                    "fuzz: {:16} {executions:8} executions, {:7.0} a second",
                    target.name,
                    executions as f64 / seconds
                );
                report.count(&format!("executions {}", target.name), executions);
            }
            Err(message) => {
                println!("fuzz: {:16} FAILED: {message}", target.name);
                report.failures.push(message);
            }
        }
    }
    report.seconds = start.elapsed().as_secs_f64();
    report.save_where_asked()?;
    println!(
        "fuzz: {} executions in {:.0} s, {} failures",
        report.counts.values().sum::<u64>(),
        report.seconds,
        report.failures.len()
    );
    match report.failures.is_empty() {
        true => Ok(()),
        false => Err("a target failed".into()),
    }
}

fn list() {
    for target in TARGETS {
        println!("{} {}", target.name, target.length_max);
    }
}

fn write_seeds(dir: &std::path::Path) -> Result<(), String> {
    for target in TARGETS {
        let dir = dir.join(target.name);
        std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
        for (index, seed) in (target.seeds)().into_iter().enumerate() {
            let file = dir.join(format!("seed-{index}"));
            std::fs::write(file, seed).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn run(arguments: &Arguments) -> Result<(), String> {
    if arguments.list {
        list();
        return Ok(());
    }
    if let Some(dir) = &arguments.seeds {
        return write_seeds(dir);
    }
    std::thread::spawn(watch);
    if let Some(file) = &arguments.replay {
        let target = arguments.target.ok_or("--replay needs --target")?;
        let data = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        return check(&target, &file.display().to_string(), &data);
    }
    all(arguments)
}

fn main() -> ExitCode {
    let outcome = run(&Arguments::parse());
    program::end("glint-fuzz", outcome.map(|()| true))
}
