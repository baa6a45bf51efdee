//! Opens the database that the command line names.

use crate::args::{Created, Engine, Place, Target};
use crate::exit::Failure;
use crate::progress;
use glintdb::{DEFAULT_KEYSPACE, Db, ErrorKind, Keyspace, KeyspaceOptions, Options};
use glintdb_bench::GlintOptions;
use std::path::Path;

/// Whether the command may make a database where there is none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

/// The options that `--memory-mb` and the `--option`s set, of the database and of a keyspace.
pub(crate) fn assigned(place: &Place, assignments: &[String]) -> Result<GlintOptions, Failure> {
    let mut options = GlintOptions::default();
    if let Some(mib) = place.memory_mb {
        options.database.memory_budget_bytes = mib.saturating_mul(1 << 20);
    }
    options.set_all(assignments.iter().map(String::as_str))?;
    Ok(options)
}

/// The options of a keyspace with an index of this name, `lsm`, `btree` or `btree-reshaped`.
pub(crate) fn index_named(name: &str) -> Result<KeyspaceOptions, Failure> {
    let mut options = KeyspaceOptions::default();
    options.set("index", name)?;
    Ok(options)
}

/// These options with an index like that of `asked`. An option that both kinds have keeps its
/// value.
pub(crate) fn with_index_of(options: &KeyspaceOptions, asked: &KeyspaceOptions) -> KeyspaceOptions {
    let mut options = options.of_kind(asked.index);
    options.btree.reshape = asked.btree.reshape;
    options
}

/// The options of keyspaces that the command creates.
pub(crate) fn of_created(created: &Created) -> Result<KeyspaceOptions, Failure> {
    let options = created.index.as_deref().map(index_named).transpose()?;
    Ok(options.unwrap_or_default())
}

/// Makes sure that a keyspace has the kind of index that the command asks for. One that has no
/// records gets it.
pub(crate) fn of_asked_kind(keyspace: &Keyspace, created: &Created) -> Result<(), Failure> {
    let Some(asked) = created.index.as_deref().map(index_named).transpose()? else {
        return Ok(());
    };
    let found = keyspace.options();
    let wanted = with_index_of(&found, &asked);
    if wanted == found {
        return Ok(());
    }
    if found.index == asked.index {
        // Whether a B+tree is reshaped is an option like any other.
        return Ok(keyspace.set_options(wanted)?);
    }
    let (name, found_kind, asked_kind) = (keyspace.name(), found.index.name(), asked.index.name());
    if keyspace.iter().keys().next().transpose()?.is_some() {
        return Err(Failure::Usage(format!(
            "keyspace {name:?} has records and an index of kind {found_kind}, not {asked_kind}; \
             `glintdb convert {name} --index {asked_kind}` converts it"
        )));
    }
    Ok(keyspace.convert(wanted)?)
}

/// The options of a command that sets none of a keyspace.
pub(crate) fn options(place: &Place, engine: &Engine) -> Result<Options, Failure> {
    let options = assigned(place, &engine.option)?;
    if options.keyspace.is_none() {
        return Ok(options.database);
    }
    let of_keyspace = |assignment: &&String| {
        let name = assignment.split('=').next().unwrap_or_default();
        KeyspaceOptions::has(name)
    };
    let first = engine.option.iter().find(of_keyspace);
    Err(Failure::Usage(format!(
        "`{}` is an option of a keyspace; `glintdb keyspaces --create NAME` and `--change NAME` set those",
        first.map_or("", String::as_str)
    )))
}

/// Opens a database, with a progress bar where its log is long.
pub(crate) fn database(dir: &Path, options: Options, missing: Missing) -> Result<Db, Failure> {
    if missing == Missing::Refuse {
        present(dir)?;
    }
    let options = options
        .create_if_missing(missing == Missing::Create)
        .progress(Some(progress::replay()));
    options.open(dir).map_err(|error| {
        if error.kind() == ErrorKind::NotFound && missing == Missing::Refuse {
            return nothing_in(dir);
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

/// Refuses a directory that does not exist, with a message that names `--dir`.
pub(crate) fn present(dir: &Path) -> Result<(), Failure> {
    if let Some(directories) = glintdb_flash::directories_of(dir)? {
        return directories.iter().try_for_each(|dir| present(dir));
    }
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

/// Opens an existing database to read it.
pub(crate) fn existing(place: &Place) -> Result<Db, Failure> {
    let options = assigned(place, &[])?.database;
    database(&place.dir, options, Missing::Refuse)
}

/// Opens an existing keyspace of an existing database to read it.
pub(crate) fn keyspace(target: &Target) -> Result<Keyspace, Failure> {
    Ok(existing(&target.place)?.keyspace(&target.keyspace)?)
}

/// Opens a keyspace to write to it. Makes the database where it is missing, and with `create` the
/// keyspace. Without it, a name other than `default` must be that of a keyspace: a mistyped one
/// makes neither.
pub(crate) fn keyspace_to_write(
    target: &Target,
    options: Options,
    create: bool,
) -> Result<Keyspace, Failure> {
    let (dir, name) = (&target.place.dir, &target.keyspace);
    if create {
        let db = database(dir, options, Missing::Create)?;
        return Ok(db.keyspace_or_create(name, KeyspaceOptions::default())?);
    }
    let missing = match name == DEFAULT_KEYSPACE {
        true => Missing::Create,
        false => Missing::Refuse,
    };
    let db = database(dir, options, missing)?;
    db.keyspace(name).map_err(|error| {
        if error.kind() != ErrorKind::NotFound {
            return error.into();
        }
        let message = format!(
            "there is no keyspace {name:?} in {}, only {}; `--create` makes it",
            dir.display(),
            db.keyspaces().join(", ")
        );
        glintdb::Error::new(ErrorKind::NotFound, message).into()
    })
}
