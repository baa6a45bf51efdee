//! The kill test, run by the program `glint-kill` of `crates/testkit` (which holds writers, model and checks).

use crate::run::{self, Scratch};
use crate::summary::Counts;
use crate::test::Outcome;
use std::path::PathBuf;
use std::process::Command;

/// The program, built if it is not there or not up to date.
fn program() -> Result<PathBuf, String> {
    let built = run::lines(
        run::cargo().args([
            "build",
            "--package",
            "glintdb-testkit",
            "--bin",
            "glint-kill",
        ]),
        |_| (),
    )?;
    if !built {
        return Err("crates/testkit does not compile".into());
    }
    Ok(run::target_dir().join("debug/glint-kill"))
}

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    run::lines(Command::new(program()?).args(arguments), |_| ())
}

/// The step of `xtask test`.
pub(crate) fn step(cycles: &str, scratch: &Scratch) -> Result<Outcome, String> {
    let dir = scratch.path().join("kill");
    let mut command = Command::new(program()?);
    command.args(["--cycles", cycles, "--dir"]).arg(dir);
    let ok = run::lines(&mut command, |_| ())?;
    Ok(Outcome::of(Counts::one(ok)))
}
