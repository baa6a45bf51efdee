//! The server under attack as a program: `cargo xtask attack`.
//!
//! Thread safety: none is needed.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for people, in real time"
)]

use glintdb_testkit::attack::{self, Attack};
use glintdb_testkit::report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const HELP: &str = "\
cargo xtask attack [--minutes M | --seconds S] [--peers N] [--seed S] [--dir DIR]

Starts `glintdb serve` and attacks it in all ways at once, while honest clients check what they get.
  --minutes M, --seconds S   how long (1 minute)
  --peers N                  idle and slow peers at once (3000)
  --seed S                   who does what (from the clock; printed)
  --dir DIR                  the database; a directory in shared memory, else in the temporary directory, where nothing is said
  --program FILE             the program `glintdb` (beside this one)";

fn parse() -> Result<Option<Attack>, String> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let shared = PathBuf::from("/dev/shm");
    let place = if shared.is_dir() {
        shared
    } else {
        std::env::temp_dir()
    };
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut attack = Attack {
        time: Duration::from_secs(60),
        peers: 3000,
        seed: u64::from(now.subsec_nanos()),
        program: here.with_file_name("glintdb"),
        dir: place.join(format!("glintdb-attack-{}", std::process::id())),
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
                .parse::<u32>()
                .map_err(|_| format!("{word} {value}: not a number"))
        };
        match word.as_str() {
            "--minutes" => attack.time = Duration::from_secs(60 * u64::from(number()?)),
            "--seconds" => attack.time = Duration::from_secs(number()?.into()),
            "--peers" => attack.peers = number()? as usize,
            "--seed" => attack.seed = number()?.into(),
            "--dir" => attack.dir = PathBuf::from(&value),
            "--program" => attack.program = PathBuf::from(&value),
            _ => return Err(format!("no option `{word}`\n\n{HELP}")),
        }
    }
    Ok(Some(attack))
}

fn run(attack: &Attack) -> Result<(), String> {
    let command = format!(
        "cargo xtask attack --seconds {} --peers {} --seed {}",
        attack.time.as_secs(),
        attack.peers,
        attack.seed
    );
    println!("attack: {command}");
    let start = Instant::now();
    let mut report = Report::new("attack", command.clone());
    attack::run(attack, &mut report)?;
    report.seconds = start.elapsed().as_secs_f64();
    report.save_where_asked()?;
    for (what, number) in &report.counts {
        println!("attack: {number:>12} {what}");
    }
    for failure in &report.failures {
        eprintln!("glint-attack: {failure}");
    }
    if !report.failures.is_empty() {
        return Err(format!(
            "{} failures; again: {command} (the database is kept in {})",
            report.failures.len(),
            attack.dir.display()
        ));
    }
    let count = |what: &str| report.counts.get(what).copied().unwrap_or(0);
    println!(
        "attack: {} peers at once, {} MiB of hostile bytes, {} commands of honest clients all answered well, one in a hundred waited {} ms, the longest {} ms; the server held {} MiB at most; {:.0} s",
        count("peers at once"),
        count("hostile bytes sent") >> 20,
        count("commands of honest clients"),
        count("honest wait p99, ms"),
        count("longest honest wait, ms"),
        count("largest memory of the server, MiB"),
        report.seconds,
    );
    std::fs::remove_dir_all(&attack.dir).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let outcome = match parse() {
        Ok(None) => {
            println!("{HELP}");
            Ok(())
        }
        Ok(Some(attack)) => run(&attack),
        Err(message) => Err(message),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("glint-attack: {message}");
            ExitCode::FAILURE
        }
    }
}
