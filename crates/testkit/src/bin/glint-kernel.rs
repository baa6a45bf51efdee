//! GlintDB on the real kernel as a program: `cargo xtask kernel`.
//!
//! Threads: see `glintdb_testkit::kernel`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for people, in real time"
)]

use glintdb_testkit::kernel::errors::{self, Errors};
use glintdb_testkit::kernel::filesystem::FileSystem;
use glintdb_testkit::kernel::power::Power;
use glintdb_testkit::kernel::{full, openers};
use glintdb_testkit::options::{self, Lane};
use glintdb_testkit::report::Report;
use glintdb_testkit::rng::Rng;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const HELP: &str = "\
cargo xtask kernel [--minutes M | --seconds T] [--fs NAME,NAME] [--seed S] [--only PART]

GlintDB on real file systems over a faulty disk in user space: power cuts, EIO, full disks, locks and limits. Needs root and loop devices.
  --minutes M   how long (1)
  --fs NAMES    of ext4, ext4-defaults, xfs, btrfs, tmpfs (all; what cannot be made is told)
  --seed S      what is written and where it is cut (from the clock; printed)
  --only PART   power, errors, full or openers";

struct Arguments {
    time: Duration,
    systems: Vec<String>,
    seed: u64,
    only: Option<String>,
    /// This process is a child: what it does, in which directory, under which option set.
    child: Option<String>,
    dir: PathBuf,
    set: usize,
}

fn parse() -> Result<Option<Arguments>, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut arguments = Arguments {
        time: Duration::from_secs(60),
        systems: ["ext4", "ext4-defaults", "xfs", "btrfs", "tmpfs"]
            .map(String::from)
            .to_vec(),
        seed: u64::from(now.unwrap_or_default().subsec_nanos()),
        only: None,
        child: None,
        dir: PathBuf::new(),
        set: 0,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            return Ok(None);
        }
        let value = words
            .next()
            .ok_or_else(|| format!("{word} needs a value\n\n{HELP}"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{word} {value}: not a number"))
        };
        match word.as_str() {
            "--minutes" => arguments.time = Duration::from_secs(60 * number()?),
            "--seconds" => arguments.time = Duration::from_secs(number()?),
            "--fs" => arguments.systems = value.split(',').map(String::from).collect(),
            "--seed" => arguments.seed = number()?,
            "--only" => arguments.only = Some(value),
            "--child" => arguments.child = Some(value),
            "--dir" => arguments.dir = PathBuf::from(&value),
            "--set" => {
                arguments.set =
                    usize::try_from(number()?).unwrap_or(0) % options::of(Lane::Kill).len()
            }
            _ => return Err(format!("no option `{word}`\n\n{HELP}")),
        }
    }
    Ok(Some(arguments))
}

fn power(
    arguments: &Arguments,
    name: &str,
    time: Duration,
    report: &mut Report,
) -> Result<(), String> {
    let system = FileSystem::named(name)?;
    let mut power = match Power::new(system) {
        Ok(power) => power,
        Err(reason) => {
            println!("kernel: power, {name}: not run: {reason}");
            report
                .not_run
                .push(format!("power cuts on {name}: {reason}"));
            return Ok(());
        }
    };
    let start = Instant::now();
    let until = start + time;
    let mut rng = Rng::of(&[arguments.seed, 1]);
    while Instant::now() < until {
        let seed = if power.totals.lives == 0 {
            arguments.seed
        } else {
            rng.number()
        };
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
    let mut failing = match Errors::new(system) {
        Ok(failing) => failing,
        Err(reason) => {
            println!("kernel: errors, {name}: not run: {reason}");
            report.not_run.push(format!("EIO on {name}: {reason}"));
            return Ok(());
        }
    };
    let start = Instant::now();
    let mut rng = Rng::of(&[arguments.seed, 2]);
    while failing.totals.rounds == 0 || start.elapsed() < time {
        let seed = if failing.totals.rounds == 0 {
            arguments.seed
        } else {
            rng.number()
        };
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
    let mut rng = Rng::of(&[arguments.seed, 3]);
    while totals.rounds == 0 || start.elapsed() < time {
        let seed = if totals.rounds == 0 {
            arguments.seed
        } else {
            rng.number()
        };
        let disk = match system.mounted() {
            Ok(disk) => disk,
            Err(reason) => {
                println!("kernel: full, {name}: not run: {reason}");
                report.not_run.push(format!("a full {name}: {reason}"));
                return Ok(());
            }
        };
        let set = &options::of(Lane::Kill)
            [usize::try_from(seed % options::of(Lane::Kill).len() as u64).unwrap_or(0)];
        full::round(&disk.mount_point(), set, seed, &mut totals)
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
    let disk = match FileSystem::named(name)?.mounted() {
        Ok(disk) => disk,
        Err(reason) => {
            println!("kernel: openers, {name}: not run: {reason}");
            report.not_run.push(format!("openers on {name}: {reason}"));
            return Ok(());
        }
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
    let until = Instant::now() + arguments.time;
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
        arguments.time.as_secs().div_ceil(60),
        arguments.systems.join(","),
        arguments.seed
    );
    let mut report = Report::new("kernel", command);
    report.threads = u32::try_from(arguments.systems.len()).unwrap_or(1);
    println!(
        "kernel: seed {}, {:?}, {}",
        arguments.seed,
        arguments.time,
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
    match parse() {
        Ok(None) => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Some(arguments)) if arguments.child.is_some() => match child(&arguments) {
            Ok(code) => std::process::exit(code),
            Err(message) => {
                eprintln!("glint-kernel, child: {message}");
                ExitCode::FAILURE
            }
        },
        Ok(Some(arguments)) => match run(&arguments) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(message) => {
                eprintln!("glint-kernel: {message}");
                ExitCode::FAILURE
            }
        },
        Err(message) => {
            eprintln!("glint-kernel: {message}");
            ExitCode::FAILURE
        }
    }
}
