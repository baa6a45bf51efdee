//! Writes one ascending sequence of entries, with its range tombstones, into tables. Tables are cut
//! by size, and so that no table overlaps too much of the tables beneath it. A table also ends
//! where the next key is behind many tables beneath: else deletions at one end of the keys and puts
//! at the other would be in one table, and a merge of it would rewrite everything between them.
//!
//! Not thread-safe: belongs to one flush or one piece of a compaction.
//!
//! Invariants:
//! 1. The tables partition the keys. A cut at key `k` gives everything before `k` to the table
//!    before the cut. Range tombstones are clipped at `k`. A table that reaches out of its part is
//!    `Corruption`, because keys come from the medium.
//! 2. If a [`Written`] is dropped before [`commit`](Written::commit), every file that was begun is
//!    removed.

use crate::env::RunEnv;
use crate::keys::range::{KeyRange, before_end};
use crate::keys::tombstones::TombstoneSet;
use crate::sorted::Slot;
use crate::table::{PinnedBlocks, StoredBlock, TableConfig, TableMeta, TableWriter};
use bytes::Bytes;
use glintdb_core::{EntryRef, Error, ErrorKind, FileId, FileKind, Result, SeqNum, planted};
use glintdb_flash::DataClass;
use std::sync::Arc;

/// Entries between two looks at the size of the table being written.
const SIZE_CHECK_ENTRIES: u32 = 16;
/// A table ends where the next key is behind this part of the tables beneath, an eighth, or behind
/// one of few. So at most eight tables more are written.
const GAP_PART: usize = 8;

/// How tables are written.
pub struct OutputConfig {
    /// The class of the tables' files.
    pub class: DataClass,
    /// The form of the tables.
    pub tables: TableConfig,
    /// Size at which a table is cut.
    pub table_bytes: u64,
    /// Whether the tables' blocks are kept in memory as they are written, to be pinned.
    pub pin: bool,
    /// The tables that the outputs will be merged with next.
    pub grandparents: Grandparents,
}

/// Tables beneath those that are written, and how many of them one table may overlap. By default
/// there are none.
#[derive(Default)]
pub struct Grandparents {
    /// The tables, in the order of their first keys. They may overlap.
    pub tables: Vec<Arc<Slot>>,
    /// Bytes of them that one table may overlap.
    pub overlap_bytes_max: u64,
}

/// Takes entries in ascending order and writes them into tables.
pub(crate) struct Outputs {
    config: OutputConfig,
    /// About the number of entries to come.
    entries_hint: usize,
    writer: Option<TableWriter>,
    since_size_check: u32,
    /// Range tombstones that belong to the sequence.
    carry: TombstoneSet,
    /// First key of the table being written.
    from: Bytes,
    /// Index of the next grandparent.
    grandparent: usize,
    /// Bytes of grandparents that the table being written overlaps.
    overlap_bytes: u64,
    written: Written,
}

/// Tables written so far, and their files.
pub struct Written {
    env: Arc<RunEnv>,
    files: Vec<FileId>,
    tables: Vec<TableMeta>,
    /// Blocks of tables that are to be pinned, by file number.
    pins: Vec<(u64, PinnedBlocks)>,
}

impl Written {
    /// Whether no table was written.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The tables, ascending.
    pub fn tables(&self) -> &[TableMeta] {
        &self.tables
    }

    /// Gives the tables away. Their files stay. Blocks that are to be pinned wait for
    /// [`RunEnv::take_fresh_blocks`].
    pub fn commit(mut self) -> Vec<TableMeta> {
        self.files.clear();
        self.env.fresh.keep(self.pins.drain(..));
        std::mem::take(&mut self.tables)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        for file in self.files.drain(..) {
            self.env.remove_file(file);
        }
    }
}

impl Outputs {
    /// Begins a sequence of about `entries_hint` entries with the range tombstones `carry`. `from`
    /// is the first key that may come.
    pub(crate) fn new(
        env: &Arc<RunEnv>,
        config: OutputConfig,
        entries_hint: usize,
        carry: TombstoneSet,
        from: Bytes,
    ) -> Outputs {
        let grandparent = config
            .grandparents
            .tables
            .partition_point(|slot| slot.range.end.as_ref().is_some_and(|end| *end <= from));
        Outputs {
            config,
            entries_hint,
            writer: None,
            since_size_check: 0,
            carry,
            from,
            grandparent,
            overlap_bytes: 0,
            written: Written {
                env: Arc::clone(env),
                files: Vec::new(),
                tables: Vec::new(),
                pins: Vec::new(),
            },
        }
    }

    /// Appends an entry. `false`: its key is not greater than the one before it in its table, and
    /// nothing was appended.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) -> Result<bool> {
        self.before(key)?;
        self.writer()?.try_add(key, seqno, value)
    }

    /// Appends a whole block. Returns the number of its entries.
    pub(crate) fn add_block(&mut self, block: &StoredBlock) -> Result<u64> {
        self.since_size_check = SIZE_CHECK_ENTRIES;
        self.before(block.first_key()?)?;
        self.writer()?.add_block(block)
    }

    /// The key appended last.
    #[inline]
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.writer.as_ref().map(TableWriter::last_key)
    }

    /// Finishes the last table. `end` is the first key that could not have come.
    pub(crate) fn finish(mut self, end: Option<&Bytes>) -> Result<Written> {
        if !self.carry.is_empty() {
            let behind = self.carry.fragments().iter().map(|next| &next.start);
            let last = self.last_key().unwrap_or_default();
            if let Some(next) = behind.filter(|start| ***start > *last).min().cloned() {
                self.before(&next)?;
            }
            while let Some(at) = self.grandparent_boundary(|start| before_end(start, &end.cloned()))
            {
                self.cut(Some(at))?;
            }
        }
        self.cut(end.cloned())?;
        Ok(self.written)
    }

    /// Cuts before `key` where that is due.
    #[inline]
    fn before(&mut self, key: &[u8]) -> Result<()> {
        let tables = self.config.grandparents.tables.len();
        if self.grandparent < tables {
            let before = self.grandparent;
            while let Some(at) = self.grandparent_boundary(|start| start.as_ref() <= key) {
                self.cut(Some(at))?;
            }
            if self.grandparent > before && self.is_gap(before, key) {
                self.cut(Some(Bytes::copy_from_slice(key)))?;
            }
        }
        self.since_size_check += 1;
        if self.since_size_check >= SIZE_CHECK_ENTRIES {
            self.since_size_check = 0;
            // A key that does not ascend must not begin a table: its writer refuses it.
            if let Some(writer) = &self.writer
                && writer.estimated_bytes() >= self.config.table_bytes
                && key > writer.last_key()
            {
                self.cut(Some(Bytes::copy_from_slice(key)))?;
            }
        }
        Ok(())
    }

    /// Whether many of the grandparents passed since `before` are between `key` and what the table
    /// being written has before it: its last key and its range tombstones.
    fn is_gap(&self, before: usize, key: &[u8]) -> bool {
        let so_far = KeyRange {
            start: self.from.clone(),
            end: Some(Bytes::copy_from_slice(key)),
        };
        let tombstone = self.carry.meeting(&so_far).last();
        let tombstone = tombstone.map(|last| last.end.as_deref().unwrap_or(key));
        let Some(end) = self.last_key().max(tombstone).filter(|end| *end < key) else {
            return false;
        };
        let tables = &self.config.grandparents.tables;
        let passed = tables.get(before..self.grandparent).unwrap_or_default();
        let is_between =
            |slot: &&Arc<Slot>| *slot.range.start >= *end && !before_end(key, &slot.range.end);
        passed.iter().filter(is_between).count() >= (tables.len() / GAP_PART).max(1)
    }

    /// Passes the grandparents for whose start `passed` is true. Returns the key to cut at, if the
    /// table being written would overlap too many of them.
    #[inline]
    fn grandparent_boundary(&mut self, passed: impl Fn(&Bytes) -> bool) -> Option<Bytes> {
        let Grandparents {
            tables,
            overlap_bytes_max,
        } = &self.config.grandparents;
        while let Some(slot) = tables.get(self.grandparent) {
            let start = &slot.range.start;
            if !passed(start) {
                return None;
            }
            let bytes = slot.meta().bytes;
            if self.overlap_bytes > 0
                && self.overlap_bytes + bytes > *overlap_bytes_max
                && *start > self.from
            {
                return Some(start.clone());
            }
            self.overlap_bytes += bytes;
            self.grandparent += 1;
        }
        None
    }

    /// Ends the table being written. Entries from `at` on belong to the next one. `None`: no entry
    /// follows.
    ///
    /// `at` may be inside the block that was moved last, which then ends behind `at`. The tables
    /// stay disjoint, because a block is moved only if no range tombstone meets its keys.
    fn cut(&mut self, at: Option<Bytes>) -> Result<()> {
        self.overlap_bytes = 0;
        let range = KeyRange {
            start: self.from.clone(),
            end: at.clone(),
        };
        let carry = std::mem::take(&mut self.carry);
        let carries = planted!(
            "lsm: a range deletion over several tables is only in the last",
            true,
            at.is_none()
        );
        if carries {
            for tombstone in carry.clipped(&range) {
                self.writer()?.add_range_tombstone(tombstone)?;
            }
        }
        self.carry = carry;
        if let Some(writer) = self.writer.take() {
            let (meta, pins) = writer.finish_with_pins()?;
            self.written
                .pins
                .extend(pins.map(|pins| (meta.id.number, pins)));
            self.written.tables.push(meta);
        }
        if let Some(at) = at {
            self.from = at;
        }
        Ok(())
    }

    #[inline]
    fn writer(&mut self) -> Result<&mut TableWriter> {
        if self.writer.is_none() {
            self.writer = Some(self.begin()?);
        }
        self.writer
            .as_mut()
            .ok_or_else(|| Error::new(ErrorKind::Closed, "a table that was just begun is gone"))
    }

    fn begin(&mut self) -> Result<TableWriter> {
        let env = &self.written.env;
        let id = FileId::new(FileKind::Table, env.index().numbers.next()?);
        self.written.files.push(id);
        // Each entry takes 8 bytes at the very least.
        let fits = usize::try_from(self.config.table_bytes / 8).unwrap_or(usize::MAX);
        let mut writer = TableWriter::create(
            env.tables(),
            id,
            self.config.class,
            &self.config.tables,
            self.entries_hint.min(fits),
        )?;
        if self.config.pin {
            writer.keep_blocks(env.pin_memory());
        }
        Ok(writer)
    }
}
