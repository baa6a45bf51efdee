//! Files that nobody needs any more and that are kept to be written again: their blocks are there already (`docs/decisions/025-recycled-files.md`).
//!
//! Thread-safe. Invariants: 1. A spare has no other name, and nobody has had it open since before it lost its old one. 2. It is written again only after the directory was synced without
//! its old name, so no power cut brings that name back with other bytes. 3. What an earlier process left is removed before this one keeps or writes anything, and never written: whose bytes they are
//! is not known. A volume that makes no files, a reader's, leaves it alone.

use super::Shared;
use super::file::TAKEN_BESIDE_MAX;
use glintdb_core::FileId;
use parking_lot::Mutex;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Spares of a directory, at most: a round of value GC gives away two or three segments at a time.
const SPARES_MAX: usize = 4;
/// Names for them: some may be those of files that are just being removed.
const SLOTS: usize = 2 * SPARES_MAX;

/// A spare that did not fit so often goes: files of moved values and of commits are of two sizes, and both come often.
const MISFITS_MAX: u32 = 8;
/// A spare of no more than this is cut to whatever is wanted.
const FITS_ALL_BYTES: u64 = 1 << 20;

/// See the module's page.
pub(super) struct Spares {
    state: Mutex<State>,
    /// Held while a spare is removed without the lock of `state`, under which it is taken, if nobody has it.
    removal: Mutex<()>,
    /// How often space was given back. Changed under the lock; whoever writes reads it, and waits for nobody.
    releases: AtomicU64,
    /// Whether blocks that are written again are the same ones. Where the file system copies on write, a spare's blocks reserve nothing, and none is kept.
    in_place: bool,
}

#[derive(Default)]
struct State {
    /// Whether what an earlier process left has been removed.
    searched: bool,
    kept: Vec<Spare>,
    /// Of the one that is just being removed.
    removing_bytes: u64,
    /// One was removed, and the directory perhaps not synced since.
    removed: bool,
    /// The largest file that was wanted so far.
    wanted_most: u64,
    /// Spares so far.
    count: u64,
}

struct Spare {
    /// The N of `spare-N.glint`.
    slot: usize,
    /// Which file it is: device and inode.
    file: (u64, u64),
    /// Which of all spares there were.
    number: u64,
    /// What its blocks take.
    bytes: u64,
    /// The directory was synced since it lost its old name.
    renamed_durably: bool,
    /// How often a file of quite another size was wanted.
    misfits: u32,
}

impl Spare {
    /// Whether it is what stands there, and nobody has given it another name.
    fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|metadata| {
            metadata.is_file()
                && (metadata.dev(), metadata.ino()) == self.file
                && metadata.nlink() == 1
        })
    }

    /// Whether it spares a file of `wanted` bytes more than it costs: what is cut off is erased by the device, what is missing is made anew.
    fn fits(&self, wanted: u64) -> bool {
        self.bytes >= wanted / 2 && !is_too_large(self.bytes, wanted)
    }
}

fn is_too_large(bytes: u64, wanted: u64) -> bool {
    let most = wanted.saturating_add(wanted / 4).max(FITS_ALL_BYTES);
    bytes > most.saturating_add(TAKEN_BESIDE_MAX)
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
        (0..SLOTS).map(remove).fold(false, |any, one| any | one)
    }

    /// Whether that gave space back. What cannot be removed stays a spare.
    fn remove_all(&mut self, directory: &Path) -> bool {
        let mut removed_some = self.search(directory) | std::mem::take(&mut self.removed);
        self.kept.retain(|spare| {
            let removed = fs::remove_file(path(directory, spare.slot));
            removed_some |= removed.is_ok();
            removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        });
        removed_some
    }

    /// Takes out one that fits nobody: its file is to be removed.
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

    /// Gives the file `id` the name of a free slot.
    fn keep(&mut self, shared: &Shared, id: FileId, slot: usize) -> bool {
        let from = shared.file_path(id);
        let kept = path(&shared.path, slot);
        if !matches!(
            shared.handles.unless_open(id, || fs::rename(&from, &kept)),
            Some(Ok(()))
        ) {
            return false;
        }
        // Looked at only now: as long as it had its name, somebody could give it another one.
        match fs::symlink_metadata(&kept) {
            Ok(metadata) if metadata.nlink() == 1 => self.add(slot, &metadata),
            _ => {
                // Where this fails its place is taken, and not used again.
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
            bytes: super::file::taken(metadata),
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

    /// Takes the file `id` for a spare and its name away; `false`, and the file stays: it would be of no use, there are enough, it is open, or it cannot be renamed. One that has other names loses this one and is no spare.
    /// A spare that fits nobody is removed.
    pub(super) fn keep(&self, shared: &Shared, id: FileId) -> bool {
        if !self.in_place {
            return false;
        }
        let mut state = self.state.lock();
        state.search(&shared.path);
        let from = shared.file_path(id);
        // One that was made larger than all others, for one value, is of no use to them.
        let wanted_most = state.wanted_most;
        let is_of_use = |metadata: fs::Metadata| {
            let bytes = super::file::taken(&metadata);
            metadata.is_file() && (wanted_most == 0 || !is_too_large(bytes, wanted_most))
        };
        if !fs::symlink_metadata(&from).is_ok_and(is_of_use) {
            return false;
        }
        // At the next time where one is just being removed.
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
            // The file system may take milliseconds, and segments are made meanwhile. Where it cannot be removed, its name is not used again.
            let removed = fs::remove_file(path(&shared.path, spare.slot)).is_ok();
            let mut state = self.state.lock();
            state.removing_bytes = 0;
            state.removed |= removed;
        }
        kept
    }

    /// Gives the spare that comes next to `wanted` bytes the name `to`; `false`: there is none that fits and can be written, or the name is taken.
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
            // Where this fails too, its name is not used again.
            fs::remove_file(&from).ok();
        }
        renamed
    }

    /// To be asked before the directory is synced.
    pub(super) fn before_sync(&self) -> Before {
        Before(self.state.lock().count)
    }

    /// The directory was synced.
    pub(super) fn synced(&self, before: Before) {
        for spare in &mut self.state.lock().kept {
            spare.renamed_durably |= spare.number < before.0;
        }
    }

    /// How often space was given back so far.
    pub(super) fn releases(&self) -> u64 {
        self.releases.load(Ordering::Acquire)
    }

    /// Removes them all; whether space was given back since there were `seen` [`releases`](Self::releases), by this or by somebody else.
    pub(super) fn release_since(&self, seen: u64, shared: &Shared) -> bool {
        // Who is removing one makes space.
        let _removal = self.removal.lock();
        let mut state = self.state.lock();
        if self.releases() == seen && state.remove_all(&shared.path) {
            // Many a file system counts blocks as free only when their removal is durable. Where this fails, whoever syncs next is told. Under the lock: who waits for it shall find the space.
            let directory = super::open_directory(&shared.path);
            drop(directory.and_then(|directory| shared.sync_names(&directory)));
            self.releases.fetch_add(1, Ordering::Release);
        }
        self.releases() != seen
    }

    /// What they take.
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
            // A thread that just found no space finds this.
            state.removed = state.remove_all(directory);
        }
    }
}
