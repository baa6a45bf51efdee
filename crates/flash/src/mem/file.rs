//! A handle of a simulated file.

use super::Shared;
use super::fault::{FaultKind, OperationKind, io_error, no_space, power_is_off};
use crate::volume::VolumeFile;
use bytes::Bytes;
use glintdb_core::{Error, FileId, Result};
use std::sync::Arc;

pub(super) struct MemFile {
    id: FileId,
    shared: Arc<Shared>,
    inode: u64,
}

impl MemFile {
    /// Takes over one handle of `inode`.
    pub(super) fn new(shared: &Arc<Shared>, id: FileId, inode: u64) -> Self {
        MemFile {
            id,
            shared: Arc::clone(shared),
            inode,
        }
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
        let fault = state.faults.next(OperationKind::Write {
            file: self.id,
            offset,
            length: bytes.len(),
        })?;
        if fault == Some(FaultKind::Io) {
            return Err(io_error(format_args!("write {}", self.id)));
        }
        let place = self.place(offset)?;
        let free = state.free_bytes();
        let inode = state.inode_mut(self.inode);
        let room =
            usize::try_from(inode.length_max(free).saturating_sub(offset)).unwrap_or(usize::MAX);
        let fits = match fault {
            Some(FaultKind::NoSpace) => bytes.len() / 2,
            _ => bytes.len().min(room),
        };
        inode.image.write(place, &bytes[..fits]);
        state.stats.writes += 1;
        state.stats.written_bytes += fits as u64;
        if fault == Some(FaultKind::PowerOff) {
            return Err(power_is_off());
        }
        if fits < bytes.len() {
            return Err(no_space(self.id));
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        let mut state = self.shared.state.lock();
        match state.faults.next(OperationKind::Read {
            file: self.id,
            offset,
            length,
        })? {
            Some(FaultKind::Io) => return Err(io_error(format_args!("read {}", self.id))),
            Some(FaultKind::PowerOff) => return Err(power_is_off()),
            _ => {}
        }
        let bytes = match usize::try_from(offset) {
            Ok(place) => Bytes::copy_from_slice(state.inode(self.inode).image.read(place, length)),
            Err(_) => Bytes::new(),
        };
        state.stats.reads += 1;
        state.stats.read_bytes += bytes.len() as u64;
        Ok(bytes)
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        state.stats.syncs += 1;
        let fault = state.faults.next(OperationKind::Sync(self.id))?;
        let image = &mut state.inode_mut(self.inode).image;
        match fault {
            None | Some(FaultKind::NoSpace) => {
                image.sync();
                Ok(())
            }
            Some(FaultKind::SyncLosesData) => {
                image.sync_fails();
                Err(io_error(format_args!("sync {}", self.id)))
            }
            Some(FaultKind::Io) => Err(io_error(format_args!("sync {}", self.id))),
            Some(FaultKind::PowerOff) => Err(power_is_off()),
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
        let fault = state.faults.next(OperationKind::SetLen {
            file: self.id,
            length,
        })?;
        if fault == Some(FaultKind::Io) {
            return Err(io_error(format_args!("set length of {}", self.id)));
        }
        let place = self.place(length)?;
        let free = state.free_bytes();
        let inode = state.inode_mut(self.inode);
        if length > inode.length_max(free) {
            return Err(no_space(self.id));
        }
        inode.image.set_len(place);
        inode.reserve_bytes = 0;
        match fault {
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ => Ok(()),
        }
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.shared.state.lock().close(self.inode);
    }
}
