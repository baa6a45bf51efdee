//! The kinds of indexes. Only this folder names them: a module for each kind has what the engine
//! uses of it. This one makes and opens the index of a keyspace, encodes its options, and reads
//! what the manifest records of it.

pub(crate) mod lsm;

use crate::options::{IndexKind, KeyspaceOptions};
use crate::{Error, ErrorKind, Result};
use glintdb_core::codec::{Reader, put_bytes, put_varint};
use glintdb_core::index::Index;
use glintdb_runs::IndexEnv;
use glintdb_runs::table::TableMeta;
use lsm::{Lsm, LsmExperiments, LsmOptions, TableChange};
use std::sync::Arc;

/// Code of an LSM index in the options of a keyspace.
const LSM: u64 = 0;
/// First byte of the edits of an LSM index.
const LSM_EDIT: u8 = 1;

impl KeyspaceOptions {
    /// Appends the encoded form: the code of the kind of index, then the options of that kind.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let code = match self.index {
            IndexKind::Lsm => LSM,
        };
        put_varint(out, code);
        put_bytes(out, &self.encoded_index());
    }

    /// Returns the encoded options of the index.
    pub(crate) fn encoded_index(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.index {
            IndexKind::Lsm => self.lsm.encode(&mut out),
        }
        out
    }

    /// Decodes options. Returns `None` if the bytes are not options.
    ///
    /// # Errors
    /// `UnsupportedFormat`: this build does not know the kind or the version of the options.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Result<Self>> {
        let code = reader.varint()?;
        let mut encoded = Reader::new(reader.bytes()?);
        let unknown = |message: String| Err(Error::new(ErrorKind::UnsupportedFormat, message));
        Some(match code {
            LSM => match LsmOptions::decode(&mut encoded) {
                Some(lsm) if encoded.is_empty() => {
                    Ok(KeyspaceOptions::default().index(IndexKind::Lsm).lsm(lsm))
                }
                // The checksum of the record matches, so a build of another version wrote it.
                _ => unknown("options of an LSM index are not ones that this build knows".into()),
            },
            other => unknown(format!("index kind {other} is not known to this build")),
        })
    }
}

/// Checks the limits of the options of a keyspace's index.
///
/// # Errors
/// `InvalidArgument`: an option is beyond its limits. The message names it.
pub(crate) fn validate(options: &KeyspaceOptions) -> Result<()> {
    match options.index {
        IndexKind::Lsm => options.lsm.validate(),
    }
}

/// Returns the names of the options of a kind: first those for users, then those for experiments.
pub(crate) fn option_names(kind: IndexKind) -> impl Iterator<Item = &'static str> {
    match kind {
        IndexKind::Lsm => LsmOptions::NAMES.into_iter().chain(LsmExperiments::NAMES),
    }
}

/// Makes indexes that share a volume, a cache and a memory budget.
pub(crate) struct IndexFactory {
    env: IndexEnv,
}

impl IndexFactory {
    pub(crate) fn new(env: IndexEnv) -> Self {
        IndexFactory { env }
    }

    /// Creates an empty index.
    pub(crate) fn create(&self, options: &KeyspaceOptions) -> Result<Arc<dyn Index>> {
        let env = self.env.clone();
        match options.index {
            IndexKind::Lsm => Ok(Lsm::create(env, options.lsm.clone())?),
        }
    }

    /// Opens an index from the edits that the manifest recorded for it.
    pub(crate) fn open(
        &self,
        options: &KeyspaceOptions,
        edits: &[Vec<u8>],
    ) -> Result<Arc<dyn Index>> {
        let env = self.env.clone();
        match options.index {
            IndexKind::Lsm => Ok(Lsm::open(env, options.lsm.clone(), edits)?),
        }
    }
}

/// Returns the tables that an edit of an index of any kind adds and removes.
///
/// # Errors
/// `Corruption`: the bytes are not an edit. `UnsupportedFormat`: the edit is of a kind or version
/// that this build does not know.
pub(crate) fn table_changes(edit: &[u8]) -> Result<Vec<TableChange>> {
    match edit.first() {
        None => Ok(Vec::new()),
        Some(&LSM_EDIT) => Lsm::table_changes(edit),
        Some(other) => Err(Error::new(
            ErrorKind::UnsupportedFormat,
            format!("an edit of an index begins with {other}, which this build does not know"),
        )),
    }
}

/// Returns the tables that are left after the edits of an index. Skips edits that do not parse.
pub(crate) fn tables_after(edits: &[Vec<u8>]) -> Vec<TableMeta> {
    Lsm::tables_after(edits)
}
