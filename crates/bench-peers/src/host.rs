//! What measurements do with files of the host.

use std::fs;
use std::io;
use std::path::Path;

use glintdb_bench::Result;

/// Removes a file, or a directory with all below it, if it is there.
///
/// # Errors
/// If it is there and cannot be removed.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
