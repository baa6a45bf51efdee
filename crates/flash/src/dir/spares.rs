//! Files that nobody needs any more and that are kept to be written again: their blocks are there already (`docs/decisions/025-recycled-files.md`).
//!
//! Thread-safe. Invariants: 1. A spare has no other name, and nobody has had it open since before it lost its old one. 2. It is written again only after the directory was synced without
//! its old name, so no power cut brings that name back with other bytes. 3. What an earlier process left is removed before this one keeps or writes anything, and never written: whose bytes they are
//! is not known. A volume that makes no files, a reader's, leaves it alone.

use super::Shared;
use glintdb_core::{Error, FileId, Result};
use parking_lot::Mutex;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Spares of a directory, at most.
const SPARES_MAX: usize = 2;

/// See the module's page.
#[derive(Default)]
pub(super) struct Spares(Mutex<State>);

#[derive(Default)]
struct State {
    /// Whether what an earlier process left has been removed.
    searched: bool,
    kept: Vec<Spare>,
    /// Spares so far.
    count: u64,
}

struct Spare {
    /// The N of `spare-N.glint`.
    slot: usize,
    /// Which of all spares there were.
    number: u64,
    /// What its blocks take.
    bytes: u64,
    /// The directory was synced since it lost its old name.
    renamed_durably: bool,
}

/// How many spares there were when a sync of the directory began.
pub(super) struct Before(u64);

impl State {
    /// Removes what an earlier process left: if somebody has put other files of the same database into its place since, it may hold frames of the very segments that are made next.
    fn search(&mut self, directory: &Path) -> bool {
        if std::mem::replace(&mut self.searched, true) {
            return false;
        }
        // What cannot be removed is in nobody's way but this one's, and says so by staying.
        let remove = |slot| fs::remove_file(path(directory, slot)).is_ok();
        (0..SPARES_MAX)
            .map(remove)
            .fold(false, |any, one| any | one)
    }

    fn add(&mut self, slot: usize, bytes: u64) {
        self.kept.push(Spare {
            slot,
            number: self.count,
            bytes,
            renamed_durably: false,
        });
        self.count += 1;
    }
}

fn path(directory: &Path, slot: usize) -> PathBuf {
    directory.join(format!("spare-{slot}.glint"))
}

impl Spares {
    /// Takes the file `id` for a spare and its name away; `false`, and nothing is done: there are enough, it is open, or it has other names.
    pub(super) fn keep(&self, shared: &Shared, id: FileId) -> Result<bool> {
        let mut state = self.0.lock();
        state.search(&shared.path);
        let free = (0..SPARES_MAX).find(|&slot| {
            let taken = state.kept.iter().any(|spare| spare.slot == slot);
            !taken && !path(&shared.path, slot).exists()
        });
        let Some(slot) = free else {
            return Ok(false);
        };
        let from = shared.file_path(id);
        let failed = |error| Error::io(format!("delete {id}"), error);
        let metadata = fs::symlink_metadata(&from).map_err(failed)?;
        let linked = metadata.nlink() > 1
            && !glintdb_core::seeded::bug(
                "flash: a deleted file that has another name is recycled",
            );
        if linked || !metadata.is_file() {
            return Ok(false);
        }
        let rename = || fs::rename(&from, path(&shared.path, slot)).map_err(failed);
        let Some(renamed) = shared.handles.unless_open(id, rename) else {
            return Ok(false);
        };
        renamed?;
        state.add(slot, super::file::taken(&metadata));
        Ok(true)
    }

    /// Gives a spare the name `to`, which must not exist; `false`: there is none that can be written.
    pub(super) fn take(&self, directory: &Path, to: &Path) -> io::Result<bool> {
        let mut state = self.0.lock();
        state.search(directory);
        let Some(at) = state.kept.iter().position(|spare| spare.renamed_durably) else {
            return Ok(false);
        };
        if to.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let spare = state.kept.swap_remove(at);
        fs::rename(path(directory, spare.slot), to)?;
        Ok(true)
    }

    /// To be asked before the directory is synced.
    pub(super) fn before_sync(&self) -> Before {
        Before(self.0.lock().count)
    }

    /// The directory was synced.
    pub(super) fn synced(&self, before: Before) {
        for spare in &mut self.0.lock().kept {
            spare.renamed_durably |= spare.number < before.0;
        }
    }

    /// Removes them all; whether that gave space back.
    pub(super) fn release(&self, directory: &Path) -> bool {
        let mut state = self.0.lock();
        let mut released = state.search(directory);
        for spare in state.kept.drain(..) {
            released |= fs::remove_file(path(directory, spare.slot)).is_ok();
        }
        released
    }

    /// What they take.
    pub(super) fn bytes(&self) -> u64 {
        self.0.lock().kept.iter().map(|spare| spare.bytes).sum()
    }

    /// [`release`](Self::release) where this volume has made some, or has looked for those of an earlier process.
    pub(super) fn close(&self, directory: &Path) {
        if self.0.lock().searched {
            self.release(directory);
        }
    }
}
