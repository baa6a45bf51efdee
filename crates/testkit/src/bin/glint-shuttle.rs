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
    use std::process::ExitCode;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    let (mut seed, mut cases, mut schedules, mut seconds) = (1, 100, 10, u64::MAX);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let number = arguments.next().and_then(|text| text.parse::<u64>().ok());
        match (flag.as_str(), number) {
            ("--seed", Some(number)) => seed = number,
            ("--cases", Some(number)) => cases = number,
            ("--schedules", Some(number)) => schedules = number,
            ("--seconds", Some(number)) => seconds = number,
            _ => {
                eprintln!("glint-shuttle [--seed S] [--cases N] [--schedules M] [--seconds T]");
                return ExitCode::from(2);
            }
        }
    }
    let start = Instant::now();
    let totals = Arc::new(Totals::default());
    let command = format!(
        "cargo xtask models --only shuttle --seed {seed} --cases {cases} --schedules {schedules}"
    );
    let mut report = glintdb_testkit::report::Report::new("shuttle", command);
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
    if let Err(message) = report.save_where_asked() {
        eprintln!("{message}");
    }
    if failures == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
