//! `cargo xtask test`: every step in turn, all of them even when one fails; then one line with the sums.
//!
//! One profile and one target directory for everything: the binaries that the Python tests, the kill test and the demonstration drive are the ones that
//! `cargo test --workspace` has built.

use crate::run::{self, Scratch};
use crate::summary::Counts;
use crate::{demo_debian, fuzz, lane, models, python, reliability, tidy};
use std::time::Instant;

/// Seconds of each fuzz target in `xtask test`.
const FUZZ_SECONDS: &str = "3";
/// Seconds of the engine under shuttle in `xtask test`.
const SHUTTLE_SECONDS: &str = "20";
/// Records of the Debian index in `xtask test`; the demonstration by itself takes all of them.
const DEMO_RECORDS: &str = "8000";

const STEPS: [&str; 15] = [
    "fmt",
    "tidy",
    "clippy",
    "cargo",
    "python",
    "kill",
    "attack",
    "kernel",
    "sim",
    "sweep",
    "seeded",
    "fuzz",
    "histories",
    "models",
    "demo",
];

/// What a step found.
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    /// What could not be run, and why.
    pub(crate) not_run: Vec<String>,
}

impl Outcome {
    pub(crate) fn of(counts: Counts) -> Outcome {
        Outcome {
            counts,
            not_run: Vec::new(),
        }
    }

    /// Nothing ran, for this reason.
    pub(crate) fn skipped(reason: impl Into<String>) -> Outcome {
        Outcome {
            counts: Counts {
                skipped: 1,
                ..Counts::default()
            },
            not_run: vec![reason.into()],
        }
    }
}

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    let only = match arguments {
        [] => None,
        [flag, step] if flag == "--only" => Some(step.as_str()),
        _ => return Err("xtask test takes nothing, or `--only STEP`".into()),
    };
    if let Some(step) = only.filter(|step| !STEPS.contains(step)) {
        return Err(format!("no step `{step}`; there are {}", STEPS.join(", ")));
    }
    let scratch = Scratch::new("tests")?;
    if only.is_none() {
        reliability::forget();
    }
    let mut total = Counts::default();
    let (mut report, mut failures) = (Vec::new(), Vec::new());
    for step in STEPS {
        if only.is_some_and(|only| only != step) {
            continue;
        }
        println!("\n=== {step}");
        let start = Instant::now();
        run::remember();
        let mut said = None;
        let outcome = step_outcome(step, &scratch).unwrap_or_else(|message| {
            println!("{step}: {message}");
            said = Some(message);
            Outcome::of(Counts::one(false))
        });
        let mut lines = run::remembered();
        lines.extend(said);
        let Counts {
            passed,
            failed,
            skipped,
        } = outcome.counts;
        let seconds = start.elapsed().as_secs_f64();
        report.push(format!(
            "{step:9} {passed:5} passed {failed:4} failed {skipped:4} skipped {seconds:7.1} s"
        ));
        for reason in outcome.not_run {
            report.push(format!("        not run: {reason}"));
        }
        total.add(outcome.counts);
        if failed > 0 {
            failures.push((step, lines));
        }
    }
    // Once more at the end, where whoever has only the end of a long log finds it.
    for (step, lines) in &failures {
        println!("\n=== what failed: {step}");
        for line in excerpt(lines) {
            println!("{line}");
        }
    }
    println!("\n=== summary");
    for line in report {
        println!("{line}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    );
    Ok(total.failed == 0 && total.passed > 0)
}

/// What tells why a step failed: what the test runner says of failures, or lines that speak of one and the last lines.
fn excerpt(lines: &[String]) -> Vec<&str> {
    const LINES_MAX: usize = 80;
    const LAST: usize = 20;
    let mut found = Vec::new();
    let mut inside = false;
    for line in lines {
        inside |= line == "failures:";
        if inside {
            found.push(line.as_str());
        }
        inside &= !line.starts_with("test result: ");
    }
    if found.is_empty() {
        let last = lines.len().saturating_sub(LAST);
        let tells = |line: &&String| {
            let words = ["error", "FAILED", "panicked", "failures", "glint-"];
            words.iter().any(|word| line.contains(word))
        };
        // The two streams need not have come in the order in which they were written.
        found.extend(lines[..last].iter().filter(tells).map(String::as_str));
        found.extend(lines[last..].iter().map(String::as_str));
        let more = found.len().saturating_sub(LINES_MAX);
        found.drain(..more);
    }
    found.truncate(LINES_MAX);
    found
}

fn step_outcome(step: &str, scratch: &Scratch) -> Result<Outcome, String> {
    match step {
        "fmt" => {
            let ok = run::lines(run::cargo().args(["fmt", "--all", "--check"]), |_| ())?;
            Ok(Outcome::of(Counts::one(ok)))
        }
        "tidy" => tidy::step(),
        "clippy" => {
            let arguments = ["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"];
            let ok = run::lines(run::cargo().args(arguments), |_| ())?;
            Ok(Outcome::of(Counts::one(ok)))
        }
        "cargo" => cargo_test(scratch),
        "python" => python::step(scratch),
        "fuzz" => fuzz::step(FUZZ_SECONDS),
        "models" => models::step(SHUTTLE_SECONDS),
        "demo" => demo_debian::step(DEMO_RECORDS),
        _ => lane::named(step)
            .ok_or_else(|| format!("no step `{step}`"))?
            .step(scratch),
    }
}

/// Unit, integration, property and documentation tests of the whole workspace.
fn cargo_test(scratch: &Scratch) -> Result<Outcome, String> {
    let mut command = run::cargo();
    command
        .args(["test", "--workspace", "--no-fail-fast"])
        .env("TMPDIR", scratch.path());
    let mut counts = Counts::default();
    let ok = run::lines(&mut command, |line| {
        if let Some(found) = Counts::of_cargo_line(line) {
            counts.add(found);
        }
    })?;
    if !ok && counts.failed == 0 {
        // It did not compile, or a test binary died without its closing line.
        counts.failed = 1;
    }
    Ok(Outcome::of(counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_what_the_test_runner_says_of_failures_or_the_last_lines() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let said = lines(
            "test a ... ok\nfailures:\n---- b ----\nfailures:\n    b\ntest result: FAILED. 1 passed; 1 failed\ntest c ... ok",
        );
        let expected =
            "failures:\n---- b ----\nfailures:\n    b\ntest result: FAILED. 1 passed; 1 failed";
        assert_eq!(excerpt(&said).join("\n"), expected);
        let said: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        assert_eq!(excerpt(&said).first(), Some(&"80"));
        let mut said = said;
        said[3] = "glint-kill: no".to_owned();
        assert_eq!(excerpt(&said).first(), Some(&"glint-kill: no"));
    }
}
