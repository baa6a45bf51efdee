//! Signatures of the table module.
#![allow(
    missing_docs,
    unused_variables,
    clippy::missing_errors_doc,
    reason = "signatures pushed ahead of the bodies"
)]

use bytes::Bytes;
use glintdb_core::memory::MemoryBudget;
use glintdb_core::{
    DbId, Direction, Entry, EntryRef, Error, ErrorKind, FileId, RangeTombstone, Result, SeqNum,
    ValuePointer,
};
use glintdb_flash::{ReadRequest, Stream, Volume};
use std::ops::Bound;
use std::sync::Arc;

fn follows<T>() -> Result<T> {
    Err(Error::new(
        ErrorKind::UnsupportedFormat,
        "the table's bodies follow in the next commit",
    ))
}

/// How key blocks are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    #[default]
    None,
    Lz4,
    Zstd,
}

/// How a table is written.
#[derive(Clone, PartialEq, Debug)]
pub struct TableConfig {
    pub block_bytes: usize,
    pub restart_interval: usize,
    pub filter_bits_per_key: f32,
    pub compression: Compression,
}

impl Default for TableConfig {
    fn default() -> Self {
        TableConfig {
            block_bytes: 4096,
            restart_interval: 8,
            filter_bits_per_key: 10.0,
            compression: Compression::None,
        }
    }
}

/// What tables of one index share. `cache: Arc<Cache>` joins as soon as flash has it; build it through `new`.
#[derive(Clone)]
pub struct TableEnv {
    pub volume: Arc<dyn Volume>,
    pub memory: Arc<MemoryBudget>,
    pub db: DbId,
}

/// What the manifest knows of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableMeta {
    pub id: FileId,
    pub bytes: u64,
    /// Point entries, tombstones included.
    pub entries: u64,
    pub tombstones: u64,
    pub range_tombstones: u64,
    pub blocks: u32,
    /// Sum of `length` of the pointers in the table.
    pub pointed_bytes: u64,
    pub tail_offset: u64,
    /// First and last key with an entry; empty where there is no entry.
    pub smallest: Bytes,
    pub largest: Bytes,
    /// Everything the table says something about, range tombstones included, half-open.
    pub range: (Bytes, Option<Bytes>),
    pub seqno_min: SeqNum,
    pub seqno_max: SeqNum,
}

impl TableMeta {
    /// Appends a self-delimiting form.
    pub fn encode(&self, out: &mut Vec<u8>) {}
    /// Reads it from the front of the reader.
    pub fn decode(reader: &mut glintdb_core::codec::Reader<'_>) -> Option<TableMeta> {
        None
    }
    /// Whether the table's `range` meets the bounds.
    pub fn overlaps(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
        false
    }
    /// Whether the table's `range` meets another half-open range.
    pub fn overlaps_range(&self, start: &[u8], end: Option<&[u8]>) -> bool {
        false
    }
}

/// Hash of a key for the filters.
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Where a key block lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHandle {
    pub index: u32,
    pub offset: u64,
    pub length: u32,
}

/// A verified key block in memory, uncompressed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Block {
    image: Bytes,
}

/// A verified key block as it is stored, for whole-block moves.
#[derive(Clone, Debug)]
pub struct StoredBlock {
    stored: Bytes,
    block: Block,
}

/// A block's place and the fence before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    pub handle: BlockHandle,
    /// No key of the block is below, no key of an earlier block is at or above.
    pub lower: Vec<u8>,
}

/// Writes one table.
pub struct TableWriter {
    env: Arc<TableEnv>,
}

impl TableWriter {
    pub fn create(
        env: &Arc<TableEnv>,
        id: FileId,
        stream: Stream,
        config: &TableConfig,
        entries_hint: usize,
    ) -> Result<TableWriter> {
        follows()
    }
    pub fn add(&mut self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) -> Result<()> {
        follows()
    }
    /// Takes a block of another table as it is; `false`: its entries were added one by one, because the block begun before would have stayed too small.
    pub fn add_block(&mut self, block: &StoredBlock) -> Result<bool> {
        follows()
    }
    pub fn add_range_tombstone(&mut self, tombstone: RangeTombstone) -> Result<()> {
        follows()
    }
    /// Point entries added so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        0
    }
    /// Size of the file if it were finished now.
    #[must_use]
    pub fn estimated_bytes(&self) -> u64 {
        0
    }
    pub fn finish(self) -> Result<TableMeta> {
        follows()
    }
}

/// An open table.
pub struct Table {
    env: Arc<TableEnv>,
    meta: TableMeta,
}

impl Table {
    #[must_use]
    pub fn open(env: &Arc<TableEnv>, meta: TableMeta) -> Arc<Table> {
        Arc::new(Table {
            env: Arc::clone(env),
            meta,
        })
    }
    #[must_use]
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }
    pub fn get(&self, key: &[u8], hash: u64) -> Result<Option<Entry>> {
        follows()
    }
    pub fn locate(&self, key: &[u8], hash: u64) -> Result<Option<BlockHandle>> {
        follows()
    }
    #[must_use]
    pub fn cached_block(&self, handle: BlockHandle) -> Option<Block> {
        None
    }
    pub fn read_request(&self, handle: BlockHandle) -> Result<ReadRequest> {
        follows()
    }
    /// Verifies what a read gave, puts it into the cache.
    pub fn accept_block(&self, handle: BlockHandle, stored: Bytes) -> Result<Block> {
        follows()
    }
    pub fn search(&self, block: &Block, key: &[u8]) -> Result<Option<Entry>> {
        follows()
    }
    /// No I/O before the first `advance` or `seek`.
    #[must_use]
    pub fn cursor(
        self: &Arc<Self>,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
        purpose: Purpose,
    ) -> TableCursor {
        TableCursor {
            table: Arc::clone(self),
        }
    }
    /// Every block with its fence, in key order.
    pub fn fences(&self) -> Result<Vec<Fence>> {
        follows()
    }
    /// The table's range tombstones, ordered by start; read at first use (no I/O where `meta.range_tombstones` is 0), in memory from then on.
    pub fn range_tombstones(&self) -> Result<&[RangeTombstone]> {
        follows()
    }
    /// Reads fences, filter and range tombstones now.
    pub fn load(&self) -> Result<()> {
        follows()
    }
    /// The file goes when the last handle goes.
    pub fn mark_obsolete(&self) {}
    pub fn verify(
        &self,
        report: &mut dyn FnMut(Error),
        pointer: &mut dyn FnMut(&[u8], ValuePointer),
    ) {
    }
}

/// What a cursor is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Through the cache, with read-ahead that grows from 16 KiB to 256 KiB.
    Read,
    /// Round the cache, 1 MiB a read.
    Compaction,
}

/// Walks one table.
pub struct TableCursor {
    table: Arc<Table>,
}

impl TableCursor {
    pub fn advance(&mut self) -> Result<bool> {
        follows()
    }
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        follows()
    }
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &[]
    }
    #[must_use]
    pub fn seqno(&self) -> SeqNum {
        SeqNum::ZERO
    }
    #[must_use]
    pub fn value(&self) -> EntryRef<'_> {
        EntryRef::Tombstone
    }
    /// The value of the entry it stands on, without copying an inline value.
    #[must_use]
    pub fn entry(&self) -> Entry {
        Entry {
            seqno: SeqNum::ZERO,
            value: glintdb_core::EntryValue::Tombstone,
        }
    }
    /// Where it stands on the first entry of a block that lies wholly within its bounds (forward, `Purpose::Compaction`): the block's last key.
    pub fn whole_block(&mut self) -> Result<Option<&[u8]>> {
        follows()
    }
    /// The block it stands on (after `whole_block` said yes); the next `advance` goes to the first entry behind it.
    pub fn take_block(&mut self) -> StoredBlock {
        StoredBlock {
            stored: Bytes::new(),
            block: Block {
                image: Bytes::new(),
            },
        }
    }
}
