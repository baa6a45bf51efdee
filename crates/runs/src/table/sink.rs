//! Gathers what is appended to a file into large aligned writes.
//!
//! Not thread-safe: belongs to one writer.
//!
//! Invariant: every write before `finish` begins and ends at a multiple of the buffer's size, in
//! memory aligned to a flash page.

use super::format::PAGE_BYTES;
use glintdb_core::memory::{MemoryBudget, MemoryPart};
use glintdb_core::{Result, planted};
use glintdb_flash::{AlignedBuffer, DIRECT_ALIGNMENT, VolumeFile};
use std::sync::Arc;

/// Bytes of one write.
const BUFFER_BYTES: usize = 512 << 10;
const _: () = assert!(BUFFER_BYTES.is_multiple_of(PAGE_BYTES));
const _: () = assert!(DIRECT_ALIGNMENT.is_multiple_of(PAGE_BYTES));

pub(super) struct Sink {
    file: Arc<dyn VolumeFile>,
    memory: Arc<MemoryBudget>,
    buffer: AlignedBuffer,
    filled: usize,
    /// File offset of the buffer's first byte.
    offset: u64,
}

impl Sink {
    pub(super) fn new(file: Arc<dyn VolumeFile>, memory: Arc<MemoryBudget>) -> Result<Self> {
        let buffer = AlignedBuffer::zeroed(BUFFER_BYTES)?;
        memory.add(MemoryPart::Buffers, BUFFER_BYTES);
        Ok(Sink {
            buffer,
            file,
            memory,
            filled: 0,
            offset: 0,
        })
    }

    /// Offset of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.offset + self.filled as u64
    }

    /// Appends `bytes`.
    pub(super) fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = BUFFER_BYTES - self.filled;
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            let end = self.filled + now.len();
            self.buffer.as_mut_slice()[self.filled..end].copy_from_slice(now);
            self.filled = end;
            bytes = rest;
            if self.filled == BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Appends zeros up to a multiple of a flash page.
    pub(super) fn pad_to_page(&mut self) -> Result<()> {
        const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        // The buffer begins at a multiple of its own size.
        let missing = self.filled.next_multiple_of(PAGE_BYTES) - self.filled;
        self.append(&ZEROS[..missing])
    }

    fn flush(&mut self) -> Result<()> {
        let bytes = &self.buffer.as_slice()[..self.filled];
        self.file.write_at(self.offset, bytes)?;
        self.offset += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    /// Writes the rest and makes the file durable.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.filled > 0 {
            self.flush()?;
        }
        planted!("lsm: a table is not synced", self.file.sync(), Ok(()))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.memory.sub(MemoryPart::Buffers, BUFFER_BYTES);
    }
}
