//! Seeded bugs: mistakes that are switched on one at a time, and the search for each (`crates/testkit/src/seeded`).

use crate::run::{self, Scratch};
use crate::summary::Counts;
use crate::test::Outcome;
use std::path::PathBuf;
use std::process::Command;

/// Where the table of the documentation is.
const PAGE: &str = "docs/reliability/seeded-bugs.md";

/// The program, with the mistakes compiled in; everything else is built without them.
fn program() -> Result<PathBuf, String> {
    let mut command = run::cargo();
    command.args(["build", "--profile", "campaign"]);
    command.args(["--package", "glintdb-testkit", "--bin", "glint-seeded"]);
    command.args(["--features", "seeded-bugs"]);
    if !run::lines(&mut command, |_| ())? {
        return Err("glintdb-testkit does not compile with the seeded bugs".into());
    }
    Ok(run::target_dir().join("campaign").join("glint-seeded"))
}

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    let scratch = Scratch::new("seeded")?;
    let mut command = Command::new(program()?);
    command.arg("--dir").arg(scratch.path().join("seeded"));
    for argument in arguments {
        match argument.as_str() {
            "--page" => command.arg("--page").arg(run::root().join(PAGE)),
            other => command.arg(other),
        };
    }
    run::lines(&mut command, |_| ())
}

/// The step of `xtask test`: every bug, and the run without any.
pub(crate) fn step(scratch: &Scratch) -> Result<Outcome, String> {
    let mut command = Command::new(program()?);
    command.args(["--threads", "2"]);
    command.arg("--dir").arg(scratch.path().join("seeded"));
    let ok = run::lines(&mut command, |_| ())?;
    Ok(Outcome::of(Counts::one(ok)))
}
