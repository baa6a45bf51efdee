//! Compactions as jobs: a *task* for a plan, a job for each of its pieces, one change for all of
//! them together.
//!
//! Thread-safe. The jobs of a task may run on several threads. What they share is behind the task's
//! mutex.
//!
//! Invariants:
//! 1. Inputs are reserved from the pick until the change is applied or abandoned. Without a change,
//!    they are reserved until the task is dropped.
//! 2. The job that finishes the last piece returns the change; the others return an empty one. So
//!    an input table that reaches into several pieces is removed only when all of them are written.
//! 3. If a piece fails, or its job is dropped, the task ends: the other jobs return empty changes,
//!    and every output is removed.

use crate::common::count;
use crate::compaction::picker::{self, Plan};
use crate::compaction::pieces::{self, Pieces};
use crate::compaction::shape::{BOTTOM, targets};
use crate::edit::{Edit, EditOp, Place};
use crate::levels::Levels;
use crate::shared::Shared;
use crate::view::View;
use glintdb_core::index::{IndexChange, IndexJob, JobPriority, JobStep};
use glintdb_core::sync::Mutex;
use glintdb_core::{Result, SeqNum, planted};
use glintdb_flash::DataClass;
use glintdb_runs::Liveness;
use glintdb_runs::write::{
    Grandparents, MergeInputs, Merged, Merging, OutputConfig, Written, check_balance,
};
use std::collections::HashSet;
use std::sync::Arc;

/// A table is cut when it overlaps this many times its fair share of the level below.
const OVERLAP_SHARES: u64 = 2;

/// A compaction under way.
pub(crate) struct Task {
    shared: Arc<Shared>,
    view: Arc<View>,
    plan: Plan,
    pieces: Pieces,
    floor: SeqNum,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// The next piece to be given to a job.
    next: usize,
    written: Vec<Written>,
    liveness: Liveness,
    /// Number of entries that the finished pieces have passed.
    entries: u64,
    ended: bool,
    committed: bool,
}

impl Task {
    /// Divides a plan whose inputs are reserved.
    pub(crate) fn new(shared: &Arc<Shared>, view: Arc<View>, plan: Plan) -> Arc<Task> {
        let options = shared.common.options();
        let floor = shared.common.env.tombstone_floor();
        let shape = shared.common.shape(&options);
        let table_bytes = picker::table_bytes(&view.levels, &options, &shape, plan.output);
        let pieces = pieces::cut(
            &plan,
            &view.levels,
            floor,
            table_bytes / 4,
            options.table_bytes_target,
        );
        Arc::new(Task {
            shared: Arc::clone(shared),
            view,
            plan,
            pieces,
            floor,
            progress: Mutex::default(),
        })
    }

    /// A job for the next piece. `None`: all pieces are given out, or the task has ended.
    pub(crate) fn job(self: &Arc<Self>) -> Option<Box<dyn IndexJob>> {
        let mut progress = self.progress.lock();
        // A task that only moves tables has one job, without a piece.
        if progress.ended || progress.next >= self.pieces.ranges.len().max(1) {
            return None;
        }
        let piece = progress.next;
        progress.next += 1;
        Some(Box::new(CompactionJob {
            task: Arc::clone(self),
            piece,
            merging: None,
            finished: false,
        }))
    }

    /// Whether jobs are left to be given out.
    pub(crate) fn has_more(&self) -> bool {
        let progress = self.progress.lock();
        !progress.ended && progress.next < self.pieces.ranges.len().max(1)
    }

    fn levels(&self) -> &Levels {
        &self.view.levels
    }

    fn merging(&self, piece: usize) -> Result<Merging> {
        let common = &self.shared.common;
        let range = &self.pieces.ranges[piece];
        let places = self.plan.inputs.iter().map(|input| input.place);
        let inputs = MergeInputs {
            sources: places
                .map(|place| {
                    let merged = self.pieces.merged.iter();
                    let mut slots: Vec<_> = merged
                        .filter(|(at, slot)| *at == place && slot.range.overlaps(range))
                        .map(|(_, slot)| Arc::clone(slot))
                        .collect();
                    slots.sort_by(|a, b| a.range.start.cmp(&b.range.start));
                    Arc::new(slots)
                })
                .collect(),
            range,
            hiding: self.levels().tombstones()?,
            beneath: self.levels().beneath(self.plan.output).collect(),
            floor: self.floor,
            removes: self.plan.removes,
        };
        let options = common.options();
        let shape = common.shape(&options);
        let table_bytes = picker::table_bytes(self.levels(), &options, &shape, self.plan.output);
        let grandparents = if usize::from(self.plan.output) + 1 < crate::edit::LEVELS {
            self.levels().level(self.plan.output + 1).meeting(range)
        } else {
            &[]
        };
        let config = OutputConfig {
            class: output_class(self.plan.output, targets(self.levels(), &shape).base),
            tables: options.table_config(),
            table_bytes,
            pin: common.pins.covers(self.plan.output),
            grandparents: Grandparents {
                tables: grandparents.to_vec(),
                overlap_bytes_max: table_bytes
                    .saturating_mul(u64::from(options.size_ratio) * OVERLAP_SHARES),
            },
        };
        Merging::new(&common.env, &inputs, config)
    }

    /// Takes a finished piece. Returns the change if it is the last one, else an empty change.
    fn finish(&self, piece: Option<Merged>) -> Result<IndexChange> {
        let mut progress = self.progress.lock();
        if progress.ended {
            return Ok(IndexChange::default());
        }
        if let Some(merged) = piece {
            progress.written.push(merged.written);
            progress.liveness.merge(merged.liveness);
            progress.entries += merged.entries;
        }
        if progress.written.len() < self.pieces.ranges.len() {
            return Ok(IndexChange::default());
        }
        let liveness = std::mem::take(&mut progress.liveness).deltas();
        check_balance(
            self.pieces.merged.iter().map(|(_, slot)| slot.meta()),
            progress.written.iter().flat_map(Written::tables),
            progress.entries,
            &liveness,
        )?;
        if !progress.written.iter().all(Written::is_empty) {
            planted!(
                "lsm: the names of a compaction's tables are not made durable",
                self.shared.common.env.index().volume.sync_directory()?,
                ()
            );
        }
        let written = std::mem::take(&mut progress.written);
        assert!(
            !self.plan.removes || written.iter().all(Written::is_empty),
            "hidden tables were to be removed, and entries of them are left"
        );
        let tables: Vec<_> = written.into_iter().flat_map(Written::commit).collect();
        let (mut edit, output) = (Edit::default(), Place::level(self.plan.output));
        let counters = &self.shared.common.counters;
        let Pieces {
            merged,
            moved,
            removed,
            ..
        } = &self.pieces;
        for (place, slot) in merged.iter().chain(moved).chain(removed) {
            edit.ops.push(EditOp::Remove(*place, slot.number()));
        }
        for (_, slot) in &self.pieces.moved {
            count(&counters.moved_bytes, slot.meta().bytes);
            edit.ops.push(EditOp::Add(output, slot.meta().clone()));
        }
        for (_, slot) in &self.pieces.merged {
            count(&counters.read_bytes, slot.meta().bytes);
        }
        let mut seqno_max = SeqNum::ZERO;
        for meta in tables {
            count(&counters.written_bytes, meta.bytes);
            seqno_max = seqno_max.max(meta.seqno_max);
            edit.ops.push(EditOp::Add(output, meta));
        }
        count(&counters.compactions, 1);
        // Frees the inputs that stay at their place. The others stay reserved until the change is
        // applied or abandoned.
        let in_edit: HashSet<u64> = edit.removed().collect();
        let stays = self
            .plan
            .numbers()
            .filter(|number| !in_edit.contains(number));
        self.shared.release(stays);
        progress.committed = true;
        progress.ended = true;
        Ok(IndexChange {
            edit: edit.encode(),
            liveness,
            seqno_max,
        })
    }

    /// Ends the task without a change.
    fn end(self: &Arc<Self>) {
        self.progress.lock().ended = true;
        self.shared.forget_task(self);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.progress.get_mut().committed {
            self.shared.release(self.plan.numbers());
        }
    }
}

/// The class of the tables of level `output` in a tree whose levels begin at `base`.
pub(crate) fn output_class(output: u8, base: u8) -> DataClass {
    let first = base.min(output);
    DataClass::Level {
        rank: output - first + 1,
        of: BOTTOM - first + 1,
    }
}

/// One piece of a task.
struct CompactionJob {
    task: Arc<Task>,
    piece: usize,
    merging: Option<Merging>,
    finished: bool,
}

impl CompactionJob {
    fn run(&mut self, budget: u32) -> Result<JobStep> {
        let ended = self.task.progress.lock().ended;
        if ended {
            self.merging = None;
            return Ok(JobStep::Done(IndexChange::default()));
        }
        if self.task.pieces.ranges.is_empty() {
            return self.task.finish(None).map(JobStep::Done);
        }
        let merging = match &mut self.merging {
            Some(merging) => merging,
            None => self.merging.insert(self.task.merging(self.piece)?),
        };
        if merging.step(budget)? {
            return Ok(JobStep::More);
        }
        let finished = self.merging.take().map(Merging::finish).transpose()?;
        self.task.finish(finished).map(JobStep::Done)
    }
}

impl IndexJob for CompactionJob {
    fn step_within(&mut self, budget: u32) -> Result<JobStep> {
        let step = self.run(budget);
        match &step {
            Ok(JobStep::More) => {}
            Ok(JobStep::Done(_)) => self.finished = true,
            Err(_) => {
                self.merging = None;
                self.task.end();
            }
        }
        step
    }

    fn name(&self) -> String {
        self.task.plan.name()
    }

    fn space_bytes(&self) -> u64 {
        match self.piece {
            0 => self.task.plan.output_bytes(),
            _ => 0,
        }
    }

    fn priority(&self) -> JobPriority {
        self.task.plan.priority
    }
}

impl Drop for CompactionJob {
    fn drop(&mut self) {
        if !self.finished {
            self.merging = None;
            self.task.end();
        }
    }
}
