//! What an index and its running jobs share: the current view, what is reserved (tables, places of relocations), and the tasks with jobs to be given out.
//!
//! Thread-safe. Locks, in this order: a task's progress, then `state`, then `current`; nothing is read or written on the volume under `state` or `current`.

use crate::common::Common;
use crate::compaction::picker::{Picker, Plan};
use crate::compaction::task::Task;
use crate::edit::Edit;
use crate::levels::{Levels, Run, Sorted};
use crate::view::View;
use glintdb_core::index::IndexJob;
use glintdb_core::sync::atomic::{AtomicU64, Ordering};
use glintdb_core::sync::{Mutex, RwLock};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// See the module's page.
pub(crate) struct Shared {
    pub(crate) common: Arc<Common>,
    current: RwLock<Arc<View>>,
    state: Mutex<State>,
    next_run: AtomicU64,
    scans: Scans,
}

/// When a compaction of level 0 would cost no more than scans have spent on merging its runs (`docs/decisions/026-compaction-for-scans.md`).
#[derive(Default)]
struct Scans {
    /// Entries that scans have come by since a run left level 0.
    entries: AtomicU64,
    /// So many are as much as a compaction; 0: there is nothing to gain.
    worth: AtomicU64,
}

/// What a compaction costs whatever it holds (files, syncs, the manifest), in entries.
const COMPACTION_ENTRIES: u64 = 1 << 16;

impl Scans {
    fn follow(&self, levels: &Levels, has_compacted: bool) {
        if has_compacted {
            self.entries.store(0, Ordering::Relaxed);
        }
        self.worth.store(worth(levels), Ordering::Relaxed);
    }

    fn pay(&self) -> bool {
        let worth = self.worth.load(Ordering::Relaxed);
        worth > 0 && self.entries.load(Ordering::Relaxed) >= worth
    }
}

/// Entries that a compaction of level 0 would write, about.
fn worth(levels: &Levels) -> u64 {
    let entries = |tables: &Sorted| {
        tables
            .slots
            .iter()
            .map(|slot| slot.meta().entries)
            .sum::<u64>()
    };
    let runs: u64 = levels.runs.iter().map(|run| entries(&run.tables)).sum();
    let beneath: u64 = (levels.below0())
        .map(|(_, tables)| entries(tables))
        .find(|&entries| entries > 0)
        .unwrap_or(0);
    if runs == 0 || (levels.runs.len() < 2 && beneath == 0) {
        return 0;
    }
    (runs + beneath).max(COMPACTION_ENTRIES)
}

#[derive(Default)]
struct State {
    /// Numbers of tables that a task, or a change not yet applied, takes as input.
    reserved: HashSet<u64>,
    /// Numbers of runs that relocations will write, or have written with the change not yet applied.
    relocating: BTreeSet<u64>,
    /// Tasks with jobs to be given out.
    tasks: Vec<Arc<Task>>,
    discarded: bool,
}

impl State {
    /// Frees the tables that `change` takes away, and the places of the runs that it adds.
    fn free(&mut self, change: &Edit) {
        for number in change.removed() {
            self.reserved.remove(&number);
        }
        for run in change.runs() {
            self.relocating.remove(&run);
        }
    }
}

impl Shared {
    pub(crate) fn new(common: Arc<Common>, view: Arc<View>) -> Arc<Shared> {
        let newest_run = view.levels.runs.first().map_or(0, |run| run.id);
        let scans = Scans::default();
        scans.follow(&view.levels, false);
        Arc::new(Shared {
            common,
            current: RwLock::new(view),
            state: Mutex::default(),
            next_run: AtomicU64::new(newest_run + 1),
            scans,
        })
    }

    /// What is visible now.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.current.read())
    }

    /// The number of a new run: greater than those before.
    pub(crate) fn next_run(&self) -> u64 {
        self.next_run.fetch_add(1, Ordering::Relaxed)
    }

    /// A place for a run beneath all that are written from now on, and the view that has everything beneath it. No run may be on its way: written, and not yet applied
    /// or abandoned.
    pub(crate) fn begin_relocation(&self) -> (u64, Arc<View>) {
        let mut state = self.state.lock();
        let run = self.next_run();
        state.relocating.insert(run);
        (run, self.view())
    }

    /// Nothing will come to this place.
    pub(crate) fn end_relocation(&self, run: u64) {
        self.state.lock().relocating.remove(&run);
    }

    /// See [`glintdb_core::index::Index::note_scanned`].
    pub(crate) fn note_scanned(&self, entries: u64) -> bool {
        let worth = self.scans.worth.load(Ordering::Relaxed);
        if worth == 0 {
            return false;
        }
        let before = self.scans.entries.fetch_add(entries, Ordering::Relaxed);
        // Told once: whoever picks a job later finds it too.
        before < worth && before.saturating_add(entries) >= worth
    }

    /// A job of a task already begun, or of the one that `pick` chooses.
    pub(crate) fn pick(
        self: &Arc<Self>,
        pick: impl FnOnce(&Picker<'_>) -> Option<Plan>,
    ) -> Option<Box<dyn IndexJob>> {
        let begun = self.state.lock().tasks.clone();
        if let Some(job) = begun.iter().find_map(|task| self.give_out(task)) {
            return Some(job);
        }
        // Tasks that ended meanwhile may have their last handles here, and take the lock as they go.
        drop(begun);
        let (view, plan) = {
            let mut state = self.state.lock();
            if state.discarded {
                return None;
            }
            let view = self.view();
            let options = self.common.options();
            let plan = pick(&Picker {
                levels: &view.levels,
                options: &options,
                shape: self.common.shape(&options),
                reserved: &state.reserved,
                runs_below: state.relocating.first().copied(),
                tombstone_floor: self.common.tombstone_floor(),
                scans_pay: self.scans.pay(),
            })?;
            state.reserved.extend(plan.numbers());
            (view, plan)
        };
        // May read fences, so not under the lock; the inputs are reserved by now.
        let task = Task::new(self, view, plan);
        let job = task.job();
        if task.has_more() {
            self.state.lock().tasks.push(task);
        }
        job
    }

    /// A job of a begun task; forgets the task when it was the last one.
    fn give_out(&self, task: &Arc<Task>) -> Option<Box<dyn IndexJob>> {
        let job = task.job();
        if !task.has_more() {
            self.forget_task(task);
        }
        job
    }

    /// Gives out no more jobs of a task.
    pub(crate) fn forget_task(&self, task: &Arc<Task>) {
        let mut state = self.state.lock();
        // The caller holds the task too, so none is dropped under the lock.
        state.tasks.retain(|other| !Arc::ptr_eq(other, task));
    }

    /// Inputs are free again.
    pub(crate) fn release(&self, numbers: impl Iterator<Item = u64>) {
        let mut state = self.state.lock();
        for number in numbers {
            state.reserved.remove(&number);
        }
    }

    /// Whether anything is reserved.
    pub(crate) fn busy(&self) -> bool {
        let state = self.state.lock();
        !state.reserved.is_empty() || !state.relocating.is_empty()
    }

    /// Makes `view` the current one. What its change had reserved is free again.
    pub(crate) fn install(&self, view: Arc<View>, change: &Edit) {
        let mut state = self.state.lock();
        state.free(change);
        let new = Arc::clone(&view);
        let old = std::mem::replace(&mut *self.current.write(), view);
        let stays = |run: &Run| new.levels.runs.iter().any(|new| new.id == run.id);
        self.scans
            .follow(&new.levels, !old.levels.runs.iter().all(stays));
        drop(state);
        // The last handle of tables that are gone may go here, and their files with it: not under the locks.
        drop(old);
    }

    /// What a change had reserved that was given up is free again.
    pub(crate) fn abandon(&self, change: &Edit) {
        self.state.lock().free(change);
    }

    /// Gives out no more jobs at all, and lets go of the tasks.
    pub(crate) fn stop(&self) {
        let tasks = {
            let mut state = self.state.lock();
            state.discarded = true;
            std::mem::take(&mut state.tasks)
        };
        drop(tasks);
    }
}
