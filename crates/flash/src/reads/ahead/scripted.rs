//! A volume of one file without end whose reads are counted, fail where the test says so, and are answered only while a gate is open.
//!
//! Thread-safe.

use crate::{
    BegunBatch, CreateOptions, DataClass, ReadRequest, Ring, Volume, VolumeFile, VolumeStats,
};
use bytes::Bytes;
use glintdb_core::sync::{Condvar, Mutex};
use glintdb_core::{Error, ErrorKind, FileId, FileKind, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The volume.
#[derive(Default)]
pub(super) struct Scripted {
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Default)]
struct State {
    shut: bool,
    /// How often each offset was read.
    reads: BTreeMap<u64, u32>,
    /// Reads at these offsets fail.
    failing: Vec<u64>,
}

struct Endless;

/// What stands at `offset`.
pub(super) fn contents(offset: u64, length: usize) -> Bytes {
    (offset..offset + length as u64)
        .map(|at| u8::try_from(at / 7 % 251).unwrap())
        .collect()
}

/// The file.
pub(super) fn file() -> Arc<dyn VolumeFile> {
    Arc::new(Endless)
}

impl Scripted {
    #[cfg(not(loom))]
    /// Nothing is answered from now on.
    pub(super) fn shut(&self) {
        self.state.lock().shut = true;
    }

    #[cfg(not(loom))]
    /// What waits is answered.
    pub(super) fn open(&self) {
        self.state.lock().shut = false;
        self.opened.notify_all();
    }

    #[cfg(not(loom))]
    pub(super) fn fail_at(&self, offset: u64) {
        self.state.lock().failing.push(offset);
    }

    /// Offsets, and how often each was read.
    pub(super) fn reads(&self) -> BTreeMap<u64, u32> {
        self.state.lock().reads.clone()
    }

    fn answer(&self, requests: &mut [ReadRequest]) {
        let mut state = self.state.lock();
        while state.shut {
            self.opened.wait(&mut state);
        }
        for request in requests {
            request.result = Some(match state.failing.contains(&request.offset) {
                true => Err(Error::new(ErrorKind::Io, format!("{}", request.offset))),
                false => Ok(contents(request.offset, request.length)),
            });
        }
    }
}

/// The volume with the handle that its batches keep.
pub(super) struct Handle(pub(super) Arc<Scripted>);

impl Volume for Handle {
    fn begin_batch(&self, mut requests: Vec<ReadRequest>) -> BegunBatch {
        let mut state = self.0.state.lock();
        for request in &requests {
            *state.reads.entry(request.offset).or_default() += 1;
        }
        drop(state);
        let volume = Arc::clone(&self.0);
        BegunBatch::new(move || {
            volume.answer(&mut requests);
            requests
        })
    }

    fn create(&self, _id: FileId, _options: CreateOptions) -> Result<Arc<dyn VolumeFile>> {
        Ok(file())
    }
    fn open(&self, _id: FileId) -> Result<Arc<dyn VolumeFile>> {
        Ok(file())
    }
    fn delete(&self, _id: FileId) -> Result<()> {
        Ok(())
    }
    fn list(&self) -> Result<Vec<FileId>> {
        Ok(Vec::new())
    }
    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }
    fn read_batch(&self, requests: &mut [ReadRequest]) {
        self.0.answer(requests);
    }
    fn ring(&self, _bytes: usize) -> Result<Arc<dyn Ring>> {
        Err(Error::invalid("there is no ring"))
    }
    fn free_bytes(&self) -> Option<u64> {
        None
    }
    fn link(&self, _id: FileId, _target: &Path) -> Result<bool> {
        Err(Error::invalid("there are no directories"))
    }
    fn stats(&self) -> VolumeStats {
        VolumeStats::default()
    }
    fn describe(&self) -> String {
        format!("{:?}", DataClass::Log)
    }
}

impl VolumeFile for Endless {
    fn id(&self) -> FileId {
        FileId::new(FileKind::Table, 1)
    }
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Err(Error::invalid("nothing can be written"))
    }
    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        Ok(contents(offset, length))
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(u64::MAX)
    }
    fn set_len(&self, _length: u64) -> Result<()> {
        Err(Error::invalid("it has no end"))
    }
}
