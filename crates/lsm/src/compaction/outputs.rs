//! Writes one ascending sequence of entries, with the range tombstones that belong to it, into tables: cut by size, and so that no table overlaps too much of
//! the level below the one it is written to.
//!
//! Not thread-safe: belongs to one flush or one piece of a compaction.
//!
//! Invariants:
//! 1. Tables partition the keys: a cut at key `k` gives everything before `k`, range tombstones clipped at `k` included, to the table before it.
//! 2. Dropped before [`commit`](Written::commit), every file that was begun is removed.

use crate::common::Common;
use crate::levels::Slot;
use crate::range::{KeyRange, before_end};
use crate::table::{PinnedBlocks, StoredBlock, TableMeta, TableWriter};
use crate::tombstones::TombstoneSet;
use bytes::Bytes;
use glintdb_core::{EntryRef, ErrorKind, FileId, FileKind, Result, SeqNum};
use glintdb_flash::DataClass;
use std::sync::Arc;

/// Entries between two looks at the size of the table being written.
const SIZE_CHECK_ENTRIES: u32 = 16;

/// Where and how tables are written.
pub(crate) struct OutputConfig {
    pub(crate) class: DataClass,
    /// Size at which a table is cut.
    pub(crate) table_bytes: u64,
    /// Tables of the level below the output's, ascending.
    pub(crate) grandparents: Vec<Arc<Slot>>,
    /// Bytes of grandparents that one table may overlap.
    pub(crate) overlap_bytes_max: u64,
    /// About how many entries will come.
    pub(crate) entries_hint: usize,
    /// Whether the tables' blocks are kept in memory as they are written, to be pinned.
    pub(crate) pin: bool,
}

/// See the module's page.
pub(crate) struct Outputs {
    config: OutputConfig,
    writer: Option<TableWriter>,
    since_size_check: u32,
    /// Range tombstones to be written, and where the table being written begins.
    carry: TombstoneSet,
    from: Bytes,
    grandparent: usize,
    overlap_bytes: u64,
    written: Written,
}

/// Tables written so far and the files behind them.
pub(crate) struct Written {
    common: Arc<Common>,
    files: Vec<FileId>,
    pub(crate) tables: Vec<TableMeta>,
    /// Blocks of tables that are to be pinned, by file number.
    pins: Vec<(u64, PinnedBlocks)>,
}

impl Written {
    /// Gives the tables away; their files stay, and their blocks wait for the change to be applied.
    pub(crate) fn commit(mut self) -> Vec<TableMeta> {
        self.files.clear();
        self.common.pins.keep_fresh(self.pins.drain(..));
        std::mem::take(&mut self.tables)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        for file in self.files.drain(..) {
            self.common.remove_file(file);
        }
    }
}

impl Outputs {
    /// Begins; `carry` are the range tombstones to be written, `from` the first key that may come.
    pub(crate) fn new(
        common: &Arc<Common>,
        config: OutputConfig,
        carry: TombstoneSet,
        from: Bytes,
    ) -> Outputs {
        let grandparent = config
            .grandparents
            .partition_point(|slot| slot.range.end.as_ref().is_some_and(|end| *end <= from));
        Outputs {
            config,
            writer: None,
            since_size_check: 0,
            carry,
            from,
            grandparent,
            overlap_bytes: 0,
            written: Written {
                common: Arc::clone(common),
                files: Vec::new(),
                tables: Vec::new(),
                pins: Vec::new(),
            },
        }
    }

    /// Appends an entry; `false`: its key is not greater than the one before it in its table, and nothing was appended.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) -> Result<bool> {
        self.before(key)?;
        self.writer()?.try_add(key, seqno, value)
    }

    /// Appends a whole block.
    pub(crate) fn add_block(&mut self, block: &StoredBlock) -> Result<bool> {
        self.since_size_check = SIZE_CHECK_ENTRIES;
        self.before(block.first_key()?)?;
        self.writer()?.add_block(block)
    }

    /// The key appended last.
    #[inline]
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.writer.as_ref().map(TableWriter::last_key)
    }

    /// Finishes the last table; `end`: first key that could not have come.
    pub(crate) fn finish(mut self, end: Option<&Bytes>) -> Result<Written> {
        if self.carry.is_empty() {
            self.cut(None)?;
        } else {
            while let Some(at) = self.grandparent_boundary(|start| before_end(start, &end.cloned()))
            {
                self.cut(Some(at))?;
            }
            self.cut(end.cloned())?;
        }
        Ok(self.written)
    }

    /// Cuts before `key` where that is due.
    #[inline]
    fn before(&mut self, key: &[u8]) -> Result<()> {
        while self.grandparent < self.config.grandparents.len() {
            match self.grandparent_boundary(|start| start.as_ref() <= key) {
                Some(at) => self.cut(Some(at))?,
                None => break,
            }
        }
        self.since_size_check += 1;
        if self.since_size_check >= SIZE_CHECK_ENTRIES {
            self.since_size_check = 0;
            if let Some(writer) = &self.writer
                && writer.estimated_bytes() >= self.config.table_bytes
            {
                self.cut(Some(Bytes::copy_from_slice(key)))?;
            }
        }
        Ok(())
    }

    /// Passes the grandparents that begin where the next key may already be behind; where the table being written would overlap too many, the key to cut at.
    #[inline]
    fn grandparent_boundary(&mut self, passed: impl Fn(&Bytes) -> bool) -> Option<Bytes> {
        while let Some(slot) = self.config.grandparents.get(self.grandparent) {
            let start = &slot.range.start;
            if !passed(start) {
                return None;
            }
            let bytes = slot.meta().bytes;
            if self.overlap_bytes > 0
                && self.overlap_bytes + bytes > self.config.overlap_bytes_max
                && *start > self.from
            {
                return Some(start.clone());
            }
            self.overlap_bytes += bytes;
            self.grandparent += 1;
        }
        None
    }

    /// Ends the table being written: what comes from `at` on belongs to the next one (`None`: nothing comes any more).
    fn cut(&mut self, at: Option<Bytes>) -> Result<()> {
        self.overlap_bytes = 0;
        let range = KeyRange {
            start: self.from.clone(),
            end: at.clone(),
        };
        let tombstones: Vec<_> = self.carry.clipped(&range).collect();
        let lost = at.is_some()
            && glintdb_core::seeded::bug(
                "lsm: a range deletion over several tables is only in the last",
            );
        if !tombstones.is_empty() && !lost {
            let writer = self.writer()?;
            for tombstone in tombstones {
                writer.add_range_tombstone(tombstone)?;
            }
        }
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
        self.writer.as_mut().ok_or_else(|| {
            glintdb_core::Error::new(ErrorKind::Closed, "a table that was just begun is gone")
        })
    }

    fn begin(&mut self) -> Result<TableWriter> {
        let common = &self.written.common;
        let id = FileId::new(FileKind::Table, common.env.numbers.next()?);
        self.written.files.push(id);
        // Each entry takes 8 bytes at the very least.
        let fits = usize::try_from(self.config.table_bytes / 8).unwrap_or(usize::MAX);
        let mut writer = TableWriter::create(
            &common.table_env,
            id,
            self.config.class,
            &common.options().table_config(),
            self.config.entries_hint.min(fits),
        )?;
        if self.config.pin {
            writer.keep_blocks(common.pins.memory());
        }
        Ok(writer)
    }
}
