//! Cleaning: neighbouring runs of a tier of the shelf are merged into one run of the next tier, for
//! keyspaces that are reshaped. What a newer run of them overwrites is dropped; tombstones stay,
//! because older runs and the tree are beneath.
//!
//! Not thread-safe: one job at a time, in place of a slice.
//!
//! Invariants:
//! 1. The runs are neighbours, and the new run takes the number of the newest one. So newer runs
//!    stay above it, and older runs beneath it.
//! 2. No run that is being settled is among them, and none above a pending place.

use crate::edit::{Edit, EditOp};
use crate::shared::Shared;
use crate::view::View;
use glintdb_core::index::{IndexChange, IndexJob, JobPriority, JobStep};
use glintdb_core::{Result, SeqNum, planted};
use glintdb_flash::DataClass;
use glintdb_runs::keys::KeyRange;
use glintdb_runs::write::{MergeInputs, Merging, Written, check_balance};
use glintdb_runs::{Run, Slot};
use std::sync::Arc;

/// A group of runs to be merged.
pub(crate) struct Cleaning {
    /// Newest first.
    pub(crate) runs: Vec<Run>,
    /// The tier of the run that is written.
    pub(crate) tier: u8,
}

impl Cleaning {
    fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> + Clone {
        self.runs.iter().flat_map(|run| run.tables.slots())
    }
}

/// A cleaning under way.
pub(crate) struct CleanJob {
    shared: Arc<Shared>,
    view: Arc<View>,
    cleaning: Cleaning,
    /// `None` before the first step, and after the last.
    merging: Option<Merging>,
    has_begun: bool,
    is_over: bool,
}

impl CleanJob {
    /// A cleaning of runs of `view`. No other job is under way.
    pub(crate) fn new(shared: &Arc<Shared>, view: Arc<View>, cleaning: Cleaning) -> CleanJob {
        CleanJob {
            shared: Arc::clone(shared),
            view,
            cleaning,
            merging: None,
            has_begun: false,
            is_over: false,
        }
    }

    fn begin(&self) -> Result<Merging> {
        let common = &self.shared.common;
        let sources = self.cleaning.runs.iter();
        let inputs = MergeInputs {
            sources: sources
                .map(|run| Arc::new(run.tables.slots().to_vec()))
                .collect(),
            range: &KeyRange::all(),
            hiding: self.view.picture.tombstones()?,
            // Older runs and the tree are beneath. So every tombstone is needed, whatever the
            // floor is.
            beneath: Vec::new(),
            floor: planted!(
                "btree: a cleaning drops tombstones",
                SeqNum::ZERO,
                common.env.tombstone_floor()
            ),
            removes: false,
        };
        Merging::new(&common.env, &inputs, common.run_output(DataClass::Flush))
    }

    fn finish(&self, merging: Merging) -> Result<IndexChange> {
        let merged = merging.finish()?;
        let liveness = merged.liveness.deltas();
        let inputs = self.cleaning.slots().map(|slot| slot.meta());
        let outputs = merged.written.tables().iter();
        check_balance(inputs, outputs, merged.entries, &liveness)?;
        if !merged.written.is_empty() {
            planted!(
                "btree: the names of the tables of a cleaning are not made durable",
                self.shared.common.env.index().volume.sync_directory()?,
                ()
            );
        }
        let written_bytes = merged.written.tables().iter().map(|meta| meta.bytes).sum();
        let mut edit = Edit::default();
        for run in &self.cleaning.runs {
            let (run, slots) = (run.id, run.tables.slots());
            let numbers = slots.iter().map(|slot| slot.number());
            edit.ops
                .extend(numbers.map(|number| EditOp::RemoveTable { run, number }));
        }
        let run = self.cleaning.runs.first().map_or(0, |run| run.id);
        let tables = Written::commit(merged.written);
        let seqno_max = tables.iter().map(|meta| meta.seqno_max).max();
        if !tables.is_empty() {
            let adds = tables.into_iter();
            edit.ops
                .extend(adds.map(|meta| EditOp::AddTable { run, meta }));
            let tier = self.cleaning.tier;
            edit.ops.push(EditOp::Tier { run, tier });
        }
        let read_bytes = self.cleaning.slots().map(|slot| slot.meta().bytes).sum();
        self.shared.count_job(read_bytes, written_bytes);
        Ok(IndexChange {
            edit: edit.encode(),
            liveness,
            seqno_max: seqno_max.unwrap_or(SeqNum::ZERO),
        })
    }

    fn run(&mut self, budget: u32) -> Result<JobStep> {
        let mut merging = match self.merging.take() {
            Some(merging) => merging,
            None => self.begin()?,
        };
        if merging.step(budget)? {
            self.merging = Some(merging);
            return Ok(JobStep::More);
        }
        self.finish(merging).map(JobStep::Done)
    }
}

impl IndexJob for CleanJob {
    fn step_within(&mut self, budget: u32) -> Result<JobStep> {
        self.has_begun = true;
        let step = self.run(budget);
        self.is_over = matches!(step, Ok(JobStep::Done(_)));
        step
    }

    fn name(&self) -> String {
        format!("cleaning of {} runs", self.cleaning.runs.len())
    }

    fn space_bytes(&self) -> u64 {
        self.cleaning.slots().map(|slot| slot.meta().bytes).sum()
    }

    fn priority(&self) -> JobPriority {
        JobPriority::Runs
    }
}

impl Drop for CleanJob {
    fn drop(&mut self) {
        // Its files are removed before another job may begin.
        self.merging = None;
        match (self.has_begun, self.is_over) {
            (false, _) => self.shared.refuse_cleaning(),
            (true, false) => self.shared.end_slice(),
            (true, true) => {}
        }
    }
}
