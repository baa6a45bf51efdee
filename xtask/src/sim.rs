//! Deterministic simulation, run by the program `glint-sim` of `crates/testkit` (which holds the volume's watcher, the oracle and the campaign).

use crate::run::{self, Build};
use crate::summary::Counts;
use crate::test::Outcome;
use std::path::PathBuf;
use std::process::Command;

fn program(build: Build) -> Result<PathBuf, String> {
    run::program("glintdb-testkit", "glint-sim", build)
}

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    run::lines(
        Command::new(program(Build::Campaign)?).args(arguments),
        |_| (),
    )
}

/// The step of `xtask test`: a campaign from the same seed every time, so that what failed here fails again.
pub(crate) fn step(minutes: &str) -> Result<Outcome, String> {
    let mut command = Command::new(program(Build::Campaign)?);
    command.args(["--minutes", minutes, "--threads", "2", "--seed", "1"]);
    let ok = run::lines(&mut command, |_| ())?;
    Ok(Outcome::of(Counts::one(ok)))
}
