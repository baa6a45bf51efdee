//! Writes the leaves of a slice, stretch by stretch. A *stretch* is a sequence of neighbouring
//! leaves that are written anew; the leaves between two stretches stay as they are.
//!
//! Not thread-safe: belongs to one slice.
//!
//! Entries of a stretch are gathered until there are enough for two leaves, so that the last leaves
//! of a stretch can be made equally large. Otherwise a leaf that overflows by an entry would leave
//! a leaf of one entry.

use crate::node::{Child, Separated};
use crate::settle::branches::Replacement;
use bytes::Bytes;
use glintdb_core::key::shared_prefix;
use glintdb_core::{
    EntryRef, EntryValue, FileId, FileKind, RangeTombstone, Result, SeqNum, ValuePointer,
};
use glintdb_flash::DataClass;
use glintdb_runs::RunEnv;
use glintdb_runs::table::{Caching, TableConfig, TableMeta, TableWriter};
use std::collections::VecDeque;
use std::sync::Arc;

/// Leaves are filled to this part of their size, so that later entries find room: 9 tenths.
const FILL: (usize, usize) = (9, 10);
/// Bytes of a block that are not entries: its header.
const HEADER_BYTES: usize = 28;
/// Bytes of an entry beside key, value and sequence number: lengths, and a part of a restart point.
const ENTRY_BYTES: usize = 4;

/// An entry that waits to be written.
struct Waiting {
    key: Vec<u8>,
    seqno: SeqNum,
    value: EntryValue,
    /// About the bytes that it takes in a leaf.
    bytes: usize,
    /// Whether it comes from, or goes to, a leaf that the cache has.
    is_cached: bool,
}

/// The leaves that a slice writes.
pub(crate) struct LeafWriter {
    env: Arc<RunEnv>,
    config: TableConfig,
    class: DataClass,
    writer: Option<TableWriter>,
    /// Entries of the stretch that are not written yet.
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Whether the cache has the leaf that is merged.
    is_cached: bool,
    /// Range of the sequence numbers in `waiting`.
    seqnos: (u64, u64),
    /// The leaves of the stretch so far.
    written: Vec<Separated>,
    /// Range tombstones that are still needed.
    tombstones: Vec<RangeTombstone>,
    /// Leaves of all stretches.
    pub(crate) nodes: u64,
    /// Bytes of these leaves.
    pub(crate) bytes: u64,
}

impl LeafWriter {
    pub(crate) fn new(env: &Arc<RunEnv>, config: TableConfig, class: DataClass) -> LeafWriter {
        LeafWriter {
            env: Arc::clone(env),
            config,
            class,
            writer: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            is_cached: false,
            seqnos: (u64::MAX, 0),
            written: Vec::new(),
            tombstones: Vec::new(),
            nodes: 0,
            bytes: 0,
        }
    }

    /// Bytes of entries that a leaf shall have.
    fn target(&self) -> usize {
        (self.config.block_bytes - HEADER_BYTES) * FILL.0 / FILL.1
    }

    /// Says whether the entries that are added next replace a leaf that the cache has.
    pub(crate) fn replaces_cached(&mut self, is_cached: bool) {
        self.is_cached = is_cached;
    }

    /// Adds an entry to the stretch. Keys ascend.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors.
    pub(crate) fn add(&mut self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) -> Result<()> {
        let last = self.waiting.back().map_or(&[][..], |last| &last.key);
        let value_bytes = match value {
            EntryRef::Inline(bytes) => bytes.len(),
            EntryRef::Pointer(_) => ValuePointer::ENCODED_BYTES,
            EntryRef::Tombstone => 0,
        };
        self.seqnos.0 = self.seqnos.0.min(seqno.0);
        self.seqnos.1 = self.seqnos.1.max(seqno.0);
        let width = (u64::BITS - (self.seqnos.1 - self.seqnos.0).leading_zeros()).div_ceil(8);
        let suffix = key.len() - shared_prefix(last, key);
        let bytes = ENTRY_BYTES + suffix + value_bytes + width as usize;
        self.waiting_bytes += bytes;
        self.waiting.push_back(Waiting {
            key: key.to_vec(),
            seqno,
            value: value.to_owned(),
            bytes,
            is_cached: self.is_cached,
        });
        while self.waiting_bytes > 2 * self.target() && self.waiting.len() > 2 {
            self.write_leaf(self.target())?;
        }
        Ok(())
    }

    /// Whether the stretch so far makes one leaf that is less than half full.
    pub(crate) fn is_sparse(&self) -> bool {
        let all_wait = self.written.is_empty() && !self.waiting.is_empty();
        all_wait && self.waiting_bytes < self.target() / 2
    }

    /// Whether a leaf that uses `bytes` bytes and the stretch so far make one leaf.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.waiting_bytes + bytes <= self.target()
    }

    /// Adds a range tombstone that is still needed. They come in any order.
    pub(crate) fn keep(&mut self, tombstone: RangeTombstone) {
        self.tombstones.push(tombstone);
    }

    /// The writer of the table.
    fn writer(&mut self) -> Result<&mut TableWriter> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let id = FileId::new(FileKind::Table, self.env.index().numbers.next()?);
                let tables = self.env.tables();
                let mut writer = TableWriter::create(tables, id, self.class, &self.config, 0)?;
                writer.note_blocks();
                writer
            }
        };
        Ok(self.writer.insert(writer))
    }

    /// Writes about `target` bytes of the entries that wait as a leaf: one entry at least. The leaf
    /// goes to the cache if that has leaves with half of the entries, so that reads of what is
    /// cached do not stall after each settling, or if it has room.
    fn write_leaf(&mut self, target: usize) -> Result<()> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        while let Some(first) = self.waiting.front() {
            if !entries.is_empty() && bytes + first.bytes > target {
                break;
            }
            bytes += first.bytes;
            entries.extend(self.waiting.pop_front());
        }
        self.waiting_bytes -= bytes;
        if self.waiting.is_empty() {
            self.seqnos = (u64::MAX, 0);
        }
        let cached = entries.iter().filter(|entry| entry.is_cached).count();
        let caching = match 2 * cached >= entries.len() {
            true => Caching::Replaces,
            false => Caching::WithRoom,
        };
        let writer = self.writer()?;
        writer.cache_blocks(caching);
        for entry in entries {
            writer.add(&entry.key, entry.seqno, entry.value.as_ref())?;
        }
        let blocks = writer.take_blocks()?;
        for block in blocks {
            let number = self.writer()?.id().number;
            let child = Child::written(number, &block);
            self.nodes += 1;
            self.bytes += u64::from(child.length);
            self.written.push((block.separator, child));
        }
        Ok(())
    }

    /// Ends the stretch that has replaced the leaves of the keys from `lower` to `upper`.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors.
    pub(crate) fn end_stretch(
        &mut self,
        lower: Bytes,
        upper: Option<Bytes>,
    ) -> Result<Replacement> {
        while !self.waiting.is_empty() {
            let leaves = self
                .waiting_bytes
                .div_ceil(self.config.block_bytes - HEADER_BYTES);
            self.write_leaf(self.waiting_bytes.div_ceil(leaves.max(1)))?;
        }
        let mut children = std::mem::take(&mut self.written);
        if let Some((separator, _)) = children.first_mut() {
            separator.clone_from(&lower);
        }
        Ok(Replacement {
            lower,
            upper,
            children,
        })
    }

    /// Makes the table durable. `None`: there is nothing in it.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors. The file is removed then.
    pub(crate) fn finish(mut self) -> Result<Option<TableMeta>> {
        for tombstone in std::mem::take(&mut self.tombstones) {
            self.writer()?.add_range_tombstone(tombstone)?;
        }
        self.writer.take().map(TableWriter::finish).transpose()
    }
}
