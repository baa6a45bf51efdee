//! GlintDB on the real kernel, run by the program `glint-kernel` of `crates/testkit`: power cuts, EIO, full disks, locks.

use crate::run::{self, Build};
use crate::summary::Counts;
use crate::test::Outcome;
use std::path::PathBuf;
use std::process::Command;

fn program(build: Build) -> Result<PathBuf, String> {
    run::program("glintdb-testkit", "glint-kernel", build)
}

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    run::lines(
        Command::new(program(Build::Campaign)?).args(arguments),
        |_| (),
    )
}

/// The step of `xtask test`. What cannot be run here is told with its reason.
pub(crate) fn step(seconds: &str) -> Result<Outcome, String> {
    let mut command = Command::new(program(Build::WithTests)?);
    command.args(["--seconds", seconds]);
    let mut not_run = Vec::new();
    let ok = run::lines(&mut command, |line| {
        if let Some((_, reason)) = line.split_once("not run: ") {
            not_run.push(reason.to_owned());
        }
    })?;
    let mut counts = Counts::one(ok);
    counts.skipped = not_run.len() as u64;
    Ok(Outcome { counts, not_run })
}
