//! The lanes of the reliability campaign that are programs of `crates/testkit`: `cargo xtask NAME` starts `glint-NAME` with what it is told, `cargo xtask test` starts it for a short
//! time. A new one is a line of [`LANES`]; `models`, `miri`, `fuzz` and `sanitize`, which are builds of their own, have a file each.

use crate::run::{self, Build, Scratch};
use crate::summary::Counts;
use crate::test::Outcome;
use std::process::Command;

/// A program, and how its step in `xtask test` calls it.
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    /// A program of another package that it expects beside itself.
    beside: Option<(&'static str, &'static str)>,
    /// How it is built for `cargo xtask NAME`, and for the step: there one optimised build does for all, in which mistakes could be switched on.
    build: Build,
    build_step: Build,
    /// What the step tells it,
    arguments: &'static [&'static str],
    /// and whether it tells it a directory for databases.
    dir: bool,
}

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
    // Two threads try more than a million crash points on a machine that has nothing else to do; the same seed every time, so that what failed here fails again.
    Lane { name: "sim", arguments: &["--minutes", "3", "--threads", "2", "--seed", "1"], build_step: Build::Seeded, ..LANE },
    // Every mutation of what was written of the smallest database, a part of those of the others.
    Lane { name: "sweep", build_step: Build::Seeded, ..LANE },
    Lane { name: "seeded", arguments: &["--threads", "2"], dir: true, build: Build::Seeded, build_step: Build::Seeded, ..LANE },
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

    /// The step of `xtask test`. What cannot be run here is told with its reason.
    pub(crate) fn step(&self, scratch: &Scratch) -> Result<Outcome, String> {
        let mut command = self.program(self.build_step)?;
        command.args(self.arguments);
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
