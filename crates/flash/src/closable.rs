//! A volume over another one that its user can close: from then on nothing of the other one is
//! changed or read through it, whatever still holds it, its files or its ring.
//!
//! The engine works on one, so that a closed database gives its directory to the next opener while
//! iterators and snapshots of it still live.
//!
//! Thread-safe. Invariants:
//! 1. When [`close`](ClosableVolume::close) returns, no change is under way, and none begins: each
//!    holds `changes` for reading and looks at `closed` with it held; `close` sets `closed` and
//!    then takes `changes` for writing.
//! 2. A read whose bytes reach the caller ended before `close` returned: it looks at `closed` when
//!    it has its bytes, and gives them away for the error if that is set. So a read that is under
//!    way needs no waiting for, and an iterator that has begun to read ahead and is never asked
//!    again holds up nothing. What the next opener writes over such a file is never taken for the
//!    file's bytes.
//! 3. [`Ring::write`] and [`Ring::read`] are copies in memory and pass unchecked: who closes the
//!    volume sees to it that no writer of the ring is left, and believes no copy from it afterwards
//!    (`Durable::finish_close` and `Log::leave_ring`).

use crate::{
    BegunBatch, ClassStats, CreateOptions, DeviceStats, ReadRequest, Ring, UnitStats, Volume,
    VolumeFile, VolumeStats,
};
use bytes::Bytes;
use glintdb_core::{Error, ErrorKind, FileId, Result};
use parking_lot::{RwLock, RwLockReadGuard};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A volume that can be closed; see the module.
pub struct ClosableVolume {
    inner: Arc<dyn Volume>,
    state: Arc<State>,
}

/// A file or the ring of it.
struct Closable<T: ?Sized> {
    inner: Arc<T>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    closed: AtomicBool,
    changes: RwLock<()>,
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed")
}

impl State {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn check(&self) -> Result<()> {
        match self.is_closed() {
            true => Err(closed()),
            false => Ok(()),
        }
    }

    /// To be held while something is changed. Recursive: the ring writes to a file.
    fn change(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let changes = self.changes.read_recursive();
        self.check().map(|()| changes)
    }

    fn read<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        self.check()?;
        let read = read();
        self.check()?;
        read
    }

    /// Takes the bytes of reads away that may have ended after the volume was closed.
    fn judge(&self, requests: &mut [ReadRequest]) {
        if self.is_closed() {
            for request in requests {
                request.result = Some(Err(closed()));
            }
        }
    }

    fn wrap<T: ?Sized>(self: &Arc<Self>, inner: Arc<T>) -> Arc<Closable<T>> {
        Arc::new(Closable {
            inner,
            state: Arc::clone(self),
        })
    }
}

impl ClosableVolume {
    /// An open one over `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Volume>) -> Arc<ClosableVolume> {
        Arc::new(ClosableVolume {
            inner,
            state: Arc::default(),
        })
    }

    /// Ends every use of the volume: waits for the changes that are under way; every later
    /// operation, and every read that has not ended, fails with `Closed`.
    pub fn close(&self) {
        self.state.closed.store(true, Ordering::SeqCst);
        drop(self.state.changes.write());
    }
}

impl Volume for ClosableVolume {
    fn create(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        let _change = self.state.change()?;
        Ok(self.state.wrap(self.inner.create(id, options)?))
    }
    fn create_recycled(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        let _change = self.state.change()?;
        Ok(self.state.wrap(self.inner.create_recycled(id, options)?))
    }
    fn open(&self, id: FileId) -> Result<Arc<dyn VolumeFile>> {
        let file = self.state.read(|| self.inner.open(id))?;
        Ok(self.state.wrap(file))
    }
    fn delete(&self, id: FileId) -> Result<()> {
        let _change = self.state.change()?;
        self.inner.delete(id)
    }
    fn recycle(&self, id: FileId) -> Result<()> {
        let _change = self.state.change()?;
        self.inner.recycle(id)
    }
    fn delete_recycled(&self) {
        if let Ok(_change) = self.state.change() {
            self.inner.delete_recycled();
        }
    }
    fn list(&self) -> Result<Vec<FileId>> {
        self.state.read(|| self.inner.list())
    }
    fn sync_directory(&self) -> Result<()> {
        let _change = self.state.change()?;
        self.inner.sync_directory()
    }
    fn read_batch(&self, requests: &mut [ReadRequest]) {
        if !self.state.is_closed() {
            self.inner.read_batch(requests);
        }
        self.state.judge(requests);
    }
    fn begin_batch(&self, mut requests: Vec<ReadRequest>) -> BegunBatch {
        if self.state.is_closed() {
            self.state.judge(&mut requests);
            return BegunBatch::done(requests);
        }
        let begun = self.inner.begin_batch(requests);
        let state = Arc::clone(&self.state);
        BegunBatch::new(move || {
            let mut requests = begun.wait();
            state.judge(&mut requests);
            requests
        })
    }
    fn ring(&self, bytes: usize) -> Result<Arc<dyn Ring>> {
        let _change = self.state.change()?;
        Ok(self.state.wrap(self.inner.ring(bytes)?))
    }
    fn existing_ring_bytes(&self) -> Result<Option<usize>> {
        self.state.read(|| self.inner.existing_ring_bytes())
    }
    fn remove_ring(&self) -> Result<()> {
        let _change = self.state.change()?;
        self.inner.remove_ring()
    }
    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }
    fn link(&self, id: FileId, target: &Path) -> Result<bool> {
        let _change = self.state.change()?;
        self.inner.link(id, target)
    }
    /// A directory of its own, which is not closed with this volume.
    fn make_directory(&self, path: &Path) -> Result<Arc<dyn Volume>> {
        let _change = self.state.change()?;
        self.inner.make_directory(path)
    }
    fn stats(&self) -> VolumeStats {
        self.inner.stats()
    }
    fn units(&self) -> Vec<UnitStats> {
        self.inner.units()
    }
    fn classes(&self) -> Vec<ClassStats> {
        self.inner.classes()
    }
    fn device(&self) -> Option<DeviceStats> {
        self.inner.device()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

impl VolumeFile for Closable<dyn VolumeFile> {
    fn id(&self) -> FileId {
        self.inner.id()
    }
    fn medium_file(&self) -> Option<&dyn VolumeFile> {
        Some(&*self.inner)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let _change = self.state.change()?;
        self.inner.write_at(offset, bytes)
    }
    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.state.read(|| self.inner.read_at(offset, length))
    }
    fn sync(&self) -> Result<()> {
        let _change = self.state.change()?;
        self.inner.sync()
    }
    fn len(&self) -> Result<u64> {
        self.state.read(|| self.inner.len())
    }
    fn set_len(&self, length: u64) -> Result<()> {
        let _change = self.state.change()?;
        self.inner.set_len(length)
    }
    fn keep_open(&self, keep: bool) -> Result<()> {
        self.state.read(|| self.inner.keep_open(keep))
    }
}

impl Ring for Closable<dyn Ring> {
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn survives_kill(&self) -> bool {
        self.inner.survives_kill()
    }
    fn grow(&self, bytes: usize) -> Result<()> {
        let _change = self.state.change()?;
        self.inner.grow(bytes)
    }
    fn shrink(&self, bytes: usize) -> Result<()> {
        let _change = self.state.change()?;
        self.inner.shrink(bytes)
    }
    #[inline]
    fn write(&self, offset: usize, bytes: &[u8]) {
        self.inner.write(offset, bytes);
    }
    fn populate(&self, offset: usize, length: usize) {
        if let Ok(_change) = self.state.change() {
            self.inner.populate(offset, length);
        }
    }
    #[inline]
    fn read(&self, offset: usize, out: &mut [u8]) {
        self.inner.read(offset, out);
    }
    fn write_to(
        &self,
        offset: usize,
        length: usize,
        file: &dyn VolumeFile,
        file_offset: u64,
    ) -> Result<()> {
        let _change = self.state.change()?;
        self.inner.write_to(offset, length, file, file_offset)
    }
    fn sync(&self) -> Result<bool> {
        let _change = self.state.change()?;
        self.inner.sync()
    }
}
