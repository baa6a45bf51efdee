//! What the programs of the lanes (`glint-*`) share: a seed from the clock, a directory for databases, how long, and the end.
//!
//! Thread safety: none is needed.
#![allow(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "for programs for people, in real time"
)]

use crate::report::Report;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A seed from the clock, for a run that is given none; the program prints it.
#[must_use]
pub fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().subsec_nanos().into()
}

/// A directory of this process's own for databases: in shared memory, else in the temporary directory. Its name, it is not made.
#[must_use]
pub fn scratch(lane: &str) -> PathBuf {
    let shared = Path::new("/dev/shm");
    let place = match shared.is_dir() {
        true => shared.to_path_buf(),
        false => std::env::temp_dir(),
    };
    place.join(format!("glintdb-{lane}-{}", std::process::id()))
}

/// How long a lane runs.
#[derive(clap::Args)]
pub struct Time {
    /// How long, in minutes [default: 1].
    #[arg(long, value_name = "M", overrides_with = "seconds")]
    minutes: Option<u64>,
    /// Or in seconds.
    #[arg(long, value_name = "T", overrides_with = "minutes")]
    seconds: Option<u64>,
}

impl Time {
    /// What was asked for.
    #[must_use]
    pub fn get(&self) -> Duration {
        match (self.minutes, self.seconds) {
            (Some(minutes), _) => Duration::from_secs(minutes * 60),
            (None, seconds) => Duration::from_secs(seconds.unwrap_or(60)),
        }
    }
}

/// Notes in the report what went wrong, and saves it where that is asked for.
///
/// # Errors
/// What went wrong, or that the report cannot be saved.
pub fn reported<T>(mut report: Report, outcome: Result<T, String>) -> Result<T, String> {
    report.failures.extend(outcome.as_ref().err().cloned());
    let saved = report.save_where_asked();
    outcome.and_then(|done| saved.map(|()| done))
}

/// The end of `main`: an error is told; of what is only `false`, everything was told before.
#[must_use]
pub fn end(program: &str, outcome: Result<bool, String>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{program}: {message}");
            ExitCode::FAILURE
        }
    }
}
