//! The server under attack, run by the program `glint-attack` of `crates/testkit` (which holds attackers, honest clients and checks) against the program `glintdb`.

use crate::run::{self, Build, Scratch};
use crate::summary::Counts;
use crate::test::Outcome;
use std::process::Command;

/// `glint-attack`, told where the server's program is.
fn program(build: Build) -> Result<Command, String> {
    let server = run::program("glintdb-cli", "glintdb", build)?;
    let mut command = Command::new(run::program("glintdb-testkit", "glint-attack", build)?);
    command.arg("--program").arg(server);
    Ok(command)
}

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    run::lines(program(Build::Campaign)?.args(arguments), |_| ())
}

/// The step of `xtask test`.
pub(crate) fn step(seconds: &str, scratch: &Scratch) -> Result<Outcome, String> {
    let mut command = program(Build::WithTests)?;
    command.args(["--seconds", seconds, "--peers", "2000", "--dir"]);
    command.arg(scratch.path().join("attack"));
    let ok = run::lines(&mut command, |_| ())?;
    Ok(Outcome::of(Counts::one(ok)))
}
