//! The kinds of indexes. Only this folder names them: a module for each kind has what the engine
//! uses of it. This one makes and opens the index of a keyspace, encodes its options, and reads
//! what the manifest records of it.

pub(crate) mod btree;
mod convert;
pub(crate) mod lsm;

pub(crate) use convert::Conversion;

use crate::options::{IndexKind, KeyspaceOptions};
use crate::{Error, ErrorKind, Result};
use btree::{BTree, BTreeExperiments, BTreeOptions};
use glintdb_core::FileId;
use glintdb_core::codec::{Reader, put_bytes, put_varint};
use glintdb_core::index::Index;
use glintdb_runs::IndexEnv;
use glintdb_runs::table::TableMeta;
use lsm::{Lsm, LsmExperiments, LsmOptions};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

/// Code of an LSM index in the options of a keyspace.
const LSM: u64 = 0;
/// Code of a B+tree index in the options of a keyspace.
const BTREE: u64 = 1;
/// First byte of the edits of an LSM index.
const LSM_EDIT: u8 = 1;

impl KeyspaceOptions {
    /// Appends the encoded form: the code of the kind of index, then the options of that kind.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let code = match self.index {
            IndexKind::Lsm => LSM,
            IndexKind::BTree => BTREE,
        };
        put_varint(out, code);
        put_bytes(out, &self.encoded_index());
    }

    /// Returns the encoded options of the index.
    pub(crate) fn encoded_index(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.index {
            IndexKind::Lsm => self.lsm.encode(&mut out),
            IndexKind::BTree => self.btree.encode(&mut out),
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
        let options = KeyspaceOptions::default();
        let (name, options) = match code {
            LSM => {
                let lsm = LsmOptions::decode(&mut encoded);
                (
                    "an LSM",
                    lsm.map(|lsm| options.index(IndexKind::Lsm).lsm(lsm)),
                )
            }
            BTREE => {
                let btree = BTreeOptions::decode(&mut encoded);
                let options = btree.map(|btree| options.index(IndexKind::BTree).btree(btree));
                ("a B+tree", options)
            }
            other => {
                return Some(unknown(format!(
                    "index kind {other} is not known to this build"
                )));
            }
        };
        Some(match options {
            Some(options) if encoded.is_empty() => Ok(options),
            // The checksum of the record matches, so a build of another version wrote it.
            _ => unknown(format!(
                "options of {name} index are not ones that this build knows"
            )),
        })
    }
}

/// Checks the limits of the options of a keyspace's index.
///
/// # Errors
/// `InvalidArgument`: an option is beyond its limits, or an option of another kind of index alone
/// is set. The message names it.
pub(crate) fn validate(options: &KeyspaceOptions) -> Result<()> {
    // A value that would not count is a mistake.
    let own = option_names(options.index);
    for kind in [IndexKind::Lsm, IndexKind::BTree] {
        let set = options.clone().index(kind).changed();
        let foreign = |(name, _): &(&str, String)| *name != "index" && !own.contains(name);
        if let Some((name, value)) = set.into_iter().find(foreign) {
            let (other, index) = (kind.name(), options.index.name());
            return Err(Error::invalid(format!(
                "{name}: {value} is an option of an index of kind {other}, and the index is of \
                 kind {index}"
            )));
        }
    }
    match options.index {
        IndexKind::Lsm => options.lsm.validate(),
        IndexKind::BTree => options.btree.validate(),
    }
}

/// Returns the percent of the memory budget that the table of original keys of a reshaped keyspace
/// may take. 0: the keyspace is not reshaped.
pub(crate) fn remap_percent(options: &KeyspaceOptions) -> u64 {
    match options.index {
        IndexKind::BTree if options.btree.reshape => options.btree.reshape_share.into(),
        IndexKind::BTree | IndexKind::Lsm => 0,
    }
}

impl KeyspaceOptions {
    /// Returns these options for an index of another kind. An option that both kinds have keeps its
    /// value. The others have their defaults.
    ///
    /// ```
    /// use glintdb::{Compression, IndexKind, KeyspaceOptions};
    /// let lsm = KeyspaceOptions::default().compression(Compression::Lz4);
    /// let btree = lsm.of_kind(IndexKind::BTree);
    /// assert_eq!(btree.index, IndexKind::BTree);
    /// assert_eq!(btree.btree.compression, Compression::Lz4);
    /// ```
    #[must_use]
    pub fn of_kind(&self, kind: IndexKind) -> KeyspaceOptions {
        let mut options = KeyspaceOptions::default().index(kind);
        let own = option_names(kind);
        for (name, value) in self.entries().iter().filter(|(name, _)| own.contains(name)) {
            // Each entry can be set again.
            let set = options.set(name, value);
            debug_assert!(set.is_ok(), "{set:?}");
        }
        options
    }
}

/// Returns the names of the options of a kind: first those for users, then those for experiments.
pub(crate) fn option_names(kind: IndexKind) -> Vec<&'static str> {
    match kind {
        IndexKind::Lsm => [&LsmOptions::NAMES[..], &LsmExperiments::NAMES].concat(),
        IndexKind::BTree => [&BTreeOptions::NAMES[..], &BTreeExperiments::NAMES].concat(),
    }
}

/// An index of any kind.
pub(crate) enum AnyIndex {
    Lsm(Arc<Lsm>),
    BTree(Arc<BTree>),
}

impl Deref for AnyIndex {
    type Target = dyn Index;

    fn deref(&self) -> &Self::Target {
        match self {
            AnyIndex::Lsm(index) => &**index,
            AnyIndex::BTree(index) => &**index,
        }
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
    pub(crate) fn create(&self, options: &KeyspaceOptions) -> Result<AnyIndex> {
        let env = self.env.clone();
        match options.index {
            IndexKind::Lsm => Lsm::create(env, options.lsm.clone()).map(AnyIndex::Lsm),
            IndexKind::BTree => BTree::create(env, options.btree.clone()).map(AnyIndex::BTree),
        }
    }

    /// Opens an index from the edits that the manifest recorded for it.
    pub(crate) fn open(&self, options: &KeyspaceOptions, edits: &[Vec<u8>]) -> Result<AnyIndex> {
        let env = self.env.clone();
        match options.index {
            IndexKind::Lsm => Lsm::open(env, options.lsm.clone(), edits).map(AnyIndex::Lsm),
            IndexKind::BTree => BTree::open(env, options.btree.clone(), edits).map(AnyIndex::BTree),
        }
    }

    /// Begins to replace an index, which is [paused](Index::pause), by one of another kind. `None`:
    /// a job that has begun must end first.
    pub(crate) fn convert(
        &self,
        old: &Arc<AnyIndex>,
        options: &KeyspaceOptions,
    ) -> Result<Option<Conversion>> {
        Conversion::begin(self.env.clone(), old, options)
    }
}

/// A file that an edit of an index adds or removes.
pub(crate) struct FileChange {
    pub(crate) id: FileId,
    /// The level of an LSM tree that it is at. `None`: it belongs to a B+tree.
    pub(crate) level: Option<u8>,
    /// The run that it belongs to, at the top of the index.
    pub(crate) run: Option<u64>,
    pub(crate) is_added: bool,
    /// The properties of a table that is added.
    pub(crate) meta: Option<TableMeta>,
}

/// Returns the files that an edit of an index of any kind adds and removes.
///
/// # Errors
/// `Corruption`: the bytes are not an edit. `UnsupportedFormat`: the edit is of a kind or version
/// that this build does not know.
pub(crate) fn file_changes(edit: &[u8]) -> Result<Vec<FileChange>> {
    match edit.first() {
        None => Ok(Vec::new()),
        Some(&LSM_EDIT) => {
            let changes = Lsm::table_changes(edit)?.into_iter();
            let change = |change: lsm::TableChange| FileChange {
                id: change.id,
                level: Some(change.level),
                run: change.run,
                is_added: change.added.is_some(),
                meta: change.added,
            };
            Ok(changes.map(change).collect())
        }
        Some(&btree::EDIT_VERSION) => {
            let changes = BTree::file_changes(edit)?.into_iter();
            let change = |change: btree::FileChange| FileChange {
                id: change.id,
                level: None,
                run: change.run,
                is_added: change.is_added,
                meta: change.added,
            };
            Ok(changes.map(change).collect())
        }
        Some(other) => Err(Error::new(
            ErrorKind::UnsupportedFormat,
            format!("an edit of an index begins with {other}, which this build does not know"),
        )),
    }
}

/// Returns the tables that are left after the edits of an index. Skips edits that do not parse.
pub(crate) fn tables_after(edits: &[Vec<u8>]) -> Vec<TableMeta> {
    let mut tables = BTreeMap::new();
    for change in edits
        .iter()
        .flat_map(|edit| file_changes(edit).unwrap_or_default())
    {
        match change.meta {
            Some(meta) => {
                tables.insert(change.id, meta);
            }
            // A table of an LSM tree that moves is removed from one level and added to another.
            None if !change.is_added => {
                tables.remove(&change.id);
            }
            None => {}
        }
    }
    tables.into_values().collect()
}
