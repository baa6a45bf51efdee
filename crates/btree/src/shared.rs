//! What an index and its running slice share: the current view, the places of runs, and whether a
//! slice is under way.
//!
//! Thread-safe. Locks, in this order: `state`, `current`. The volume is neither read nor written
//! under them.

use crate::clean::CleanJob;
use crate::common::{Common, count};
use crate::directory::{BRANCH_BATCH, Directory};
use crate::edit::{Edit, EditOp};
use crate::node::Child;
use crate::picker::Work;
use crate::picture::Picture;
use crate::settle::{SettleJob, SliceChange};
use crate::view::View;
use glintdb_core::Result;
use glintdb_core::index::{IndexChange, IndexJob, IndexView, JobPriority, JobStep, SortedRun};
use glintdb_core::sync::{Mutex, RwLock};
use glintdb_flash::DataClass;
use glintdb_runs::table::Table;
use glintdb_runs::top::{Places, Relocatable, Scans};
use glintdb_runs::write::write_run;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Tables whose filters and fences a step of a [`LoadJob`] reads.
const TAILS_A_STEP: usize = 64;

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
    /// Runs of flushes whose changes are neither applied nor abandoned.
    flushes: BTreeSet<u64>,
    /// The greatest number before a change that renumbers the runs and waits to be applied.
    renumbered_from: Option<u64>,
    /// A slice or a cleaning is under way, or its change waits to be applied.
    has_slice: bool,
    /// A cleaning could not begin, because there was no space. Holds until a job has ended.
    cleaning_refused: bool,
    /// The directory of the tree that the slice makes, until its change is applied.
    directory: Option<Fresh>,
    /// A job has opened the tables of the shelf, or has tried to.
    is_open: bool,
    /// The root of the tree whose directory is read, or was tried to.
    loaded: Option<Child>,
    /// Only a settling that has begun goes on.
    paused: bool,
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
            self.flushes.remove(&run);
        }
        if change.is_of_job() {
            self.has_slice = false;
            self.cleaning_refused = false;
            self.directory = None;
        }
    }

    /// The change that renumbers the runs is applied, or will never be.
    fn end_renumbering(&mut self, is_applied: bool) {
        if let Some(newest) = self.renumbered_from.take()
            && !is_applied
        {
            self.places = Places::above(newest);
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
                flushes: BTreeSet::new(),
                renumbered_from: None,
                has_slice: false,
                cleaning_refused: false,
                directory: None,
                is_open: false,
                loaded: None,
                paused: false,
                discarded: false,
            }),
            scans,
        })
    }

    /// The current view.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.current.read())
    }

    /// The number of the run of a flush, greater than all numbers before it. If numbers get
    /// scarce, true is returned: the change of this flush is to renumber the other runs before it
    /// adds its own (the paper's "key cleaning"). A job and a relocation know runs by their
    /// numbers, so while one is under way the renumbering is put off.
    fn next_flush(&self) -> (u64, bool) {
        let most = 1u64 << self.common.options().experiments.reshape_bits;
        let mut state = self.state.lock();
        let newest = state.places.newest();
        let runs = (self.view().picture.runs.len() + state.flushes.len()) as u64;
        let is_quiet = !state.has_slice && !state.places.any_pending();
        let renumbers = newest >= most / 4 * 3
            && runs + 1 < newest
            && is_quiet
            && state.renumbered_from.is_none();
        if renumbers {
            state.renumbered_from = Some(newest);
            state.places = Places::above(runs);
        }
        let run = state.places.next_run();
        state.flushes.insert(run);
        (run, renumbers)
    }

    /// Writes `run` as the newest run of the shelf.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors. Nothing is left behind then.
    pub(crate) fn write_flush(&self, run: &mut dyn SortedRun) -> Result<IndexChange> {
        let (id, renumbers) = self.next_flush();
        let written = self.write_to_shelf(id, renumbers, run, DataClass::Flush);
        let has_change = (written.as_ref()).is_ok_and(|change| !change.edit.is_empty());
        if !has_change {
            let mut state = self.state.lock();
            state.flushes.remove(&id);
            if renumbers {
                state.end_renumbering(false);
            }
        }
        written
    }

    /// Counts entries that scans have passed. `true` once, as soon as a settling pays.
    pub(crate) fn note_scanned(&self, entries: u64) -> bool {
        self.scans.note(entries)
    }

    /// Whether scans have spent as much as a settling costs.
    pub(crate) fn scans_pay(&self) -> bool {
        self.scans.pay()
    }

    /// The job that `pick` chooses, given the view, the oldest pending place, and whether a
    /// cleaning was refused. `None` while a job is under way.
    pub(crate) fn pick(
        self: &Arc<Self>,
        pick: impl FnOnce(&View, Option<u64>, bool) -> Option<Work>,
    ) -> Option<Box<dyn IndexJob>> {
        let mut state = self.state.lock();
        if state.has_slice || state.renumbered_from.is_some() || state.discarded {
            return None;
        }
        let view = self.view();
        if state.paused && view.picture.clip.is_none() {
            return None;
        }
        let work = pick(&view, state.places.lowest(), state.cleaning_refused)?;
        state.has_slice = true;
        drop(state);
        Some(match work {
            Work::Slice(plan) => Box::new(SettleJob::new(self, view, plan)),
            Work::Clean(cleaning) => Box::new(CleanJob::new(self, view, cleaning)),
        })
    }

    /// Counts a finished job.
    pub(crate) fn count_job(&self, read_bytes: u64, written_bytes: u64) {
        let counters = &self.common.counters;
        count(&counters.settlings, 1);
        count(&counters.read_bytes, read_bytes);
        count(&counters.written_bytes, written_bytes);
    }

    /// The current view, if no slice is under way and no settling is half done.
    pub(crate) fn settled_view(&self) -> Option<Arc<View>> {
        let state = self.state.lock();
        let view = self.view();
        (!state.has_slice && view.picture.clip.is_none()).then_some(view)
    }

    /// Counts a finished slice. If it has changed nothing, another one may begin.
    pub(crate) fn settled(&self, slice: &mut SliceChange) {
        self.count_job(slice.read_bytes, slice.written_bytes);
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

    /// A job that reads filters and fences of the shelf and the branches of the tree into memory.
    /// `None`: there are none, or it has been tried.
    pub(crate) fn load_job(&self) -> Option<Box<dyn IndexJob>> {
        let mut state = self.state.lock();
        let view = self.view();
        let root = view.picture.root.map(|root| root.node);
        let is_loaded = state.is_open && state.loaded == root;
        if is_loaded || (root.is_none() && view.picture.runs.is_empty()) || state.discarded {
            return None;
        }
        state.is_open = true;
        state.loaded = root;
        Some(Box::new(LoadJob {
            view,
            next_table: 0,
            next: 0,
        }))
    }

    /// A cleaning was dropped before it began.
    pub(crate) fn refuse_cleaning(&self) {
        let mut state = self.state.lock();
        state.has_slice = false;
        state.cleaning_refused = true;
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
        if change.renumbers() {
            state.end_renumbering(true);
        }
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
        let mut state = self.state.lock();
        state.free(change);
        if change.renumbers() {
            state.end_renumbering(false);
        }
    }

    /// From now on begins no settling and no compaction, or begins them again.
    pub(crate) fn pause(&self, paused: bool) {
        self.state.lock().paused = paused;
    }

    /// Gives out no more slices.
    pub(crate) fn stop(&self) {
        self.state.lock().discarded = true;
    }

    /// Writes `run` as run `id` of the shelf, in tables of this class, which are synced with their
    /// directory when it returns. If `renumbers` is set, the change renumbers the other runs first.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors. Nothing is left behind then.
    fn write_to_shelf(
        &self,
        id: u64,
        renumbers: bool,
        run: &mut dyn SortedRun,
        class: DataClass,
    ) -> Result<IndexChange> {
        let written = write_run(&self.common.env, self.common.run_output(class), run)?;
        if written.tables.is_empty() {
            return Ok(IndexChange::default());
        }
        let mut edit = Edit::default();
        if renumbers {
            edit.ops.push(EditOp::Renumber);
        }
        let tables = written.tables.into_iter();
        (edit.ops).extend(tables.map(|meta| EditOp::AddTable { run: id, meta }));
        Ok(IndexChange {
            edit: edit.encode(),
            liveness: written.liveness,
            seqno_max: written.seqno_max,
        })
    }
}

/// Reads filters, fences and branches into memory. What cannot be read is left to its readers.
struct LoadJob {
    view: Arc<View>,
    /// Tables of the shelf before it are open, the newest first.
    next_table: usize,
    /// Branches before it are in memory.
    next: usize,
}

impl IndexJob for LoadJob {
    fn step_within(&mut self, _budget: u32) -> Result<JobStep> {
        let picture = &self.view.picture;
        // Filters and fences of the shelf first: every lookup needs those of each run.
        let tables: Vec<Arc<Table>> = (picture.slots().skip(self.next_table))
            .take(TAILS_A_STEP)
            .map(|(_, slot)| Arc::clone(&slot.table))
            .collect();
        if !tables.is_empty() {
            Table::load_many(&tables);
            self.next_table += tables.len();
            return Ok(JobStep::More);
        }
        let directory = picture.directory()?;
        let end = (self.next + BRANCH_BATCH).min(directory.branches().len());
        directory.load_children(self.next..end, picture)?;
        self.next = end;
        Ok(match end == directory.branches().len() {
            true => JobStep::Done(IndexChange::default()),
            false => JobStep::More,
        })
    }

    fn name(&self) -> String {
        "reading of fences and branches".to_owned()
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
        self.write_to_shelf(id, false, run, class)
    }
}
