//! Decides from the names in a directory whether it may be opened, before anything is created or
//! locked in it.

use crate::{Error, ErrorKind, Result};
use glintdb_flash::{DirContents, DirVolume};
use std::path::Path;

/// Refuses a directory that holds files of other programs and no database, so that no database is
/// created among them. Without `create`, also refuses a directory without a database, so that a
/// failed read leaves no file behind. A directory with a database and foreign files is a database.
///
/// # Errors
/// - `NotFound`: there is no database, and `create` is false.
/// - `InvalidArgument`: there are foreign files, the path is not a directory, or it is one of
///   several of a database.
/// - I/O errors.
pub(crate) fn check(path: &Path, create: bool) -> Result<()> {
    match DirVolume::contents(path)? {
        DirContents::Database => Ok(()),
        DirContents::Unit(what) => Err(Error::invalid(what)),
        DirContents::Missing | DirContents::Empty if create => Ok(()),
        DirContents::Foreign(name) if create => Err(Error::invalid(format!(
            "{} holds no database but other files, {name:?} for one; a new database needs an empty \
             directory, or one that does not exist yet",
            path.display()
        ))),
        _ => Err(Error::new(
            ErrorKind::NotFound,
            format!("there is no database in {}", path.display()),
        )),
    }
}
