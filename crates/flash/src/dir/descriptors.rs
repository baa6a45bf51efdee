//! The bound on the descriptors of a volume, and which is closed when there is no other.
//!
//! Half of the descriptors that the process may have are for the volume. When it has as many, or
//! the system has no more, one is closed that no operation uses: of the files that were not used
//! since the last look (second chance), the first in the queue. A file with bytes that were not
//! synced is synced before, and only if there is no other.
//!
//! Thread safety: any thread. The queue's lock is taken before a handle's. Neither is held while a
//! file is opened, synced or closed. A thread looks at a handle under the queue's lock, so no other
//! thread misses a descriptor that may soon be closed. An operation waits for the ends of others
//! for a second at most, so two that have one descriptor each and need a second one do not wait for
//! each other forever.

use super::Shared;
use super::handles::{Access, Descriptor, Handle, Look};
use crate::system::descriptor_limit;
use glintdb_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A volume takes this part of the descriptors that the process may have.
const PART: u64 = 2;
/// It takes no fewer than this.
const SHARE_MIN: u64 = 16;
/// The smallest limit of the process with which a volume opens: its least share, the three standard
/// streams, and one for the program.
pub(super) const LIMIT_MIN: u64 = SHARE_MIN + 4;
/// Descriptors of a volume beside those of files and queues: the lock, the directory, the ring, and
/// one that is open for a moment, to list the directory for example.
const HELD: usize = 4;
/// Idle queues of reads may have this part of the share.
const QUEUES_PART: usize = 16;
/// Batches that go on by themselves may use this part of the descriptors of files.
const BEGUN_PART: usize = 4;
/// An operation waits this often for another one to end, if those use all descriptors that there
/// are.
const WAITS_MAX: u32 = 1000;
const WAIT: Duration = Duration::from_millis(1);

/// Number of descriptors that a volume may have.
fn share() -> usize {
    usize::try_from((descriptor_limit() / PART).max(SHARE_MIN)).unwrap_or(usize::MAX)
}

/// The most queues of reads that are kept for later.
pub(crate) fn idle_queues_max(most: usize) -> usize {
    (share() / QUEUES_PART).clamp(1, most)
}

/// Refuses a process that may have too few descriptors for a volume.
///
/// # Errors
/// `Unavailable`.
pub(super) fn check_limit() -> Result<()> {
    match descriptor_limit() {
        limit if limit < LIMIT_MIN => Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "this process may open {limit} files (RLIMIT_NOFILE, `ulimit -n`), and a database \
                 needs at least {LIMIT_MIN}"
            ),
        )),
        _ => Ok(()),
    }
}

/// The descriptors of a volume's files.
#[derive(Default)]
pub(crate) struct Descriptors {
    /// Handles that have descriptors, or had some: the next one to look at is the first.
    queue: Mutex<VecDeque<Arc<Handle>>>,
    /// Number of open descriptors.
    open: Arc<AtomicUsize>,
    /// Descriptors that batches which go on by themselves may be using.
    begun: Arc<AtomicUsize>,
    /// Replaces the limit that follows from the system's, in tests.
    #[cfg(test)]
    pub(super) limit: AtomicUsize,
}

impl Descriptors {
    /// The most descriptors of files.
    fn limit(&self) -> usize {
        #[cfg(test)]
        if let limit @ 1.. = self.limit.load(Ordering::Relaxed) {
            return limit;
        }
        let share = share();
        share - HELD - share / QUEUES_PART
    }

    /// Number of open descriptors of files.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.open() >= self.limit()
    }

    /// Allows a batch of reads of `files` files to go on by itself. `None`: such batches use enough
    /// descriptors already.
    pub(crate) fn begin(&self, files: usize) -> Option<BegunReads> {
        let before = self.begun.fetch_add(files, Ordering::Relaxed);
        let begun = BegunReads(Arc::clone(&self.begun), files);
        (before + files <= self.limit() / BEGUN_PART).then_some(begun)
    }

    fn enqueue(&self, handle: &Arc<Handle>) {
        let mut queue = self.queue.lock();
        // Of files that are not in use any more.
        if queue.len() > 2 * self.open() + 64 {
            queue.retain(|handle| handle.stays_queued());
        }
        queue.push_back(Arc::clone(handle));
    }
}

/// Counts the descriptors that a batch which goes on by itself may use, while it lives.
pub(crate) struct BegunReads(Arc<AtomicUsize>, usize);

impl Drop for BegunReads {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// Whether files may be synced so that they can be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Syncs {
    Allowed,
    None,
}

/// What came of the wish to close a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Freed {
    One,
    /// None, and some may be closed when operations that use them end.
    Later,
    None,
}

impl Shared {
    /// The access for what may be read and written in either way.
    pub(super) fn plain_access(&self) -> Access {
        Access::of(self.direct)
    }

    /// A descriptor of the file, which stays open as long as the result lives.
    ///
    /// # Errors
    /// `Unavailable`, I/O errors.
    pub(super) fn descriptor(
        &self,
        handle: &Arc<Handle>,
        access: Access,
    ) -> Result<Arc<Descriptor>> {
        if let Some(open) = handle.opened(access) {
            return Ok(open);
        }
        self.make_room();
        let file = self.with_descriptors(|| handle.open_file(self, access))?;
        Ok(self.add(handle, access, file))
    }

    /// Closes descriptors until there may be one more, as far as no operation uses them.
    pub(super) fn make_room(&self) {
        while self.common.descriptors.is_full() && self.close_one(Syncs::Allowed) == Freed::One {}
    }

    /// A descriptor to read with, like [`descriptor`](Self::descriptor), but `None` if that would
    /// wait for another operation, or for a sync.
    ///
    /// # Errors
    /// As [`descriptor`](Self::descriptor).
    pub(super) fn descriptor_at_once(
        &self,
        handle: &Arc<Handle>,
        access: Access,
    ) -> Result<Option<Arc<Descriptor>>> {
        if let Some(open) = handle.opened(access) {
            return Ok(Some(open));
        }
        while self.common.descriptors.is_full() {
            if self.close_one(Syncs::None) != Freed::One {
                return Ok(None);
            }
        }
        loop {
            match handle.open_file(self, access) {
                Ok(file) => return Ok(Some(self.add(handle, access, file))),
                Err(error) if !error.wants_descriptors() => return Err(error),
                Err(_) if self.close_one(Syncs::None) == Freed::One => {}
                Err(_) => return Ok(None),
            }
        }
    }

    /// Takes over a newly opened file.
    pub(super) fn add(&self, handle: &Arc<Handle>, access: Access, file: File) -> Arc<Descriptor> {
        let new = Descriptor::new(file, &self.common.descriptors.open);
        let (added, queued) = handle.add(new, access);
        if !queued {
            self.common.descriptors.enqueue(handle);
        }
        added
    }

    /// Does what takes a descriptor, and if the system has none, does it again after closing one
    /// that no operation uses. If operations use all, waits for one to end.
    ///
    /// # Errors
    /// Those of `act`.
    pub(super) fn with_descriptors<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        let mut waits = 0;
        loop {
            match act() {
                Err(error) if error.wants_descriptors() => match self.close_one(Syncs::Allowed) {
                    Freed::One => {}
                    Freed::Later if waits < WAITS_MAX => {
                        waits += 1;
                        std::thread::sleep(WAIT);
                    }
                    Freed::Later | Freed::None => return Err(error),
                },
                done => return done,
            }
        }
    }

    /// Closes the descriptors of a file that no operation uses: of one with bytes that were not
    /// synced only if there is no other, after a sync.
    fn close_one(&self, syncs: Syncs) -> Freed {
        let mut freed = Freed::None;
        let length = self.common.descriptors.queue.lock().len();
        // Twice round: the first look may only take a second chance away.
        for _ in 0..2 * length {
            match self.look_at_next(true) {
                Some(Look::Out([None, None]) | Look::Stays) => {}
                Some(Look::Out(_)) => return Freed::One,
                Some(Look::InUse) => freed = Freed::Later,
                None => break,
            }
        }
        if syncs == Syncs::None {
            return freed;
        }
        for _ in 0..length {
            let Some(first) = self.common.descriptors.queue.lock().front().cloned() else {
                break;
            };
            if let Some(descriptor) = first.waits_for_sync() {
                // If it fails, no later sync of the file is believed.
                first.sync_through(&descriptor, self).ok();
            }
            match self.look_at_next(false) {
                Some(Look::Out([None, None]) | Look::InUse | Look::Stays) => {}
                Some(Look::Out(_)) => return Freed::One,
                None => break,
            }
        }
        freed
    }

    /// Looks at the first handle of the queue. `None`: the queue is empty.
    fn look_at_next(&self, second_chance: bool) -> Option<Look> {
        let mut queue = self.common.descriptors.queue.lock();
        let handle = queue.pop_front()?;
        let look = handle.look(second_chance);
        if matches!(look, Look::InUse | Look::Stays) {
            queue.push_back(handle);
        }
        Some(look)
    }
}
