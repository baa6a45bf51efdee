//! Models: loom's, which are tests inside the crates (`mod models`), and the engine under shuttle,
//! which is the program `glint-shuttle` of `crates/testkit`. Beside them, the engine in virtual time.
//!
//! All are builds of their own (`--cfg loom`, `--cfg shuttle`, `--cfg virtual_time`). Each has its
//! own target directory, so that it keeps its artifacts, and the ordinary build keeps those it has.

use crate::reliability::{Figures, save};
use crate::run;
use crate::summary::Counts;
use crate::test::Outcome;
use std::process::Command;
use std::time::Instant;

/// Crates with loom models.
const LOOM_CRATES: [&str; 4] = [
    "glintdb-memtable",
    "glintdb-flash",
    "glintdb-log",
    "glintdb",
];

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    let (mut only, mut shuttle, mut preemptions) = (None, Vec::new(), None);
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let value = rest.next().ok_or(format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--only" if value == "loom" || value == "shuttle" => only = Some(value.as_str()),
            "--preemptions" => preemptions = Some(value.as_str()),
            "--iterations" => shuttle.extend(["--cases", value]),
            "--seed" | "--cases" | "--schedules" | "--seconds" => {
                shuttle.extend([flag.as_str(), value.as_str()]);
            }
            _ => return Err(format!("xtask models does not know `{flag} {value}`")),
        }
    }
    let mut ok = true;
    if only.is_none_or(|only| only == "loom") {
        ok &= loom(preemptions)?.failed == 0;
    }
    if only.is_none_or(|only| only == "shuttle") {
        ok &= self::shuttle(&shuttle)?;
    }
    Ok(ok)
}

/// The step of `xtask test`: every loom model within its bounds, the engine under shuttle for
/// `seconds`, and the tests in virtual time.
pub(crate) fn step(seconds: &str) -> Result<Outcome, String> {
    let mut counts = loom(None)?;
    let shuttle = ["--seed", "1", "--cases", "1000000", "--seconds", seconds];
    counts.add(Counts::one(self::shuttle(&shuttle)?));
    counts.add(virtual_time_tests()?);
    Ok(Outcome::of(counts))
}

/// Cargo in a build with `--cfg KIND`.
fn cargo(kind: &str) -> Command {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut command = run::cargo();
    command
        .env("RUSTFLAGS", format!("{flags} --cfg {kind}"))
        .env("CARGO_TARGET_DIR", run::target_dir().join(kind));
    command
}

fn loom(preemptions: Option<&str>) -> Result<Counts, String> {
    let start = Instant::now();
    let mut command = cargo("loom");
    command
        .arg("test")
        .args(LOOM_CRATES.iter().flat_map(|name| ["--package", name]));
    command.args(["--lib", "--no-fail-fast", "models::", "--", "--nocapture"]);
    if let Some(preemptions) = preemptions {
        command.env("LOOM_MAX_PREEMPTIONS", preemptions);
    }
    let (mut counts, mut figures) = (Counts::default(), Figures::new("loom"));
    let ok = run::lines(&mut command, |line| {
        counts.add(Counts::of_cargo_line(line).unwrap_or_default());
        if let Some((model, executions)) = executions(line) {
            figures.count(&format!("executions, {model}"), executions);
            figures.count("loom models", 1);
        }
    })?;
    if !ok && counts.failed == 0 {
        counts.failed = 1;
    }
    if !ok {
        figures.failures.push("a model failed".into());
    }
    let total: u64 = figures.sum("executions, ");
    figures.count("loom executions", total);
    run::say(&format!(
        "loom: {} models passed, {} failed, {total} executions, {:.1} s",
        counts.passed,
        counts.failed,
        start.elapsed().as_secs_f64()
    ));
    save("cargo xtask models --only loom", start, figures)?;
    Ok(counts)
}

/// A line `loom: MODEL: N executions (…)`, behind whatever the test runner has left before it.
fn executions(line: &str) -> Option<(&str, u64)> {
    let (_, rest) = line.split_once("loom: ")?;
    let (model, rest) = rest.rsplit_once(": ")?;
    let (number, _) = rest.split_once(" executions (")?;
    Some((model, number.parse().ok()?))
}

fn shuttle(arguments: &[&str]) -> Result<bool, String> {
    let mut build = cargo("shuttle");
    build.args([
        "build",
        "--package",
        "glintdb-testkit",
        "--bin",
        "glint-shuttle",
        "--no-default-features",
    ]);
    if !run::lines(&mut build, |_| ())? {
        return Err("glint-shuttle does not compile".into());
    }
    let program = run::target_dir().join("shuttle/debug/glint-shuttle");
    run::lines(Command::new(program).args(arguments), |_| ())
}

/// Tests of the scheduler of virtual time, and of the engine under it.
fn virtual_time_tests() -> Result<Counts, String> {
    let mut command = cargo("virtual_time");
    command.args(["test", "--package", "glintdb-core", "--lib", "virtual_time"]);
    let mut counts = counted(&mut command)?;
    let mut command = cargo("virtual_time");
    command.args([
        "test",
        "--package",
        "glintdb-bench",
        "--test",
        "virtual_time",
    ]);
    counts.add(counted(&mut command)?);
    Ok(counts)
}

/// What `cargo test` counts; one failure if it does not compile.
fn counted(command: &mut Command) -> Result<Counts, String> {
    let mut counts = Counts::default();
    let ok = run::lines(command, |line| {
        counts.add(Counts::of_cargo_line(line).unwrap_or_default());
    })?;
    counts.failed += u64::from(!ok && counts.failed == 0);
    Ok(counts)
}

/// `cargo xtask virtual-time ARGUMENTS`: `glintdb ARGUMENTS` in the build that has virtual time.
pub(crate) fn virtual_time(arguments: &[String]) -> Result<bool, String> {
    let mut command = cargo("virtual_time");
    command.args([
        "run",
        "--release",
        "--quiet",
        "--package",
        "glintdb-cli",
        "--",
    ]);
    let status = command.args(arguments).status();
    status
        .map(|status| status.success())
        .map_err(|error| format!("cargo could not be started: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_read_from_what_explore_prints() {
        let line = ".loom: pipeline: two commits: 1504 executions (at most 3 preemptions)";
        assert_eq!(executions(line), Some(("pipeline: two commits", 1504)));
        assert_eq!(executions("loom: 8 models passed, 0 failed"), None);
    }
}
