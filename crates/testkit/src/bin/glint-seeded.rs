//! The search for every planted mistake ([`glintdb_testkit::seeded`]): `cargo xtask seeded`.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for people, with threads that wait for processes"
)]

use clap::Parser;
use glintdb_testkit::program;
use glintdb_testkit::report::Report;
use glintdb_testkit::seeded::search::{self, Found, SEARCH};
use glintdb_testkit::seeded::{BUGS, Bug, Lane, killing, page};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Switches on one planted mistake after the other and looks which lane notices it. Without options: all of them, and a run in which none is on.
#[derive(Parser)]
#[command(bin_name = "cargo xtask seeded")]
struct Arguments {
    /// What is planted.
    #[arg(long)]
    list: bool,
    /// Only those whose name contains this; `none`: only the run in which none is on.
    #[arg(long, value_name = "NAME")]
    bug: Option<String>,
    /// Every fourth mistake only: those whose place in the list is N, modulo four.
    #[arg(long, value_name = "N")]
    part: Option<usize>,
    /// Only this lane, instead of all.
    #[arg(long, value_name = "LANE", value_parser = lane_named)]
    lane: Option<Lane>,
    /// Searches at a time.
    #[arg(long, value_name = "T", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// For databases; a directory in shared memory, else in the temporary directory, where nothing is said.
    #[arg(long, default_value_os_t = program::scratch("seeded"), hide_default_value = true)]
    dir: PathBuf,
    /// Writes docs/reliability/seeded-bugs.md.
    #[arg(long)]
    page: bool,
    /// Writes what was found.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn lane_named(name: &str) -> Result<Lane, String> {
    Lane::named(name).ok_or_else(|| format!("no lane `{name}`"))
}

/// Lanes for a mistake: the expected one first.
fn lanes(bug: Option<&Bug>, only: Option<Lane>) -> Vec<Lane> {
    if let Some(lane) = only {
        return vec![lane];
    }
    let mut lanes = Lane::ALL.to_vec();
    lanes.sort_by_key(|lane| bug.is_some_and(|bug| bug.lane != *lane));
    lanes
}

fn show(found: &Found) {
    let Found {
        bug,
        lane,
        steps,
        seconds,
        message,
    } = found;
    let message: String = message.chars().take(220).collect();
    match lane {
        Some(lane) => println!(
            "{bug}: caught by {lane} after {steps} {}, {seconds:.1} s: {message}",
            lane.step()
        ),
        None => println!("{bug}: NOT CAUGHT in {seconds:.1} s {message}"),
    }
}

/// All searches, `threads` at a time, in the order of the list.
fn run(wanted: &[Option<&Bug>], arguments: &Arguments) -> Result<Vec<Found>, String> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || -> Result<(), String> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(bug) = wanted.get(at) else {
                return Ok(());
            };
            let dir = arguments.dir.join(at.to_string());
            let one = search::search(*bug, &lanes(*bug, arguments.lane), &dir)?;
            if bug.is_some() {
                show(&one);
            }
            found
                .lock()
                .map_err(|_| "a search panicked")?
                .push((at, one));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().map_err(|_| "a search panicked")??;
        }
        Ok::<(), String>(())
    })?;
    let mut found = found.into_inner().map_err(|_| "a search panicked")?;
    found.sort_by_key(|(at, _)| *at);
    Ok(found.into_iter().map(|(_, found)| found).collect())
}

fn main_with(arguments: &Arguments) -> Result<bool, String> {
    if arguments.list {
        for bug in BUGS {
            println!("{:12} {}\n             {}", bug.lane, bug.name, bug.mistake);
        }
        return Ok(true);
    }
    let start = Instant::now();
    let matches = |bug: &&Bug| {
        arguments
            .bug
            .as_ref()
            .is_none_or(|name| bug.name.contains(name))
    };
    // The run without a mistake does all the work of all lanes: it takes longest and begins first.
    let control = arguments.bug.as_ref().is_none_or(|name| name == "none");
    let mut wanted: Vec<Option<&Bug>> = control.then_some(None).into_iter().collect();
    let in_part = |(at, _): &(usize, &Bug)| arguments.part.is_none_or(|part| at % 4 == part % 4);
    let chosen = BUGS.iter().enumerate().filter(in_part).map(|(_, bug)| bug);
    wanted.extend(chosen.filter(matches).map(Some));
    if wanted.is_empty() {
        return Err("no planted mistake has such a name; see --list".into());
    }
    let mut found = run(&wanted, arguments)?;
    std::fs::remove_dir_all(&arguments.dir).ok();
    let mut report = Report::new("seeded", "cargo xtask seeded");
    report.seconds = start.elapsed().as_secs_f64();
    report.threads = arguments.threads;
    if control {
        let clean = found.remove(0);
        if clean.lane.is_some() || !clean.message.is_empty() {
            let at = clean.lane.map_or("nowhere", Lane::name);
            let failure = format!("with no mistake switched on, {at} says: {}", clean.message);
            println!("{failure}");
            report.failures.push(failure);
        }
        println!("without a mistake: {:.1} s", clean.seconds);
    }
    let caught = found.iter().filter(|found| found.lane.is_some()).count();
    report.count("seeded bugs", found.len() as u64);
    report.count("caught", caught as u64);
    let missed = found.iter().filter(|found| found.lane.is_none());
    report
        .failures
        .extend(missed.map(|missed| format!("not caught: {}", missed.bug)));
    write(arguments, &found)?;
    report.save_where_asked()?;
    println!(
        "seeded: {caught} of {} bugs caught in {:.0} s by {} threads",
        found.len(),
        report.seconds,
        report.threads
    );
    Ok(report.failures.is_empty())
}

fn write(arguments: &Arguments, found: &[Found]) -> Result<(), String> {
    let save = |path: &Path, text: String| {
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    if arguments.page {
        save(&page::path(), page::page(found))?;
    }
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(found).map_err(|error| error.to_string())?;
        save(path, text + "\n")?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.split_first() {
        Some((word, rest)) if word == SEARCH => search::search_main(rest).map(|()| true),
        Some((word, rest)) if word == killing::KILL_CHILD => {
            killing::child_main(rest).map(|()| true)
        }
        _ => main_with(&Arguments::parse()),
    };
    program::end("glint-seeded", outcome)
}
