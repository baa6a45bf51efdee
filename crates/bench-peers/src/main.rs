//! GlintDB measured against RocksDB, WiredTiger, fjall, LMDB and redb: one generator, one harness, one allocator, the engines
//! interleaved, each run in a process of its own.
//!
//! Architecture invariant: this crate alone knows peers. It is a workspace of its own and no member of GlintDB's, so
//! that the default build never compiles C or C++.

#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes here fit 64-bit words"
)]

mod args;
mod balloon;
mod engines;
mod host;
mod matrix;
mod one;
mod plot;
mod preset;
mod recovery;
mod report;
mod table;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Command, Program};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments = match preset::expand(std::env::args().collect()) {
        Ok(arguments) => arguments,
        Err(error) => {
            complain(&format!("error: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match run(Program::parse_from(arguments).command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            complain("an engine gave wrong answers: see above");
            ExitCode::FAILURE
        }
        Err(error) => {
            complain(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> glintdb_bench::Result<bool> {
    match command {
        Command::Run(mut args) => {
            args.check()?;
            matrix::run(&args, &mut |reports| match args.json {
                true => Ok(()),
                false => Ok(writeln!(
                    std::io::stdout(),
                    "{}",
                    table::table(&args.engines, reports)
                )?),
            })
        }
        Command::Report(args) => report::run(&args),
        Command::Recovery(args) => recovery::run(&args),
        Command::Life { order } => recovery::live(&order).map(|()| true),
        Command::Engines => {
            writeln!(std::io::stdout(), "{}", engines::NAMES.join("\n"))?;
            Ok(true)
        }
        Command::Plot { lines, out } => plot::run(&lines, &out).map(|()| true),
        Command::One { order } => one::run(&order).map(|()| true),
    }
}

fn complain(line: &str) {
    // If standard error is gone there is nobody to tell; the exit code says it.
    drop(writeln!(std::io::stderr(), "{line}"));
}
