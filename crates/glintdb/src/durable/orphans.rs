//! Removal of index files that no index names: outputs of flushes, compactions and openings that a
//! crash cut off.

use crate::Result;
use crate::durable::manifest::{Loaded, unfinished_from};
use crate::index_kinds::AnyIndex;
use crate::shared::Shared;
use crate::state::version::KeyspaceState;
use glintdb_core::{FileId, KeyspaceId};
use glintdb_flash::Volume;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Removes index files that unfinished openings have written from the log. Each opening writes them
/// again: a long row of unfinished openings would fill the medium.
pub(super) fn remove_unfinished(
    volume: &dyn Volume,
    loaded: &Loaded,
    keyspaces: &BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
) -> Result<()> {
    let Some(first) = unfinished_from(volume, loaded)? else {
        return Ok(());
    };
    let named = files_of(keyspaces.values().map(|keyspace| keyspace.index()));
    remove_tables(volume, |id| id.number >= first && !named.contains(&id))
}

/// Removes index files that no index names: outputs of flushes and compactions that a crash cut
/// off.
pub(super) fn remove_orphans(shared: &Shared) -> Result<()> {
    let version = shared.version.load();
    let keyspaces = version.live_keyspaces();
    let named = files_of(keyspaces.map(|keyspace| keyspace.state.index()));
    remove_tables(&*shared.volume, |id| !named.contains(&id))
}

fn files_of(indexes: impl Iterator<Item = Arc<AnyIndex>>) -> BTreeSet<FileId> {
    indexes.flat_map(|index| index.files()).collect()
}

fn remove_tables(volume: &dyn Volume, unwanted: impl Fn(FileId) -> bool) -> Result<()> {
    let mut removed = false;
    for id in volume.list()? {
        if id.kind.is_index() && unwanted(id) {
            volume.delete(id)?;
            removed = true;
        }
    }
    match removed {
        true => volume.sync_directory(),
        false => Ok(()),
    }
}
