//! [`Lsm`]: the LSM tree as an [`Index`].
//!
//! Thread-safe. The engine runs one `write_run` and one `apply` at a time, beside any number of
//! jobs and views.

use crate::common::Common;
use crate::compaction::picker;
use crate::edit::{Edit, EditOp};
use crate::levels::Levels;
use crate::options::LsmOptions;
use crate::shared::Shared;
use crate::view::View;
use crate::{flush, pinning};
use glintdb_core::codec::Reader;
use glintdb_core::index::{
    Debt, Index, IndexChange, IndexJob, IndexView, MemoryShare, Relocation, SortedRun,
};
use glintdb_core::{Error, FileId, FileKind, Result, planted};
use glintdb_flash::DataClass;
use glintdb_runs::keys::KeyRange;
use glintdb_runs::table::TableMeta;
use glintdb_runs::top::RunRelocation;
use glintdb_runs::{IndexEnv, Sorted};
use std::ops::Bound;
use std::sync::Arc;

/// The LSM index of one keyspace.
pub struct Lsm {
    shared: Arc<Shared>,
}

/// A table that an edit adds or removes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableChange {
    /// The table's file.
    pub id: FileId,
    /// The level to which it is added, or from which it is removed.
    pub level: u8,
    /// At level 0, the run that it belongs to. Greater numbers are newer.
    pub run: Option<u64>,
    /// The table's properties if it is added; `None` if it is removed.
    pub added: Option<TableMeta>,
}

impl Lsm {
    /// An empty index.
    ///
    /// # Errors
    /// `InvalidArgument` if an option is out of its limits.
    pub fn create(env: IndexEnv, options: LsmOptions) -> Result<Arc<Lsm>> {
        options.validate()?;
        let common = Common::new(env, options);
        Ok(Lsm::with_levels(common, Levels::default()))
    }

    /// The index that results from `edits`, in the order of the manifest. Reads no table, but
    /// checks that each table's file exists and has the recorded length.
    ///
    /// # Errors
    /// `InvalidArgument` if an option is out of its limits. `Corruption` if the edits do not fit
    /// each other, or a file is missing or has another length (the error names it). I/O errors.
    pub fn open(env: IndexEnv, options: LsmOptions, edits: &[Vec<u8>]) -> Result<Arc<Lsm>> {
        options.validate()?;
        let common = Common::new(env, options);
        let mut levels = Levels::default();
        for edit in edits {
            // The files of removed tables are gone already, or the engine removes them as orphans.
            levels.replay(&Edit::decode(edit)?, common.env.tables())?;
        }
        let files = levels.slots();
        let files = files.map(|(place, slot)| (place, slot.meta().id, slot.meta().bytes));
        common.env.check_files(files)?;
        Ok(Lsm::with_levels(common, levels))
    }

    /// The runs of level 0 and the other levels, newest first, for another index that takes them
    /// over.
    #[must_use]
    pub fn runs(&self) -> Vec<Sorted> {
        self.shared.view().levels.sorted().cloned().collect()
    }

    /// The tables that an edit adds and removes, in order. For tools that show a manifest.
    ///
    /// # Errors
    /// `Corruption`, `UnsupportedFormat` if the bytes are not an edit.
    pub fn table_changes(edit: &[u8]) -> Result<Vec<TableChange>> {
        let ops = Edit::decode(edit)?.ops.into_iter();
        let changes = ops.map(|op| {
            let (place, id, added) = match op {
                EditOp::Add(place, meta) => (place, meta.id, Some(meta)),
                EditOp::Remove(place, number) => {
                    (place, FileId::new(FileKind::Table, number), None)
                }
            };
            TableChange {
                id,
                level: place.level,
                run: (place.level == 0).then_some(place.run),
                added,
            }
        });
        Ok(changes.collect())
    }

    pub(crate) fn with_levels(common: Arc<Common>, levels: Levels) -> Arc<Lsm> {
        let view = Arc::new(View {
            levels,
            common: Arc::clone(&common),
        });
        Arc::new(Lsm {
            shared: Shared::new(common, view),
        })
    }
}

impl Index for Lsm {
    fn view(&self) -> Arc<dyn IndexView> {
        self.shared.view()
    }

    fn write_run(&self, run: &mut dyn SortedRun) -> Result<IndexChange> {
        let id = self.shared.next_run();
        let levels = &self.shared.view().levels;
        flush::write_to_level0(&self.shared.common, levels, run, id, DataClass::Flush)
    }

    fn begin_relocation(&self) -> Box<dyn Relocation> {
        Box::new(RunRelocation::begin(&self.shared))
    }

    fn note_scanned(&self, entries: u64) -> bool {
        self.shared.note_scanned(entries)
    }

    fn pick_job(&self) -> Option<Box<dyn IndexJob>> {
        let job = self.shared.pick(|picker| picker.pick());
        job.or_else(|| pinning::pin_job(&self.shared))
    }

    fn pick_full_compaction(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Option<Box<dyn IndexJob>> {
        let range = KeyRange::from_bounds(lower, upper);
        if range.is_empty() {
            return None;
        }
        self.shared.pick(|picker| picker.pick_full(&range))
    }

    fn busy(&self) -> bool {
        self.shared.busy()
    }

    fn check(&self, change: &IndexChange) -> Result<()> {
        let edit = Edit::decode(&change.edit)?;
        let tables = self.shared.common.env.tables();
        self.shared.view().levels.edited(&edit, tables).map(drop)
    }

    fn apply(&self, change: &IndexChange) -> Result<()> {
        let edit = Edit::decode(&change.edit)?;
        if edit.ops.is_empty() {
            return Ok(());
        }
        let common = &self.shared.common;
        let env = &common.env;
        let edited = self.shared.view().levels.edited(&edit, env.tables())?;
        let added = edit.new_files().map(|file| file.number).collect();
        edited.levels.load(&added);
        let block_bytes = common.options().block_bytes;
        common.pins.follow(&edited.levels, added, block_bytes);
        let view = Arc::new(View {
            levels: edited.levels,
            common: Arc::clone(common),
        });
        for slot in &edited.gone {
            slot.table.mark_obsolete();
            planted!(
                "lsm: a table's file goes while a snapshot reads it",
                (),
                env.remove_file(slot.meta().id)
            );
        }
        self.shared.install(Arc::clone(&view), &edit);
        common.pins.settle(&view.levels, &edited.gone);
        Ok(())
    }

    fn abandon(&self, change: IndexChange) {
        // A change that cannot be decoded was not made here. The next open removes its files.
        let Ok(edit) = Edit::decode(&change.edit) else {
            return;
        };
        let env = &self.shared.common.env;
        for file in edit.new_files() {
            env.remove_file(file);
        }
        let numbers = edit.new_files().map(|file| file.number);
        drop(env.take_fresh_blocks(numbers));
        self.shared.abandon(&edit);
    }

    fn snapshot_edit(&self) -> Vec<u8> {
        self.shared.view().levels.as_edit().encode()
    }

    fn files(&self) -> Vec<FileId> {
        self.shared.view().files()
    }

    fn set_memory_share(&self, share: MemoryShare) -> u64 {
        let view = self.shared.view();
        let common = &self.shared.common;
        common
            .pins
            .set_share(share, &view.levels, common.options().block_bytes)
    }

    fn set_options(&self, encoded: &[u8]) -> Result<()> {
        let mut reader = Reader::new(encoded);
        let options = LsmOptions::decode(&mut reader).filter(|_| reader.is_empty());
        let Some(options) = options else {
            return Err(Error::invalid("these are no options of an LSM index"));
        };
        let (wanted, block_bytes) = (options.pinned_levels, options.block_bytes);
        let common = &self.shared.common;
        common.set_options(options);
        common
            .pins
            .set_wanted(wanted, &self.shared.view().levels, block_bytes);
        Ok(())
    }

    fn debt(&self) -> Debt {
        let common = &self.shared.common;
        let options = common.options();
        let view = self.shared.view();
        // After an error deletions count nothing; the next pick tries again.
        let _found = view.levels.find_deletions();
        picker::debt(&view.levels, &options, &common.shape(&options))
    }

    fn pause(&self) {
        self.shared.pause(true);
    }

    fn resume(&self) {
        self.shared.pause(false);
    }

    fn release(&self) {
        self.shared.stop();
        self.shared.common.pins.give_up(&self.shared.view().levels);
    }

    fn discard(&self) {
        self.shared.stop();
        let view = self.shared.view();
        for (_, slot) in view.levels.slots() {
            slot.table.mark_obsolete();
        }
        let empty = Arc::new(View {
            levels: Levels::default(),
            common: Arc::clone(&self.shared.common),
        });
        self.shared.install(empty, &Edit::default());
    }
}

impl Drop for Lsm {
    fn drop(&mut self) {
        // Breaks the cycle of references between `Shared` and its tasks.
        self.shared.stop();
    }
}

impl std::fmt::Debug for Lsm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lsm")
            .field("stats", &self.shared.view().stats())
            .field("busy", &self.busy())
            .finish()
    }
}

#[cfg(test)]
impl Lsm {
    /// The current view, with its levels.
    pub(crate) fn view_for_tests(&self) -> Arc<View> {
        self.shared.view()
    }
}
