//! What an index and its running slice share: the current view, the places of runs, and whether a
//! slice is under way.
//!
//! Thread-safe. Locks, in this order: `state`, `current`. The volume is neither read nor written
//! under them.

use crate::common::{Common, count};
use crate::directory::Directory;
use crate::edit::{Edit, EditOp};
use crate::node::Child;
use crate::picture::Picture;
use crate::settle::{Plan, SettleJob, SliceChange};
use crate::view::View;
use glintdb_core::Result;
use glintdb_core::index::{IndexChange, IndexJob, IndexView, JobPriority, JobStep, SortedRun};
use glintdb_core::sync::{Mutex, RwLock};
use glintdb_flash::DataClass;
use glintdb_runs::top::{Places, Relocatable, Scans};
use glintdb_runs::write::{Grandparents, OutputConfig, write_run};
use std::sync::Arc;

/// Branches that a step of a [`LoadJob`] reads: about 1 MiB.
const BRANCHES_A_STEP: usize = 256;

/// What an index and its running slice share.
pub(crate) struct Shared {
    pub(crate) common: Arc<Common>,
    current: RwLock<Arc<View>>,
    state: Mutex<State>,
    scans: Scans,
}

struct State {
    /// Numbers of runs, and places beneath runs to come.
    places: Places,
    /// A slice is under way, or its change waits to be applied.
    has_slice: bool,
    /// The directory of the tree that the slice makes, until its change is applied.
    directory: Option<Fresh>,
    /// The root of the tree whose directory is read, or was tried to.
    loaded: Option<Child>,
    discarded: bool,
}

/// The directory of a tree that is not the current one yet.
pub(crate) struct Fresh {
    pub(crate) root: Option<Child>,
    pub(crate) directory: Arc<Directory>,
}

impl State {
    fn free(&mut self, change: &Edit) {
        for run in change.runs() {
            self.places.free(run);
        }
        if change.changes_tree() {
            self.has_slice = false;
            self.directory = None;
        }
    }
}

fn tree_entries(picture: &Picture) -> u64 {
    picture.root.map_or(0, |root| root.entries)
}

impl Shared {
    pub(crate) fn new(common: Arc<Common>, picture: Picture) -> Arc<Shared> {
        let newest_run = picture.runs.first().map_or(0, |run| run.id);
        let scans = Scans::default();
        scans.follow(&[], &picture.runs, tree_entries(&picture));
        Arc::new(Shared {
            current: RwLock::new(View::new(picture, &common)),
            common,
            state: Mutex::new(State {
                places: Places::above(newest_run),
                has_slice: false,
                directory: None,
                loaded: None,
                discarded: false,
            }),
            scans,
        })
    }

    /// The current view.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.current.read())
    }

    /// The number of a new run, greater than all numbers before it.
    pub(crate) fn next_run(&self) -> u64 {
        self.state.lock().places.next_run()
    }

    /// Counts entries that scans have passed. `true` once, as soon as a settling pays.
    pub(crate) fn note_scanned(&self, entries: u64) -> bool {
        self.scans.note(entries)
    }

    /// Whether scans have spent as much as a settling costs.
    pub(crate) fn scans_pay(&self) -> bool {
        self.scans.pay()
    }

    /// The slice of the plan that `pick` chooses, from the view and the oldest place that is
    /// pending. `None` while one is under way.
    pub(crate) fn pick(
        self: &Arc<Self>,
        pick: impl FnOnce(&View, Option<u64>) -> Option<Plan>,
    ) -> Option<SettleJob> {
        let mut state = self.state.lock();
        if state.has_slice || state.discarded {
            return None;
        }
        let view = self.view();
        let plan = pick(&view, state.places.lowest())?;
        state.has_slice = true;
        drop(state);
        Some(SettleJob::new(self, view, plan))
    }

    /// Counts a finished slice. If it has changed nothing, another one may begin.
    pub(crate) fn settled(&self, slice: &mut SliceChange) {
        let counters = &self.common.counters;
        count(&counters.settlings, 1);
        count(&counters.read_bytes, slice.read_bytes);
        count(&counters.written_bytes, slice.written_bytes);
        match slice.change.edit.is_empty() {
            true => self.end_slice(),
            false => self.state.lock().directory = slice.directory.take(),
        }
    }

    /// The directory of the tree of `picture`, if the slice that made the tree has handed it over.
    pub(crate) fn take_directory(&self, picture: &Picture) -> Option<Arc<Directory>> {
        let mut state = self.state.lock();
        let root = picture.root.map(|root| root.node);
        let fresh = state.directory.take_if(|fresh| fresh.root == root)?;
        state.loaded = root;
        Some(fresh.directory)
    }

    /// A job that reads the branches of the tree into memory. `None`: there is no tree, or it has
    /// been tried.
    pub(crate) fn load_job(&self) -> Option<Box<dyn IndexJob>> {
        let mut state = self.state.lock();
        let view = self.view();
        let root = view.picture.root.map(|root| root.node);
        if root.is_none() || state.loaded == root || state.discarded {
            return None;
        }
        state.loaded = root;
        Some(Box::new(LoadJob { view, next: 0 }))
    }

    /// The slice under way has ended without a change.
    pub(crate) fn end_slice(&self) {
        self.state.lock().has_slice = false;
    }

    /// Whether a slice or a place is pending.
    pub(crate) fn busy(&self) -> bool {
        let state = self.state.lock();
        state.has_slice || state.places.any_pending()
    }

    /// Makes `view` the current one, and frees what its change had reserved.
    pub(crate) fn install(&self, view: Arc<View>, change: &Edit) {
        let mut state = self.state.lock();
        state.free(change);
        let new = Arc::clone(&view);
        let old = std::mem::replace(&mut *self.current.write(), view);
        let (before, now) = (&old.picture, &new.picture);
        self.scans
            .follow(&before.runs, &now.runs, tree_entries(now));
        drop(state);
        // Not under the locks: this may be the last handle of files that are removed with it.
        drop(old);
    }

    /// Frees what an abandoned change had reserved.
    pub(crate) fn abandon(&self, change: &Edit) {
        self.state.lock().free(change);
    }

    /// Gives out no more slices.
    pub(crate) fn stop(&self) {
        self.state.lock().discarded = true;
    }

    /// Writes `run` as run `id` of the shelf, in tables of this class, which are synced with their
    /// directory when it returns.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors. Nothing is left behind then.
    pub(crate) fn write_to_shelf(
        &self,
        id: u64,
        run: &mut dyn SortedRun,
        class: DataClass,
    ) -> Result<IndexChange> {
        let options = self.common.options();
        let config = OutputConfig {
            class,
            tables: options.run_config(),
            table_bytes: options.table_bytes_target,
            pin: false,
            grandparents: Grandparents::default(),
        };
        let written = write_run(&self.common.env, config, run)?;
        if written.tables.is_empty() {
            return Ok(IndexChange::default());
        }
        let tables = written.tables.into_iter();
        let ops = tables.map(|meta| EditOp::AddTable { run: id, meta });
        Ok(IndexChange {
            edit: Edit { ops: ops.collect() }.encode(),
            liveness: written.liveness,
            seqno_max: written.seqno_max,
        })
    }
}

/// Reads the branches of a tree into memory. A branch that cannot be read is left to its readers.
struct LoadJob {
    view: Arc<View>,
    /// Branches before it are in memory.
    next: usize,
}

impl IndexJob for LoadJob {
    fn step_within(&mut self, _budget: u32) -> Result<JobStep> {
        let picture = &self.view.picture;
        let directory = picture.directory()?;
        let end = (self.next + BRANCHES_A_STEP).min(directory.branches().len());
        directory.load_children(self.next..end, picture)?;
        self.next = end;
        Ok(match end == directory.branches().len() {
            true => JobStep::Done(IndexChange::default()),
            false => JobStep::More,
        })
    }

    fn name(&self) -> String {
        "reading of branches".to_owned()
    }

    fn space_bytes(&self) -> u64 {
        0
    }

    fn priority(&self) -> JobPriority {
        JobPriority::Background
    }
}

impl Relocatable for Shared {
    fn reserve_place(&self) -> (u64, Arc<dyn IndexView>) {
        let mut state = self.state.lock();
        let run = state.places.reserve();
        (run, self.view())
    }

    fn free_place(&self, run: u64) {
        self.state.lock().places.free(run);
    }

    fn write_run_at(
        &self,
        id: u64,
        run: &mut dyn SortedRun,
        class: DataClass,
    ) -> Result<IndexChange> {
        self.write_to_shelf(id, run, class)
    }
}
