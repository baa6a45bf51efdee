//! [`BTree`]: the B+tree as an [`Index`].
//!
//! Thread-safe. The engine runs one `write_run` and one `apply` at a time, beside a slice and any
//! number of views.

use crate::common::Common;
use crate::copy::SettledTree;
use crate::edit::{Edit, EditOp};
use crate::options::BTreeOptions;
use crate::picker::{Picker, Work};
use crate::picture::Picture;
use crate::shared::Shared;
use crate::view::View;
use glintdb_core::codec::Reader;
use glintdb_core::index::{
    Debt, Index, IndexChange, IndexJob, IndexView, MemoryShare, Relocation, SortedRun,
};
use glintdb_core::{Error, FileId, FileKind, Result, proportion};
use glintdb_runs::keys::KeyRange;
use glintdb_runs::table::TableMeta;
use glintdb_runs::top::RunRelocation;
use glintdb_runs::{IndexEnv, Sorted};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The B+tree index of one keyspace.
pub struct BTree {
    shared: Arc<Shared>,
}

/// A file that an edit adds or removes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileChange {
    /// The file.
    pub id: FileId,
    /// The run of the shelf that it belongs to; `None`: it belongs to the tree.
    pub run: Option<u64>,
    /// Whether it is added, and not removed.
    pub is_added: bool,
    /// The table's properties, if it is added and is a table.
    pub added: Option<TableMeta>,
}

impl BTree {
    /// An empty index.
    ///
    /// # Errors
    /// `InvalidArgument` if an option is out of its limits.
    pub fn create(env: IndexEnv, options: BTreeOptions) -> Result<Arc<BTree>> {
        options.validate()?;
        let common = Common::new(env, options);
        let picture = Picture::empty(&common.env);
        Ok(BTree::with_picture(common, picture))
    }

    /// The index that results from `edits`, in the order of the manifest. Reads no file, but checks
    /// that each file exists and has the recorded length.
    ///
    /// # Errors
    /// `InvalidArgument` if an option is out of its limits. `Corruption` if the edits do not fit
    /// each other, or a file is missing or has another length (the error names it). I/O errors.
    pub fn open(env: IndexEnv, options: BTreeOptions, edits: &[Vec<u8>]) -> Result<Arc<BTree>> {
        options.validate()?;
        let reshape = options.reshape;
        let common = Common::new(env, options);
        let mut picture = Picture::empty(&common.env);
        for edit in edits {
            // The files of removed tables are gone already, or the engine removes them as orphans.
            drop(picture.replay(&Edit::decode(edit)?, reshape)?);
        }
        let of_shelf =
            (picture.slots()).map(|(run, slot)| (Some(run), slot.meta().id, slot.meta().bytes));
        let of_tree = picture.files.iter();
        let of_tree = of_tree.map(|(id, file)| (None, *id, file.file.bytes()));
        common.env.check_files(of_shelf.chain(of_tree))?;
        Ok(BTree::with_picture(common, picture))
    }

    /// The index that takes over the runs of another index of the keyspace, newest first. The tree
    /// is empty. Reads and writes nothing.
    ///
    /// # Errors
    /// `InvalidArgument` if an option is out of its limits.
    pub fn of_runs(env: IndexEnv, options: BTreeOptions, runs: Vec<Sorted>) -> Result<Arc<BTree>> {
        options.validate()?;
        let common = Common::new(env, options);
        let picture = Picture::of_runs(&common.env, runs);
        Ok(BTree::with_picture(common, picture))
    }

    /// The runs of the shelf, newest first, for another index that takes them over.
    #[must_use]
    pub fn runs(&self) -> Vec<Sorted> {
        self.shared.view().picture.sorted().cloned().collect()
    }

    /// The tree, for another index that copies its entries. `None`: a slice is under way, or a
    /// settling is not at its end. While the index is [paused](Index::pause), the tree stays as it
    /// is from then on.
    #[must_use]
    pub fn settled_tree(&self) -> Option<SettledTree> {
        self.shared.settled_view().map(SettledTree::new)
    }

    /// The files that an edit adds and removes, in order. For tools that show a manifest.
    ///
    /// # Errors
    /// `Corruption`, `UnsupportedFormat` if the bytes are not an edit.
    pub fn file_changes(edit: &[u8]) -> Result<Vec<FileChange>> {
        let ops = Edit::decode(edit)?.ops.into_iter();
        let changes = ops.filter_map(|op| {
            let (id, run, added) = match op {
                EditOp::AddTable { run, meta } => (meta.id, Some(run), Some(meta)),
                EditOp::RemoveTable { run, number } => {
                    let id = FileId::new(FileKind::Table, number);
                    return Some(removed(id, Some(run)));
                }
                EditOp::AddLeaves { meta, .. } => (meta.id, None, Some(meta)),
                EditOp::AddBranches { number, .. } => {
                    (FileId::new(FileKind::Tree, number), None, None)
                }
                EditOp::RemoveFile { file } => return Some(removed(file, None)),
                EditOp::Clip { .. }
                | EditOp::Root(_)
                | EditOp::Shrink { .. }
                | EditOp::Tier { .. }
                | EditOp::Renumber => return None,
            };
            Some(FileChange {
                id,
                run,
                is_added: true,
                added,
            })
        });
        Ok(changes.collect())
    }

    fn with_picture(common: Arc<Common>, picture: Picture) -> Arc<BTree> {
        let shared = Shared::new(common, picture);
        Arc::new(BTree { shared })
    }

    /// The job that `pick` chooses.
    fn job(&self, pick: impl FnOnce(&Picker<'_>) -> Option<Work>) -> Option<Box<dyn IndexJob>> {
        let common = &self.shared.common;
        self.shared.pick(|view, runs_below, cleaning_refused| {
            pick(&Picker {
                picture: &view.picture,
                options: &common.options(),
                runs_below,
                floor: common.env.tombstone_floor(),
                garbage_max: common.garbage_max.load(Ordering::Relaxed),
                scans_pay: self.shared.scans_pay(),
                remap_max: common.remap_max.load(Ordering::Relaxed),
                cleaning_refused,
            })
        })
    }
}

fn removed(id: FileId, run: Option<u64>) -> FileChange {
    FileChange {
        id,
        run,
        is_added: false,
        added: None,
    }
}

impl Index for BTree {
    fn view(&self) -> Arc<dyn IndexView> {
        self.shared.view()
    }

    fn write_run(&self, run: &mut dyn SortedRun) -> Result<IndexChange> {
        self.shared.write_flush(run)
    }

    fn begin_relocation(&self) -> Box<dyn Relocation> {
        Box::new(RunRelocation::begin(&self.shared))
    }

    fn note_scanned(&self, entries: u64) -> bool {
        self.shared.note_scanned(entries)
    }

    fn pick_job(&self) -> Option<Box<dyn IndexJob>> {
        let job = self.job(|picker| picker.pick());
        job.or_else(|| self.shared.load_job())
    }

    fn pick_full_compaction(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Option<Box<dyn IndexJob>> {
        if KeyRange::from_bounds(lower, upper).is_empty() {
            return None;
        }
        // Runs are settled from their first key on, so a range is no less work than all keys.
        self.job(|picker| picker.pick_full().map(Work::Slice))
    }

    fn busy(&self) -> bool {
        self.shared.busy()
    }

    fn check(&self, change: &IndexChange) -> Result<()> {
        let edit = Edit::decode(&change.edit)?;
        let reshape = self.shared.common.options().reshape;
        self.shared.view().picture.edited(&edit, reshape).map(drop)
    }

    fn apply(&self, change: &IndexChange) -> Result<()> {
        let edit = Edit::decode(&change.edit)?;
        if edit.ops.is_empty() {
            return Ok(());
        }
        let reshape = self.shared.common.options().reshape;
        let (picture, gone) = self.shared.view().picture.edited(&edit, reshape)?;
        gone.mark_obsolete();
        if let Some(directory) = self.shared.take_directory(&picture) {
            // The picture is new, so it has no other one.
            drop(picture.directory.set(directory));
        }
        let view = View::new(picture, &self.shared.common);
        self.shared.install(view, &edit);
        Ok(())
    }

    fn abandon(&self, change: IndexChange) {
        // A change that cannot be decoded was not made here. The next open removes its files.
        let Ok(edit) = Edit::decode(&change.edit) else {
            return;
        };
        for file in edit.new_files() {
            self.shared.common.env.remove_file(file);
        }
        self.shared.abandon(&edit);
    }

    fn snapshot_edit(&self) -> Vec<u8> {
        self.shared.view().picture.as_edit().encode()
    }

    fn files(&self) -> Vec<FileId> {
        self.shared.view().files()
    }

    fn set_options(&self, encoded: &[u8]) -> Result<()> {
        let mut reader = Reader::new(encoded);
        let options = BTreeOptions::decode(&mut reader).filter(|_| reader.is_empty());
        let Some(options) = options else {
            return Err(Error::invalid("these are no options of a B+tree index"));
        };
        self.shared.common.set_options(options);
        Ok(())
    }

    fn debt(&self) -> Debt {
        let options = self.shared.common.options();
        let experiments = &options.experiments;
        let picture = &self.shared.view().picture;
        let runs = u32::try_from(picture.runs.len()).unwrap_or(u32::MAX);
        let (mut runs_slow, mut runs_stop) =
            (experiments.shelf_runs_slow, experiments.shelf_runs_stop);
        let mut beyond = 0;
        if options.reshape {
            (runs_slow, runs_stop) = (4 * experiments.reshape_fan, 6 * experiments.reshape_fan);
            // Memory counts as runs: slow from the share on, stop at five quarters of it.
            let share = self.shared.common.remap_max.load(Ordering::Relaxed).max(4);
            let over = picture.tail_bytes().saturating_sub(share);
            let steps = proportion(u64::from(runs_stop - runs_slow), over, share / 4);
            beyond = match over {
                0 => 0,
                _ => runs_slow.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX)),
            };
        }
        Debt {
            runs: runs.max(beyond),
            runs_slow,
            runs_stop,
            ..Debt::default()
        }
    }

    fn set_memory_share(&self, share: MemoryShare) -> u64 {
        let remap_max = &self.shared.common.remap_max;
        remap_max.store(share.remap_max_bytes, Ordering::Relaxed);
        0
    }

    fn set_garbage_max(&self, bytes: u64) {
        self.shared
            .common
            .garbage_max
            .store(bytes, Ordering::Relaxed);
    }

    fn pause(&self) {
        self.shared.pause(true);
    }

    fn resume(&self) {
        self.shared.pause(false);
    }

    fn release(&self) {
        self.shared.stop();
        self.shared.view().picture.mark_tree_obsolete();
    }

    fn discard(&self) {
        self.shared.stop();
        let common = &self.shared.common;
        self.shared.view().picture.mark_obsolete();
        let empty = View::new(Picture::empty(&common.env), common);
        self.shared.install(empty, &Edit::default());
    }
}

impl std::fmt::Debug for BTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BTree")
            .field("stats", &self.shared.view().stats())
            .field("busy", &self.busy())
            .finish()
    }
}

#[cfg(test)]
impl BTree {
    /// The current view, with its picture.
    pub(crate) fn view_for_tests(&self) -> Arc<View> {
        self.shared.view()
    }
}
