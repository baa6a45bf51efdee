//! Writes a file of key blocks, front to back: the branch nodes of a tree
//! (`docs/format/tree.md`). Keys ascend within a block, and blocks come in any order.
//!
//! Not thread-safe: it has one owner.
//!
//! Invariants:
//! 1. A file that was not finished is removed when the writer is dropped.
//! 2. A file that [`BlockFileWriter::finish`] returned is durable, except for its directory.

use super::block::BlockHandle;
use super::block_builder::{Added, BlockBuilder};
use super::compress;
use super::config::TableEnv;
use super::format::{HEADER_BYTES, PAGE_BYTES, encode_header};
use super::sink::Sink;
use bytes::Bytes;
use glintdb_core::checksum::FileSeed;
use glintdb_core::{EntryRef, Error, FileId, FileKind, Result, SeqNum};
use glintdb_flash::{CreateOptions, DataClass};
use std::sync::Arc;

/// A block that a writer has written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenBlock {
    /// Where it lies.
    pub handle: BlockHandle,
    /// Its checksum, as stored.
    pub checksum: u32,
    /// A key that is at or below the block's first key, and above the last key of the block before
    /// it.
    pub separator: Bytes,
}

/// Writes a file of key blocks. Dropped unfinished, it removes its file.
pub struct BlockFileWriter {
    env: Arc<TableEnv>,
    id: FileId,
    seed: FileSeed,
    sink: Sink,
    block: BlockBuilder,
    /// Size of blocks in bytes, and entries between restart points.
    shape: (usize, usize),
    blocks: u32,
    finished: bool,
}

impl BlockFileWriter {
    /// Creates the file. Blocks are cut at `block_bytes`.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors, a file of that name.
    ///
    /// # Panics
    /// If `id` is no file of a tree.
    pub fn create(
        env: &Arc<TableEnv>,
        id: FileId,
        class: DataClass,
        block_bytes: usize,
        restart_interval: usize,
    ) -> Result<BlockFileWriter> {
        assert!(id.kind == FileKind::Tree, "{id} is no file of a tree");
        let options = CreateOptions {
            class,
            reserve_bytes: 0,
            direct: true,
        };
        let file = env.volume.create(id, options)?;
        let mut writer = BlockFileWriter {
            env: Arc::clone(env),
            id,
            seed: FileSeed::new(env.db, id),
            sink: Sink::new(file, Arc::clone(&env.memory))?,
            block: BlockBuilder::new(block_bytes, restart_interval),
            shape: (block_bytes, restart_interval),
            blocks: 0,
            finished: false,
        };
        let mut page = [0; PAGE_BYTES];
        page[..HEADER_BYTES].copy_from_slice(&encode_header(env.db, id));
        writer.sink.append(&page)?;
        Ok(writer)
    }

    /// The file's kind and number.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Begins a block of another size, or with another number of entries between restart points.
    ///
    /// # Panics
    /// If the block before was not [ended](Self::end_block).
    pub fn begin_block(&mut self, block_bytes: usize, restart_interval: usize) {
        assert!(self.block.is_empty(), "the last block was not written");
        if self.shape != (block_bytes, restart_interval) {
            self.shape = (block_bytes, restart_interval);
            self.block = BlockBuilder::new(block_bytes, restart_interval);
        }
    }

    /// Adds an entry to the block being built. Returns false, and adds nothing, if the block is
    /// full.
    ///
    /// # Panics
    /// If `key` is not greater than the keys in the block.
    pub fn add(&mut self, key: &[u8], value: EntryRef<'_>) -> bool {
        match self.block.try_add(key, SeqNum::ZERO, value) {
            Added::Yes => true,
            Added::Full => false,
            Added::OutOfOrder => panic!("keys ascend within a block, each once"),
        }
    }

    /// Writes the block being built.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors.
    ///
    /// # Panics
    /// If the block has no entry.
    pub fn end_block(&mut self) -> Result<WrittenBlock> {
        assert!(!self.block.is_empty(), "an empty block is not written");
        let (first_key, _, image) = self.block.finish();
        image.resize(image.len().next_multiple_of(PAGE_BYTES), 0);
        let offset = self.sink.position();
        compress::seal(self.seed, offset, image);
        let length = u32::try_from(image.len())
            .map_err(|_| Error::invalid("an entry of more than 4 GiB"))?;
        let written = WrittenBlock {
            handle: BlockHandle {
                index: self.blocks,
                offset,
                length,
            },
            checksum: stored_checksum(image),
            separator: Bytes::copy_from_slice(first_key),
        };
        self.sink.append(image)?;
        self.blocks += 1;
        self.block.clear();
        Ok(written)
    }

    /// Makes the file durable, and returns its length in bytes. The caller syncs the directory.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors. The file is removed then.
    ///
    /// # Panics
    /// If the last block was not [ended](Self::end_block).
    pub fn finish(mut self) -> Result<u64> {
        assert!(self.block.is_empty(), "the last block was not written");
        self.sink.finish()?;
        self.finished = true;
        Ok(self.sink.position())
    }
}

/// The checksum with which a stored block begins.
#[must_use]
pub fn stored_checksum(stored: &[u8]) -> u32 {
    stored
        .first_chunk::<4>()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

impl Drop for BlockFileWriter {
    fn drop(&mut self) {
        if !self.finished {
            // If this fails, the next open removes the file, because no manifest names it.
            self.env.volume.delete(self.id).ok();
        }
    }
}
