//! What an index and its running jobs share: the current view, the reserved tables and places, and
//! the tasks that still have jobs to give out.
//!
//! Thread-safe. Locks, in this order: a task's progress, `state`, `current`. The volume is neither
//! read nor written under `state` or `current`.

use crate::common::Common;
use crate::compaction::picker::{Picker, Plan};
use crate::compaction::task::Task;
use crate::edit::Edit;
use crate::flush;
use crate::levels::Levels;
use crate::view::View;
use glintdb_core::Result;
use glintdb_core::index::{IndexChange, IndexJob, IndexView, SortedRun};
use glintdb_core::sync::{Mutex, RwLock};
use glintdb_flash::DataClass;
use glintdb_runs::top::{Places, Relocatable, Scans};
use std::collections::HashSet;
use std::sync::Arc;

/// What an index and its running jobs share.
pub(crate) struct Shared {
    pub(crate) common: Arc<Common>,
    current: RwLock<Arc<View>>,
    state: Mutex<State>,
    scans: Scans,
}

/// Entries of the first level below level 0 that has any.
fn beneath_entries(levels: &Levels) -> u64 {
    let mut entries = levels.below0().map(|(_, tables)| tables.entries());
    entries.find(|&entries| entries > 0).unwrap_or(0)
}

struct State {
    /// Numbers of tables that are the input of a task, or of a change that is not applied yet.
    reserved: HashSet<u64>,
    /// Numbers of runs. A place is pending while a relocation will write a run there, or has
    /// written one with a change that is not applied yet.
    places: Places,
    /// Tasks that still have jobs to give out.
    tasks: Vec<Arc<Task>>,
    /// Only tasks that have begun go on.
    paused: bool,
    discarded: bool,
}

impl State {
    /// Frees the tables that `change` removes, and the places of the runs that it adds.
    fn free(&mut self, change: &Edit) {
        for number in change.removed() {
            self.reserved.remove(&number);
        }
        for run in change.runs() {
            self.places.free(run);
        }
    }
}

impl Shared {
    pub(crate) fn new(common: Arc<Common>, view: Arc<View>) -> Arc<Shared> {
        let newest_run = view.levels.runs.first().map_or(0, |run| run.id);
        let scans = Scans::default();
        scans.follow(&[], &view.levels.runs, beneath_entries(&view.levels));
        Arc::new(Shared {
            common,
            current: RwLock::new(view),
            state: Mutex::new(State {
                reserved: HashSet::new(),
                places: Places::above(newest_run),
                tasks: Vec::new(),
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

    /// The number of a new run, greater than all numbers before it.
    pub(crate) fn next_run(&self) -> u64 {
        self.state.lock().places.next_run()
    }

    /// Counts entries that scans have passed. `true` once, as soon as a compaction of level 0 pays.
    pub(crate) fn note_scanned(&self, entries: u64) -> bool {
        self.scans.note(entries)
    }

    /// A job of a task that has begun, else of the plan that `pick` chooses.
    pub(crate) fn pick(
        self: &Arc<Self>,
        pick: impl FnOnce(&Picker<'_>) -> Option<Plan>,
    ) -> Option<Box<dyn IndexJob>> {
        let begun = self.state.lock().tasks.clone();
        if let Some(job) = begun.iter().find_map(|task| self.give_out(task)) {
            return Some(job);
        }
        // These may be the last handles of tasks that have ended. Their destructors take the lock.
        drop(begun);
        // Not under the lock, because it may read tables. The picker does without it after an
        // error, or if the view changes before the lock is taken.
        let _picked_without = self.view().levels.find_deletions();
        let (view, plan) = {
            let mut state = self.state.lock();
            if state.discarded || state.paused {
                return None;
            }
            let view = self.view();
            let options = self.common.options();
            let plan = pick(&Picker {
                levels: &view.levels,
                options: &options,
                shape: self.common.shape(&options),
                reserved: &state.reserved,
                runs_below: state.places.lowest(),
                tombstone_floor: self.common.env.tombstone_floor(),
                scans_pay: self.scans.pay(),
            })?;
            for number in plan.numbers() {
                // No table is the input of two tasks.
                let is_free = state.reserved.insert(number);
                assert!(is_free, "table {number:016x} is reserved already");
            }
            (view, plan)
        };
        // Not under the lock, because it may read fences. The inputs are reserved by now.
        let task = Task::new(self, view, plan);
        let job = task.job();
        if task.has_more() {
            self.state.lock().tasks.push(task);
        }
        job
    }

    /// A job of a task that has begun. Forgets the task if this is its last job.
    fn give_out(&self, task: &Arc<Task>) -> Option<Box<dyn IndexJob>> {
        let job = task.job();
        if !task.has_more() {
            self.forget_task(task);
        }
        job
    }

    /// Gives out no more jobs of this task.
    pub(crate) fn forget_task(&self, task: &Arc<Task>) {
        let mut state = self.state.lock();
        // The caller holds the task too, so this drops no last handle under the lock.
        state.tasks.retain(|other| !Arc::ptr_eq(other, task));
    }

    /// Frees inputs.
    pub(crate) fn release(&self, numbers: impl Iterator<Item = u64>) {
        let mut state = self.state.lock();
        for number in numbers {
            state.reserved.remove(&number);
        }
    }

    /// Whether a table or a place is reserved.
    pub(crate) fn busy(&self) -> bool {
        let state = self.state.lock();
        !state.reserved.is_empty() || state.places.any_pending()
    }

    /// Makes `view` the current one, and frees what its change had reserved.
    pub(crate) fn install(&self, view: Arc<View>, change: &Edit) {
        let mut state = self.state.lock();
        state.free(change);
        let new = Arc::clone(&view);
        let old = std::mem::replace(&mut *self.current.write(), view);
        let (before, now) = (&old.levels.runs, &new.levels.runs);
        self.scans.follow(before, now, beneath_entries(&new.levels));
        drop(state);
        // Not under the locks: this may be the last handle of removed tables, which removes files.
        drop(old);
    }

    /// Frees what an abandoned change had reserved.
    pub(crate) fn abandon(&self, change: &Edit) {
        self.state.lock().free(change);
    }

    /// From now on begins no compaction, or begins them again.
    pub(crate) fn pause(&self, paused: bool) {
        self.state.lock().paused = paused;
    }

    /// Gives out no more jobs, and drops the tasks.
    pub(crate) fn stop(&self) {
        let tasks = {
            let mut state = self.state.lock();
            state.discarded = true;
            std::mem::take(&mut state.tasks)
        };
        drop(tasks);
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
        flush::write_to_level0(&self.common, &self.view().levels, run, id, class)
    }
}
