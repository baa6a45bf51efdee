//! A handle of a simulated file.

use super::Shared;
use super::fault::{FaultKind, OperationKind, io_error, no_space, power_is_off};
use bytes::Bytes;
use glintdb_core::{Error, FileId, Result};
use glintdb_flash::VolumeFile;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct MemFile {
    id: FileId,
    shared: Arc<Shared>,
    directory: usize,
    inode: u64,
    /// Whether its user keeps it open.
    kept: AtomicBool,
    /// Whether bytes were written and not synced: the file is open then.
    written: AtomicBool,
    /// Whether all bytes were synced: a sync then has nothing to do.
    synced: AtomicBool,
}

impl MemFile {
    /// Takes over one handle of `inode`.
    pub(super) fn new(shared: &Arc<Shared>, directory: usize, id: FileId, inode: u64) -> Self {
        MemFile {
            id,
            shared: Arc::clone(shared),
            directory,
            inode,
            kept: AtomicBool::new(false),
            written: AtomicBool::new(false),
            synced: AtomicBool::new(false),
        }
    }

    /// Whether the volume has not closed the file for want of descriptors.
    fn is_open(&self) -> bool {
        self.kept.load(Ordering::Relaxed) || self.written.load(Ordering::Relaxed)
    }

    fn note_written(&self) {
        self.written.store(true, Ordering::Relaxed);
        self.synced.store(false, Ordering::Relaxed);
    }

    fn place(&self, offset: u64) -> Result<usize> {
        usize::try_from(offset)
            .map_err(|_| Error::invalid(format!("offset {offset} of {}", self.id)))
    }
}

impl VolumeFile for MemFile {
    fn id(&self) -> FileId {
        self.id
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.shared.state.lock();
        let kind = OperationKind::Write {
            file: self.id,
            offset,
            length: bytes.len(),
        };
        let fault = state.begin_with(self.directory, kind, bytes, self.is_open())?;
        self.note_written();
        if fault == Some(FaultKind::Io) {
            return Err(io_error(format_args!("write {}", self.id)));
        }
        let place = self.place(offset)?;
        state.stats.writes += 1;
        if fault == Some(FaultKind::MisdirectedWrite) {
            state.stats.written_bytes += bytes.len() as u64;
            state.write_elsewhere(self.inode, place, bytes);
            return Ok(());
        }
        let short = match fault {
            Some(FaultKind::ShortWrite) => state.random.below(bytes.len() + 1),
            _ => bytes.len(),
        };
        let free = state.free_bytes();
        let operation = state.faults.count;
        let inode = state.inode_mut(self.inode);
        let room =
            usize::try_from(inode.length_max(free).saturating_sub(offset)).unwrap_or(usize::MAX);
        let fits = match fault {
            Some(FaultKind::NoSpace) => bytes.len() / 2,
            _ => short.min(room),
        };
        inode.image.write(place, &bytes[..fits], operation);
        state.stats.written_bytes += fits as u64;
        match fault {
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            Some(FaultKind::ShortWrite) => Err(io_error(format_args!(
                "write {} behind {fits} bytes",
                self.id
            ))),
            _ if fits < bytes.len() => Err(no_space(self.id)),
            _ => Ok(()),
        }
    }

    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        let mut state = self.shared.state.lock();
        let kind = OperationKind::Read {
            file: self.id,
            offset,
            length,
        };
        let fault = state.begin_with(self.directory, kind, &[], self.is_open())?;
        match fault {
            Some(FaultKind::Io) => return Err(io_error(format_args!("read {}", self.id))),
            Some(FaultKind::PowerOff) => return Err(power_is_off()),
            _ => {}
        }
        let (inode, offset) = match usize::try_from(offset) {
            Ok(place) if fault == Some(FaultKind::MisdirectedRead) => {
                state.elsewhere(self.inode, place)
            }
            Ok(place) => (self.inode, place),
            Err(_) => (self.inode, usize::MAX),
        };
        let bytes = state.inode(inode).image.read(offset, length);
        if let Some(observer) = &state.observer {
            observer.answer(&bytes);
        }
        state.stats.reads += 1;
        state.stats.read_bytes += bytes.len() as u64;
        Ok(bytes.into())
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        state.stats.syncs += 1;
        let needs_none = self.is_open() || self.synced.load(Ordering::Relaxed);
        let kind = OperationKind::Sync(self.id);
        let fault = state.begin_with(self.directory, kind, &[], needs_none)?;
        let image = &mut state.inode_mut(self.inode).image;
        match fault {
            Some(FaultKind::SyncLosesData) => {
                image.sync_fails();
                Err(io_error(format_args!("sync {}", self.id)))
            }
            Some(FaultKind::Io) => Err(io_error(format_args!("sync {}", self.id))),
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ => {
                image.sync();
                self.written.store(false, Ordering::Relaxed);
                self.synced.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn len(&self) -> Result<u64> {
        let state = self.shared.state.lock();
        if state.faults.power_is_off {
            return Err(power_is_off());
        }
        Ok(state.inode(self.inode).image.len() as u64)
    }

    fn set_len(&self, length: u64) -> Result<()> {
        let mut state = self.shared.state.lock();
        let kind = OperationKind::SetLen {
            file: self.id,
            length,
        };
        let fault = state.begin_with(self.directory, kind, &[], self.is_open())?;
        self.note_written();
        if fault == Some(FaultKind::Io) {
            return Err(io_error(format_args!("set length of {}", self.id)));
        }
        let place = self.place(length)?;
        let free = state.free_bytes();
        let operation = state.faults.count;
        let inode = state.inode_mut(self.inode);
        if length > inode.length_max(free) {
            return Err(no_space(self.id));
        }
        inode.image.set_len(place, operation);
        inode.reserve_bytes = 0;
        match fault {
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ => Ok(()),
        }
    }

    fn keep_open(&self, keep: bool) -> Result<()> {
        self.kept.store(keep, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.shared.state.lock().close(self.inode);
    }
}
