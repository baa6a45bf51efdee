//! Decides from the names in a directory whether it may be opened, before anything is made or
//! locked in it.

use crate::{Error, ErrorKind, Result};
use glintdb_flash::{DirContents, DirVolume};
use std::path::Path;

/// Refuses a directory that holds files of other programs and no database, so that no database is
/// made between them. Refuses a directory without a database where none is to be made, so that a
/// failed read leaves no file behind. A database stays one when foreign files come to lie beside
/// its own.
///
/// # Errors
/// `NotFound` where there is no database and `create` is false; `InvalidArgument` for foreign
/// files, and for a path that is not a directory; I/O errors.
pub(crate) fn check(path: &Path, create: bool) -> Result<()> {
    match DirVolume::contents(path)? {
        DirContents::Database => Ok(()),
        DirContents::Missing | DirContents::Empty if create => Ok(()),
        DirContents::Foreign(name) if create => Err(Error::invalid(format!(
            "{} holds no database but other files, {name:?} for one; a new database needs an empty directory, or one \
             that does not exist yet",
            path.display()
        ))),
        _ => Err(Error::new(
            ErrorKind::NotFound,
            format!("there is no database in {}", path.display()),
        )),
    }
}
