//! The ring of a simulated volume. Copies go into an [`Image`](super::image::Image) of the volume,
//! so that a power cut can tear it and a kill keeps it. A write behind what the ring has grown to
//! panics, where a mapped ring would end the process.

use super::Shared;
use super::fault::{FaultKind, OperationKind, io_error, power_is_off};
use glintdb_core::Result;
use glintdb_flash::{Ring, VolumeFile};
use glintdb_flash::{assert_aligned, check_ring_bytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) struct MemRing {
    pub(super) shared: Arc<Shared>,
    pub(super) directory: usize,
    pub(super) bytes: usize,
    /// Bytes from the front on that this handle has grown to, and may write.
    writable: AtomicUsize,
}

impl MemRing {
    pub(super) fn open(shared: &Arc<Shared>, directory: usize, bytes: usize) -> Result<Self> {
        check_ring_bytes(bytes)?;
        let mut state = shared.state.lock();
        let bytes = match &state.directories[directory].ring {
            Some(ring) => ring.image.len(),
            None => {
                state.create_ring(directory, bytes)?;
                bytes
            }
        };
        drop(state);
        Ok(MemRing {
            shared: Arc::clone(shared),
            directory,
            bytes,
            writable: AtomicUsize::new(0),
        })
    }
}

impl Ring for MemRing {
    fn len(&self) -> usize {
        self.bytes
    }

    fn survives_kill(&self) -> bool {
        self.shared.options.ring_survives_kill
    }

    fn grow(&self, bytes: usize) -> Result<()> {
        let mut state = self.shared.state.lock();
        state.grow_ring(self.directory, bytes)?;
        self.writable.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn shrink(&self, bytes: usize) -> Result<()> {
        let mut state = self.shared.state.lock();
        self.writable.fetch_min(bytes, Ordering::Relaxed);
        state.shrink_ring(self.directory, bytes)
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(
            offset.is_multiple_of(8) && bytes.len().is_multiple_of(8),
            "ring writes are whole words"
        );
        assert!(
            offset
                .checked_add(bytes.len())
                .is_some_and(|end| end <= self.writable.load(Ordering::Relaxed)),
            "write past what the ring has grown to"
        );
        let mut state = self.shared.state.lock();
        let length = bytes.len();
        let kind = OperationKind::RingWrite { offset, length };
        let fault = state.begin(self.directory, kind, bytes);
        let words = match fault {
            Ok(None) => length / 8,
            Ok(Some(_)) => state.random.below(length / 8 + 1),
            // Nobody is there to copy.
            Err(_) => 0,
        };
        let operation = state.faults.count;
        if let Some(ring) = &mut state.directories[self.directory].ring {
            ring.image.write(offset, &bytes[..words * 8], operation);
        }
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        let state = self.shared.state.lock();
        match &state.directories[self.directory].ring {
            Some(ring) => ring.image.read_into(offset, out),
            None => out.fill(0),
        }
    }

    fn write_to(
        &self,
        offset: usize,
        length: usize,
        file: &dyn VolumeFile,
        file_offset: u64,
    ) -> Result<()> {
        assert_aligned("ring offset", offset);
        assert_aligned("length", length);
        assert!(
            offset
                .checked_add(length)
                .is_some_and(|end| end <= self.bytes),
            "write_to past the ring's end"
        );
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes);
        file.write_at(file_offset, &bytes)
    }

    fn sync(&self) -> Result<bool> {
        let mut state = self.shared.state.lock();
        state.stats.syncs += 1;
        let fault = state.begin(self.directory, OperationKind::RingSync, &[])?;
        let Some(ring) = &mut state.directories[self.directory].ring else {
            return Ok(false);
        };
        match fault {
            Some(FaultKind::SyncLosesData) => {
                ring.image.sync_fails();
                Err(io_error("sync of the ring"))
            }
            Some(FaultKind::Io) => Err(io_error("sync of the ring")),
            Some(FaultKind::PowerOff) => Err(power_is_off()),
            _ => {
                ring.sync();
                Ok(self.shared.options.ring_survives_kill)
            }
        }
    }
}
