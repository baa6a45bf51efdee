//! The memory half of pinning: how the blocks of a table come into memory as a whole. Which tables
//! are pinned is for the index to plan.
//!
//! A table that is written for a pinned place brings its blocks along ([`FreshBlocks`]). A table
//! that is pinned later is read ([`PinReading`]).
//!
//! [`FreshBlocks`] is thread-safe; its lock is held for a look only. A [`PinReading`] belongs to
//! one job.
//!
//! Invariants:
//! 1. Pinned blocks and blocks that are being gathered are within the limit of [`PinMemory`] that
//!    was in force when they came.
//! 2. Pinning changes only memory. An error while a table is read leaves the table as it was; the
//!    next reader of the table gets the error.

use crate::table::{
    PINNED_BLOCK_OVERHEAD_BYTES, PinMemory, PinnedBlocks, Purpose, Table, TableCursor, TableMeta,
};
use glintdb_core::sync::Mutex;
use glintdb_core::{Direction, Result};
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

/// Blocks that a step of a reading reads: about 1 MiB.
const STEP_BLOCKS: usize = 256;

/// Memory that a table takes if it is pinned, slightly overestimated. Blocks are cut at
/// `block_bytes` before they are compressed.
pub fn pin_bytes(meta: &TableMeta, block_bytes: u32) -> u64 {
    if meta.entries == 0 {
        return 0;
    }
    let blocks = u64::from(meta.blocks);
    let images = meta.tail_offset.max(blocks * u64::from(block_bytes));
    images + blocks * PINNED_BLOCK_OVERHEAD_BYTES as u64
}

/// Blocks of new tables, by file number, from the end of the writing until the change that adds the
/// tables is applied or abandoned.
#[derive(Default)]
pub(crate) struct FreshBlocks(Mutex<HashMap<u64, PinnedBlocks>>);

impl FreshBlocks {
    /// Keeps the blocks of new tables.
    pub(crate) fn keep(&self, blocks: impl Iterator<Item = (u64, PinnedBlocks)>) {
        self.0.lock().extend(blocks);
    }

    /// Takes out the blocks of these tables, as far as any were kept.
    pub(crate) fn take(
        &self,
        numbers: impl IntoIterator<Item = u64>,
    ) -> HashMap<u64, PinnedBlocks> {
        let mut fresh = self.0.lock();
        numbers
            .into_iter()
            .filter_map(|number| fresh.remove(&number).map(|blocks| (number, blocks)))
            .collect()
    }
}

/// A table that is being read into memory, to be pinned.
pub struct PinReading {
    table: Arc<Table>,
    cursor: TableCursor,
    blocks: PinnedBlocks,
    memory: Arc<PinMemory>,
}

/// How far a [`PinReading`] has come.
pub enum PinStep {
    /// Not all blocks are read.
    More,
    /// All blocks are read; the table can be [pinned](Table::pin) with them.
    Read(PinnedBlocks),
    /// There is no room for the table.
    NoRoom,
}

impl PinReading {
    /// Begins to read a table. Does no I/O yet.
    pub fn new(table: &Arc<Table>, memory: &Arc<PinMemory>) -> PinReading {
        let all = Bound::Unbounded;
        PinReading {
            table: Arc::clone(table),
            cursor: table.cursor(all, all, Direction::Forward, Purpose::Compaction),
            blocks: PinnedBlocks::new(memory),
            memory: Arc::clone(memory),
        }
    }

    /// The table that is read.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Reads about 1 MiB of blocks. Must not be called again once it has returned an error or
    /// anything but [`PinStep::More`].
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub fn step(&mut self) -> Result<PinStep> {
        for _ in 0..STEP_BLOCKS {
            if !self.cursor.advance()? {
                if self.blocks.len() != self.table.meta().blocks as usize {
                    return Ok(PinStep::NoRoom);
                }
                let none = PinnedBlocks::new(&self.memory);
                return Ok(PinStep::Read(std::mem::replace(&mut self.blocks, none)));
            }
            if !self.cursor.find_whole_block()? || !self.blocks.take(&self.cursor.take_block()) {
                return Ok(PinStep::NoRoom);
            }
        }
        Ok(PinStep::More)
    }
}
