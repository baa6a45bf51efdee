//! The kill test as a program: `cargo xtask kill`. It starts itself again as the child that is killed.
//!
//! Thread safety: none is needed.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a program for people, in real time"
)]

use glintdb_testkit::kill::parent::{self, Campaign, ChildArguments};
use glintdb_testkit::kill::{WRITERS, child};
use glintdb_testkit::options::{self, Lane};
use glintdb_testkit::report::Report;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const HELP: &str = "\
cargo xtask kill [--cycles N] [--seed S] [--dir DIR]

Writers are killed with SIGKILL at random times; the database is opened and checked after each kill.
  --cycles N   kills (500)
  --seed S     what is written and how long children live (from the clock; printed)
  --dir DIR    the database; a directory in shared memory, else in the temporary directory, where nothing is said";

struct Arguments {
    campaign: Campaign,
    /// This process is a child: its option set.
    set: Option<usize>,
    /// Commits done by each writer; a child without them opens the database and no more.
    done: Option<Vec<u64>>,
}

fn parse() -> Result<Option<Arguments>, String> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let shared = PathBuf::from("/dev/shm");
    let place = if shared.is_dir() {
        shared
    } else {
        std::env::temp_dir()
    };
    let mut campaign = Campaign {
        cycles: 500,
        seed: u64::from(now.subsec_nanos()),
        dir: place.join(format!("glintdb-kill-{}", std::process::id())),
    };
    let (mut set, mut done) = (None, None);
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
            "--cycles" => campaign.cycles = number()?,
            "--seed" => campaign.seed = number()?,
            "--dir" => campaign.dir = PathBuf::from(&value),
            "--set" => set = Some(number()? as usize % options::of(Lane::Kill).len()),
            "--done" => {
                let numbers = value
                    .split(',')
                    .map(str::parse)
                    .collect::<Result<Vec<u64>, _>>();
                done = Some(numbers.map_err(|_| format!("--done {value}: not numbers"))?);
            }
            _ => return Err(format!("no option `{word}`\n\n{HELP}")),
        }
    }
    Ok(Some(Arguments {
        campaign,
        set,
        done,
    }))
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
    report.failures.extend(outcome.as_ref().err().cloned());
    report.save_where_asked()?;
    outcome?;
    parent::fresh(&campaign.dir)
}

fn main() -> ExitCode {
    let outcome = match parse() {
        Ok(None) => {
            println!("{HELP}");
            Ok(())
        }
        Ok(Some(Arguments {
            campaign,
            set: Some(set),
            done,
        })) => child::run(&child::Task {
            dir: &campaign.dir,
            set: &options::of(Lane::Kill)[set],
            seed: campaign.seed,
            done: done.as_deref(),
        }),
        Ok(Some(arguments)) => campaign(&arguments.campaign).map_err(|message| {
            format!(
                "{message}\n(the database is kept in {}; again: cargo xtask kill --cycles {} --seed {})",
                arguments.campaign.dir.display(),
                arguments.campaign.cycles,
                arguments.campaign.seed
            )
        }),
        Err(message) => Err(message),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("glint-kill: {message}");
            ExitCode::FAILURE
        }
    }
}
