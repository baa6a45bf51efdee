//! Files that are only in memory, for tables of resident runs: a [`Volume`] without a medium.
//!
//! Thread-safe. Key blocks are pinned by whoever reads them as the table is written, so of a table that is whole only its tail (filter, fences, range tombstones) is kept here; what was cut off
//! cannot be read any more, and says so.

use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use glintdb_core::FileId;
use glintdb_core::sync::Mutex;
use glintdb_flash::{CreateOptions, Ring, Volume, VolumeFile, VolumeStats};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;

/// See the module's page.
#[derive(Default)]
pub(super) struct Files {
    files: Mutex<BTreeMap<FileId, Arc<File>>>,
}

struct File {
    id: FileId,
    contents: Mutex<Contents>,
}

/// What is left of a file: everything from `start` on.
#[derive(Default)]
struct Contents {
    start: u64,
    bytes: Vec<u8>,
}

impl Files {
    fn file(&self, id: FileId) -> Result<Arc<File>> {
        let file = self.files.lock().get(&id).cloned();
        file.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("{id} is not in memory")))
    }

    /// Gives up what lies before `start`.
    pub(super) fn cut(&self, id: FileId, start: u64) -> Result<()> {
        let file = self.file(id)?;
        let mut contents = file.contents.lock();
        let gone = usize::try_from(start.saturating_sub(contents.start)).unwrap_or(usize::MAX);
        let kept = contents.bytes.get(gone..).unwrap_or_default().to_vec();
        *contents = Contents { start, bytes: kept };
        Ok(())
    }

    /// Memory of all files.
    pub(super) fn bytes(&self) -> usize {
        let files = self.files.lock();
        let bytes = files.values().map(|file| file.contents.lock().bytes.len());
        bytes.sum()
    }
}

fn refused(what: &str) -> Error {
    Error::invalid(format!("files that are only in memory have no {what}"))
}

impl Volume for Files {
    fn create(&self, id: FileId, _options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        match self.files.lock().entry(id) {
            Entry::Occupied(_) => Err(Error::invalid(format!("{id} exists"))),
            Entry::Vacant(place) => {
                let file = Arc::new(File {
                    id,
                    contents: Mutex::default(),
                });
                place.insert(Arc::clone(&file));
                Ok(file)
            }
        }
    }

    fn open(&self, id: FileId) -> Result<Arc<dyn VolumeFile>> {
        self.file(id).map(|file| file as Arc<dyn VolumeFile>)
    }

    fn delete(&self, id: FileId) -> Result<()> {
        self.file(id)?;
        self.files.lock().remove(&id);
        Ok(())
    }

    fn list(&self) -> Result<Vec<FileId>> {
        Ok(self.files.lock().keys().copied().collect())
    }

    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }

    fn ring(&self, _bytes: usize) -> Result<Arc<dyn Ring>> {
        Err(refused("ring"))
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn link(&self, _id: FileId, _target: &Path) -> Result<()> {
        Err(refused("links"))
    }

    fn stats(&self) -> VolumeStats {
        VolumeStats::default()
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}

impl VolumeFile for File {
    fn id(&self) -> FileId {
        self.id
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut contents = self.contents.lock();
        if offset != contents.start + contents.bytes.len() as u64 {
            return Err(refused("writes but at their end"));
        }
        contents.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        let contents = self.contents.lock();
        let from = offset.checked_sub(contents.start);
        let from = from.ok_or_else(|| refused("key blocks: those are pinned"))?;
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let bytes = contents.bytes.get(from..).unwrap_or_default();
        let bytes = bytes.get(..length).unwrap_or(bytes);
        Ok(Bytes::copy_from_slice(bytes))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        let contents = self.contents.lock();
        Ok(contents.start + contents.bytes.len() as u64)
    }

    fn set_len(&self, _length: u64) -> Result<()> {
        Err(refused("other length than what was written"))
    }
}
