//! Makes the tables of `docs/reliability.md` from the lanes' reports: `cargo xtask reliability`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people"
)]

use glintdb_testkit::report::page;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [page_path, runs] = &arguments[..] else {
        eprintln!(
            "glint-reliability PAGE RUNS: writes the tables of PAGE from the reports under RUNS"
        );
        return ExitCode::from(2);
    };
    match page::write(Path::new(page_path), Path::new(runs)) {
        Ok(failures) => {
            println!("{page_path}: {failures} failures in the reports");
            if failures == 0 {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(message) => {
            eprintln!("glint-reliability: {message}");
            ExitCode::from(2)
        }
    }
}
