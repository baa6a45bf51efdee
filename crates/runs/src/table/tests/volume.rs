//! A volume in memory whose files the tests can damage.

use bytes::Bytes;
use glintdb_core::{Error, ErrorKind, FileId, Result};
use glintdb_flash::{CreateOptions, Ring, Volume, VolumeFile, VolumeStats};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module's page.
#[derive(Default)]
pub(crate) struct TestVolume {
    files: Mutex<BTreeMap<FileId, Arc<TestFile>>>,
    pub(crate) reads: Arc<AtomicU64>,
    pub(crate) fail_writes: Arc<AtomicU64>,
}

pub(crate) struct TestFile {
    id: FileId,
    bytes: Mutex<Vec<u8>>,
    reads: Arc<AtomicU64>,
    fail_writes: Arc<AtomicU64>,
}

impl TestVolume {
    pub(crate) fn bytes(&self, id: FileId) -> Vec<u8> {
        self.files.lock()[&id].bytes.lock().clone()
    }

    /// Puts a file there, or another in its place.
    pub(crate) fn put(&self, id: FileId, bytes: Vec<u8>) {
        let file = self.file(id, bytes);
        self.files.lock().insert(id, file);
    }

    fn file(&self, id: FileId, bytes: Vec<u8>) -> Arc<TestFile> {
        Arc::new(TestFile {
            id,
            bytes: Mutex::new(bytes),
            reads: Arc::clone(&self.reads),
            fail_writes: Arc::clone(&self.fail_writes),
        })
    }
}

fn missing(id: FileId) -> Error {
    Error::new(ErrorKind::NotFound, id.to_string())
}

impl Volume for TestVolume {
    fn create(&self, id: FileId, _: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        let file = self.file(id, Vec::new());
        let before = self.files.lock().insert(id, Arc::clone(&file));
        assert!(before.is_none());
        Ok(file)
    }
    fn open(&self, id: FileId) -> Result<Arc<dyn VolumeFile>> {
        let file = self.files.lock().get(&id).cloned();
        file.map(|file| file as Arc<dyn VolumeFile>)
            .ok_or_else(|| missing(id))
    }
    fn delete(&self, id: FileId) -> Result<()> {
        let removed = self.files.lock().remove(&id);
        removed.map(drop).ok_or_else(|| missing(id))
    }
    fn list(&self) -> Result<Vec<FileId>> {
        Ok(self.files.lock().keys().copied().collect())
    }
    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }
    fn ring(&self, _: usize) -> Result<Arc<dyn Ring>> {
        Err(Error::invalid("no ring here"))
    }
    fn free_bytes(&self) -> Option<u64> {
        None
    }
    fn link(&self, _: FileId, _: &Path) -> Result<bool> {
        Err(Error::invalid("no links here"))
    }
    fn stats(&self) -> VolumeStats {
        VolumeStats::default()
    }
    fn describe(&self) -> String {
        "test".into()
    }
}

impl VolumeFile for TestFile {
    fn id(&self) -> FileId {
        self.id
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.fail_writes.load(Ordering::Relaxed) > 0 {
            return Err(Error::new(ErrorKind::NoSpace, "write"));
        }
        let mut file = self.bytes.lock();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        let length = file.len().max(end);
        file.resize(length, 0);
        file[start..end].copy_from_slice(bytes);
        Ok(())
    }
    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let file = self.bytes.lock();
        let start = (offset as usize).min(file.len());
        let end = start.saturating_add(length).min(file.len());
        Ok(Bytes::copy_from_slice(&file[start..end]))
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }
    fn set_len(&self, length: u64) -> Result<()> {
        self.bytes.lock().resize(length as usize, 0);
        Ok(())
    }
}
