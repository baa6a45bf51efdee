//! The files that a volume has in use, and their open.
//!
//! A file in use has a [`Handle`]. A descriptor of the file is opened when an operation needs one,
//! and closed when another file needs it ([`descriptors`](super::descriptors)).
//!
//! Thread safety: any thread. No lock is held while a file is opened, synced or closed, or while
//! another lock is taken.
//!
//! Invariants:
//! 1. A file has a handle from before it is first opened until its last user has dropped it.
//! 2. No descriptor is closed while an operation uses it, or while its file has bytes that were not
//!    synced: a sync through a later descriptor could miss that the system failed to write them.
//!    So a sync of written bytes needs no new descriptor.
//! 3. A file that is kept open, or that has lost its name, stays open.
//! 4. A handle whose last user has dropped the file takes no descriptor any more.

use super::Shared;
use super::file::open_with;
use glintdb_core::{Error, ErrorKind, FileId, FileKind, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// How a descriptor reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Buffered,
}

impl Access {
    pub(super) fn of(direct: bool) -> Access {
        match direct {
            true => Access::Direct,
            false => Access::Buffered,
        }
    }
}

/// An open descriptor of a file. An operation holds a reference as long as it uses it.
pub(crate) struct Descriptor {
    file: File,
    /// Declared last, so that it is dropped after the file is closed.
    _counted: Counted,
}

/// Counts an open descriptor while it lives.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Descriptor {
    /// Takes over an open file, and counts it in `open`.
    pub(super) fn new(file: File, open: &Arc<AtomicUsize>) -> Arc<Self> {
        open.fetch_add(1, Ordering::Relaxed);
        Arc::new(Descriptor {
            file,
            _counted: Counted(Arc::clone(open)),
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Whether the bytes of a file in use are synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bytes {
    /// This volume has not written any, or a sync has begun behind those that it has written.
    Found,
    /// Some were written, by this volume or by an earlier process, and perhaps not synced.
    Written,
    /// All were synced.
    Synced,
}

/// The descriptors of a file, and the reasons why they stay open.
struct Open {
    direct: Option<Arc<Descriptor>>,
    buffered: Option<Arc<Descriptor>>,
    bytes: Bytes,
    /// Whether the file's user wants it open.
    kept: bool,
    /// Whether the name was removed, so that the file cannot be opened again.
    nameless: bool,
    /// Whether the last user has dropped the file.
    dropped: bool,
    /// Whether the handle is in the queue.
    queued: bool,
}

impl Open {
    fn of(&mut self, access: Access) -> &mut Option<Arc<Descriptor>> {
        match access {
            Access::Direct => &mut self.direct,
            Access::Buffered => &mut self.buffered,
        }
    }

    fn any(&self) -> Option<&Arc<Descriptor>> {
        self.direct.as_ref().or(self.buffered.as_ref())
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Descriptor>> {
        self.direct.iter().chain(&self.buffered)
    }

    /// Whether an operation uses one of them.
    fn in_use(&self) -> bool {
        self.all().any(|one| Arc::strong_count(one) > 1)
    }

    /// Whether they must stay open, whatever uses them.
    fn stay(&self) -> bool {
        self.kept || self.nameless
    }

    fn take(&mut self) -> [Option<Arc<Descriptor>>; 2] {
        [self.direct.take(), self.buffered.take()]
    }
}

/// A file in use.
pub(super) struct Handle {
    pub(super) id: FileId,
    /// Tells handles of the same file apart.
    number: u64,
    /// Whether the file was used since the last look for a descriptor to close.
    used: AtomicBool,
    /// Whether aligned writes are direct.
    pub(super) direct_writes: AtomicBool,
    /// Whether the page cache may have bytes that the medium lacks. Reads go through it then.
    pub(super) unsynced: AtomicBool,
    sync_failed: AtomicBool,
    open: Mutex<Open>,
}

/// What a look at a handle has found.
pub(super) enum Look {
    /// It has no descriptor, and has left the queue. The caller closes those that it had.
    Out([Option<Arc<Descriptor>>; 2]),
    /// Operations use them, and it may be closed after them.
    InUse,
    /// It was used not long ago, or must stay open.
    Stays,
}

impl Handle {
    /// The descriptor, if it is open.
    pub(super) fn opened(&self, access: Access) -> Option<Arc<Descriptor>> {
        let found = self.open.lock().of(access).clone()?;
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Some(found)
    }

    /// Any descriptor that is open.
    pub(super) fn any(&self) -> Option<Arc<Descriptor>> {
        self.open.lock().any().cloned()
    }

    /// Opens the file: by an open descriptor, because it may have lost its name, else by its name.
    pub(super) fn open_file(&self, shared: &Shared, access: Access) -> Result<File> {
        let open = |path: &Path| {
            let direct = access == Access::Direct;
            open_with(&mut OpenOptions::new(), path, direct, shared)
        };
        let by_name = || open(&shared.file_path(self.id));
        let opened = match self.any() {
            Some(other) => {
                let path = format!("/proc/self/fd/{}", other.as_raw_fd());
                open(Path::new(&path)).or_else(|error| match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE) => Err(error),
                    // There is no /proc.
                    _ => by_name(),
                })
            }
            None => by_name(),
        };
        opened.map_err(|error| Error::access(format!("open {}", self.id), error))
    }

    /// Adds a newly opened descriptor. Returns the one to use, because another thread may have been
    /// faster, and whether the handle is in the queue, or need not be.
    pub(super) fn add(&self, new: Arc<Descriptor>, access: Access) -> (Arc<Descriptor>, bool) {
        let mut open = self.open.lock();
        if open.dropped {
            // The last user has closed all others already.
            return (new, true);
        }
        // If it is not needed, `new` is closed at the end, without the lock.
        let added = Arc::clone(open.of(access).get_or_insert_with(|| Arc::clone(&new)));
        let queued = std::mem::replace(&mut open.queued, true);
        drop(open);
        self.used.store(true, Ordering::Relaxed);
        (added, queued)
    }

    /// Whether it stays in the queue, because it has descriptors.
    pub(super) fn stays_queued(&self) -> bool {
        let mut open = self.open.lock();
        open.queued = open.any().is_some();
        open.queued
    }

    /// Takes its descriptors, if no operation uses them and they need not stay open.
    pub(super) fn look(&self, second_chance: bool) -> Look {
        let Some(mut open) = self.open.try_lock() else {
            return Look::InUse;
        };
        if open.any().is_none() {
            open.queued = false;
            return Look::Out([None, None]);
        }
        if open.stay() {
            return Look::Stays;
        }
        if open.in_use() {
            return Look::InUse;
        }
        let recent = self.used.swap(false, Ordering::Relaxed) && second_chance;
        if recent || open.bytes == Bytes::Written {
            return Look::Stays;
        }
        open.queued = false;
        Look::Out(open.take())
    }

    /// Returns the descriptor to sync, if a sync is all that keeps the file from being closed.
    pub(super) fn waits_for_sync(&self) -> Option<Arc<Descriptor>> {
        let open = self.open.lock();
        let waits = open.bytes == Bytes::Written
            && !open.stay()
            && !open.in_use()
            && !self.sync_failed.load(Ordering::Acquire);
        open.any().filter(|_| waits).cloned()
    }

    pub(super) fn check_writable(&self, shared: &Shared) -> Result<()> {
        shared.check_changes()?;
        if self.sync_failed.load(Ordering::Acquire) {
            return Err(Error::new(
                ErrorKind::Poisoned,
                format!("a sync of {} failed before", self.id),
            ));
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    pub(super) fn sync(self: &Arc<Self>, shared: &Shared) -> Result<()> {
        self.check_writable(shared)?;
        let opened = match self.any() {
            Some(descriptor) => Ok(descriptor),
            None => shared.descriptor(self, shared.plain_access()),
        };
        let descriptor = match opened {
            // It was synced before it was closed.
            Err(error) if error.kind().passes() && self.open.lock().bytes == Bytes::Synced => {
                return shared.check_syncs();
            }
            opened => opened?,
        };
        self.sync_through(&descriptor, shared)
    }

    /// Syncs an open descriptor.
    pub(super) fn sync_through(&self, descriptor: &Descriptor, shared: &Shared) -> Result<()> {
        // Before the sync: a write that ends later notes its bytes again.
        self.open.lock().bytes = Bytes::Found;
        // Cleared first, as above.
        let unsynced = self.unsynced.swap(false, Ordering::AcqRel);
        let sync = || {
            let synced = descriptor.file.sync_data();
            synced.map_err(|error| Error::io(format!("sync {}", self.id), error))
        };
        let synced = shared.sync_with(sync);
        let mut open = self.open.lock();
        if synced.is_err() {
            self.sync_failed.store(true, Ordering::Release);
            self.unsynced.fetch_or(unsynced, Ordering::AcqRel);
            open.bytes = Bytes::Written;
        } else if open.bytes == Bytes::Found {
            open.bytes = Bytes::Synced;
        }
        synced
    }
}

/// A descriptor with which bytes are written. They count as not synced from its drop on: a sync
/// that ended before may not have seen them. Until then the descriptor is in use.
pub(super) struct Writing<'a> {
    handle: &'a Handle,
    descriptor: Arc<Descriptor>,
}

impl<'a> Writing<'a> {
    pub(super) fn new(handle: &'a Handle, descriptor: Arc<Descriptor>) -> Self {
        Writing { handle, descriptor }
    }
}

impl Deref for Writing<'_> {
    type Target = Descriptor;

    fn deref(&self) -> &Descriptor {
        &self.descriptor
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.handle.open.lock().bytes = Bytes::Written;
    }
}

/// A file that its user has not dropped yet.
pub(super) struct InUse {
    pub(super) shared: Arc<Shared>,
    pub(super) handle: Arc<Handle>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        if !self.shared.process.is_current() {
            // Another thread may have held the locks during the fork.
            return;
        }
        let Handle { id, number, .. } = *self.handle;
        let mut open = self.handle.open.lock();
        open.dropped = true;
        let closed = open.take();
        drop(open);
        // Before the handle goes: from then on the file may be written again under another name.
        drop(closed);
        self.shared.handles.in_use.lock().remove(&(id, number));
    }
}

/// The files in use.
#[derive(Default)]
pub(crate) struct Handles {
    in_use: Mutex<BTreeMap<(FileId, u64), Arc<Handle>>>,
    /// Number of handles so far.
    made: AtomicU64,
}

impl Handles {
    /// Notes that the file `id` is in use, which an earlier process may have written.
    pub(super) fn use_found(shared: &Arc<Shared>, id: FileId) -> InUse {
        let in_use = Self::use_file(shared, id);
        // Tables are synced before a manifest names them. The log is not.
        if id.kind == FileKind::Log && !shared.read_only {
            in_use.handle.open.lock().bytes = Bytes::Written;
        }
        in_use
    }

    /// Notes that the file `id` is in use.
    pub(super) fn use_file(shared: &Arc<Shared>, id: FileId) -> InUse {
        let handles = &shared.handles;
        let handle = Arc::new(Handle {
            id,
            number: handles.made.fetch_add(1, Ordering::Relaxed),
            used: AtomicBool::new(false),
            direct_writes: AtomicBool::new(false),
            unsynced: AtomicBool::new(false),
            sync_failed: AtomicBool::new(false),
            open: Mutex::new(Open {
                direct: None,
                buffered: None,
                bytes: Bytes::Found,
                kept: false,
                nameless: false,
                dropped: false,
                queued: false,
            }),
        });
        let key = (id, handle.number);
        handles.in_use.lock().insert(key, Arc::clone(&handle));
        InUse {
            shared: Arc::clone(shared),
            handle,
        }
    }

    /// Calls `act` while the file `id` is not in use and no thread can begin to use it. Returns
    /// `None` if it is in use.
    pub(super) fn unless_in_use<T>(&self, id: FileId, act: impl FnOnce() -> T) -> Option<T> {
        let in_use = self.in_use.lock();
        let mut handles = in_use.range((id, 0)..=(id, u64::MAX));
        handles.next().is_none().then(act)
    }

    fn of(&self, id: FileId) -> Vec<Arc<Handle>> {
        let in_use = self.in_use.lock();
        let handles = in_use.range((id, 0)..=(id, u64::MAX));
        handles.map(|(_, handle)| Arc::clone(handle)).collect()
    }
}

impl Shared {
    /// Keeps the file open from now on, or no longer.
    ///
    /// # Errors
    /// `Unavailable`, I/O errors: it could not be opened.
    pub(super) fn keep_open(&self, handle: &Arc<Handle>, keep: bool) -> Result<()> {
        handle.open.lock().kept = keep;
        if !keep {
            return Ok(());
        }
        let access = Access::of(handle.direct_writes.load(Ordering::Relaxed));
        let opened = self.descriptor(handle, access);
        opened
            .map(drop)
            .inspect_err(|_| handle.open.lock().kept = false)
    }

    /// Calls `remove`, which removes the name of the file `id`. First opens every handle that has
    /// that name, and keeps it open: its users go on using it.
    ///
    /// # Errors
    /// `Unavailable`, I/O errors: the name is still there. Those of `remove`.
    pub(super) fn remove_name(
        &self,
        id: FileId,
        remove: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut handles = self.handles.of(id);
        // The others are of an earlier file of that name.
        handles.retain(|handle| !std::mem::replace(&mut handle.open.lock().nameless, true));
        let open = |handle: &Arc<Handle>| match handle.any() {
            Some(_) => Ok(()),
            None => self.descriptor(handle, self.plain_access()).map(drop),
        };
        let removed = handles.iter().try_for_each(open).and_then(|()| remove());
        removed.inspect_err(|error| {
            if error.kind() != ErrorKind::NotFound {
                for handle in handles {
                    handle.open.lock().nameless = false;
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
