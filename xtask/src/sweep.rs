//! The corruption sweep, run by the program `glint-sweep` of `crates/testkit` (which holds the databases, the mutations and what they may lead to).

use crate::run::{self, Build};
use crate::summary::Counts;
use crate::test::Outcome;
use std::process::Command;

fn program() -> Result<Command, String> {
    let path = run::program("glintdb-testkit", "glint-sweep", Build::Campaign)?;
    Ok(Command::new(path))
}

pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    run::lines(program()?.args(arguments), |_| ())
}

/// The step of `xtask test`: every mutation of the smallest database, a part of those of the others.
pub(crate) fn step() -> Result<Outcome, String> {
    let ok = run::lines(&mut program()?, |_| ())?;
    Ok(Outcome::of(Counts::one(ok)))
}
