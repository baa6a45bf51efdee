//! Histories of real threads as a program: `cargo xtask histories`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a program for people, in real time"
)]

use clap::Parser;
use glintdb_testkit::histories::round::{Found, Round};
use glintdb_testkit::histories::stage::Crash;
use glintdb_testkit::histories::wrong::Wrong;
use glintdb_testkit::options::{self, Lane};
use glintdb_testkit::place::Place;
use glintdb_testkit::program;
use glintdb_testkit::report::Report;
use glintdb_testkit::rng::Rng;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Threads call one database in every way there is, while it flushes, compacts and is killed; what each call did and when is checked: linearizable, isolated, nothing lost.
#[derive(Parser)]
#[command(bin_name = "cargo xtask histories")]
struct Arguments {
    /// Operations of registers to check, at least.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    operations: u64,
    /// Rounds begin for so long at least.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seconds: u64,
    /// Clients.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Of everything random but the schedule (from the clock; printed).
    #[arg(long, value_name = "S", default_value_t = program::seed(), hide_default_value = true)]
    seed: u64,
    /// This round alone.
    #[arg(long, value_name = "N")]
    round: Option<u64>,
    /// Databases; a directory in shared memory, else in the temporary directory, where nothing is said.
    #[arg(long, default_value_os_t = program::scratch("histories"), hide_default_value = true)]
    dir: PathBuf,
    /// A line a round.
    #[arg(long)]
    verbose: bool,
    /// The clock orders nothing: for ThreadSanitizer.
    #[arg(long)]
    loose: bool,
    /// Do this wrong on purpose, and say when it was noticed: stale-read, lost-write, early-acknowledgement, lost-update, half-batch, torn-snapshot, write-skew.
    #[arg(long, value_name = "NAME", value_parser = wrong_named)]
    wrong: Option<Wrong>,
}

fn wrong_named(name: &str) -> Result<Wrong, String> {
    let known = Wrong::ALL.into_iter().find(|(known, _)| *known == name);
    known
        .map(|(_, wrong)| wrong)
        .ok_or_else(|| format!("no wrong behaviour {name}"))
}

/// Round `number`: which options, where, and what happens to it.
fn round(arguments: &Arguments, number: u64) -> Round {
    let sets = options::of(Lane::Histories);
    let mut rng = Rng::of(&[arguments.seed, number]);
    let crash = |rng: &mut Rng| match rng.below(4) {
        0 => Crash::Kill,
        1 => Crash::PowerCut,
        2 => Crash::TornPowerCut,
        _ => Crash::None,
    };
    let (epochs, calls) = match in_memory(number) {
        true => ((0..6).map(|_| crash(&mut rng)).collect(), 4_000),
        false => (vec![Crash::None; 2], 20_000),
    };
    Round {
        set: sets[number as usize % sets.len()].clone(),
        epochs,
        clients: arguments.threads,
        calls,
        seed: rng.number(),
        wrong: arguments.wrong,
        loose: arguments.loose,
    }
}

/// Only a volume in memory loses power; only a directory has a ring that is mapped, and checkpoints.
fn in_memory(number: u64) -> bool {
    !number.is_multiple_of(3)
}

fn place(arguments: &Arguments, number: u64, what: &str) -> Place {
    match in_memory(number) {
        true => Place::memory(),
        false => Place::Directory(arguments.dir.join(format!("round-{number}-{what}"))),
    }
}

fn run(arguments: &Arguments, report: &mut Report) -> Result<(), String> {
    let start = Instant::now();
    let mut total = Found::default();
    let mut rounds = 0;
    for number in arguments.round.unwrap_or(0).. {
        remove(&arguments.dir);
        std::fs::create_dir_all(&arguments.dir).map_err(|error| error.to_string())?;
        let round = round(arguments, number);
        let name = round.set.name;
        let again = format!(
            "again: cargo xtask histories --seed {} --threads {} --round {number}",
            arguments.seed, arguments.threads
        );
        for what in ["registers", "isolation"] {
            let place = place(arguments, number, what);
            let found = match what {
                "registers" => round.registers(place),
                _ => round.isolation(place),
            };
            let after = total.checked.operations + total.isolated;
            let found = found.map_err(|message| {
                format!(
                    "round {number}, {what} ({name}), after {after} operations: {message}\n{again}"
                )
            })?;
            total.add(&found);
            if arguments.verbose {
                println!(
                    "round {number}, {what}: {name}: {} calls, {} crashes, {} operations, {} transactions checked; {:.1} s",
                    found.calls,
                    found.crashes,
                    found.checked.operations,
                    found.isolated,
                    start.elapsed().as_secs_f64()
                );
            }
            if let Some(wrong) = found.wrong.first() {
                return Err(format!(
                    "round {number}, {what} ({name}), within {} operations: {} histories are wrong; one of them:\n{wrong}{again}",
                    total.checked.operations + total.isolated,
                    found.wrong.len()
                ));
            }
        }
        rounds += 1;
        let enough = total.checked.operations >= arguments.operations
            && start.elapsed().as_secs() >= arguments.seconds;
        if enough || arguments.round.is_some() {
            break;
        }
    }
    report.seconds = start.elapsed().as_secs_f64();
    for (what, count) in [
        ("rounds", rounds),
        ("histories", total.checked.histories),
        ("operations checked", total.checked.operations),
        ("calls", total.calls),
        ("transactions checked", total.isolated),
        ("dependencies between transactions", total.edges),
        ("transactions committed", total.commits),
        ("transactions refused", total.conflicts),
        ("sums of accounts", total.sums),
        ("crashes survived", total.crashes),
    ] {
        report.count(what, count);
    }
    println!(
        "histories: {} histories of {} operations are linearizable, {} transactions and looks isolated ({} dependencies), {} sums right; {} calls of {} threads, {} crashes, {rounds} rounds in {:.0} s",
        total.checked.histories,
        total.checked.operations,
        total.isolated,
        total.edges,
        total.sums,
        total.calls,
        arguments.threads,
        total.crashes,
        report.seconds,
    );
    Ok(())
}

fn remove(dir: &Path) {
    std::fs::remove_dir_all(dir).ok();
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    println!(
        "histories: {} threads, seed {}",
        arguments.threads, arguments.seed
    );
    let mut report = Report::new(
        "histories",
        format!("cargo xtask histories --seed {}", arguments.seed),
    );
    report.threads = u32::from(arguments.threads);
    let outcome = run(&arguments, &mut report);
    let outcome = program::reported(report, outcome);
    remove(&arguments.dir);
    program::end("glint-histories", outcome.map(|()| true))
}
