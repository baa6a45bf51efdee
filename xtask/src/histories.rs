//! Histories of real threads, run and checked by the program `glint-histories` of `crates/testkit`.

use crate::run::{self, Build, Scratch};
use crate::summary::Counts;
use crate::test::Outcome;
use std::path::PathBuf;
use std::process::Command;

fn program(build: Build) -> Result<PathBuf, String> {
    run::program("glintdb-testkit", "glint-histories", build)
}

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    run::lines(
        Command::new(program(Build::Campaign)?).args(arguments),
        |_| (),
    )
}

/// The step of `xtask test`.
pub(crate) fn step(operations: &str, scratch: &Scratch) -> Result<Outcome, String> {
    let dir = scratch.path().join("histories");
    let mut command = Command::new(program(Build::WithTests)?);
    command.args(["--operations", operations, "--dir"]).arg(dir);
    let ok = run::lines(&mut command, |_| ())?;
    Ok(Outcome::of(Counts::one(ok)))
}
