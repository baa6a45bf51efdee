//! The kill test as a program: `cargo xtask kill`. It starts itself again as the child that is killed.
//!
//! Thread safety: none is needed.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for people, in real time"
)]

use clap::Parser;
use glintdb_testkit::kill::parent::{self, Campaign, ChildArguments};
use glintdb_testkit::kill::{WRITERS, child};
use glintdb_testkit::options::{self, Lane};
use glintdb_testkit::program;
use glintdb_testkit::report::Report;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Writers are killed with SIGKILL at random times; the database is opened and checked after each kill.
#[derive(Parser)]
#[command(bin_name = "cargo xtask kill")]
struct Arguments {
    /// Kills.
    #[arg(long, value_name = "N", default_value_t = 500)]
    cycles: u64,
    /// What is written and how long children live (from the clock; printed).
    #[arg(long, value_name = "S", default_value_t = program::seed(), hide_default_value = true)]
    seed: u64,
    /// The database; a directory in shared memory, else in the temporary directory, where nothing is said.
    #[arg(long, default_value_os_t = program::scratch("kill"), hide_default_value = true)]
    dir: PathBuf,
    /// This process is a child: its option set.
    #[arg(long, hide = true)]
    set: Option<usize>,
    /// Commits done by each writer; a child without them opens the database and no more.
    #[arg(long, hide = true, value_delimiter = ',')]
    done: Option<Vec<u64>>,
}

fn campaign(campaign: &Campaign) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    parent::fresh(&campaign.dir)?;
    println!(
        "kill: {} cycles, {WRITERS} writers, seed {}, {}",
        campaign.cycles,
        campaign.seed,
        campaign.dir.display()
    );
    let start = Instant::now();
    let totals = parent::run(campaign, |arguments: &ChildArguments<'_>| {
        let mut command = Command::new(&program);
        command.args(["--set", &arguments.set.to_string()]);
        if let Some(done) = arguments.done {
            let done: Vec<String> = done.iter().map(u64::to_string).collect();
            command.args(["--done", &done.join(",")]);
        }
        command.args(["--seed", &campaign.seed.to_string()]);
        command.arg("--dir").arg(&campaign.dir);
        command
    });
    let mut report = Report::new(
        "kill",
        format!(
            "cargo xtask kill --cycles {} --seed {}",
            campaign.cycles, campaign.seed
        ),
    );
    report.seconds = start.elapsed().as_secs_f64();
    let outcome = totals.map(|totals| {
        report.count("kill cycles", totals.kills);
        report.count("kills during recovery", totals.kills_in_recovery);
        report.count("commits acknowledged, none lost", totals.acknowledged);
        report.count("checkpoints checked after a kill", totals.checkpoints);
        println!(
            "kill: {} kills ({} during recovery) in {:.0} s: {} commits acknowledged, none lost, no hole; {} in flight were kept; {} checkpoints checked, {} more cut off; longest open {:.0} ms, largest database {:.1} MiB",
            totals.kills,
            totals.kills_in_recovery,
            report.seconds,
            totals.acknowledged,
            totals.in_flight_kept,
            totals.checkpoints,
            totals.checkpoints_cut,
            totals.open_max.as_secs_f64() * 1e3,
            totals.bytes_max as f64 / f64::from(1 << 20),
        );
    });
    program::reported(report, outcome)?;
    parent::fresh(&campaign.dir)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let dir = arguments.dir;
    let (cycles, seed) = (arguments.cycles, arguments.seed);
    let outcome = match arguments.set {
        Some(set) => child::run(&child::Task {
            dir: &dir,
            set: &options::of(Lane::Kill)[set],
            seed,
            done: arguments.done.as_deref(),
        }),
        None => campaign(&Campaign { cycles, seed, dir: dir.clone() }).map_err(|message| {
            format!(
                "{message}\n(the database is kept in {}; again: cargo xtask kill --cycles {cycles} --seed {seed})",
                dir.display()
            )
        }),
    };
    program::end("glint-kill", outcome.map(|()| true))
}
