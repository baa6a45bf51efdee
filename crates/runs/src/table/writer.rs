//! Writes one table, front to back, in large aligned writes, without allocating for each entry.
//!
//! Not thread-safe: it has one owner.
//!
//! Invariants:
//! 1. Keys come in ascending order, each once.
//! 2. A file that was not finished is removed when the writer is dropped.
//! 3. A table that [`TableWriter::finish`] returned is durable, except for its directory.
//! 4. What the writer holds until the table's end is in the memory budget, a block late at most.

use super::block::{BlockHandle, StoredBlock, View};
use super::block_builder::{Added, BlockBuilder};
use super::block_file_writer::{WrittenBlock, stored_checksum};
use super::block_iter::BlockIter;
use super::block_shape::BlockShape;
use super::compress;
use super::config::{Caching, Compression, TableConfig, TableEnv};
use super::fences_builder::{FencesBuilder, separator};
use super::filter::{Filter, key_hash};
use super::format::{
    FOOTER_BYTES, Footer, HEADER_BYTES, PAGE_BYTES, Span, encode_header, page_align,
};
use super::meta::TableMeta;
use super::pinned::{PinMemory, PinnedBlocks};
use super::sink::Sink;
use super::tombstones;
use bytes::Bytes;
use glintdb_core::checksum::FileSeed;
use glintdb_core::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX, successor};
use glintdb_core::memory::MemoryPart;
use glintdb_core::sync::{Work, charge};
use glintdb_core::{Direction, EntryRef, Error, FileId, FileKind, RangeTombstone, Result, SeqNum};
use glintdb_flash::{CreateOptions, DataClass};
use std::sync::Arc;

/// The key blocks written so far, and where the next one goes.
struct Output {
    seed: FileSeed,
    sink: Sink,
    fences: FencesBuilder,
    /// Last key of the block written last.
    last_key: Vec<u8>,
    /// The blocks written since [`TableWriter::take_blocks`], if they are noted.
    noted: Option<Vec<WrittenBlock>>,
}

/// Writes one table. Dropped unfinished, it removes its file.
pub struct TableWriter {
    env: Arc<TableEnv>,
    config: TableConfig,
    block: BlockBuilder,
    output: Output,
    /// Reads blocks that are moved whole, and their bytes as they are written: kept for their
    /// memory.
    moved: BlockIter,
    moved_bytes: Vec<u8>,
    hashes: Vec<u64>,
    tombstones: Vec<RangeTombstone>,
    /// The blocks written so far, if they are to be pinned.
    pins: Option<PinnedBlocks>,
    /// Which blocks go to the cache as they are written.
    caching: Caching,
    /// The record of the table, as far as it is known.
    meta: TableMeta,
    /// Bytes of hashes and fences in the memory budget.
    accounted_bytes: usize,
    finished: bool,
}

impl TableWriter {
    /// Creates the file. `entries_hint` is about how many entries will come (0: unknown).
    ///
    /// # Errors
    /// `NoSpace`, I/O errors, a file of that name.
    ///
    /// # Panics
    /// If `id` is not a table or the configuration is out of its limits.
    pub fn create(
        env: &Arc<TableEnv>,
        id: FileId,
        class: DataClass,
        config: &TableConfig,
        entries_hint: usize,
    ) -> Result<TableWriter> {
        assert!(id.kind == FileKind::Table, "{id} is not a table");
        config.check();
        let options = CreateOptions {
            class,
            reserve_bytes: 0,
            direct: true,
        };
        let file = env.volume.create(id, options)?;
        let mut writer = TableWriter {
            env: Arc::clone(env),
            config: config.clone(),
            block: BlockBuilder::new(config.block_bytes, config.restart_interval),
            output: Output {
                seed: FileSeed::new(env.db, id),
                sink: Sink::new(file, Arc::clone(&env.memory))?,
                fences: FencesBuilder::default(),
                last_key: Vec::new(),
                noted: None,
            },
            moved: BlockIter::new(Direction::Forward),
            moved_bytes: Vec::new(),
            hashes: Vec::with_capacity(if config.filter_bits_per_key > 0.0 {
                entries_hint.min(1 << 20)
            } else {
                0
            }),
            tombstones: Vec::new(),
            pins: None,
            caching: Caching::None,
            meta: TableMeta {
                id,
                bytes: 0,
                tail_offset: 0,
                blocks: 0,
                entries: 0,
                tombstones: 0,
                range_tombstones: 0,
                pointed_bytes: 0,
                smallest: Bytes::new(),
                largest: Bytes::new(),
                range: (Bytes::new(), Some(Bytes::new())),
                seqno_min: SeqNum(u64::MAX),
                seqno_max: SeqNum::ZERO,
            },
            accounted_bytes: 0,
            finished: false,
        };
        let mut page = [0; PAGE_BYTES];
        page[..HEADER_BYTES].copy_from_slice(&encode_header(env.db, id));
        writer.output.sink.append(&page)?;
        Ok(writer)
    }

    /// Keeps a copy of every block as it is written, as long as `memory` allows, for
    /// [`finish_with_pins`](Self::finish_with_pins). Must be called before anything is added.
    pub(crate) fn keep_blocks(&mut self, memory: &Arc<PinMemory>) {
        self.pins = Some(PinnedBlocks::new(memory));
    }

    /// Says which blocks go to the cache as they are written from now on.
    pub fn cache_blocks(&mut self, caching: Caching) {
        self.caching = caching;
    }

    /// Notes every block from now on, for [`take_blocks`](Self::take_blocks).
    pub fn note_blocks(&mut self) {
        self.output.noted = Some(Vec::new());
    }

    /// Writes the block being built, if there is one, and returns the blocks that were noted and
    /// not taken yet.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn take_blocks(&mut self) -> Result<Vec<WrittenBlock>> {
        self.cut_block()?;
        Ok(self
            .output
            .noted
            .as_mut()
            .map_or_else(Vec::new, std::mem::take))
    }

    /// Bytes of the block being built; 0 while there is none.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block.used_bytes()
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors; the table is to be given up then.
    ///
    /// # Panics
    /// If `key` is not greater than every key before, or something is beyond its limits.
    pub fn add(&mut self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) -> Result<()> {
        let added = self.try_add(key, seqno, value)?;
        assert!(added, "keys ascend, each once");
        Ok(())
    }

    /// Adds an entry. Returns false, and adds nothing, if `key` is not greater than every key
    /// before.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    ///
    /// # Panics
    /// If something is beyond its limits.
    #[inline]
    pub(crate) fn try_add(
        &mut self,
        key: &[u8],
        seqno: SeqNum,
        value: EntryRef<'_>,
    ) -> Result<bool> {
        assert!(key.len() <= KEY_BYTES_MAX, "key of {} bytes", key.len());
        if let EntryRef::Inline(value) = value {
            assert!(
                value.len() <= VALUE_BYTES_MAX,
                "value of {} bytes",
                value.len()
            );
        }
        if self.block.is_empty() && self.meta.entries > 0 && key <= self.last_key() {
            return Ok(false);
        }
        match self.block.try_add(key, seqno, value) {
            Added::Yes => {}
            Added::OutOfOrder => return Ok(false),
            Added::Full => {
                self.cut_block()?;
                let added = self.block.try_add(key, seqno, value);
                assert!(added == Added::Yes, "the first entry of a block fits");
            }
        }
        self.count(key, seqno, value);
        Ok(true)
    }

    /// Counts an entry that was added.
    #[inline]
    fn count(&mut self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) {
        assert!(seqno <= SeqNum::MAX, "sequence number {seqno}");
        if self.config.filter_bits_per_key > 0.0 {
            self.hashes.push(key_hash(key));
        }
        if self.meta.entries == 0 {
            self.meta.smallest = Bytes::copy_from_slice(key);
        }
        self.meta.entries += 1;
        self.meta.seqno_min = self.meta.seqno_min.min(seqno);
        self.meta.seqno_max = self.meta.seqno_max.max(seqno);
        match value {
            EntryRef::Inline(_) => {}
            EntryRef::Pointer(pointer) => self.meta.pointed_bytes += u64::from(pointer.length),
            EntryRef::Tombstone => self.meta.tombstones += 1,
        }
    }

    /// Adds the entries of another table's block, and returns their number. The block is written as
    /// it is, except for its checksum, which depends on its place. But if that block or the one
    /// being built would stay less than half full, the entries are added one by one.
    ///
    /// # Errors
    /// As [`add`](Self::add). `Corruption` if the block has something else than entries in order.
    ///
    /// # Panics
    /// If the block's first key is not greater than every key before.
    pub(crate) fn add_block(&mut self, stored: &StoredBlock) -> Result<u64> {
        let entries_before = self.meta.entries;
        let malformed = |_| stored.corrupt("a key block to be moved does not parse");
        let block = stored.block();
        let view = block.view().map_err(malformed)?;
        let first_key = view.first_key().map_err(malformed)?;
        let shape = BlockShape::new(
            first_key.len(),
            self.config.block_bytes,
            self.config.restart_interval,
        );
        let one_by_one =
            self.block.is_small() || shape.is_small(view.layout.used, view.layout.entries);
        if !one_by_one {
            self.cut_block()?;
        }
        assert!(
            self.meta.entries == 0 || first_key > self.last_key(),
            "keys ascend, each once"
        );
        let mut iter = std::mem::replace(&mut self.moved, BlockIter::new(Direction::Forward));
        iter.reset(block.clone()).map_err(malformed)?;
        // Each step checks that keys ascend.
        while iter.step().map_err(malformed)? {
            let (key, seqno) = (iter.key(), iter.seqno());
            let value = iter.value().map_err(malformed)?;
            if one_by_one {
                self.add(key, seqno, value)?;
            } else {
                self.count(key, seqno, value);
            }
        }
        if !one_by_one {
            let mut bytes = std::mem::take(&mut self.moved_bytes);
            self.restore(stored, &view, &mut bytes)?;
            let handle = self.output.write_block(first_key, iter.key(), &mut bytes)?;
            keep(&mut self.pins, view.image, view.layout.used, handle);
            self.moved_bytes = bytes;
            self.account();
        }
        self.moved = iter;
        Ok(self.meta.entries - entries_before)
    }

    /// Puts a moved block into `out`, in the form in which this table stores it.
    fn restore(&self, stored: &StoredBlock, view: &View<'_>, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let compression = self.config.compression;
        if compression != Compression::None && stored.stored.get(4) == Some(&compression.code()) {
            out.extend_from_slice(&stored.stored);
            return Ok(());
        }
        let image = view.image.get(..view.layout.used).unwrap_or(view.image);
        compress::store(image, compression, out)?;
        if compression == Compression::None {
            out.resize(out.len().next_multiple_of(PAGE_BYTES), 0);
        }
        Ok(())
    }

    /// Adds a range tombstone, in any order.
    ///
    /// # Errors
    /// None now.
    ///
    /// # Panics
    /// If it deletes nothing, or something is beyond its limits.
    pub fn add_range_tombstone(&mut self, tombstone: RangeTombstone) -> Result<()> {
        assert!(tombstone.seqno <= SeqNum::MAX, "sequence number too large");
        assert!(
            tombstone
                .end
                .as_ref()
                .is_none_or(|end| tombstone.start < *end),
            "a range tombstone deletes something"
        );
        let (start, end) = (&tombstone.start, &tombstone.end);
        if self.tombstones.is_empty() {
            self.meta.range = (start.clone(), end.clone());
        } else {
            if *start < self.meta.range.0 {
                self.meta.range.0 = start.clone();
            }
            if let Some(old) = &self.meta.range.1
                && end.as_ref().is_none_or(|end| end > old)
            {
                self.meta.range.1 = end.clone();
            }
        }
        self.meta.range_tombstones += 1;
        self.meta.seqno_min = self.meta.seqno_min.min(tombstone.seqno);
        self.meta.seqno_max = self.meta.seqno_max.max(tombstone.seqno);
        self.tombstones.push(tombstone);
        Ok(())
    }

    /// The table's file.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.meta.id
    }

    /// Number of entries added so far, without range tombstones.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.meta.entries
    }

    /// Whether nothing was added. Such a table is dropped, not finished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.meta.entries == 0 && self.tombstones.is_empty()
    }

    /// Approximate length of the file if it were finished now.
    #[must_use]
    pub fn estimated_bytes(&self) -> u64 {
        let filter = self.hashes.len() as f64 * f64::from(self.config.filter_bits_per_key) / 8.0;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate"
        )]
        let filter = filter as u64;
        let tail = filter + self.output.fences.estimated_bytes() as u64 + FOOTER_BYTES as u64;
        self.output.sink.position() + self.block.used_bytes() as u64 + page_align(tail)
    }

    /// The key added last; empty if there is none.
    #[inline]
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        if self.block.is_empty() {
            &self.output.last_key
        } else {
            self.block.last_key()
        }
    }

    /// Writes the block being built, if there is one. The next entry begins another one.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn cut_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let (first_key, last_key, image) = self.block.finish();
        if self.config.compression == Compression::None {
            let used = image.len();
            image.resize(used.next_multiple_of(PAGE_BYTES), 0);
            let handle = self.output.write_block(first_key, last_key, image)?;
            keep(&mut self.pins, image, used, handle);
            (self.env).keep_written(self.meta.id, handle.offset, image, self.caching);
        } else {
            let mut stored = Vec::with_capacity(image.len());
            compress::store(image, self.config.compression, &mut stored)?;
            let handle = self.output.write_block(first_key, last_key, &mut stored)?;
            keep(&mut self.pins, image, image.len(), handle);
            (self.env).keep_written(self.meta.id, handle.offset, image, self.caching);
        }
        self.block.clear();
        self.account();
        Ok(())
    }

    /// Updates the memory budget by what the table's end needs.
    fn account(&mut self) {
        let hashes = self.hashes.len() * size_of::<u64>();
        let bytes = hashes + self.output.fences.memory_bytes();
        let memory = &self.env.memory;
        memory.recharge(MemoryPart::Buffers, &mut self.accounted_bytes, bytes);
    }

    /// Writes the rest and makes the file durable. The caller syncs the directory, once for all its
    /// files.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors. The file is removed then.
    ///
    /// # Panics
    /// If nothing was added.
    pub fn finish(self) -> Result<TableMeta> {
        self.finish_with_pins().map(|(meta, _)| meta)
    }

    /// Does what [`finish`](Self::finish) does. Also returns the blocks that
    /// [`keep_blocks`](Self::keep_blocks) has kept, if there was memory for all of them.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    ///
    /// # Panics
    /// As [`finish`](Self::finish).
    pub(crate) fn finish_with_pins(mut self) -> Result<(TableMeta, Option<PinnedBlocks>)> {
        assert!(!self.is_empty(), "an empty table is not written");
        self.cut_block()?;
        self.complete_meta()?;
        self.output.sink.pad_to_page()?;
        self.meta.tail_offset = self.output.sink.position();
        let mut footer = Footer::default();
        if let Some(filter) = Filter::build(&self.hashes, self.config.filter_bits_per_key) {
            let section = filter.encode(self.output.seed, self.output.sink.position());
            footer.filter = self.output.section(&section)?;
        }
        let section = self.output.fences.encode(
            self.output.seed,
            self.output.sink.position(),
            PAGE_BYTES as u64,
            &self.meta.largest,
        );
        footer.fences = self.output.section(&section)?;
        if !self.tombstones.is_empty() {
            let section = tombstones::encode(
                &self.tombstones,
                self.output.seed,
                self.output.sink.position(),
            );
            footer.tombstones = self.output.section(&section)?;
        }
        let section = self.properties();
        // The record never contradicts itself, and the filter knows every key.
        assert!(self.meta.is_sound(), "unsound record {:?}", self.meta);
        let filter_is_whole =
            self.config.filter_bits_per_key <= 0.0 || self.hashes.len() as u64 == self.meta.entries;
        assert!(
            filter_is_whole,
            "{} keys of {} are in the filter of {}",
            self.hashes.len(),
            self.meta.entries,
            self.meta.id
        );
        footer.properties = self.output.section(&section)?;
        let footer_at = self.meta.bytes - FOOTER_BYTES as u64;
        let gap =
            usize::try_from(footer_at - self.output.sink.position()).expect("less than a page");
        self.output.sink.append(&vec![0; gap])?;
        self.output
            .sink
            .append(&footer.encode(self.output.seed, footer_at))?;
        self.output.sink.finish()?;
        self.finished = true;
        charge(Work::Merge, self.meta.entries);
        charge(Work::Bytes, self.meta.bytes);
        Ok((self.meta.clone().sharing_keys(), self.pins.take()))
    }

    /// Fills in the fields of the record that are known only at the end.
    fn complete_meta(&mut self) -> Result<()> {
        self.tombstones
            .sort_unstable_by(|a, b| (&a.start, a.seqno).cmp(&(&b.start, b.seqno)));
        // A tombstone's keys may be parts of the section of another table, which the record would
        // keep in memory.
        let (start, end) = &self.meta.range;
        let copied = |key: &Bytes| Bytes::copy_from_slice(key);
        self.meta.range = (copied(start), end.as_ref().map(copied));
        self.meta.blocks = u32::try_from(self.output.fences.len())
            .map_err(|_| Error::invalid("a table of more than 2^32 blocks"))?;
        if self.meta.entries == 0 {
            return Ok(());
        }
        self.meta.largest = Bytes::copy_from_slice(&self.output.last_key);
        let end = successor(&self.output.last_key);
        if self.tombstones.is_empty() {
            self.meta.range = (self.meta.smallest.clone(), Some(end));
            return Ok(());
        }
        if self.meta.smallest < self.meta.range.0 {
            self.meta.range.0 = self.meta.smallest.clone();
        }
        if self.meta.range.1.as_ref().is_some_and(|old| *old < end) {
            self.meta.range.1 = Some(end);
        }
        Ok(())
    }

    /// Returns the properties section, which contains the length of the file that it is part of.
    fn properties(&mut self) -> Vec<u8> {
        let offset = self.output.sink.position();
        loop {
            let mut section = vec![0; 4];
            self.meta.encode(&mut section);
            let end = offset + (section.len() + FOOTER_BYTES) as u64;
            if self.meta.bytes == page_align(end) {
                let checksum = self.output.seed.checksum(offset, &section[4..]);
                section[..4].copy_from_slice(&checksum.to_le_bytes());
                return section;
            }
            self.meta.bytes = page_align(end).max(self.meta.bytes);
        }
    }
}

impl Output {
    /// Places and writes a block in its stored form: whole pages if the table is not compressed.
    fn write_block(
        &mut self,
        first_key: &[u8],
        last_key: &[u8],
        stored: &mut [u8],
    ) -> Result<BlockHandle> {
        if wastes_a_page(self.sink.position(), stored.len() as u64) {
            self.sink.pad_to_page()?;
        }
        let offset = self.sink.position();
        let length = u32::try_from(stored.len())
            .map_err(|_| Error::invalid("an entry of more than 4 GiB"))?;
        compress::seal(self.seed, offset, stored);
        let handle = BlockHandle {
            index: u32::try_from(self.fences.len())
                .map_err(|_| Error::invalid("a table of more than 2^32 blocks"))?,
            offset,
            length,
        };
        if let Some(noted) = &mut self.noted {
            let separator = match self.last_key.is_empty() {
                true => first_key,
                false => separator(&self.last_key, first_key),
            };
            noted.push(WrittenBlock {
                handle,
                checksum: stored_checksum(stored),
                separator: Bytes::copy_from_slice(separator),
            });
        }
        self.fences.add(&self.last_key, first_key, offset, length);
        self.last_key.clear();
        self.last_key.extend_from_slice(last_key);
        self.sink.append(stored)?;
        Ok(handle)
    }

    fn section(&mut self, section: &[u8]) -> Result<Span> {
        let offset = self.sink.position();
        self.sink.append(section)?;
        Ok(Span {
            offset,
            bytes: section.len() as u64,
        })
    }
}

/// Keeps the first `used` bytes of a block's image. If there is no room for it, no block is kept.
fn keep(pins: &mut Option<PinnedBlocks>, image: &[u8], used: usize, handle: BlockHandle) {
    if let Some(kept) = pins
        && !image
            .get(..used)
            .is_some_and(|image| kept.push(image, handle))
    {
        *pins = None;
    }
}

/// Whether a block would touch one more page at `offset` than at the start of the next page, and
/// moving it there wastes at most an eighth of it.
fn wastes_a_page(offset: u64, length: u64) -> bool {
    let page = PAGE_BYTES as u64;
    let gap = page_align(offset) - offset;
    let pages_here = (offset + length).div_ceil(page) - offset / page;
    gap > 0 && pages_here > length.div_ceil(page) && gap <= length / 8
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        let memory = &self.env.memory;
        memory.recharge(MemoryPart::Buffers, &mut self.accounted_bytes, 0);
        if !self.finished {
            // If this fails, the next open removes the file, because no manifest names it.
            self.env.volume.delete(self.meta.id).ok();
        }
    }
}
