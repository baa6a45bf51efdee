//! Walks the entries of one block after the other, for readers that know the places of blocks
//! themselves.
//!
//! Not thread-safe: belongs to one reader.

use super::block::{Block, BlockHandle, Malformed};
use super::block_iter::BlockIter;
use bytes::Bytes;
use glintdb_core::{Direction, EntryRef, Error, FileId, Result, SeqNum};

/// A cursor over the entries of a block.
pub struct BlockCursor {
    iter: BlockIter,
    file: FileId,
}

impl BlockCursor {
    /// A cursor without entries. [`enter`](Self::enter) gives it a block.
    #[must_use]
    pub fn new(direction: Direction) -> BlockCursor {
        BlockCursor {
            iter: BlockIter::new(direction),
            file: FileId::new(glintdb_core::FileKind::Table, 0),
        }
    }

    /// Goes to the edge of a block of `file` at which the cursor's direction begins.
    ///
    /// # Errors
    /// `Corruption` where the block's contents make no sense.
    pub fn enter(&mut self, file: FileId, block: Block) -> Result<()> {
        self.file = file;
        let handle = block.handle();
        let entered = self.iter.reset(block);
        entered.map_err(|Malformed| self.malformed(handle))
    }

    /// Goes to the next entry. Returns false if there is none.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        let stepped = self.iter.step();
        stepped.map_err(|Malformed| self.malformed_here())
    }

    /// Goes to the first entry at or behind `key` in the cursor's direction. Returns false if there
    /// is none in the block.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let found = self.iter.seek(key);
        found.map_err(|Malformed| self.malformed_here())
    }

    /// Goes to the last entry at or before `key`, or to the first entry if there is none. Returns
    /// false if the block has no entry.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn seek_floor(&mut self, key: &[u8]) -> Result<bool> {
        let found = self.iter.seek_floor(key);
        found.map_err(|Malformed| self.malformed_here())
    }

    /// The file that the block is in.
    #[must_use]
    pub fn file(&self) -> FileId {
        self.file
    }

    /// The block.
    #[must_use]
    pub fn block(&self) -> &Block {
        self.iter.block()
    }

    /// Forwards: gives the rest of the block's entries to `take`, until that returns false. Returns
    /// true then.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    #[inline]
    pub fn walk(
        &mut self,
        take: &mut impl FnMut(&[u8], SeqNum, EntryRef<'_>, Option<&Bytes>) -> bool,
    ) -> Result<bool> {
        let walked = self.iter.walk(take);
        walked.map_err(|Malformed| self.malformed_here())
    }

    /// Key of the current entry.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.iter.key()
    }

    /// Sequence number of the current entry.
    #[must_use]
    pub fn seqno(&self) -> SeqNum {
        self.iter.seqno()
    }

    /// Value of the current entry.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn value(&self) -> Result<EntryRef<'_>> {
        let value = self.iter.value();
        value.map_err(|Malformed| self.malformed_here())
    }

    /// The block's image, which holds inline values.
    #[must_use]
    pub fn memory(&self) -> &Bytes {
        &self.iter.block().image
    }

    /// The error for an entry of the current block that does not fit.
    #[cold]
    #[must_use]
    pub fn corrupt(&self, what: impl Into<String>) -> Error {
        Error::corruption(self.file, self.iter.block().handle().offset, what)
    }

    #[cold]
    fn malformed_here(&self) -> Error {
        self.malformed(self.iter.block().handle())
    }

    #[cold]
    fn malformed(&self, handle: BlockHandle) -> Error {
        Error::corruption(self.file, handle.offset, "key block malformed")
    }
}
