//! Opening the database that the command line names.

use crate::args::{Place, Target};
use crate::exit::Failure;
use crate::progress;
use glintdb::{Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options};
use std::path::Path;

/// Whether the command may make a database that is not there yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

/// Opens a database, with a progress bar where its log is long.
pub(crate) fn database(
    place: &Place,
    durability: Durability,
    missing: Missing,
) -> Result<Db, Failure> {
    if missing == Missing::Refuse {
        present(&place.dir)?;
    }
    let mut options = Options {
        create_if_missing: missing == Missing::Create,
        durability,
        progress: Some(progress::replay()),
        ..Options::default()
    };
    if let Some(mib) = place.memory_mb {
        options.memory_budget_bytes = mib.saturating_mul(1 << 20);
    }
    options.open(&place.dir).map_err(|error| {
        if error.kind() == ErrorKind::NotFound && missing == Missing::Refuse {
            return nothing_in(&place.dir);
        }
        error.into()
    })
}

/// A directory without a database.
fn nothing_in(dir: &Path) -> Failure {
    let message = format!(
        "there is no database in {}; `--dir` names the database's directory",
        dir.display()
    );
    glintdb::Error::new(ErrorKind::NotFound, message).into()
}

/// Refuses a directory that is not there, before anything is made or locked in it.
pub(crate) fn present(dir: &Path) -> Result<(), Failure> {
    if dir.is_dir() {
        return Ok(());
    }
    let message = format!(
        "{} is {}; `--dir` names the database's directory",
        dir.display(),
        if dir.exists() {
            "no directory"
        } else {
            "not there"
        }
    );
    Err(glintdb::Error::new(ErrorKind::NotFound, message).into())
}

/// Opens an existing keyspace of an existing database.
pub(crate) fn keyspace(target: &Target) -> Result<Keyspace, Failure> {
    let db = database(&target.place, Durability::Os, Missing::Refuse)?;
    Ok(db.keyspace(&target.keyspace)?)
}

/// Opens a keyspace to write to it; database and keyspace are made where they are not there.
pub(crate) fn keyspace_to_write(
    target: &Target,
    durability: Durability,
) -> Result<Keyspace, Failure> {
    let db = database(&target.place, durability, Missing::Create)?;
    Ok(db.keyspace_or_create(&target.keyspace, KeyspaceOptions::default())?)
}
