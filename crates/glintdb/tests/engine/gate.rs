//! A volume whose syncs can be held up, so that a test can look at the engine while one is under way.

use bytes::Bytes;
use glintdb::Result;
use glintdb_core::FileId;
use glintdb_flash::{CreateOptions, MemVolume, ReadRequest, Ring, Volume, VolumeFile, VolumeStats};
use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    waiting: usize,
}

impl Gate {
    /// Syncs of files that begin from now on wait.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
    }

    pub(crate) fn open(&self) {
        self.state.lock().closed = false;
        self.moved.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.moved.notify_all();
        while state.closed {
            self.moved.wait(&mut state);
        }
        state.waiting -= 1;
    }

    /// Waits until a sync waits.
    pub(crate) fn wait_for_one(&self) {
        let mut state = self.state.lock();
        while state.waiting == 0 {
            self.moved.wait(&mut state);
        }
    }
}

pub(crate) struct GatedVolume {
    pub(crate) inner: Arc<MemVolume>,
    pub(crate) gate: Arc<Gate>,
}

struct GatedFile {
    inner: Arc<dyn VolumeFile>,
    gate: Arc<Gate>,
}

impl GatedVolume {
    fn wrap(&self, file: Arc<dyn VolumeFile>) -> Arc<dyn VolumeFile> {
        Arc::new(GatedFile {
            inner: file,
            gate: Arc::clone(&self.gate),
        })
    }
}

impl Volume for GatedVolume {
    fn create(&self, id: FileId, options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        Ok(self.wrap(self.inner.create(id, options)?))
    }
    fn open(&self, id: FileId) -> Result<Arc<dyn VolumeFile>> {
        Ok(self.wrap(self.inner.open(id)?))
    }
    fn delete(&self, id: FileId) -> Result<()> {
        self.inner.delete(id)
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
        self.inner.ring(bytes)
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
    fn link(&self, id: FileId, target: &Path) -> Result<()> {
        self.inner.link(id, target)
    }
    fn stats(&self) -> VolumeStats {
        self.inner.stats()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

impl VolumeFile for GatedFile {
    fn id(&self) -> FileId {
        self.inner.id()
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(offset, bytes)
    }
    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.inner.read_at(offset, length)
    }
    fn sync(&self) -> Result<()> {
        self.gate.pass();
        self.inner.sync()
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, length: u64) -> Result<()> {
        self.inner.set_len(length)
    }
}
