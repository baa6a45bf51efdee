//! A simulated directory: names, those of the last sync, and the changes since; its ring; and files that are kept to be written again.
//!
//! Invariant: `names` is `synced_names` with all of `changes`.

use super::CrashMode;
use super::image::Image;
use super::random::Random;
use glintdb_core::{Error, ErrorKind, FileId, Result};
use std::collections::BTreeMap;

/// Files that are kept to be written again, at most.
const SPARES_MAX: usize = 2;

/// A name that was made (`Some`) or removed since the directory was synced.
#[derive(Clone, Copy)]
struct Change {
    /// Number of the operation.
    since: u64,
    id: FileId,
    inode: Option<u64>,
}

/// The file of the ring.
#[derive(Clone, Default)]
pub(super) struct RingFile {
    pub(super) image: Image,
    /// Bytes from the front on that have space.
    pub(super) allocated: usize,
    /// [`allocated`](Self::allocated) at the last sync.
    synced_allocated: usize,
}

impl RingFile {
    /// A ring that reads as zeros, durably, and has no space.
    pub(super) fn new(bytes: usize, operation: u64) -> RingFile {
        let mut image = Image::default();
        image.set_len(bytes, operation);
        image.sync();
        RingFile {
            image,
            ..RingFile::default()
        }
    }

    /// Gives back the space of all but the first `bytes`.
    pub(super) fn shrink(&mut self, bytes: usize, operation: u64) {
        if bytes < self.allocated {
            let zeros = vec![0; self.allocated - bytes];
            self.image.write(bytes, &zeros, operation);
            self.allocated = bytes;
        }
    }

    pub(super) fn sync(&mut self) {
        self.image.sync();
        self.synced_allocated = self.allocated;
    }

    /// What a power cut leaves. It may undo what was allocated or given back since the last sync.
    pub(super) fn after_power_cut(&self, mode: CrashMode, random: &mut Random) -> RingFile {
        let keeps = match mode {
            CrashMode::LoseUnsynced | CrashMode::Prefix { .. } => false,
            CrashMode::KeepUnsynced => true,
            CrashMode::Random { .. } | CrashMode::Garbage { .. } => random.coin(),
        };
        let allocated = match keeps {
            true => self.allocated,
            false => self.synced_allocated,
        };
        RingFile {
            image: self.image.after_power_cut(mode, random),
            allocated,
            synced_allocated: allocated,
        }
    }
}

/// A simulated directory.
#[derive(Clone, Default)]
pub(super) struct Directory {
    names: BTreeMap<FileId, u64>,
    synced_names: BTreeMap<FileId, u64>,
    changes: Vec<Change>,
    pub(super) ring: Option<RingFile>,
    /// Inodes without a name that are kept to be written again, and whether the directory was synced since they lost it.
    spares: Vec<(u64, bool)>,
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
        self.spares.iter_mut().for_each(|spare| spare.1 = true);
    }

    /// Keeps an inode that has lost its name to be written again, if there are not enough.
    pub(super) fn keep(&mut self, inode: u64) {
        if self.spares.len() < SPARES_MAX {
            self.spares.push((inode, false));
        }
    }

    /// An inode that can be written again: no power cut brings its old name back.
    pub(super) fn take_spare(&mut self) -> Option<u64> {
        let at = self.spares.iter().position(|&(_, synced)| synced)?;
        Some(self.spares.swap_remove(at).0)
    }

    /// What is kept goes with the process.
    pub(super) fn forget_spares(&mut self) {
        self.spares.clear();
    }

    /// Whether a power cut could take a name.
    pub(super) fn is_synced(&self) -> bool {
        self.changes.is_empty()
    }

    /// First operation that made or removed a name since the last sync.
    pub(super) fn unsynced_since(&self) -> Option<u64> {
        self.changes.first().map(|change| change.since)
    }

    /// Inodes that some name refers to, now or after some power cut, and those that are kept.
    pub(super) fn inodes(&self) -> impl Iterator<Item = u64> + '_ {
        let changed = self.changes.iter().filter_map(|change| change.inode);
        let named = self.names.values().chain(self.synced_names.values());
        let spares = self.spares.iter().map(|&(inode, _)| inode);
        named.copied().chain(changed).chain(spares)
    }

    /// The names that a power cut leaves; the ring is not looked at, and no file is kept to be written again.
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
