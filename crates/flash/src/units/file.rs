//! A file and the ring of a volume over several units: they pass calls on, and count them.

use super::Shared;
use crate::volume::{DataClass, Ring, VolumeFile, find_file};
use bytes::Bytes;
use glintdb_core::{FileId, Result};
use std::sync::Arc;

/// A file of one of the units. Thread-safe.
pub(super) struct UnitFile {
    pub(super) inner: Arc<dyn VolumeFile>,
    pub(super) shared: Arc<Shared>,
    pub(super) unit: usize,
    pub(super) class: DataClass,
}

impl UnitFile {
    pub(super) fn of(file: &dyn VolumeFile) -> Option<&UnitFile> {
        find_file(file)
    }

    /// The file of the unit.
    pub(super) fn inner_of(file: &dyn VolumeFile) -> Option<Arc<dyn VolumeFile>> {
        Self::of(file).map(|file| Arc::clone(&file.inner))
    }

    pub(super) fn count_read(&self, bytes: usize) {
        let counts = &self.shared.counts;
        counts.count_read(self.unit, self.class, bytes as u64);
    }

    fn count_write(&self, bytes: usize) {
        let counts = &self.shared.counts;
        counts.count_write(self.unit, self.class, bytes as u64);
    }
}

impl VolumeFile for UnitFile {
    fn id(&self) -> FileId {
        self.inner.id()
    }

    fn medium_file(&self) -> Option<&dyn VolumeFile> {
        Some(&*self.inner)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(offset, bytes)?;
        self.count_write(bytes.len());
        Ok(())
    }

    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        let bytes = self.inner.read_at(offset, length)?;
        self.count_read(bytes.len());
        Ok(bytes)
    }

    fn sync(&self) -> Result<()> {
        self.shared.sync_with(|| self.inner.sync())
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

/// The ring, which is that of the first unit.
pub(super) struct UnitRing {
    pub(super) inner: Arc<dyn Ring>,
    pub(super) shared: Arc<Shared>,
}

impl Ring for UnitRing {
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

    #[inline]
    fn write(&self, offset: usize, bytes: &[u8]) {
        self.inner.write(offset, bytes);
    }

    fn populate(&self, offset: usize, length: usize) {
        self.inner.populate(offset, length);
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
        let Some(unit) = UnitFile::of(file) else {
            return self.inner.write_to(offset, length, file, file_offset);
        };
        let inner = &*unit.inner;
        self.inner.write_to(offset, length, inner, file_offset)?;
        unit.count_write(length);
        Ok(())
    }

    fn sync(&self) -> Result<bool> {
        self.shared.sync_with(|| self.inner.sync())
    }
}
