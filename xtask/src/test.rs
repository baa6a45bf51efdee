//! `cargo xtask test`: all steps in turn, also if one fails. It prints a line for each, then
//! excerpts that tell why steps failed, and one line with the sums. The output of each step is in
//! `target/test-logs`, or in the terminal with `--only`.
//!
//! The step [`BESIDE`] begins earlier than its turn and runs beside others that leave a core idle.
//!
//! All steps share one profile and one target directory: the Python tests, the kill test and the
//! demonstration drive the binaries that `cargo test --workspace` has built.

use crate::run::{self, Scratch};
use crate::summary::Counts;
use crate::{demo_debian, fuzz, hang, lane, models, python, reliability, tidy};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

/// Seconds of each fuzz target in `xtask test`.
const FUZZ_SECONDS: &str = "3";
/// Seconds of the engine under shuttle in `xtask test`.
const SHUTTLE_SECONDS: &str = "20";
/// Records of the Debian index in `xtask test`; the demonstration by itself takes all of them.
const DEMO_RECORDS: &str = "8000";

/// The step that runs beside others, and the step with which it begins. Loom uses one thread, on a
/// build of its own.
const BESIDE: &str = "models";
const BESIDE_FROM: &str = "python";

/// Longest line of an excerpt.
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
    let mut beside = None;
    for step in STEPS {
        if only.is_some_and(|only| only != step) {
            continue;
        }
        // A step by itself says all in the terminal.
        let begin = |step| Running::begin(step, &scratch, only.is_none());
        if only.is_none() {
            print!("{step:9} ");
            std::io::stdout().flush().ok();
            if step == BESIDE_FROM {
                beside = Some(begin(BESIDE));
            }
        }
        let began_earlier = beside.take_if(|running| running.step == step);
        let running = began_earlier.unwrap_or_else(|| begin(step));
        let log = running.log.clone();
        let (outcome, seconds) = running.end();
        let outcome = outcome.unwrap_or_else(|message| {
            run::say(&format!("{step}: {message}"));
            Outcome::of(Counts::one(false))
        });
        let Counts {
            passed,
            failed,
            skipped,
        } = outcome.counts;
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

/// The lines that tell why a step failed: the test runner's list of failures; else lines with words
/// of failure, and the last lines.
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

/// A step under way, in a thread of its own.
struct Running {
    step: &'static str,
    log: PathBuf,
    answered: Receiver<(Result<Outcome, String>, f64)>,
}

impl Running {
    /// Begins a step. With `logged`, its output goes to a file in `target/test-logs`.
    fn begin(step: &'static str, scratch: &Arc<Scratch>, logged: bool) -> Running {
        let logs = run::target_dir().join("test-logs");
        let log = logs.join(format!("{step}.log"));
        let (answer, answered) = channel();
        let (scratch, file) = (Arc::clone(scratch), log.clone());
        std::thread::spawn(move || {
            let start = Instant::now();
            let outcome = match hang::over() {
                true => Err("not begun, for the run's time is over".into()),
                false => (if logged { run::log_to(&file) } else { Ok(()) })
                    .and_then(|()| step_outcome(step, &scratch)),
            };
            answer.send((outcome, start.elapsed().as_secs_f64())).ok()
        });
        Running {
            step,
            log,
            answered,
        }
    }

    /// Waits for the step, and returns its outcome and the seconds that it took. When the run's
    /// time is over, the step and all programs that it has started are ended.
    fn end(self) -> (Result<Outcome, String>, f64) {
        let outcome = self.answered.recv_timeout(hang::step_limit());
        outcome.unwrap_or_else(|error| {
            if error == RecvTimeoutError::Disconnected {
                return (Err("panicked".into()), 0.0);
            }
            hang::note("given up, for the run's time is over".into());
            hang::end_all();
            (Err("it hangs".into()), 0.0)
        })
    }
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
