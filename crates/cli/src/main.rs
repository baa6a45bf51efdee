//! The `glintdb` program; see the library of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    glintdb_cli::main()
}
