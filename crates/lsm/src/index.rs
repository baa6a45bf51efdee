//! [`Lsm`]: the index itself.
//!
//! Thread-safe; one `write_run` and one `apply` at a time (the engine sees to it), any number of jobs and views.

use crate::common::{Common, LsmEnv};
use crate::compaction::picker;
use crate::edit::{Edit, EditOp};
use crate::levels::Levels;
use crate::options::LsmOptions;
use crate::range::KeyRange;
use crate::relocation::LsmRelocation;
use crate::shared::Shared;
use crate::table::TableMeta;
use crate::view::View;
use crate::{flush, pinning};
use glintdb_core::codec::Reader;
use glintdb_core::index::{
    Debt, Index, IndexChange, IndexJob, IndexView, MemoryShare, Relocation, SortedRun,
};
use glintdb_core::{Error, FileId, FileKind, Result};
use glintdb_flash::DataClass;
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

/// The LSM index of one keyspace. See the crate's page.
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
    /// `InvalidArgument` where an option is out of its limits.
    pub fn create(env: LsmEnv, options: LsmOptions) -> Result<Arc<Lsm>> {
        options.validate()?;
        let common = Common::new(env, options);
        Ok(Lsm::with_levels(common, Levels::default()))
    }

    /// The index that `edits`, in the order of the manifest, come to. Reads no table, but checks that each one is there with the size it should have.
    ///
    /// # Errors
    /// `InvalidArgument` (options), `Corruption` where edits do not fit each other or a table is missing or of another size (names it), I/O errors.
    pub fn open(env: LsmEnv, options: LsmOptions, edits: &[Vec<u8>]) -> Result<Arc<Lsm>> {
        options.validate()?;
        let common = Common::new(env, options);
        let mut levels = Levels::default();
        for edit in edits {
            // Tables that went before were removed when they went, or are orphans that the engine removes.
            levels.replay(&Edit::decode(edit)?, &common.table_env)?;
        }
        check_files(&common, &levels)?;
        Ok(Lsm::with_levels(common, levels))
    }

    /// The tables that an edit adds and removes, in order: for tools that show a manifest.
    ///
    /// # Errors
    /// `Corruption`, `UnsupportedFormat`: the bytes are not an edit.
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

    /// The tables that are there after `edits`, which may have gaps: for tools that look at damaged databases.
    #[must_use]
    pub fn tables_after(edits: &[Vec<u8>]) -> Vec<TableMeta> {
        let mut tables = std::collections::BTreeMap::new();
        for edit in edits.iter().filter_map(|edit| Edit::decode(edit).ok()) {
            for op in edit.ops {
                match op {
                    EditOp::Add(_, meta) => {
                        tables.insert(meta.id.number, meta);
                    }
                    EditOp::Remove(_, number) => {
                        tables.remove(&number);
                    }
                }
            }
        }
        tables.into_values().collect()
    }

    fn with_levels(common: Arc<Common>, levels: Levels) -> Arc<Lsm> {
        let view = Arc::new(View {
            levels,
            common: Arc::clone(&common),
        });
        Arc::new(Lsm {
            shared: Shared::new(common, view),
        })
    }
}

/// Each table must be there with the size the manifest gives.
fn check_files(common: &Common, levels: &Levels) -> Result<()> {
    let there: HashSet<FileId> = common.env.volume.list()?.into_iter().collect();
    for (place, slot) in levels.slots() {
        let meta = slot.meta();
        if !there.contains(&meta.id) {
            return Err(Error::corruption(
                meta.id,
                0,
                format!(
                    "expected a table of {} bytes at {place:?}, found no such file",
                    meta.bytes
                ),
            ));
        }
        let length = common.env.volume.open(meta.id)?.len()?;
        if length != meta.bytes {
            return Err(Error::corruption(
                meta.id,
                length.min(meta.bytes),
                format!("expected a table of {} bytes, found {length}", meta.bytes),
            ));
        }
    }
    Ok(())
}

impl Index for Lsm {
    fn view(&self) -> Arc<dyn IndexView> {
        self.shared.view()
    }

    fn write_run(&self, run: &mut dyn SortedRun) -> Result<IndexChange> {
        flush::write_run(
            &self.shared.common,
            run,
            self.shared.next_run(),
            DataClass::Flush,
        )
    }

    fn begin_relocation(&self) -> Box<dyn Relocation> {
        Box::new(LsmRelocation::begin(&self.shared))
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

    fn apply(&self, change: &IndexChange) -> Result<()> {
        let edit = Edit::decode(&change.edit)?;
        if edit.ops.is_empty() {
            return Ok(());
        }
        let common = &self.shared.common;
        let edited = self.shared.view().levels.edited(&edit, &common.table_env)?;
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
            if glintdb_core::seeded::bug("lsm: a table's file goes while a snapshot reads it") {
                common.remove_file(slot.meta().id);
            }
        }
        self.shared.install(Arc::clone(&view), &edit);
        common.pins.settle(&view.levels, &edited.gone);
        Ok(())
    }

    fn abandon(&self, change: IndexChange) {
        // A change that cannot be read was not made here; its files, if any, are orphans that the next open removes.
        let Ok(edit) = Edit::decode(&change.edit) else {
            return;
        };
        for file in edit.new_files() {
            self.shared.common.remove_file(file);
            self.shared
                .common
                .pins
                .abandon(std::iter::once(file.number));
        }
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
        picker::debt(
            &self.shared.view().levels,
            &options,
            &common.shape(&options),
        )
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
        // Tasks hold what is shared, and what is shared holds tasks: without this neither would ever go.
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
    /// The view with its insides.
    pub(crate) fn view_for_tests(&self) -> Arc<View> {
        self.shared.view()
    }
}
