//! AddressSanitizer and ThreadSanitizer over the engine's tests of threads and over histories of real threads. Nightly only; target directories of its own.
//!
//! AddressSanitizer needs no rebuilt standard library; ThreadSanitizer does, or it would see no synchronisation in it. What is suppressed stands in `SUPPRESSED`, each with its reason.

use crate::reliability::{Figures, save};
use crate::run;
use crate::summary::Counts;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Packages, the tests of each (a target of cargo's), and a filter for their names.
const TESTS: [(&str, &[&str], &str); 7] = [
    ("glintdb-memtable", &["--lib", "--tests"], ""),
    ("glintdb-flash", &["--lib"], ""),
    ("glintdb-cache", &["--lib"], ""),
    ("glintdb-log", &["--tests"], "append"),
    ("glintdb", &["--lib"], "pipeline"),
    ("glintdb", &["--test", "engine"], "threads"),
    ("glintdb", &["--test", "engine"], "snapshots"),
];
/// Operations of histories: some seconds with a sanitizer underneath.
const OPERATIONS: &str = "300000";

/// What ThreadSanitizer is not to report, and why it is no race. Nothing at present: `fetch_max`, which it does not see, is an exchange in its build (`--cfg tsan`); `fence` it does not
/// see either, but what the engine's fences order is read and written with atomics, which are never a race.
const SUPPRESSED: &[(&str, &str)] = &[];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sanitizer {
    Address,
    Thread,
}

impl Sanitizer {
    fn name(self) -> &'static str {
        match self {
            Sanitizer::Address => "address",
            Sanitizer::Thread => "thread",
        }
    }

    fn lane(self) -> &'static str {
        match self {
            Sanitizer::Address => "sanitize-address",
            Sanitizer::Thread => "sanitize-thread",
        }
    }

    fn flags(self) -> &'static str {
        match self {
            Sanitizer::Address => "-Zsanitizer=address",
            Sanitizer::Thread => "-Zsanitizer=thread --cfg tsan",
        }
    }
}

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    let (mut sanitizers, mut operations) = (Vec::new(), OPERATIONS.to_string());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--address" => sanitizers.push(Sanitizer::Address),
            "--thread" => sanitizers.push(Sanitizer::Thread),
            "--operations" => operations = words.next().ok_or("--operations N")?.clone(),
            _ => return Err("xtask sanitize [--address] [--thread] [--operations N]".into()),
        }
    }
    if sanitizers.is_empty() {
        sanitizers = vec![Sanitizer::Address, Sanitizer::Thread];
    }
    if let Some(reason) = missing()? {
        println!("sanitize: not run: {reason}");
        return Ok(true);
    }
    let mut ok = true;
    for sanitizer in sanitizers {
        ok &= sanitize(sanitizer, &operations)?;
    }
    Ok(ok)
}

/// Why it cannot be run here, if it cannot.
fn missing() -> Result<Option<String>, String> {
    let nightly = Command::new("cargo")
        .args(["+nightly", "--version"])
        .output();
    if !nightly.is_ok_and(|output| output.status.success()) {
        return Ok(Some("there is no nightly toolchain".into()));
    }
    let root = run::output(Command::new("rustc").args(["+nightly", "--print", "sysroot"]))?;
    let source = Path::new(root.trim()).join("lib/rustlib/src/rust/library/std");
    Ok((!source.is_dir()).then(|| "nightly has no rust-src".into()))
}

fn sanitize(sanitizer: Sanitizer, operations: &str) -> Result<bool, String> {
    let host = run::output(Command::new("rustc").args(["+nightly", "--print", "host-tuple"]))?;
    let host = host.trim();
    let name = sanitizer.name();
    let dir = run::target_dir().join(format!("sanitize-{name}"));
    let suppressions = suppressions(&dir)?;
    let cargo = |what: &str| {
        let mut command = Command::new("cargo");
        command
            .current_dir(run::root())
            .args(["+nightly", what, "--target", host, "--target-dir"])
            .arg(&dir)
            .env("RUSTFLAGS", sanitizer.flags())
            .env(
                "TSAN_OPTIONS",
                format!("suppressions={}", suppressions.display()),
            )
            // The frames of a panic that a test expects are no leak.
            .env(
                "ASAN_OPTIONS",
                "detect_leaks=0:detect_stack_use_after_return=1",
            );
        if sanitizer == Sanitizer::Thread {
            command.arg("-Zbuild-std");
        }
        command
    };
    let start = Instant::now();
    let (mut ok, mut counts) = (true, Counts::default());
    let mut figures = Figures::new(sanitizer.lane());
    for (package, targets, filter) in TESTS {
        println!("\n=== {name}: {package} {} {filter}", targets.join(" "));
        let mut command = cargo("test");
        command
            .args(["--package", package])
            .args(targets)
            .args(["--", filter]);
        let passed = run::lines(&mut command, |line| {
            counts.add(Counts::of_cargo_line(line).unwrap_or_default());
        })?;
        if !passed {
            figures.failures.push(format!("{package} {filter}"));
        }
        ok &= passed;
    }
    println!("\n=== {name}: histories of {operations} operations");
    let mut command = cargo("run");
    command.args([
        "--package",
        "glintdb-testkit",
        "--bin",
        "glint-histories",
        "--",
    ]);
    command.args(["--operations", operations, "--loose", "--verbose"]);
    command.env("GLINTDB_REPORTS", dir.join("reports"));
    // Its own report is of the lane `histories`, which this is not.
    let passed = run::lines(&mut command, |line| {
        if let Some(checked) = operations_of(line) {
            figures.count("operations of histories", checked);
        }
    })?;
    if !passed {
        figures.failures.push("histories".into());
    }
    ok &= passed;
    figures.count("tests", counts.passed + counts.failed);
    let command = format!("cargo xtask sanitize --{name}");
    save(&command, start, figures)?;
    println!(
        "sanitize: {name}: {}",
        if ok {
            "nothing found"
        } else {
            "FAILED, see above"
        }
    );
    Ok(ok)
}

/// How many operations a line of `glint-histories` says it checked.
fn operations_of(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("histories: ")?;
    let (_, rest) = rest.split_once(" histories of ")?;
    rest.split_once(" operations")?.0.parse().ok()
}

/// The file that ThreadSanitizer reads.
fn suppressions(dir: &Path) -> Result<PathBuf, String> {
    let lines = SUPPRESSED
        .iter()
        .map(|(what, why)| format!("# {why}\n{what}\n"));
    let path = dir.join("suppressions");
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&path, lines.collect::<String>()))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}
