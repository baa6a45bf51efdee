//! A volume over another one that calls out before some operations, outside any lock: a test lets
//! another thread work at that very moment, or holds the operation up.
//!
//! Thread-safe.

use bytes::Bytes;
use glintdb_core::{FileId, Result};
use glintdb_flash::{
    ClassStats, CreateOptions, DeviceStats, ReadRequest, Ring, UnitStats, Volume, VolumeFile,
    VolumeStats,
};
use std::path::Path;
use std::sync::Arc;

/// What is done before an operation of a [`HookedVolume`].
pub trait Hooks: Send + Sync {
    /// A file is about to be synced.
    fn before_sync(&self) {}
    /// A range of a file is about to be read.
    fn before_read(&self) {}
    /// A range of a file is about to be written, from memory or from the ring.
    fn before_write(&self) {}
    /// A file is about to be linked into another directory.
    fn before_link(&self) {}
    /// The ring is about to be read.
    fn before_ring_read(&self) {}
    /// The ring is about to be written.
    fn before_ring_write(&self) {}
}

/// The volume; for tests, as [`MemVolume`](crate::MemVolume) is.
pub struct HookedVolume {
    inner: Arc<dyn Volume>,
    hooks: Arc<dyn Hooks>,
}

/// A file or a ring of it.
struct Hooked<T: ?Sized> {
    inner: Arc<T>,
    hooks: Arc<dyn Hooks>,
}

impl HookedVolume {
    /// Over `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Volume>, hooks: Arc<dyn Hooks>) -> Arc<HookedVolume> {
        Arc::new(HookedVolume { inner, hooks })
    }

    fn hooked<T: ?Sized>(&self, inner: Arc<T>) -> Arc<Hooked<T>> {
        let hooks = Arc::clone(&self.hooks);
        Arc::new(Hooked { inner, hooks })
    }
}

impl Volume for HookedVolume {
    fn create(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        Ok(self.hooked(self.inner.create(id, options)?))
    }
    fn open(&self, id: FileId) -> Result<Arc<dyn VolumeFile>> {
        Ok(self.hooked(self.inner.open(id)?))
    }
    fn delete(&self, id: FileId) -> Result<()> {
        self.inner.delete(id)
    }
    fn create_recycled(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        Ok(self.hooked(self.inner.create_recycled(id, options)?))
    }
    fn recycle(&self, id: FileId) -> Result<()> {
        self.inner.recycle(id)
    }
    fn delete_recycled(&self) {
        self.inner.delete_recycled();
    }
    fn list(&self) -> Result<Vec<FileId>> {
        self.inner.list()
    }
    fn sync_directory(&self) -> Result<()> {
        self.inner.sync_directory()
    }
    fn read_batch(&self, requests: &mut [ReadRequest]) {
        self.inner.read_batch(requests);
    }
    fn ring(&self, bytes: usize) -> Result<Arc<dyn Ring>> {
        Ok(self.hooked(self.inner.ring(bytes)?))
    }
    fn existing_ring_bytes(&self) -> Result<Option<usize>> {
        self.inner.existing_ring_bytes()
    }
    fn remove_ring(&self) -> Result<()> {
        self.inner.remove_ring()
    }
    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }
    fn link(&self, id: FileId, target: &Path) -> Result<bool> {
        self.hooks.before_link();
        self.inner.link(id, target)
    }
    fn make_directory(&self, path: &Path) -> Result<Arc<dyn Volume>> {
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

impl VolumeFile for Hooked<dyn VolumeFile> {
    fn id(&self) -> FileId {
        self.inner.id()
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.hooks.before_write();
        self.inner.write_at(offset, bytes)
    }
    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.hooks.before_read();
        self.inner.read_at(offset, length)
    }
    fn sync(&self) -> Result<()> {
        self.hooks.before_sync();
        self.inner.sync()
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, length: u64) -> Result<()> {
        self.inner.set_len(length)
    }
    fn keep_open(&self, keep: bool) -> Result<()> {
        self.inner.keep_open(keep)
    }
}

impl Ring for Hooked<dyn Ring> {
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn survives_kill(&self) -> bool {
        self.inner.survives_kill()
    }
    fn grow(&self, bytes: usize) -> Result<()> {
        self.inner.grow(bytes)
    }
    fn shrink(&self, bytes: usize) -> Result<()> {
        self.inner.shrink(bytes)
    }
    fn write(&self, offset: usize, bytes: &[u8]) {
        self.hooks.before_ring_write();
        self.inner.write(offset, bytes);
    }
    fn read(&self, offset: usize, out: &mut [u8]) {
        self.hooks.before_ring_read();
        self.inner.read(offset, out);
    }
    fn write_to(
        &self,
        offset: usize,
        length: usize,
        file: &dyn VolumeFile,
        file_offset: u64,
    ) -> Result<()> {
        self.hooks.before_write();
        self.inner.write_to(offset, length, file, file_offset)
    }
    fn sync(&self) -> Result<bool> {
        self.inner.sync()
    }
}
