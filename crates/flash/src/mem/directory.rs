//! A simulated directory: names, those of the last sync, and the changes since; and its ring.
//!
//! Invariant: `names` is `synced_names` with all of `changes`.

use super::CrashMode;
use super::image::Image;
use super::random::Random;
use glintdb_core::{Error, ErrorKind, FileId, Result};
use std::collections::BTreeMap;

/// A name that was made (`Some`) or removed since the directory was synced.
#[derive(Clone, Copy)]
struct Change {
    /// Number of the operation.
    since: u64,
    id: FileId,
    inode: Option<u64>,
}

/// See the module's page.
#[derive(Clone, Default)]
pub(super) struct Directory {
    names: BTreeMap<FileId, u64>,
    synced_names: BTreeMap<FileId, u64>,
    changes: Vec<Change>,
    pub(super) ring: Option<Image>,
    /// A sync of the names has failed: none is believed until the directory is opened again.
    pub(super) sync_failed: bool,
}

impl Directory {
    pub(super) fn names(&self) -> &BTreeMap<FileId, u64> {
        &self.names
    }

    pub(super) fn synced_names(&self) -> &BTreeMap<FileId, u64> {
        &self.synced_names
    }

    pub(super) fn find(&self, id: FileId) -> Result<u64> {
        self.names
            .get(&id)
            .copied()
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("{id} is not there")))
    }

    /// Gives the name to another inode, or takes it away.
    pub(super) fn change(&mut self, id: FileId, inode: Option<u64>, operation: u64) {
        let change = Change {
            since: operation,
            id,
            inode,
        };
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    pub(super) fn sync(&mut self) {
        self.synced_names.clone_from(&self.names);
        self.changes.clear();
    }

    /// Whether a power cut could take a name.
    pub(super) fn is_synced(&self) -> bool {
        self.changes.is_empty()
    }

    /// First operation that made or removed a name since the last sync.
    pub(super) fn unsynced_since(&self) -> Option<u64> {
        self.changes.first().map(|change| change.since)
    }

    /// Inodes that some name refers to, now or after some power cut.
    pub(super) fn inodes(&self) -> impl Iterator<Item = u64> + '_ {
        let changed = self.changes.iter().filter_map(|change| change.inode);
        let named = self.names.values().chain(self.synced_names.values());
        named.copied().chain(changed)
    }

    /// The names that a power cut leaves; the ring is not looked at.
    pub(super) fn after_power_cut(&self, mode: CrashMode, random: &mut Random) -> Directory {
        let mut names = self.synced_names.clone();
        for change in &self.changes {
            let survives = match mode {
                CrashMode::LoseUnsynced => false,
                CrashMode::KeepUnsynced => true,
                CrashMode::Random { .. } | CrashMode::Garbage { .. } => random.coin(),
                CrashMode::Prefix { operations } => change.since < operations,
            };
            if survives {
                change.apply(&mut names);
            }
        }
        Directory {
            synced_names: names.clone(),
            names,
            ..Directory::default()
        }
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<FileId, u64>) {
        match self.inode {
            Some(inode) => names.insert(self.id, inode),
            None => names.remove(&self.id),
        };
    }
}
