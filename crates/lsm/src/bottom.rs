//! The bottom level of an index that takes over the data of an index of another kind: its entries
//! are copied into new tables, and the runs above them stay as they are.
//!
//! Not thread-safe: one thread writes it.

use crate::common::Common;
use crate::compaction::shape::BOTTOM;
use crate::compaction::task::output_class;
use crate::index::Lsm;
use crate::levels::Levels;
use crate::options::LsmOptions;
use glintdb_core::{EntryRef, Error, RangeTombstone, Result, SeqNum};
use glintdb_runs::table::TableMeta;
use glintdb_runs::write::{Grandparents, OutputConfig, RunWriter, Written};
use glintdb_runs::{IndexEnv, Slot, Sorted};
use std::sync::Arc;

/// A bottom level that is being written.
pub struct BottomLevel {
    common: Arc<Common>,
    writer: RunWriter,
    floor: SeqNum,
}

/// A bottom level whose tables are durable. They are removed when it is dropped, unless it is
/// [committed](Self::commit).
pub struct WrittenLevel {
    common: Arc<Common>,
    written: Written,
    tables: Sorted,
}

impl BottomLevel {
    /// Begins the bottom level of an index with these options, of about `entries` entries, with
    /// these range tombstones.
    ///
    /// # Errors
    /// `InvalidArgument` if an option is out of its limits.
    pub fn new(
        env: IndexEnv,
        options: LsmOptions,
        entries: u64,
        range_tombstones: Vec<RangeTombstone>,
    ) -> Result<BottomLevel> {
        options.validate()?;
        let config = OutputConfig {
            class: output_class(BOTTOM, BOTTOM),
            tables: options.table_config(),
            table_bytes: options.table_bytes_target,
            pin: false,
            grandparents: Grandparents::default(),
        };
        let common = Common::new(env, options);
        let hint = usize::try_from(entries).unwrap_or(usize::MAX);
        let writer = RunWriter::new(&common.env, config, hint, range_tombstones.into_iter());
        let floor = common.env.tombstone_floor();
        Ok(BottomLevel {
            common,
            writer,
            floor,
        })
    }

    /// Appends an entry. Leaves out a tombstone that no transaction may still have to see.
    ///
    /// # Errors
    /// `Corruption` if its key is not greater than the one before it. `NoSpace`, I/O errors.
    pub fn add(&mut self, key: &[u8], seqno: SeqNum, value: EntryRef<'_>) -> Result<()> {
        if value == EntryRef::Tombstone && seqno < self.floor {
            return Ok(());
        }
        match self.writer.add(key, seqno, value)? {
            true => Ok(()),
            false => Err(Error::corruption(
                "index",
                0,
                "expected keys that ascend, found one that is not above the key before it",
            )),
        }
    }

    /// Makes the tables durable.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors.
    pub fn finish(self) -> Result<WrittenLevel> {
        let (written, _) = self.writer.finish()?;
        let mut tables = Sorted::default();
        for meta in written.tables() {
            let slot = Slot::open(self.common.env.tables(), meta.clone());
            // So that no lookup has to wait for it. After an error the next user tries again.
            let _tried_again = slot.table.load();
            let inserted = tables.insert(slot);
            assert!(inserted.is_ok(), "tables of one level do not overlap");
        }
        tables.index();
        Ok(WrittenLevel {
            common: self.common,
            written,
            tables,
        })
    }
}

impl WrittenLevel {
    /// Bytes of the values in the log that its entries point to.
    #[must_use]
    pub fn pointed_bytes(&self) -> u64 {
        let tables = self.written.tables().iter();
        tables.map(|meta: &TableMeta| meta.pointed_bytes).sum()
    }

    /// The index with these runs, newest first, above the level.
    #[must_use]
    pub fn beneath(&self, runs: Vec<Sorted>) -> Arc<Lsm> {
        let levels = Levels::of_runs(runs, self.tables.clone());
        Lsm::with_levels(Arc::clone(&self.common), levels)
    }

    /// Keeps the tables: the manifest names them, or may name them.
    pub fn commit(self) {
        self.written.commit();
    }
}
