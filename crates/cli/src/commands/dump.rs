//! `dump`: a file of the engine in readable form, read without opening the database.

use crate::args::Dump;
use crate::exit::Failure;
use crate::{open, output};
use glintdb::inspect;
use std::path::Path;

pub(super) fn run(arguments: &Dump) -> Result<(), Failure> {
    let file = &arguments.file;
    if file.is_dir() {
        for (name, size) in inspect::files(file)? {
            output::line(&format!("{name}\t{size}"))?;
        }
        return Ok(());
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let dir = match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    open::present(dir)?;
    let mut printed = Ok(());
    inspect::dump(dir, &name, &mut |line| {
        // The reader may have gone away; the rest is then for nobody.
        if printed.is_ok() {
            printed = output::line(&line);
        }
    })?;
    printed
}
