//! The `glintdb` program: a thin layer over the library. One file a command under `commands/`;
//! nothing here knows a file format of the engine, or how the server stores a value.
//!
//! Only this crate prints. Every command ends in one of the exit codes of `exit`. It is a library
//! only so that its formats can be fuzzed.

mod args;
mod commands;
mod exit;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod open;
mod output;
mod progress;
mod records;

use clap::Parser;
use std::process::ExitCode;

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = args::Arguments::parse();
    match commands::run(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(arguments.command.database_dir()),
    }
}
