//! `cargo xtask test`: every step in turn, all of them even when one fails, a line each; then what tells why steps failed, and one line with the sums. All that a step says is
//! in `target/test-logs`, or in the terminal where it is asked for by itself.
//!
//! One profile and one target directory for everything: the binaries that the Python tests, the kill test and the demonstration drive are the ones that
//! `cargo test --workspace` has built.

use crate::run::{self, Scratch};
use crate::summary::Counts;
use crate::{demo_debian, fuzz, hang, lane, models, python, reliability, tidy};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

/// Seconds of each fuzz target in `xtask test`.
const FUZZ_SECONDS: &str = "3";
/// Seconds of the engine under shuttle in `xtask test`.
const SHUTTLE_SECONDS: &str = "20";
/// Records of the Debian index in `xtask test`; the demonstration by itself takes all of them.
const DEMO_RECORDS: &str = "8000";

/// Of a line that tells why a step failed.
const LINE_CHARS_MAX: usize = 400;

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
    hang::begin_run();
    let scratch = Arc::new(Scratch::new("tests")?);
    if only.is_none() {
        reliability::forget();
    }
    let mut total = Counts::default();
    let mut failures = Vec::new();
    let mut ended = Vec::new();
    for step in STEPS {
        if only.is_some_and(|only| only != step) {
            continue;
        }
        let log = run::target_dir()
            .join("test-logs")
            .join(format!("{step}.log"));
        // A step by itself says all in the terminal.
        if only.is_none() {
            print!("{step:9} ");
            std::io::stdout().flush().ok();
            run::log_to(&log)?;
        }
        let start = Instant::now();
        let outcome = watched(step, &scratch).unwrap_or_else(|message| {
            run::say(&format!("{step}: {message}"));
            Outcome::of(Counts::one(false))
        });
        run::log_no_more();
        let Counts {
            passed,
            failed,
            skipped,
        } = outcome.counts;
        let seconds = start.elapsed().as_secs_f64();
        run::say(&format!(
            "{passed:5} passed {failed:4} failed {skipped:4} skipped {seconds:7.1} s"
        ));
        for reason in outcome.not_run {
            run::say(&format!("        not run: {reason}"));
        }
        let notes = hang::take_notes().into_iter();
        ended.extend(notes.map(|note| format!("{step}: {note}")));
        total.add(outcome.counts);
        if failed > 0 {
            failures.push((step, log));
        }
    }
    if only.is_none() {
        for (step, log) in &failures {
            let text = std::fs::read(log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            run::say(&format!(
                "\n=== what failed: {step}; all of it: {}",
                log.display()
            ));
            for line in excerpt(&text.lines().collect::<Vec<_>>()) {
                let line: String = line.chars().take(LINE_CHARS_MAX).collect();
                run::say(&line);
            }
        }
        run::say("");
    }
    for what in ended {
        run::say(&what);
    }
    run::say(&format!(
        "{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    ));
    // A step that was given up has hold of it still.
    std::fs::remove_dir_all(scratch.path()).ok();
    Ok(total.failed == 0 && total.passed > 0)
}

/// What tells why a step failed: what the test runner says of failures, or lines that speak of one and the last lines.
fn excerpt<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    const LINES_MAX: usize = 40;
    const LAST: usize = 15;
    let mut found = Vec::new();
    let mut inside = false;
    for line in lines {
        inside |= *line == "failures:";
        if inside {
            found.push(*line);
        }
        inside &= !line.starts_with("test result: ");
    }
    if found.is_empty() {
        let last = lines.len().saturating_sub(LAST);
        let tells = |line: &&&str| {
            let words = [
                "error",
                "FAILED",
                "NOT CAUGHT",
                "WRONG",
                "panicked",
                "failures",
                "glint-",
                "it hangs",
                "not through after",
                "left behind",
                " at crates/",
            ];
            words.iter().any(|word| line.contains(word))
        };
        // The two streams need not have come in the order in which they were written.
        found.extend(lines[..last].iter().filter(tells));
        found.extend(&lines[last..]);
        let more = found.len().saturating_sub(LINES_MAX);
        found.drain(..more);
    }
    found.truncate(LINES_MAX);
    found
}

/// A step in a thread of its own: where it is not through when the run's time is over it is given up, with all that it has started.
fn watched(step: &'static str, scratch: &Arc<Scratch>) -> Result<Outcome, String> {
    if hang::over() {
        return Err("not begun, for the run's time is over".into());
    }
    let (answer, answered) = channel();
    let scratch = Arc::clone(scratch);
    std::thread::spawn(move || answer.send(step_outcome(step, &scratch)).ok());
    let outcome = answered.recv_timeout(hang::step_limit());
    outcome.unwrap_or_else(|error| {
        if error == RecvTimeoutError::Disconnected {
            return Err("panicked".into());
        }
        hang::note("given up, for the run's time is over".into());
        hang::end_all();
        Err("it hangs".into())
    })
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
        let said = "test a ... ok\nfailures:\n---- b ----\nfailures:\n    b\ntest result: FAILED. 1 passed; 1 failed\ntest c ... ok";
        let said: Vec<&str> = said.lines().collect();
        assert_eq!(excerpt(&said), said[1..6]);
        let said: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let mut said: Vec<&str> = said.iter().map(String::as_str).collect();
        assert_eq!(excerpt(&said).first(), Some(&"85"));
        said[3] = "glint-kill: no";
        assert_eq!(excerpt(&said).first(), Some(&"glint-kill: no"));
    }
}
