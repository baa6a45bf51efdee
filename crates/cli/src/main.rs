//! The `glintdb` program: a thin layer over the library. One file a command under `commands/`; nothing here knows a file format of the engine.
//!
//! Only this crate prints. Every command ends in one of the exit codes of [`exit`].

mod args;
mod commands;
mod exit;
mod format;
mod open;
mod output;
mod progress;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = args::Arguments::parse();
    match commands::run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
