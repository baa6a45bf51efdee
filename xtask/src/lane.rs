//! The lanes of the reliability campaign that are programs of `crates/testkit`: `cargo xtask NAME`
//! starts `glint-NAME` with its arguments, and `cargo xtask test` starts it for a short time. A new
//! lane is a line of [`LANES`]. `models`, `miri`, `fuzz` and `sanitize` are builds of their own and
//! have a file each.

use crate::run::{self, Build, Scratch};
use crate::summary::Counts;
use crate::test::Outcome;
use std::process::Command;

/// A program, and how its step in `xtask test` calls it.
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    /// A program of another package that it needs.
    beside: Option<(&'static str, &'static str)>,
    /// How it is built for `cargo xtask NAME`, and for the step. The step uses one optimised build
    /// for all lanes, in which planted mistakes can be switched on.
    build: Build,
    build_step: Build,
    /// Arguments of the step.
    arguments: &'static [&'static str],
    /// Whether the step gives it a directory for databases.
    dir: bool,
}

/// An argument that stands for the number of the commit.
const COMMIT: &str = "COMMIT";

const LANE: Lane = Lane {
    name: "",
    beside: None,
    build: Build::Campaign,
    build_step: Build::WithTests,
    arguments: &[],
    dir: false,
};

#[rustfmt::skip]
const LANES: [Lane; 7] = [
    Lane { name: "kill", arguments: &["--cycles", "500"], dir: true, ..LANE },
    Lane { name: "attack", arguments: &["--seconds", "25", "--peers", "2000"], dir: true, beside: Some(("glintdb-cli", "glintdb")), ..LANE },
    Lane { name: "kernel", arguments: &["--seconds", "40"], beside: Some(("glintdb-faultdisk", "glint-disk")), ..LANE },
    // Half of the time the same seed, so that what failed here fails again, and half a seed that
    // follows from the commit.
    Lane { name: "sim", arguments: &["--minutes", "2", "--threads", "2", "--seed", "1", "--seed", COMMIT], build_step: Build::Seeded, ..LANE },
    // All mutations of the files of the smallest database, a part of those of the others.
    Lane { name: "sweep", build_step: Build::Seeded, ..LANE },
    Lane { name: "seeded", arguments: &["--threads", "2", "--part", COMMIT], dir: true, build: Build::Seeded, build_step: Build::Seeded, ..LANE },
    Lane { name: "histories", arguments: &["--operations", "1000000"], dir: true, ..LANE },
];

/// The lane of this name.
pub(crate) fn named(name: &str) -> Option<&'static Lane> {
    const { &LANES }.iter().find(|lane| lane.name == name)
}

impl Lane {
    fn program(&self, build: Build) -> Result<Command, String> {
        if let Some((package, name)) = self.beside {
            run::program(package, name, build)?;
        }
        let name = format!("glint-{}", self.name);
        run::program("glintdb-testkit", &name, build).map(Command::new)
    }

    /// `cargo xtask NAME`.
    pub(crate) fn main(&self, arguments: &[String]) -> Result<bool, String> {
        run::lines(self.program(self.build)?.args(arguments), |_| ())
    }

    /// The step of `xtask test`. The outcome names what cannot run here, with the reason.
    pub(crate) fn step(&self, scratch: &Scratch) -> Result<Outcome, String> {
        let mut command = self.program(self.build_step)?;
        let commit = run::commit_number().to_string();
        let arguments = (self.arguments.iter()).map(|&argument| match argument {
            COMMIT => &*commit,
            argument => argument,
        });
        command.args(arguments);
        if self.dir {
            command.arg("--dir").arg(scratch.path().join(self.name));
        }
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
}
