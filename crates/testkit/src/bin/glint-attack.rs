//! The server under attack as a program: `cargo xtask attack`.
//!
//! Thread safety: none is needed.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for people, in real time"
)]

use clap::Parser;
use glintdb_testkit::attack::{self, Attack};
use glintdb_testkit::program::{self, Time};
use glintdb_testkit::report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Starts `glintdb serve` and attacks it in all ways at once, while honest clients check what they get.
#[derive(Parser)]
#[command(bin_name = "cargo xtask attack")]
struct Arguments {
    #[command(flatten)]
    time: Time,
    /// Idle and slow peers at once.
    #[arg(long, value_name = "N", default_value_t = 3000)]
    peers: usize,
    /// Who does what (from the clock; printed).
    #[arg(long, value_name = "S", default_value_t = program::seed(), hide_default_value = true)]
    seed: u64,
    /// The database; a directory in shared memory, else in the temporary directory, where nothing is said.
    #[arg(long, default_value_os_t = program::scratch("attack"), hide_default_value = true)]
    dir: PathBuf,
    /// The program `glintdb` (beside this one).
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Arguments {
    fn attack(self) -> Result<Attack, String> {
        let here = std::env::current_exe().map_err(|error| error.to_string())?;
        Ok(Attack {
            time: self.time.get(),
            peers: self.peers,
            seed: self.seed,
            program: self
                .program
                .unwrap_or_else(|| here.with_file_name("glintdb")),
            dir: self.dir,
        })
    }
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
    let outcome = Arguments::parse().attack().and_then(|attack| run(&attack));
    program::end("glint-attack", outcome.map(|()| true))
}
