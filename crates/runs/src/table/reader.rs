//! An open table: point lookups, and what cursors and compactions need.
//!
//! Thread-safe. The file is opened and its tail (filter, fences, range tombstones, properties, footer) read at first use (of a new table by who made it), in one read; nothing of it is read again
//! while the table lives. An error at first use is not remembered: the next use tries again.

use super::block::{Block, BlockHandle};
use super::block_file::BlockFile;
use super::config::TableEnv;
use super::cursor::TableCursor;
use super::fences::{Fence, Fences};
use super::filter::Filter;
use super::format::{FOOTER_BYTES, Footer, PAGE_BYTES, Span, VERSION};
use super::meta::TableMeta;
use super::pinned::PinnedBlocks;
use super::source::Purpose;
use super::tombstones;
use crate::keys::range::{Bounds, KeyRange};
use bytes::Bytes;
use glintdb_core::checksum::FileSeed;
use glintdb_core::codec::Reader;
use glintdb_core::sync::atomic::{AtomicBool, Ordering};
use glintdb_core::sync::{ArcSwapOption, Mutex};
use glintdb_core::{
    Direction, Entry, Error, ErrorKind, FileId, RangeTombstone, Result, ValuePointer, planted,
};
use glintdb_flash::{ReadRequest, VolumeFile, read_each};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

/// An open table. What is read of it does not lie beside the count of its references, which every scan changes.
#[repr(align(128))]
pub struct Table {
    blocks: BlockFile,
    meta: TableMeta,
    opened: OnceLock<Opened>,
    /// Held while opening, so that the tail is read once.
    opening: Mutex<()>,
    /// All its blocks, where they are pinned.
    pinned: ArcSwapOption<PinnedBlocks>,
    obsolete: AtomicBool,
}

/// What is in memory of a table in use.
pub(super) struct Opened {
    pub(super) file: Arc<dyn VolumeFile>,
    pub(super) filter: Option<Filter>,
    pub(super) fences: Fences,
    pub(super) tombstones: Vec<RangeTombstone>,
    pub(super) footer: Footer,
}

impl Opened {
    /// Bytes of memory that fences and range tombstones take.
    fn key_bytes(&self) -> usize {
        let section = usize::try_from(self.footer.tombstones.bytes).unwrap_or(0);
        self.fences.memory_bytes() + size_of_val(&*self.tombstones) + section
    }
}

impl Table {
    /// A table that the manifest knows as `meta`. Reads nothing yet.
    #[must_use]
    pub fn open(env: &Arc<TableEnv>, meta: TableMeta) -> Arc<Table> {
        env.memory.add(env.fences_part(), record_bytes(&meta));
        Arc::new(Table {
            blocks: BlockFile::new(env, meta.id),
            meta,
            opened: OnceLock::new(),
            opening: Mutex::new(()),
            pinned: ArcSwapOption::new(None),
            obsolete: AtomicBool::new(false),
        })
    }

    /// A table known only by its file, for tools: reads its [`TableMeta`] from the file itself.
    ///
    /// # Errors
    /// `NotFound`, I/O errors, `Corruption`, `UnsupportedFormat`.
    pub fn open_file(env: &Arc<TableEnv>, id: FileId) -> Result<Arc<Table>> {
        let corrupt = |offset, what: &str| Error::corruption(id, offset, what);
        let file = env.volume.open(id)?;
        let seed = FileSeed::new(env.db, id);
        let length = file.len()?;
        let footer_at = length
            .checked_sub(FOOTER_BYTES as u64)
            .ok_or_else(|| corrupt(0, "file shorter than a table's footer"))?;
        let footer = file.read_at(footer_at, FOOTER_BYTES)?;
        let footer = decode_footer(id, seed, footer_at, &footer)?;
        let Span { offset, bytes } = footer.properties;
        let properties = usize::try_from(bytes)
            .ok()
            .filter(|_| {
                offset
                    .checked_add(bytes)
                    .is_some_and(|end| end <= footer_at)
            })
            .ok_or_else(|| corrupt(footer_at, "properties lie outside the file"))?;
        let properties = file.read_at(offset, properties)?;
        let meta = decode_properties(id, seed, offset, &properties)?;
        if meta.bytes != length || meta.id != id {
            return Err(corrupt(
                offset,
                "properties are those of another file, or the file has another length",
            ));
        }
        Ok(Table::open(env, meta))
    }

    /// What the manifest knows of it.
    #[must_use]
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    pub(crate) fn env(&self) -> &Arc<TableEnv> {
        self.blocks.env()
    }

    /// The table's blocks, to be read without its fences.
    #[must_use]
    pub fn blocks(&self) -> &BlockFile {
        &self.blocks
    }

    /// Opens the file and reads the tail, if that was not done yet.
    ///
    /// # Errors
    /// `NotFound`, I/O errors, `Corruption`, `UnsupportedFormat`.
    pub fn load(&self) -> Result<()> {
        self.opened().map(drop)
    }

    #[inline]
    pub(super) fn opened(&self) -> Result<&Opened> {
        match self.opened.get() {
            Some(opened) => Ok(opened),
            None => self.open_now(),
        }
    }

    #[cold]
    fn open_now(&self) -> Result<&Opened> {
        let _guard = self.opening.lock();
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let request = self.tail_request()?;
        let tail = request.file.read_at(request.offset, request.length)?;
        let opened = self.decode_tail(&tail)?;
        Ok(self.keep_opened(opened))
    }

    /// Keeps the tail, whose bytes are charged. The caller holds `opening`.
    fn keep_opened(&self, opened: Opened) -> &Opened {
        let env = self.env();
        let filter_bytes = opened.filter.as_ref().map_or(0, Filter::memory_bytes);
        env.memory.add(env.filters_part(), filter_bytes);
        env.memory.add(env.fences_part(), opened.key_bytes());
        self.opened.get_or_init(|| opened)
    }

    /// Reads the tails of those of these tables that are not open in one batch. A table that cannot
    /// be read is left to its readers.
    pub fn load_many(tables: &[Arc<Table>]) {
        let closed = tables.iter().filter(|table| table.opened.get().is_none());
        // Others may open tables meanwhile.
        let closed: Vec<&Arc<Table>> = closed.collect();
        let Some(first) = closed.first() else { return };
        let requests = closed.iter().map(|table| table.tail_request());
        let tails = read_each(&*first.env().volume, requests);
        for (table, tail) in closed.into_iter().zip(tails) {
            let Ok(tail) = tail else { continue };
            let _guard = table.opening.lock();
            if table.opened.get().is_none()
                && let Ok(opened) = table.decode_tail(&tail)
            {
                table.keep_opened(opened);
            }
        }
    }

    /// Bytes of the file that come into memory when the table is opened, which are about those that
    /// filter and fences take.
    #[must_use]
    pub fn tail_bytes(&self) -> u64 {
        self.meta.bytes.saturating_sub(self.meta.tail_offset)
    }

    /// The read that gives the tail.
    fn tail_request(&self) -> Result<ReadRequest> {
        let id = self.meta.id;
        let tail_offset = self.meta.tail_offset;
        let corrupt = |offset, what: String| Error::corruption(id, offset, what);
        let length = (self.meta.bytes.checked_sub(tail_offset))
            .and_then(|bytes| usize::try_from(bytes).ok())
            .filter(|&bytes| bytes >= FOOTER_BYTES)
            .ok_or_else(|| corrupt(0, "the manifest's lengths contradict each other".into()))?;
        let file = Arc::clone(self.blocks.file()?);
        let file_bytes = file.len()?;
        if file_bytes != self.meta.bytes {
            let what = format!("file of {file_bytes} bytes, expected {}", self.meta.bytes);
            return Err(corrupt(file_bytes.min(self.meta.bytes), what));
        }
        Ok(ReadRequest::new(file, tail_offset, length))
    }

    /// Decodes the tail.
    fn decode_tail(&self, tail: &Bytes) -> Result<Opened> {
        let id = self.meta.id;
        let tail_offset = self.meta.tail_offset;
        let corrupt = |offset, what: String| Error::corruption(id, offset, what);
        let seed = self.blocks.seed;
        let length = tail.len();
        if length as u64 != self.tail_bytes() || length < FOOTER_BYTES {
            let expected = self.tail_bytes();
            let what = format!("read {length} bytes of the tail's {expected}");
            return Err(corrupt(tail_offset, what));
        }
        let footer_at = self.meta.bytes - FOOTER_BYTES as u64;
        let footer = decode_footer(id, seed, footer_at, &tail[length - FOOTER_BYTES..])?;
        let section = |span: Span, name: &str| -> Result<Bytes> {
            let start = span.offset.checked_sub(tail_offset);
            let range = start.and_then(|start| {
                let start = usize::try_from(start).ok()?;
                let end = start.checked_add(usize::try_from(span.bytes).ok()?)?;
                (end <= length - FOOTER_BYTES).then_some(start..end)
            });
            let range =
                range.ok_or_else(|| corrupt(footer_at, format!("{name} outside the tail")))?;
            let section = tail.slice(range);
            check_section(id, seed, span.offset, &section, name)?;
            Ok(section)
        };
        let properties = section(footer.properties, "properties")?;
        if decode_properties(id, seed, footer.properties.offset, &properties)? != self.meta {
            let what = "properties differ from what the manifest says".into();
            return Err(corrupt(footer.properties.offset, what));
        }
        if !footer.is_gapless(tail_offset) {
            let what = "sections do not stand one behind the other".into();
            return Err(corrupt(footer_at, what));
        }
        let filter = if footer.filter.bytes > 0 {
            let bytes = section(footer.filter, "filter")?;
            let filter = Filter::decode(&bytes)
                .ok_or_else(|| corrupt(footer.filter.offset, "filter malformed".into()))?;
            Some(filter)
        } else {
            None
        };
        let fences = section(footer.fences, "fences")?;
        let (blocks, place) = (self.meta.blocks, (PAGE_BYTES as u64, tail_offset));
        let fences = Fences::decode(&fences, blocks, place, &self.meta.smallest)
            .ok_or_else(|| corrupt(footer.fences.offset, "fences malformed".into()))?;
        let tombstones = if self.meta.range_tombstones > 0 {
            let bytes = section(footer.tombstones, "range tombstones")?;
            tombstones::decode(&bytes, self.meta.range_tombstones).ok_or_else(|| {
                corrupt(
                    footer.tombstones.offset,
                    "range tombstones malformed".into(),
                )
            })?
        } else {
            Vec::new()
        };
        Ok(Opened {
            file: Arc::clone(self.blocks.file()?),
            filter,
            fences,
            tombstones,
            footer,
        })
    }

    /// The entry of `key`, whose [`key_hash`](super::key_hash) is `hash`. Range tombstones are not applied.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub fn get(&self, key: &[u8], hash: u64) -> Result<Option<Entry>> {
        self.get_counted(key, hash, &mut 0)
    }

    /// [`get`](Self::get) that adds to `reads` the blocks it has read from the medium: none or one.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn get_counted(
        &self,
        key: &[u8],
        hash: u64,
        reads: &mut u32,
    ) -> Result<Option<Entry>> {
        let Some(handle) = self.locate(key, hash)? else {
            return Ok(None);
        };
        if let Some(pinned) = self.pinned.load().as_ref()
            && let Some(block) = pinned.block(handle)
        {
            return self.search(block, key);
        }
        let block = match self.cached_block(handle) {
            Some(block) => block,
            None => {
                *reads += 1;
                self.blocks.read(handle)?
            }
        };
        self.search(&block, key)
    }

    /// Keeps all its blocks in memory from now on.
    ///
    /// # Panics
    /// Where they are not all of them.
    pub fn pin(&self, blocks: PinnedBlocks) {
        assert!(
            blocks.len() == self.meta.blocks as usize,
            "{} of {} blocks of {} are to be pinned",
            blocks.len(),
            self.meta.blocks,
            self.meta.id
        );
        self.pinned.store(Some(Arc::new(blocks)));
    }

    /// Gives up what [`pin`](Self::pin) keeps.
    pub fn unpin(&self) {
        if self.is_pinned() {
            self.pinned.store(None);
        }
    }

    /// Whether all its blocks are in memory.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pinned.load().is_some()
    }

    /// The block, where it is pinned.
    pub(super) fn pinned_block(&self, handle: BlockHandle) -> Option<Block> {
        self.pinned.load().as_ref()?.block(handle).cloned()
    }

    /// [`block_here`](Self::block_here), for who walks it and then the block `next`.
    pub(super) fn block_to_walk(&self, handle: BlockHandle, next: Option<usize>) -> Option<Block> {
        let pinned = self.pinned.load();
        let Some(pinned) = pinned.as_ref() else {
            return self.cached_block(handle);
        };
        let block = pinned.block(handle)?;
        block.prefetch();
        if let Some(next) = next {
            pinned.prefetch(next);
        }
        Some(block.clone())
    }

    /// The block, if it is in memory: pinned, or in the cache.
    #[inline]
    #[must_use]
    pub(crate) fn block_here(&self, handle: BlockHandle) -> Option<Block> {
        self.pinned_block(handle)
            .or_else(|| self.cached_block(handle))
    }

    /// The block in which `key` is if it is in the table; `None`: it is not (by key range or filter).
    ///
    /// # Errors
    /// I/O errors and `Corruption` at first use of the table.
    #[inline]
    pub fn locate(&self, key: &[u8], hash: u64) -> Result<Option<BlockHandle>> {
        if self.meta.entries == 0 || key < &*self.meta.smallest || key > &*self.meta.largest {
            return Ok(None);
        }
        let opened = self.opened()?;
        let excluded = opened
            .filter
            .as_ref()
            .is_some_and(|filter| !filter.may_contain(hash));
        Ok((!excluded).then(|| opened.fences.handle(opened.fences.find(key))))
    }

    /// The block, if it is in the cache.
    #[inline]
    #[must_use]
    pub fn cached_block(&self, handle: BlockHandle) -> Option<Block> {
        self.blocks.cached(handle)
    }

    /// Whether a block is in memory, pinned or cached.
    pub(super) fn is_cached(&self, handle: BlockHandle) -> bool {
        self.is_pinned() || self.env().is_cached(self.meta.id, handle.offset)
    }

    /// Reads blocks of tables that share `env` in one batch. None of the blocks is in memory.
    #[must_use]
    pub(crate) fn read_blocks(
        env: &TableEnv,
        wanted: &[(&Table, BlockHandle)],
    ) -> Vec<Result<Block>> {
        let blocks = wanted
            .iter()
            .map(|(table, handle)| (&table.blocks, *handle));
        BlockFile::read_many(env, blocks)
    }

    /// The entry of `key` in a block of this table.
    ///
    /// # Errors
    /// `Corruption` where the block's contents make no sense.
    #[inline]
    pub fn search(&self, block: &Block, key: &[u8]) -> Result<Option<Entry>> {
        self.blocks.search(block, key)
    }

    /// The error for a block whose checksum is right and whose contents are not.
    #[cold]
    pub(super) fn malformed(&self, handle: BlockHandle) -> Error {
        self.blocks.malformed(handle)
    }

    /// A cursor over the entries within the bounds. No I/O before its first `advance` or `seek`.
    #[must_use]
    pub fn cursor(
        self: &Arc<Self>,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
        purpose: Purpose,
    ) -> TableCursor {
        TableCursor::within(self, Bounds::new(lower, upper), direction, purpose)
    }

    /// The blocks that a cursor in `direction` reads first when it begins at `key` (`None`: at the table's edge): at most `count` that the cache does not have, in key
    /// order, one behind the other; none where it has the first. For reading the beginnings of several tables in one batch.
    ///
    /// # Errors
    /// I/O errors and `Corruption` at first use of the table.
    pub(crate) fn first_blocks(
        &self,
        key: Option<&[u8]>,
        direction: Direction,
        count: usize,
    ) -> Result<Vec<BlockHandle>> {
        if self.meta.entries == 0 {
            return Ok(Vec::new());
        }
        let fences = &self.opened()?.fences;
        let last = fences.len() - 1;
        let begin = match (key, direction) {
            (Some(key), _) => fences.find(key),
            (None, Direction::Forward) => 0,
            (None, Direction::Reverse) => last,
        };
        let missing = |&index: &usize| {
            let handle = fences.handle(index);
            !self.is_cached(handle)
        };
        let mut blocks: Vec<BlockHandle> = match direction {
            Direction::Forward => (begin..=last)
                .take(count)
                .take_while(missing)
                .map(|index| fences.handle(index))
                .collect(),
            Direction::Reverse => (0..=begin)
                .rev()
                .take(count)
                .take_while(missing)
                .map(|index| fences.handle(index))
                .collect(),
        };
        if direction == Direction::Reverse {
            blocks.reverse();
        }
        Ok(blocks)
    }

    /// Every block with the fence before it, in key order. For tools and tests: each fence is a key
    /// of its own in memory.
    ///
    /// # Errors
    /// I/O errors and `Corruption` at first use of the table.
    pub fn fences(&self) -> Result<impl ExactSizeIterator<Item = Fence> + '_> {
        let fences = &self.opened()?.fences;
        Ok((0..fences.len()).map(|index| Fence {
            handle: fences.handle(index),
            lower: fences.key(index),
        }))
    }

    /// Fences within `range` that divide its blocks evenly into `parts`: ascending, above the
    /// range's start, fewer if there are few blocks.
    ///
    /// # Errors
    /// I/O errors and `Corruption` at first use of the table.
    pub fn fences_dividing(&self, range: &KeyRange, parts: u64) -> Result<Vec<Bytes>> {
        let from = self.first_fence_behind(&range.start)?;
        let fences = &self.opened()?.fences;
        let to = match &range.end {
            None => fences.len(),
            Some(end) => {
                let behind = self.first_fence_behind(end)?;
                let at_end = behind
                    .checked_sub(1)
                    .is_some_and(|last| fences.key(last) == **end);
                behind - usize::from(at_end)
            }
        };
        let blocks = to.saturating_sub(from) as u64;
        let mut places: Vec<usize> = (1..parts)
            .filter_map(|part| usize::try_from(blocks * part / parts).ok())
            .filter(|&place| from + place < to)
            .collect();
        places.dedup();
        let keys = places.into_iter().map(|place| fences.key(from + place));
        Ok(keys.map(Bytes::from).collect())
    }

    /// The fence before a block: no key of the block is below it, every key of the blocks before
    /// is. `None`: there is no such block.
    pub(crate) fn fence_key(&self, block: usize) -> Result<Option<Vec<u8>>> {
        let fences = &self.opened()?.fences;
        Ok((block < fences.len()).then(|| fences.key(block)))
    }

    /// The first block whose fence is greater than `key`; the number of blocks if there is none.
    pub(crate) fn first_fence_behind(&self, key: &[u8]) -> Result<usize> {
        let fences = &self.opened()?.fences;
        let block = fences.find(key);
        let behind = usize::from(block < fences.len() && fences.is_at_or_below(block, key));
        Ok(block + behind)
    }

    /// Number of blocks of which every key is in `range`. The table has other keys in the range in
    /// at most two more blocks.
    ///
    /// # Errors
    /// I/O errors and `Corruption` at first use of the table.
    pub fn blocks_within(&self, range: &KeyRange) -> Result<u64> {
        let meta = &self.meta;
        if meta.entries == 0 || !range.overlaps(&KeyRange::inclusive(&meta.smallest, &meta.largest))
        {
            return Ok(0);
        }
        let from = match range.start <= meta.smallest {
            true => 0,
            false => self.first_fence_behind(&range.start)?,
        };
        let to = match &range.end {
            Some(end) if *end <= meta.largest => self.first_fence_behind(end)?.saturating_sub(1),
            _ => meta.blocks as usize,
        };
        Ok(to.saturating_sub(from) as u64)
    }

    /// The table's range tombstones, ordered by start, then sequence number. No I/O if
    /// `meta().range_tombstones` is 0.
    ///
    /// # Errors
    /// I/O errors and `Corruption` at first use of the table.
    pub fn range_tombstones(&self) -> Result<&[RangeTombstone]> {
        if self.meta.range_tombstones == 0 {
            return Ok(&[]);
        }
        Ok(&self.opened()?.tombstones)
    }

    /// Bytes in memory for the table's record, and from its first use on for fences, range
    /// tombstones and filter.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let opened = self.opened.get().map_or(0, |opened| {
            opened.key_bytes() + opened.filter.as_ref().map_or(0, Filter::memory_bytes)
        });
        record_bytes(&self.meta) + opened
    }

    /// Has the file removed when the last handle of the table goes.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// Reads every byte: checksums, order, counts, fences and filter against the entries. Each thing found wrong goes to `report`, each pointer with its key to
    /// `pointer`.
    pub fn verify(
        &self,
        report: &mut dyn FnMut(Error),
        pointer: &mut dyn FnMut(&[u8], ValuePointer),
    ) {
        super::verify::verify(self, report, pointer);
    }
}

/// Bytes of memory that a table takes before its first use.
fn record_bytes(meta: &TableMeta) -> usize {
    size_of::<Table>() + meta.key_bytes()
}

impl Drop for Table {
    fn drop(&mut self) {
        let env = Arc::clone(self.env());
        let memory = &env.memory;
        memory.sub(env.fences_part(), record_bytes(&self.meta));
        // Not in use when it is removed: the volume would have to keep it open for that.
        if let Some(opened) = self.opened.take() {
            let filter_bytes = opened.filter.as_ref().map_or(0, Filter::memory_bytes);
            memory.sub(env.filters_part(), filter_bytes);
            memory.sub(env.fences_part(), opened.key_bytes());
        }
        self.blocks.close();
        if planted!(
            "lsm: the files of obsolete tables stay",
            self.obsolete.load(Ordering::Acquire),
            false
        ) {
            // If this fails, the next open removes the file, because no manifest names it.
            self.env().volume.delete(self.meta.id).ok();
        }
    }
}

pub(super) fn decode_footer(
    id: FileId,
    seed: FileSeed,
    offset: u64,
    bytes: &[u8],
) -> Result<Footer> {
    let (version, footer) =
        Footer::decode(seed, offset, bytes).map_err(|what| Error::corruption(id, offset, what))?;
    if version != VERSION {
        let what = format!("{id}: table format {version}, this build knows {VERSION}");
        return Err(Error::new(ErrorKind::UnsupportedFormat, what));
    }
    Ok(footer)
}

/// Holds a section's first four bytes against the checksum of the rest.
pub(super) fn check_section(
    id: FileId,
    seed: FileSeed,
    offset: u64,
    section: &[u8],
    name: &str,
) -> Result<()> {
    let Some((found, covered)) = section.split_first_chunk::<4>() else {
        return Err(Error::corruption(id, offset, format!("{name} too short")));
    };
    let (found, computed) = (u32::from_le_bytes(*found), seed.checksum(offset, covered));
    if found != computed {
        let what = format!("{name} checksum {found:#010x}, computed {computed:#010x}");
        return Err(Error::corruption(id, offset, what));
    }
    Ok(())
}

pub(super) fn decode_properties(
    id: FileId,
    seed: FileSeed,
    offset: u64,
    section: &[u8],
) -> Result<TableMeta> {
    check_section(id, seed, offset, section, "properties")?;
    let mut reader = Reader::new(section.get(4..).unwrap_or(&[]));
    TableMeta::decode(&mut reader)
        .filter(|_| reader.is_empty())
        .ok_or_else(|| Error::corruption(id, offset, "properties malformed"))
}
