//! GlintDB on the real kernel as a program: `cargo xtask kernel`.
//!
//! Threads: see `glintdb_testkit::kernel`.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for people, in real time"
)]

use clap::Parser;
use glintdb_testkit::kernel::errors::{self, Errors};
use glintdb_testkit::kernel::filesystem::FileSystem;
use glintdb_testkit::kernel::power::Power;
use glintdb_testkit::kernel::{full, openers};
use glintdb_testkit::options::{self, Lane};
use glintdb_testkit::program::{self, Time};
use glintdb_testkit::report::Report;
use glintdb_testkit::rng::Rng;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// GlintDB on real file systems over a faulty disk in user space: power cuts, EIO, full disks, locks and limits. Needs root and loop devices.
#[derive(Parser)]
#[command(bin_name = "cargo xtask kernel")]
struct Arguments {
    #[command(flatten)]
    time: Time,
    /// File systems; what cannot be made is told.
    #[arg(
        long = "fs",
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "ext4,ext4-defaults,xfs,btrfs,tmpfs"
    )]
    systems: Vec<String>,
    /// What is written and where it is cut (from the clock; printed).
    #[arg(long, value_name = "S", default_value_t = program::seed(), hide_default_value = true)]
    seed: u64,
    /// Only power, errors, full or openers.
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// This process is a child: what it does, in which directory, under which option set.
    #[arg(long, hide = true)]
    child: Option<String>,
    #[arg(long, hide = true, default_value = ".")]
    dir: PathBuf,
    #[arg(long, hide = true, default_value_t = 0)]
    set: usize,
}

/// What is to be used, or a line that says why it cannot be had here.
fn made<T>(made: Result<T, String>, what: [&str; 3], report: &mut Report) -> Option<T> {
    let [part, name, missing] = what;
    made.map_err(|reason| {
        println!("kernel: {part}, {name}: not run: {reason}");
        report.not_run.push(format!("{missing} {name}: {reason}"));
    })
    .ok()
}

/// Seeds of rounds: the one that was given, then what follows from it.
fn seeds(arguments: &Arguments, part: u64) -> impl Iterator<Item = u64> {
    let mut rng = Rng::of(&[arguments.seed, part]);
    std::iter::once(arguments.seed).chain(std::iter::repeat_with(move || rng.number()))
}

fn power(
    arguments: &Arguments,
    name: &str,
    time: Duration,
    report: &mut Report,
) -> Result<(), String> {
    let system = FileSystem::named(name)?;
    let what = ["power", name, "power cuts on"];
    let Some(mut power) = made(Power::new(system), what, report) else {
        return Ok(());
    };
    let start = Instant::now();
    let until = start + time;
    for seed in seeds(arguments, 1).take_while(|_| Instant::now() < until) {
        if let Err(message) = power.life(seed, until) {
            let again = format!("cargo xtask kernel --only power --fs {name} --seed {seed}");
            return Err(format!("power, {name}: {message}\n(again: {again})"));
        }
    }
    let totals = power.totals;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "kernel: power, {name}: {} states ({} of cuts in a recovery) of {} lives in {seconds:.1} s, {:.1} a second; {} writes and flushes on tape; {} promised commits looked for, none lost, no hole; {} images the file system refused",
        totals.states,
        totals.nested,
        totals.lives,
        totals.states as f64 / seconds,
        totals.entries,
        totals.promises,
        totals.unmountable
    );
    report.count(&format!("power-cut states on {name}"), totals.states);
    report.count("power-cut states", totals.states);
    report.count("power-cut states of a cut in a recovery", totals.nested);
    Ok(())
}

/// This program as a child.
fn child_command(what: &str, dir: &Path, set: usize, seed: u64) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| "glint-kernel".into());
    let mut command = Command::new(program);
    command.args([
        "--child",
        what,
        "--set",
        &set.to_string(),
        "--seed",
        &seed.to_string(),
    ]);
    command.arg("--dir").arg(dir);
    command
}

fn failing(
    arguments: &Arguments,
    name: &str,
    time: Duration,
    report: &mut Report,
) -> Result<(), String> {
    let system = FileSystem::named(name)?;
    let what = ["errors", name, "EIO on"];
    let Some(mut failing) = made(Errors::new(system), what, report) else {
        return Ok(());
    };
    let start = Instant::now();
    for seed in seeds(arguments, 2) {
        if failing.totals.rounds > 0 && start.elapsed() >= time {
            break;
        }
        let round = failing.round(seed, |dir, set, seed| {
            child_command("errors", dir, set, seed)
        });
        if let Err(message) = round {
            let again = format!("cargo xtask kernel --only errors --fs {name} --seed {seed}");
            return Err(format!("errors, {name}: {message}\n(again: {again})"));
        }
    }
    let totals = failing.totals;
    println!(
        "kernel: errors, {name}: {} rounds (reads {}, writes {}, flushes {}) in {:.1} s: {} errors injected, reported in {} (in {} of them loss found by checksum), SIGBUS in {}, the disk lost what a good sync had covered in {}; {} promised commits looked for, none lost",
        totals.rounds,
        totals.planned[0],
        totals.planned[1],
        totals.planned[2],
        start.elapsed().as_secs_f64(),
        totals.struck,
        totals.reported,
        totals.noticed,
        totals.sigbus,
        totals.beyond,
        totals.promises
    );
    report.count("EIO injected by a real disk", totals.struck);
    for (kind, planned) in ["reads", "writes", "flushes"]
        .into_iter()
        .zip(totals.planned)
    {
        report.count(&format!("rounds with EIO on {kind}"), planned);
    }
    report.count(
        "processes ended by SIGBUS in the mapped ring",
        totals.sigbus,
    );
    Ok(())
}

/// Full disks: rounds on a file system until the time is over, at least one.
fn filling(
    arguments: &Arguments,
    name: &str,
    time: Duration,
    report: &mut Report,
) -> Result<(), String> {
    let system = FileSystem::named(name)?;
    let mut totals = full::Totals::default();
    let start = Instant::now();
    for seed in seeds(arguments, 3) {
        if totals.rounds > 0 && start.elapsed() >= time {
            break;
        }
        let Some(disk) = made(system.mounted(), ["full", name, "a full"], report) else {
            return Ok(());
        };
        let sets = options::of(Lane::Kill);
        let set = usize::try_from(seed % sets.len() as u64).unwrap_or(0);
        full::round(&disk.mount_point(), &sets[set], seed, &mut totals)
            .map_err(|message| format!("full, {name}: {message}\n(again: cargo xtask kernel --only full --fs {name} --seed {seed})"))?;
    }
    println!(
        "kernel: full, {name}: {} rounds in {:.1} s: {} times no space, {} deletes all the same, {} commits acknowledged, none lost",
        totals.rounds,
        start.elapsed().as_secs_f64(),
        totals.refused,
        totals.deletes,
        totals.commits
    );
    report.count("rounds on a full file system", totals.rounds);
    report.count("commits refused for want of space", totals.refused);
    Ok(())
}

/// Locks, permissions and limits.
fn opening(_: &Arguments, name: &str, _: Duration, report: &mut Report) -> Result<(), String> {
    let disk = FileSystem::named(name)?.mounted();
    let Some(disk) = made(disk, ["openers", name, "openers on"], report) else {
        return Ok(());
    };
    let set = &options::of(Lane::Kill)[0];
    let command = |dir: &Path| child_command("open", dir, 0, 0);
    let (cases, not_run) = openers::run(&disk.mount_point(), set, &command)
        .map_err(|message| format!("openers, {name}: {message}"))?;
    println!(
        "kernel: openers, {name}: {cases} cases of locks, permissions and limits, each with a clear answer and nothing lost"
    );
    for reason in &not_run {
        println!("kernel: not run: {reason}");
    }
    report.not_run.extend(not_run);
    report.count("cases of locks, permissions and limits", cases);
    Ok(())
}

type Part = fn(&Arguments, &str, Duration, &mut Report) -> Result<(), String>;

/// All that is wanted on one file system.
fn on(arguments: &Arguments, name: &str) -> Report {
    let mut report = Report::default();
    let asked = |part: &str| arguments.only.as_deref().is_none_or(|only| only == part);
    let wanted = |part: &str| {
        // A tmpfs has no disk, and not every kind needs filling.
        let sensible = match part {
            "power" | "errors" => name != "tmpfs",
            _ => ["ext4", "xfs", "tmpfs"].contains(&name),
        };
        asked(part) && sensible
    };
    let parts: [(&str, u32, Part); 4] = [
        ("openers", 1, opening),
        ("full", 1, filling),
        ("errors", 3, failing),
        ("power", 6, power),
    ];
    let until = Instant::now() + arguments.time.get();
    let mut shares: u32 = parts
        .iter()
        .filter(|(part, ..)| wanted(part))
        .map(|(_, share, _)| share)
        .sum();
    for (part, share, run) in parts {
        if !wanted(part) {
            continue;
        }
        let left = until.saturating_duration_since(Instant::now());
        if let Err(message) = run(arguments, name, left * share / shares, &mut report) {
            println!("kernel: FAILED: {message}");
            report.failures.push(message);
        }
        shares -= share;
    }
    report
}

/// File systems side by side: each waits for its disk most of the time.
fn run(arguments: &Arguments) -> Result<bool, String> {
    let command = format!(
        "cargo xtask kernel --minutes {} --fs {} --seed {}",
        arguments.time.get().as_secs().div_ceil(60),
        arguments.systems.join(","),
        arguments.seed
    );
    let mut report = Report::new("kernel", command);
    report.threads = u32::try_from(arguments.systems.len()).unwrap_or(1);
    println!(
        "kernel: seed {}, {:?}, {}",
        arguments.seed,
        arguments.time.get(),
        arguments.systems.join(", ")
    );
    if let Err(reason) = glintdb_faultdisk::missing() {
        println!("kernel: not run: {reason}");
        report.not_run.push(reason);
        report.save_where_asked()?;
        return Ok(true);
    }
    let start = Instant::now();
    let parts: Vec<Report> = std::thread::scope(|scope| {
        let threads: Vec<_> = arguments
            .systems
            .iter()
            .map(|name| scope.spawn(|| on(arguments, name)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    for part in parts {
        for (what, number) in part.counts {
            report.count(&what, number);
        }
        report.failures.extend(part.failures);
        report.not_run.extend(part.not_run);
    }
    report.seconds = start.elapsed().as_secs_f64();
    report.save_where_asked()?;
    let count = |what: &str| report.counts.get(what).copied().unwrap_or_default();
    println!(
        "kernel: {} power-cut states ({:.1} a second), {} errors injected, {} full disks, {} openers in {:.0} s: {} failures",
        count("power-cut states"),
        count("power-cut states") as f64 / report.seconds,
        count("EIO injected by a real disk"),
        count("rounds on a full file system"),
        count("cases of locks, permissions and limits"),
        report.seconds,
        report.failures.len()
    );
    Ok(report.failures.is_empty())
}

fn child(arguments: &Arguments) -> Result<i32, String> {
    let set = &options::of(Lane::Kill)[arguments.set];
    match arguments.child.as_deref() {
        Some("open") => {
            println!("{}", openers::child(&arguments.dir, set));
            Ok(0)
        }
        Some("errors") => errors::child(&arguments.dir, set, arguments.seed),
        other => Err(format!("no child {other:?}")),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match &arguments.child {
        Some(_) => match child(&arguments) {
            Ok(code) => std::process::exit(code),
            Err(message) => program::end("glint-kernel, child", Err(message)),
        },
        None => program::end("glint-kernel", run(&arguments)),
    }
}
