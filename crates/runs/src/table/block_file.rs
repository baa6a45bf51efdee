//! A file of key blocks whose places are known from elsewhere: the blocks of a table, whose fences
//! tell them, or the nodes of a tree, whose parents do.
//!
//! Thread-safe. The file is opened at first use. An error at first use is not remembered.

use super::block::{Block, BlockHandle, Malformed, StoredBlock};
use super::compress;
use super::config::TableEnv;
use super::format::{BLOCK_HEADER_BYTES, HEADER_BYTES, PAGE_BYTES, encode_header, page_align};
use bytes::Bytes;
use glintdb_core::checksum::FileSeed;
use glintdb_core::{Entry, EntryRef, Error, FileId, Result};
use glintdb_flash::{ReadRequest, VolumeFile, read_each};
use std::sync::{Arc, OnceLock};

/// A file of key blocks.
pub struct BlockFile {
    env: Arc<TableEnv>,
    id: FileId,
    pub(super) seed: FileSeed,
    file: OnceLock<Arc<dyn VolumeFile>>,
}

impl BlockFile {
    /// The file `id`. Reads nothing yet.
    #[must_use]
    pub fn new(env: &Arc<TableEnv>, id: FileId) -> BlockFile {
        BlockFile {
            seed: FileSeed::new(env.db, id),
            env: Arc::clone(env),
            id,
            file: OnceLock::new(),
        }
    }

    /// The file's kind and number.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.id
    }

    /// What the files of the index share.
    pub(crate) fn env(&self) -> &Arc<TableEnv> {
        &self.env
    }

    /// The open file.
    ///
    /// # Errors
    /// `NotFound`, I/O errors.
    pub(super) fn file(&self) -> Result<&Arc<dyn VolumeFile>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = self.env.volume.open(self.id)?;
        Ok(self.file.get_or_init(|| file))
    }

    /// Closes the file, which the next use would open again.
    pub(super) fn close(&mut self) {
        self.file.take();
    }

    /// The block, if it is in the cache.
    #[inline]
    #[must_use]
    pub fn cached(&self, handle: BlockHandle) -> Option<Block> {
        let image = self.env.cached(self.id, handle.offset)?;
        Some(Block { image, handle })
    }

    /// The read that gives the block, to be submitted with others. Its answer is for
    /// [`accept`](Self::accept).
    ///
    /// # Errors
    /// I/O errors at first use of the file.
    pub fn request(&self, handle: BlockHandle) -> Result<ReadRequest> {
        let file = Arc::clone(self.file()?);
        let length = handle.length as usize;
        Ok(ReadRequest::new(file, handle.offset, length))
    }

    /// Verifies what a read gave, decompresses it and puts it into the cache.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn accept(&self, handle: BlockHandle, stored: Bytes) -> Result<Block> {
        let accepted = self.accept_stored(handle, stored)?;
        let image = &accepted.block.image;
        let image = self.env.keep(self.id, handle.offset, image);
        Ok(Block { image, handle })
    }

    /// Verifies what a read gave, without putting it into the cache.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn accept_uncached(&self, handle: BlockHandle, stored: Bytes) -> Result<Block> {
        self.accept_stored(handle, stored)
            .map(|accepted| accepted.block)
    }

    /// Verifies what a read gave, and keeps the stored form.
    pub(super) fn accept_stored(&self, handle: BlockHandle, stored: Bytes) -> Result<StoredBlock> {
        compress::open(self.seed, self.id, handle, stored)
    }

    /// Reads a block that is not in memory.
    #[cold]
    pub(super) fn read(&self, handle: BlockHandle) -> Result<Block> {
        let stored = (self.file()?).read_at(handle.offset, handle.length as usize)?;
        self.accept(handle, stored)
    }

    /// Reads blocks of files that share `env` in one batch. None of the blocks is in memory.
    pub(crate) fn read_many<'a>(
        env: &TableEnv,
        wanted: impl Iterator<Item = (&'a BlockFile, BlockHandle)> + Clone,
    ) -> Vec<Result<Block>> {
        let requests = wanted.clone().map(|(file, handle)| file.request(handle));
        let answers = read_each(&*env.volume, requests).into_iter();
        let read = |(stored, (file, handle)): (Result<Bytes>, (&BlockFile, BlockHandle))| {
            file.accept(handle, stored?)
        };
        answers.zip(wanted).map(read).collect()
    }

    /// Checks a file of `bytes` that a [`BlockFileWriter`](super::BlockFileWriter) has written: its
    /// header and every block, needed or not. `report` gets each error.
    pub fn verify(&self, bytes: u64, report: &mut dyn FnMut(Error)) {
        let page = PAGE_BYTES as u64;
        let header = self.file().and_then(|file| file.read_at(0, PAGE_BYTES));
        let mut expected = [0; PAGE_BYTES];
        expected[..HEADER_BYTES].copy_from_slice(&encode_header(self.env.db, self.id));
        match header {
            Ok(found) if *found == expected[..] => {}
            Ok(_) => report(Error::corruption(self.id, 0, "the header is another one")),
            // The blocks would give the same error.
            Err(error) => return report(error),
        }
        let mut offset = page;
        while offset < bytes {
            let length = match self.length_of(offset, bytes) {
                Ok(length) => length,
                Err(error) => {
                    report(error);
                    page
                }
            };
            offset += length;
        }
    }

    /// The length of the block at `offset`, which is checked.
    fn length_of(&self, offset: u64, bytes: u64) -> Result<u64> {
        let head = self.file()?.read_at(offset, BLOCK_HEADER_BYTES)?;
        let used = head
            .get(16..20)
            .and_then(|used| used.try_into().ok())
            .map_or(0, u32::from_le_bytes);
        let length = page_align(used.into()).max(PAGE_BYTES as u64);
        let corrupt = || Error::corruption(self.id, offset, "a block that reaches out of the file");
        if length > bytes - offset {
            return Err(corrupt());
        }
        let handle = BlockHandle {
            index: 0,
            offset,
            length: u32::try_from(length).map_err(|_| corrupt())?,
        };
        let stored = self.file()?.read_at(offset, handle.length as usize)?;
        self.accept_stored(handle, stored).map(|_| length)
    }

    /// The entry of `key` in a block of this file.
    ///
    /// # Errors
    /// `Corruption` where the block's contents make no sense.
    #[inline]
    pub fn search(&self, block: &Block, key: &[u8]) -> Result<Option<Entry>> {
        let search = || {
            let view = block.view()?;
            let Some(entry) = view.find(key)? else {
                return Ok(None);
            };
            Ok(Some(Entry {
                seqno: view.seqno(&entry)?,
                value: block.owned_value(&entry)?,
            }))
        };
        search().map_err(|Malformed| self.malformed(block.handle))
    }

    /// The value of the last entry at or before `key` in a block of this file; of the first entry
    /// if there is none.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    #[inline]
    pub fn floor<'a>(&self, block: &'a Block, key: &[u8]) -> Result<EntryRef<'a>> {
        let view = block.view();
        let value = view.and_then(|view| view.value(&view.floor(key)?));
        value.map_err(|Malformed| self.malformed(block.handle))
    }

    /// The error for a block whose checksum is right and whose contents are not.
    #[cold]
    pub(super) fn malformed(&self, handle: BlockHandle) -> Error {
        Error::corruption(self.id, handle.offset, "key block malformed")
    }
}
