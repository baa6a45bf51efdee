//! The program behind `cargo xtask models`: cases of the engine under shuttle, numbered from a seed.
//!
//! `glint-shuttle [--seed S] [--cases N] [--schedules M] [--seconds T]`: cases S to S+N-1, M schedules of each, no new case after T seconds. Ends with a line of figures; a
//! failure prints the command that repeats it.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for people; how long a campaign takes is wall time"
)]

#[cfg(not(shuttle))]
fn main() -> std::process::ExitCode {
    eprintln!("glint-shuttle was built without `--cfg shuttle`; run `cargo xtask models`");
    std::process::ExitCode::from(2)
}

#[cfg(shuttle)]
fn main() -> std::process::ExitCode {
    use glintdb_testkit::schedules::{run, scenario::Totals};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    use clap::Parser;
    use glintdb_testkit::{program, report::Report};

    /// Cases of the engine under shuttle, numbered from a seed.
    #[derive(Parser)]
    #[command(bin_name = "cargo xtask models --only shuttle")]
    struct Arguments {
        /// The first case.
        #[arg(long, value_name = "S", default_value_t = 1)]
        seed: u64,
        /// How many cases.
        #[arg(long, value_name = "N", default_value_t = 100)]
        cases: u64,
        /// Schedules of each.
        #[arg(long, value_name = "M", default_value_t = 10)]
        schedules: u64,
        /// No new case after so long.
        #[arg(long, value_name = "T", default_value_t = u64::MAX, hide_default_value = true)]
        seconds: u64,
    }

    let Arguments {
        seed,
        cases,
        schedules,
        seconds,
    } = Arguments::parse();
    let start = Instant::now();
    let totals = Arc::new(Totals::default());
    let command = format!(
        "cargo xtask models --only shuttle --seed {seed} --cases {cases} --schedules {schedules}"
    );
    let mut report = Report::new("shuttle", command);
    let (mut done, mut failures) = (0, 0);
    for case in seed..seed.saturating_add(cases) {
        if start.elapsed().as_secs() >= seconds {
            break;
        }
        done += 1;
        if let Err(message) = run::case(case, schedules as usize, &totals) {
            failures += 1;
            println!("{message}");
            println!(
                "repeat with: cargo xtask models --only shuttle --seed {case} --cases 1 --schedules {schedules}"
            );
            report.failures.push(format!("case {case}"));
        }
    }
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let schedules = done * schedules;
    let (commits, pictures, cuts) = (
        count(&totals.commits),
        count(&totals.pictures),
        count(&totals.cuts),
    );
    println!(
        "shuttle: {done} cases, {schedules} schedules, {commits} commits, {pictures} pictures, {cuts} kills and power cuts, {failures} failures, {:.1} s",
        start.elapsed().as_secs_f64()
    );
    report.count("cases", done);
    report.count("schedules", schedules);
    report.count("commits", commits);
    report.count("pictures checked", pictures);
    report.count("kills and power cuts", cuts);
    report.seconds = start.elapsed().as_secs_f64();
    let saved = report.save_where_asked();
    program::end("glint-shuttle", saved.map(|()| failures == 0))
}
