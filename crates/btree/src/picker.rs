//! Chooses what the next job does. Pure: it looks at the picture, and changes nothing.
//!
//! Invariants of every plan of a slice:
//! 1. Its runs are the oldest of the shelf. While a settling is not at its end, its runs are those
//!    of the next plan.
//! 2. No run above the place of a pending relocation is among them: its entries may be newer than
//!    those that come to that place, and must stay above them.

use crate::clean::Cleaning;
use crate::options::BTreeOptions;
use crate::picture::{Picture, TreeFile};
use crate::settle::Plan;
use glintdb_core::index::JobPriority;
use glintdb_core::{FileId, SeqNum, planted};
use glintdb_runs::Run;
use std::collections::HashSet;

/// What the picker looks at.
pub(crate) struct Picker<'a> {
    pub(crate) picture: &'a Picture,
    pub(crate) options: &'a BTreeOptions,
    /// The oldest place that is pending. Runs with this number and above stay on the shelf.
    pub(crate) runs_below: Option<u64>,
    pub(crate) floor: SeqNum,
    /// Bytes of garbage that the tree may have.
    pub(crate) garbage_max: u64,
    pub(crate) scans_pay: bool,
    /// Bytes that filters and fences of the shelf may take, if the keyspace is reshaped.
    pub(crate) remap_max: u64,
    /// There was no space for a cleaning. A slice needs less.
    pub(crate) cleaning_refused: bool,
}

/// What a job does.
pub(crate) enum Work {
    /// Merges runs into the tree, or rewrites leaves.
    Slice(Plan),
    /// Merges runs of the shelf with one another.
    Clean(Cleaning),
}

impl Picker<'_> {
    /// The job that helps most now.
    pub(crate) fn pick(&self) -> Option<Work> {
        if self.options.reshape
            && let Some(cleaning) = self.clean()
        {
            if !self.cleaning_refused {
                return Some(Work::Clean(cleaning));
            }
            let settles = self.picture.clip.is_none();
            let oldest = settles.then(|| self.settle_runs(self.oldest_tier(), JobPriority::Runs));
            if let Some(plan) = oldest.flatten() {
                return Some(Work::Slice(plan));
            }
        }
        self.pick_slice().map(Work::Slice)
    }

    fn pick_slice(&self) -> Option<Plan> {
        let due = self.due_settling();
        // While writers keep settlings due, garbage would have no end.
        if self.picture.garbage_bytes() > self.garbage_max {
            let priority = due.as_ref().map_or(JobPriority::Gc, |plan| plan.priority);
            return self.compact(self.with_most_garbage(), priority);
        }
        if due.is_some() {
            return due;
        }
        let unneeded = self.files(|file| file.is_unneeded(self.floor));
        if !unneeded.is_empty() {
            return self.compact(unneeded, JobPriority::Gc);
        }
        match self.scans_pay {
            true => self.settle(JobPriority::Background),
            false => None,
        }
    }

    /// The settling that is under way, or the one that the shelf needs.
    fn due_settling(&self) -> Option<Plan> {
        if self.picture.clip.is_some() {
            return self.settle(JobPriority::Runs);
        }
        if self.options.reshape {
            // An eighth of the share is left for the runs that come meanwhile.
            let is_due = self.picture.tail_bytes() >= self.remap_max / 8 * 7;
            let oldest = || self.settle_runs(self.oldest_tier(), JobPriority::Runs);
            return is_due.then(oldest).flatten();
        }
        let is_due = self.runs().len() >= self.options.experiments.shelf_runs_settle as usize;
        is_due.then(|| self.settle(JobPriority::Runs)).flatten()
    }

    /// A step towards an empty shelf and a tree without garbage.
    pub(crate) fn pick_full(&self) -> Option<Plan> {
        if !self.runs().is_empty() {
            return self.settle(JobPriority::Background);
        }
        if !self.picture.runs.is_empty() {
            // They wait for a relocation, and will be settled when it has ended.
            return None;
        }
        let leaves = self.files(|file| {
            file.file.leaves().is_some_and(|slot| {
                let meta = slot.meta();
                let tombstones = meta.tombstones + meta.range_tombstones;
                file.garbage_bytes() > 0 || (tombstones > 0 && meta.seqno_max < self.floor)
            })
        });
        if !leaves.is_empty() {
            return self.compact(leaves, JobPriority::Gc);
        }
        match self.picture.garbage_bytes() {
            0 => None,
            _ => self.compact(self.branches(), JobPriority::Gc),
        }
    }

    /// All files of branches. Rewriting a branch rewrites the branches above it, which makes
    /// garbage of their files. So rewriting some files of branches would never remove all garbage.
    fn branches(&self) -> HashSet<FileId> {
        self.files(|file| file.file.leaves().is_none())
    }

    /// The runs of the shelf that may be settled, newest first.
    fn runs(&self) -> &[Run] {
        let runs = &self.picture.runs;
        let lowest = planted!(
            "btree: a run above a pending relocation is settled",
            self.runs_below,
            None
        );
        let clip = self.picture.clip.as_ref();
        let from = match (clip, lowest) {
            (Some(clip), _) => runs.partition_point(|run| run.id > clip.run),
            (None, Some(place)) => runs.partition_point(|run| run.id >= place),
            (None, None) => 0,
        };
        runs.get(from..).unwrap_or_default()
    }

    /// The oldest runs, which are of one tier.
    fn oldest_tier(&self) -> &[Run] {
        let runs = self.runs();
        let tier = runs.last().map(|oldest| self.picture.tier_of(oldest));
        let is_younger = |run: &&Run| Some(self.picture.tier_of(run)) != tier;
        let from = runs
            .iter()
            .rposition(|run| is_younger(&run))
            .map_or(0, |at| at + 1);
        &runs[from..]
    }

    /// The oldest neighbouring runs of a tier that are enough to be merged into a run of the next
    /// tier. Runs that are being settled stay as they are.
    fn clean(&self) -> Option<Cleaning> {
        let fan = self.options.experiments.reshape_fan as usize;
        let below = self.runs_below.unwrap_or(u64::MAX);
        let above = self.picture.clip.as_ref().map_or(0, |clip| clip.run);
        let runs: Vec<&Run> = (self.picture.runs.iter())
            .filter(|run| run.id < below && run.id > above)
            .collect();
        let same_tier = |a: &&Run, b: &&Run| self.picture.tier_of(a) == self.picture.tier_of(b);
        let groups = runs.chunk_by(same_tier);
        let group = groups.filter(|group| group.len() >= fan).last()?;
        let tier = self.picture.tier_of(group.first()?);
        Some(Cleaning {
            runs: group.iter().map(|&run| run.clone()).collect(),
            tier: tier.saturating_add(1),
        })
    }

    fn settle(&self, priority: JobPriority) -> Option<Plan> {
        self.settle_runs(self.runs(), priority)
    }

    fn settle_runs(&self, runs: &[Run], priority: JobPriority) -> Option<Plan> {
        (!runs.is_empty()).then(|| Plan {
            runs: runs.to_vec(),
            victims: HashSet::new(),
            priority,
        })
    }

    fn compact(&self, victims: HashSet<FileId>, priority: JobPriority) -> Option<Plan> {
        (!victims.is_empty()).then_some(Plan {
            runs: Vec::new(),
            victims,
            priority,
        })
    }

    fn files(&self, wanted: impl Fn(&TreeFile) -> bool) -> HashSet<FileId> {
        let files = self.picture.files.iter();
        files
            .filter(|(_, file)| wanted(file))
            .map(|(id, _)| *id)
            .collect()
    }

    /// The tables of leaves that free most bytes for each byte that is rewritten, as many as one
    /// slice can write; or all branches, if they have most of the garbage.
    fn with_most_garbage(&self) -> HashSet<FileId> {
        let mut leaves: Vec<_> = (self.picture.files.iter())
            .filter(|(_, file)| file.file.leaves().is_some() && file.garbage_bytes() > 0)
            .collect();
        let of_leaves: u64 = leaves.iter().map(|(_, file)| file.garbage_bytes()).sum();
        if of_leaves <= self.picture.garbage_bytes() / 2 {
            return self.branches();
        }
        let live_part = |file: &TreeFile| file.live.bytes as f64 / file.all.bytes.max(1) as f64;
        leaves.sort_by(|(_, a), (_, b)| live_part(a).total_cmp(&live_part(b)));
        let mut victims = HashSet::new();
        let mut bytes = 0;
        for (id, file) in leaves {
            if !victims.is_empty() && bytes + file.live.bytes > self.options.experiments.slice_bytes
            {
                break;
            }
            bytes += file.live.bytes;
            victims.insert(*id);
        }
        victims
    }
}
