//! Spares: files that are no longer needed and are kept to be written again, because they have
//! their blocks already (`docs/decisions/025-recycled-files.md`).
//!
//! Thread safety: any thread.
//!
//! Invariants:
//! 1. A spare has no other name, and has not been open since before it lost its old name.
//! 2. A spare is written again only after the directory was synced without its old name, so no
//!    power cut brings that name back with other bytes.
//! 3. Spares of an earlier process are removed before this one keeps or writes a file, and are
//!    never written, because their bytes may be of any database. A volume that makes no files, such
//!    as a reader's, leaves them alone.

use super::Shared;
use super::blocks::{TAKEN_BESIDE_MAX, taken};
use glintdb_core::FileId;
use parking_lot::Mutex;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The most spares of a directory. A round of value GC frees two or three segments at a time.
const SPARES_MAX: usize = 4;
/// Number of names for spares. Some may be those of files that are just being removed.
const SLOTS: usize = 2 * SPARES_MAX;

/// A spare that did not fit this often is removed. Files of moved values and files of commits have
/// two sizes, and both are wanted often.
const MISFITS_MAX: u32 = 8;
/// A spare of no more than this is cut to any size that is wanted.
const FITS_ALL_BYTES: u64 = 1 << 20;

/// The spares of a directory.
pub(super) struct Spares {
    state: Mutex<State>,
    /// Held while a spare is removed without the lock of `state`. It is taken under that lock, if
    /// it is free.
    removal: Mutex<()>,
    /// How often space was given back. Changed under the lock of `state`; writers read it without a
    /// lock.
    releases: AtomicU64,
    /// Whether the file system overwrites blocks in place. If it copies on write, the blocks of a
    /// spare reserve nothing, and none is kept.
    in_place: bool,
}

#[derive(Default)]
struct State {
    /// Whether the spares of an earlier process have been removed.
    searched: bool,
    kept: Vec<Spare>,
    /// Bytes of the spare that is just being removed.
    removing_bytes: u64,
    /// Whether a spare was removed and the directory perhaps not synced since.
    removed: bool,
    /// Size of the largest file that was wanted so far.
    wanted_most: u64,
    /// Number of spares so far.
    count: u64,
}

struct Spare {
    /// The N of `spare-N.glint`.
    slot: usize,
    /// Device and inode of the file.
    file: (u64, u64),
    /// Number of spares before it.
    number: u64,
    /// Bytes that its blocks take.
    bytes: u64,
    /// Whether the directory was synced since it lost its old name.
    renamed_durably: bool,
    /// How often a file of quite another size was wanted.
    misfits: u32,
}

impl Spare {
    /// Whether it is the file at `path` and has no other name.
    fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|metadata| {
            metadata.is_file()
                && (metadata.dev(), metadata.ino()) == self.file
                && metadata.nlink() == 1
        })
    }

    /// Whether it saves a file of `wanted` bytes more work than it costs. The device erases blocks
    /// that are cut off, and the file system makes those that are missing.
    fn fits(&self, wanted: u64) -> bool {
        self.bytes >= wanted / 2 && !is_too_large(self.bytes, wanted)
    }
}

fn is_too_large(bytes: u64, wanted: u64) -> bool {
    let most = wanted.saturating_add(wanted / 4).max(FITS_ALL_BYTES);
    bytes > most.saturating_add(TAKEN_BESIDE_MAX)
}

/// The number of spares when a sync of the directory began.
pub(super) struct Before(u64);

impl State {
    /// Removes the spares of an earlier process. If the files of the database were replaced by
    /// older ones since, a spare may have frames of the very segments that are made next. Returns
    /// whether that gave space back.
    fn search(&mut self, directory: &Path) -> bool {
        if std::mem::replace(&mut self.searched, true) {
            return false;
        }
        // If one cannot be removed, its name is not used.
        let remove = |slot| fs::remove_file(path(directory, slot)).is_ok();
        (0..SLOTS).map(remove).fold(false, |any, one| any | one)
    }

    /// Removes all spares. Returns whether that gave space back. A file that cannot be removed
    /// stays a spare.
    fn remove_all(&mut self, directory: &Path) -> bool {
        let mut removed_some = self.search(directory) | std::mem::take(&mut self.removed);
        self.kept.retain(|spare| {
            let removed = fs::remove_file(path(directory, spare.slot));
            removed_some |= removed.is_ok();
            removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        });
        removed_some
    }

    /// Takes out a spare that did not fit too often. The caller removes its file.
    fn take_misfit(&mut self) -> Option<Spare> {
        let fits_nobody = |spare: &Spare| spare.misfits >= MISFITS_MAX;
        let at = self.kept.iter().position(fits_nobody)?;
        Some(self.kept.swap_remove(at))
    }

    fn free_slot(&self, directory: &Path) -> Option<usize> {
        let free = |slot: &usize| {
            let taken = self.kept.iter().any(|spare| spare.slot == *slot);
            !taken && !path(directory, *slot).exists()
        };
        (0..SLOTS)
            .find(free)
            .filter(|_| self.kept.len() < SPARES_MAX)
    }

    /// Gives the file `id` the name of `slot`. Returns whether the file lost its old name.
    fn keep(&mut self, shared: &Shared, id: FileId, slot: usize) -> bool {
        let from = shared.file_path(id);
        let kept = path(&shared.path, slot);
        if !matches!(
            shared
                .handles
                .unless_in_use(id, || fs::rename(&from, &kept)),
            Some(Ok(()))
        ) {
            return false;
        }
        // Checked only now: as long as the file had its name, it could be given another one.
        match fs::symlink_metadata(&kept) {
            Ok(metadata) if metadata.nlink() == 1 => self.add(slot, &metadata),
            _ => {
                // If this fails, the name of the slot is taken and not used again.
                fs::remove_file(&kept).ok();
            }
        }
        true
    }

    fn add(&mut self, slot: usize, metadata: &fs::Metadata) {
        assert!(
            self.kept.len() < SPARES_MAX && self.kept.iter().all(|spare| spare.slot != slot),
            "each of {SPARES_MAX} spares at most has a name of its own: {slot}"
        );
        self.kept.push(Spare {
            slot,
            file: (metadata.dev(), metadata.ino()),
            number: self.count,
            bytes: taken(metadata),
            renamed_durably: false,
            misfits: 0,
        });
        self.count += 1;
    }
}

fn name(slot: usize) -> String {
    format!("spare-{slot}.glint")
}

fn path(directory: &Path, slot: usize) -> PathBuf {
    directory.join(name(slot))
}

/// Whether a spare can have this name.
pub(super) fn is_name(text: &str) -> bool {
    (0..SLOTS).any(|slot| name(slot) == text)
}

impl Spares {
    pub(super) fn new(in_place: bool) -> Self {
        Spares {
            state: Mutex::default(),
            removal: Mutex::default(),
            releases: AtomicU64::new(0),
            in_place,
        }
    }

    /// Makes the file `id` a spare, and takes its name away. A file with other names loses this one
    /// and is no spare. Returns `false`, and leaves the file, if it would be of no use, there are
    /// enough spares, it is open, or it cannot be renamed. Also removes a spare that did not fit
    /// too often.
    pub(super) fn keep(&self, shared: &Shared, id: FileId) -> bool {
        if !self.in_place {
            return false;
        }
        let mut state = self.state.lock();
        state.search(&shared.path);
        let from = shared.file_path(id);
        // A file that was made larger than all others, for one value, is of no use for them.
        let wanted_most = state.wanted_most;
        let is_of_use = |metadata: fs::Metadata| {
            let bytes = taken(&metadata);
            metadata.is_file() && (wanted_most == 0 || !is_too_large(bytes, wanted_most))
        };
        if !fs::symlink_metadata(&from).is_ok_and(is_of_use) {
            return false;
        }
        // Only if no other spare is just being removed; otherwise the next call does so.
        let removal = self.removal.try_lock();
        let misfit = removal.as_ref().and_then(|_| state.take_misfit());
        if let Some(spare) = &misfit {
            state.removing_bytes = spare.bytes;
        }
        let kept = state
            .free_slot(&shared.path)
            .is_some_and(|slot| state.keep(shared, id, slot));
        drop(state);
        if let Some(spare) = misfit {
            // Without the lock: the file system may take milliseconds, and segments are made
            // meanwhile. If the file cannot be removed, its name is not used again.
            let removed = fs::remove_file(path(&shared.path, spare.slot)).is_ok();
            let mut state = self.state.lock();
            state.removing_bytes = 0;
            state.removed |= removed;
        }
        kept
    }

    /// Gives the spare whose size is nearest to `wanted` bytes the name `to`. Returns `false` if
    /// none fits and can be written, or if the name is taken.
    pub(super) fn take(&self, directory: &Path, to: &Path, wanted: u64) -> bool {
        let mut state = self.state.lock();
        state.search(directory);
        if to.try_exists().unwrap_or(true) {
            return false;
        }
        state.wanted_most = state.wanted_most.max(wanted);
        for spare in &mut state.kept {
            spare.misfits += u32::from(!spare.fits(wanted));
        }
        let usable = (state.kept.iter().enumerate())
            .filter(|(_, spare)| spare.renamed_durably && spare.fits(wanted));
        let nearest = usable.min_by_key(|(_, spare)| spare.bytes.abs_diff(wanted));
        let Some(at) = nearest.map(|(at, _)| at) else {
            return false;
        };
        let spare = state.kept.swap_remove(at);
        let from = path(directory, spare.slot);
        let renamed = spare.is_at(&from) && fs::rename(&from, to).is_ok();
        if !renamed {
            // If this fails too, the name is not used again.
            fs::remove_file(&from).ok();
        }
        renamed
    }

    /// The number of spares so far. The caller asks before it syncs the directory.
    pub(super) fn before_sync(&self) -> Before {
        Before(self.state.lock().count)
    }

    /// Notes that the directory was synced after `before`.
    pub(super) fn synced(&self, before: Before) {
        for spare in &mut self.state.lock().kept {
            spare.renamed_durably |= spare.number < before.0;
        }
    }

    /// How often space was given back so far.
    pub(super) fn releases(&self) -> u64 {
        self.releases.load(Ordering::Acquire)
    }

    /// Removes all spares. Returns whether space was given back since there were `seen`
    /// [`releases`](Self::releases), by this thread or by another one.
    pub(super) fn release_since(&self, seen: u64, shared: &Shared) -> bool {
        // Waits for a thread that is removing a spare, which makes space.
        let _removal = self.removal.lock();
        let mut state = self.state.lock();
        if self.releases() == seen && state.remove_all(&shared.path) {
            // Some file systems count blocks as free only when their removal is durable. If this
            // fails, the next sync reports it. Under the lock, so that threads that wait for it
            // find the space.
            shared.sync_names().ok();
            self.releases.fetch_add(1, Ordering::Release);
        }
        self.releases() != seen
    }

    /// Bytes that the spares take.
    pub(super) fn bytes(&self) -> u64 {
        let state = self.state.lock();
        let kept = state.kept.iter().map(|spare| spare.bytes);
        kept.sum::<u64>() + state.removing_bytes
    }

    /// Removes all spares, if this volume has made some or has looked for those of an earlier
    /// process.
    pub(super) fn clear(&self, directory: &Path) {
        let mut state = self.state.lock();
        if state.searched {
            // A thread that just found no space looks at this.
            state.removed = state.remove_all(directory);
        }
    }
}
