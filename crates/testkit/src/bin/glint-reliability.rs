//! Makes the tables of `docs/reliability.md` from the lanes' reports: `cargo xtask reliability`.
#![allow(clippy::print_stdout, reason = "a program for people")]

use clap::Parser;
use glintdb_testkit::program;
use glintdb_testkit::report::page;
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes the tables of PAGE from the reports under RUNS.
#[derive(Parser)]
struct Arguments {
    page: PathBuf,
    runs: PathBuf,
}

fn main() -> ExitCode {
    let Arguments { page, runs } = Arguments::parse();
    let outcome = page::write(&page, &runs).map(|failures| {
        println!("{}: {failures} failures in the reports", page.display());
        failures == 0
    });
    program::end("glint-reliability", outcome)
}
