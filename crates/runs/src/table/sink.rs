//! Gathers what is appended to a file into large aligned writes.
//!
//! Invariant: every write but those after a `finish` begins and ends at a multiple of the buffer's size, in memory aligned to a flash page.

use super::format::PAGE_BYTES;
use glintdb_core::memory::{MemoryBudget, MemoryPart};
use glintdb_core::{Result, planted};
use glintdb_flash::VolumeFile;
use std::sync::Arc;

/// Bytes of one write.
const BUFFER_BYTES: usize = 512 << 10;
const _: () = assert!(BUFFER_BYTES.is_multiple_of(PAGE_BYTES));

pub(super) struct Sink {
    file: Arc<dyn VolumeFile>,
    memory: Arc<MemoryBudget>,
    /// One page more than the buffer, so that an aligned part of it can be used.
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
    /// File offset of the buffer's first byte.
    offset: u64,
}

impl Sink {
    pub(super) fn new(file: Arc<dyn VolumeFile>, memory: Arc<MemoryBudget>) -> Self {
        let buffer = vec![0; BUFFER_BYTES + PAGE_BYTES];
        memory.add(MemoryPart::Buffers, buffer.len());
        Sink {
            start: buffer.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES),
            buffer,
            file,
            memory,
            filled: 0,
            offset: 0,
        }
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
            let at = self.start + self.filled;
            self.buffer[at..at + now.len()].copy_from_slice(now);
            self.filled += now.len();
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
        let bytes = &self.buffer[self.start..self.start + self.filled];
        self.file.write_at(self.offset, bytes)?;
        self.offset += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    /// Writes what is left and makes the file durable.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.filled > 0 {
            self.flush()?;
        }
        planted!("lsm: a table is not synced", self.file.sync(), Ok(()))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.memory.sub(MemoryPart::Buffers, self.buffer.len());
    }
}
