//! Chooses what to compact. Pure: it looks at the levels and at the reserved tables, and changes
//! nothing.
//!
//! The deepest level holds most of the data, and the sizes of the others follow from it (`shape`).
//! Level 0 is compacted to the *base* level, which moves up as the tree grows. A small index has
//! level 0 and one more level (`docs/decisions/004-lsm-shape.md`).
//!
//! Invariants of every plan:
//! 1. Inputs of level 0 that are merged are all its runs that may be taken, so at most one plan at
//!    a time has any. Besides, tables that range tombstones hide are removed from it.
//! 2. For each input at level *i* that goes to level *o*, every table of levels *i*+1 to *o* that
//!    meets it is an input.
//! 3. No input is reserved by another plan.
//! 4. No run above the place of a pending relocation is merged out of level 0: its entries may be
//!    newer than those that come to that place, and must stay above them.

use crate::compaction::deletions::Deletions;
use crate::compaction::shape::{BOTTOM, Shape, Targets, targets};
use crate::edit::Place;
use crate::levels::Levels;
use crate::options::LsmOptions;
use glintdb_core::index::{Debt, JobPriority};
use glintdb_core::{SeqNum, planted, proportion};
use glintdb_runs::keys::{KeyRange, hull_of};
use glintdb_runs::{Run, Slot};
use std::collections::HashSet;
use std::sync::Arc;

/// Compaction debt, in base levels, at which writers begin to be slowed.
const DEBT_SLOW_BASE_LEVELS: u64 = 8;
/// Puts begin to be slowed when deletions have not freed this part of the live bytes: a quarter.
const DELETED_SLOW_PART: u64 = 4;
/// For how much of a run the smallest one counts.
const RUN_WEIGHT_MIN: f64 = 0.25;
/// Share of tombstones that makes a table at the bottom worth rewriting for them alone.
const TOMBSTONES_DENSE: u64 = 4;
/// A compaction for deletions pays if it frees this part of the bytes that it reads and writes: a
/// quarter.
const FREED_SHARE: u64 = 4;
/// It frees at least this part of a table: 256 KiB for tables of 64 MiB.
const FREED_TABLE_PARTS: u64 = 256;

/// Tables of one place that take part in a compaction, ascending.
#[derive(Clone)]
pub(crate) struct Input {
    pub(crate) place: Place,
    pub(crate) slots: Vec<Arc<Slot>>,
}

/// What a compaction shall do.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Newest data first.
    pub(crate) inputs: Vec<Input>,
    /// Level the outputs go to.
    pub(crate) output: u8,
    /// Tables of the output level that belong to other plans: no output may reach over them.
    pub(crate) barriers: Vec<KeyRange>,
    pub(crate) priority: JobPriority,
    /// Rewrite also tables that could be moved, where that drops what is hidden in them.
    pub(crate) rewrite: bool,
    /// Range tombstones hide all of the inputs, so nothing is written.
    pub(crate) removes: bool,
}

impl Plan {
    /// Numbers of the input tables.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.inputs
            .iter()
            .flat_map(|input| input.slots.iter().map(|slot| slot.number()))
    }

    /// About the bytes that its outputs take. Each tombstone is taken to remove one entry. With
    /// range tombstones it is 0, because they may remove any number. Overwritten entries are not
    /// known before they are read, and count.
    pub(crate) fn output_bytes(&self) -> u64 {
        let sources = self.inputs.iter().filter(|input| !input.slots.is_empty());
        if self.removes || (sources.count() <= 1 && !self.rewrite) {
            // Tables that are only removed or moved.
            return 0;
        }
        let (mut bytes, mut entries, mut tombstones) = (0, 0, 0);
        for slot in self.inputs.iter().flat_map(|input| &input.slots) {
            let meta = slot.meta();
            if meta.range_tombstones > 0 {
                return 0;
            }
            bytes += meta.bytes;
            entries += meta.entries;
            tombstones += meta.tombstones;
        }
        let values = entries.saturating_sub(tombstones);
        let kept = values.saturating_sub(tombstones);
        proportion(bytes, kept, values)
    }

    /// E.g. `compaction L0->L6`.
    pub(crate) fn name(&self) -> String {
        let from = self.inputs.first().map_or(0, |input| input.place.level);
        format!("compaction L{from}->L{}", self.output)
    }
}

/// The weighted number of runs in level 0. A compaction rewrites the base level however small the
/// runs are. So a run that is much smaller than the largest one, as value GC writes them between
/// flushes, counts as its part of the largest one: at least [`RUN_WEIGHT_MIN`], because lookups
/// visit it all the same.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "no more than there are runs, and none is negative"
)]
fn weight_of(runs: &[Run], shape: &Shape) -> u32 {
    if shape.batch_bytes.is_none() {
        // Sizes were given, for runs as they come.
        return u32::try_from(runs.len()).unwrap_or(u32::MAX);
    }
    let largest = runs.iter().map(|run| run.tables.bytes()).max().unwrap_or(0);
    let weight = |run: &Run| {
        let part = run.tables.bytes() as f64 / largest.max(1) as f64;
        // Those of about the same size count alike.
        let part = if part > 0.7 { 1.0 } else { part };
        part.max(RUN_WEIGHT_MIN)
    };
    runs.iter().map(weight).sum::<f64>().round() as u32
}

/// What compactions still have to do.
pub(crate) fn debt(levels: &Levels, options: &LsmOptions, shape: &Shape) -> Debt {
    let targets = targets(levels, shape);
    let runs = weight_of(&levels.runs, shape);
    let mut bytes = 0u64;
    // Bytes that the level above would push into this one.
    let mut pushed = 0u64;
    if runs >= options.experiments.level0_runs_compact {
        pushed = levels.runs.iter().map(|run| run.tables.bytes()).sum();
        bytes = pushed + levels.level(targets.base).bytes();
    }
    for (level, tables) in levels.below0().filter(|(level, _)| *level < BOTTOM) {
        let held = tables.bytes() + if level >= targets.base { pushed } else { 0 };
        let excess = held.saturating_sub(targets.bytes[usize::from(level)]);
        let below = levels.level(level + 1);
        if excess > 0 {
            // Each byte of it rewrites what it meets below, and itself.
            let meets = below.bytes() / targets.bytes[usize::from(level)].max(1);
            bytes = bytes.saturating_add(excess.saturating_mul(meets.min(shape.ratio) + 1));
        }
        if level >= targets.base {
            pushed = excess;
        }
    }
    let slots = levels.slots().map(|(_, slot)| slot);
    let all_bytes: u64 = slots.map(|slot| slot.bytes_with_values()).sum();
    let deleted_bytes = levels
        .deletions()
        .map_or(0, Deletions::bytes)
        .min(all_bytes);
    Debt {
        runs,
        runs_slow: options.experiments.level0_runs_slow,
        runs_stop: options.experiments.level0_runs_stop,
        compaction_bytes: bytes,
        compaction_bytes_slow: shape.base_bytes_max.saturating_mul(DEBT_SLOW_BASE_LEVELS),
        deleted_bytes,
        deleted_bytes_slow: (all_bytes.saturating_sub(deleted_bytes) / DELETED_SLOW_PART)
            .max(options.table_bytes_target),
        rate_bytes: 0,
    }
}

/// A table that could be moved down, with the tables it meets there.
struct Candidate<'a> {
    /// Bytes to be rewritten below for each byte moved.
    cost: f64,
    slot: &'a Arc<Slot>,
    below: &'a [Arc<Slot>],
}

/// Bytes of tables.
fn bytes_of(slots: &[Arc<Slot>]) -> u64 {
    slots.iter().map(|slot| slot.meta().bytes).sum()
}

/// The candidate, a table of `level`, merged with the tables that it meets in the level below.
fn one_level_down(level: u8, candidate: Candidate<'_>) -> Plan {
    Plan {
        inputs: vec![
            Input {
                place: Place::level(level),
                slots: vec![Arc::clone(candidate.slot)],
            },
            Input {
                place: Place::level(level + 1),
                slots: candidate.below.to_vec(),
            },
        ],
        output: level + 1,
        barriers: Vec::new(),
        priority: JobPriority::Background,
        rewrite: false,
        removes: false,
    }
}

/// One look at the levels, with what other plans have reserved.
pub(crate) struct Picker<'a> {
    pub(crate) levels: &'a Levels,
    pub(crate) options: &'a LsmOptions,
    pub(crate) shape: Shape,
    pub(crate) reserved: &'a HashSet<u64>,
    /// The place of the oldest pending relocation: runs with this number and above stay where they
    /// are.
    pub(crate) runs_below: Option<u64>,
    pub(crate) tombstone_floor: SeqNum,
    /// Scans have spent as much on merging the runs of level 0 as compacting them would cost.
    pub(crate) scans_pay: bool,
}

impl Picker<'_> {
    /// The compaction that helps most now.
    pub(crate) fn pick(&self) -> Option<Plan> {
        if let Some(plan) = self.removable_tables() {
            return Some(plan);
        }
        let targets = targets(self.levels, &self.shape);
        let mut scored: Vec<(f64, u8)> = Vec::new();
        let runs = weight_of(self.runs(), &self.shape);
        if runs >= self.options.experiments.level0_runs_compact {
            // The same measure as for the levels. If level 0 always came first while jobs cannot
            // keep up, the base level would grow without bound, and with it the bytes that each
            // compaction of level 0 rewrites. A larger level 0 costs less for each of its bytes.
            let score = f64::from(runs) / f64::from(self.options.experiments.level0_runs_compact);
            scored.push((score, 0));
        }
        for (level, tables) in self.levels.below0().filter(|(level, _)| *level < BOTTOM) {
            let target = targets.bytes[usize::from(level)];
            let bytes = self.free_bytes(tables.slots());
            if bytes > target {
                scored.push((bytes as f64 / target.max(1) as f64, level));
            }
        }
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut level0_waits = false;
        for (_, level) in scored {
            if level == 0 {
                match self.level0(JobPriority::Runs) {
                    Some(plan) => return Some(plan),
                    None => level0_waits = true,
                }
            } else if level0_waits && level == targets.base {
                // Level 0 waits for compactions out of the base level. Another one would make it
                // wait longer.
            } else if let Some(plan) = self.one_table(level, None) {
                return Some(plan);
            }
        }
        self.hidden_table()
            .or_else(|| self.for_deletions())
            .or_else(|| self.movable_run(&targets))
            .or_else(|| self.for_scans())
            .or_else(|| self.dense_tombstones())
    }

    /// A step towards everything within `range` standing at the bottom, with nothing left to drop.
    pub(crate) fn pick_full(&self, range: &KeyRange) -> Option<Plan> {
        let meets = |run: &Run| !run.tables.meeting(range).is_empty();
        if self.runs().iter().any(meets) {
            return self.level0(JobPriority::Background);
        }
        if self.levels.runs.iter().any(meets) {
            // They wait for a relocation; what is beneath them would be rewritten twice.
            return None;
        }
        for level in 1..BOTTOM {
            if !self.levels.level(level).meeting(range).is_empty() {
                // Upper levels first: a deeper one would get what they hold anyway.
                return self.one_table(level, Some(range)).map(|plan| Plan {
                    rewrite: true,
                    ..plan
                });
            }
        }
        let slots = self.levels.level(BOTTOM).meeting(range);
        slots
            .iter()
            .find(|slot| self.droppable(slot) && !self.is_reserved(slot))
            .map(|slot| self.rewrite(Place::level(BOTTOM), slot))
    }

    /// The runs of level 0 that may be taken, newest first.
    fn runs(&self) -> &[Run] {
        let runs = &self.levels.runs;
        let lowest = planted!(
            "lsm: a run above a pending relocation leaves level 0",
            self.runs_below,
            None
        );
        let from = lowest.map_or(0, |place| runs.partition_point(|run| run.id >= place));
        runs.get(from..).unwrap_or_default()
    }

    /// All of level 0 that may be taken, into the base level.
    fn level0(&self, priority: JobPriority) -> Option<Plan> {
        let runs = self.runs();
        let mut inputs: Vec<Input> = runs
            .iter()
            .map(|run| Input {
                place: Place::run(run.id),
                slots: run.tables.slots().to_vec(),
            })
            .collect();
        let slots = || inputs.iter().flat_map(|input| &input.slots);
        if slots().any(|slot| self.is_reserved(slot)) {
            return None;
        }
        let hull = hull_of(slots().map(|slot| &slot.range))?;
        let base = targets(self.levels, &self.shape).base;
        // Base tables in a gap between the tables of level 0 stay where they are. They are in the
        // plan, unless another plan has them, because small ones are joined with their neighbours.
        let (mut below, mut barriers) = (Vec::new(), Vec::new());
        for slot in self.levels.level(base).meeting(&hull) {
            let meets = slots().any(|upper| upper.range.overlaps(&slot.range));
            if !self.is_reserved(slot) {
                below.push(Arc::clone(slot));
            } else if meets {
                return None;
            } else {
                barriers.push(slot.range.clone());
            }
        }
        self.join_small_neighbours(base, &hull, &mut below);
        inputs.push(Input {
            place: Place::level(base),
            slots: below,
        });
        Some(Plan {
            inputs,
            output: base,
            barriers,
            priority,
            rewrite: false,
            removes: false,
        })
    }

    /// Adds the tables of `base` next to `hull` if they are small. Otherwise many small flushes of
    /// ascending keys would leave many small tables.
    fn join_small_neighbours(&self, base: u8, hull: &KeyRange, below: &mut Vec<Arc<Slot>>) {
        let tables = self.levels.level(base);
        let small = |slot: &&Arc<Slot>| {
            slot.meta().bytes < self.movable_bytes(base) && !self.is_reserved(slot)
        };
        let first = tables.first_behind(&hull.start);
        let left = first.checked_sub(1).and_then(|at| tables.slots().get(at));
        let right = tables.slots().get(first + tables.meeting(hull).len());
        if let Some(left) = left.filter(small) {
            below.insert(0, Arc::clone(left));
        }
        below.extend(right.filter(small).cloned());
    }

    /// The oldest run of level 0 where it can be moved down as it is (sequential loads).
    fn movable_run(&self, targets: &Targets) -> Option<Plan> {
        let runs = self.runs();
        let run = runs.last()?;
        let any_reserved = runs
            .iter()
            .flat_map(|run| run.tables.slots().iter())
            .any(|slot| self.is_reserved(slot));
        let base = self.levels.level(targets.base);
        let movable = run.tables.slots().iter().all(|slot| {
            slot.meta().bytes >= self.movable_bytes(targets.base)
                && base.meeting(&slot.range).is_empty()
        });
        // Tables of the run that are rewritten, for their tombstones, must not be joined over a
        // base table between them.
        let hull = hull_of(run.tables.slots().iter().map(|slot| &slot.range))?;
        let between = base.meeting(&hull).iter();
        (movable && !any_reserved).then(|| Plan {
            inputs: vec![Input {
                place: Place::run(run.id),
                slots: run.tables.slots().to_vec(),
            }],
            output: targets.base,
            barriers: between.map(|slot| slot.range.clone()).collect(),
            priority: JobPriority::Runs,
            rewrite: false,
            removes: false,
        })
    }

    /// Level 0 before it is full, where scans would be the better for it by as much as it costs.
    fn for_scans(&self) -> Option<Plan> {
        let plan = || self.level0(JobPriority::Background);
        self.scans_pay.then(plan).flatten()
    }

    /// The table of `level` (of those within `range`) that is cheapest to move one level down.
    fn one_table(&self, level: u8, range: Option<&KeyRange>) -> Option<Plan> {
        let upper = self.levels.level(level);
        let lower = self.levels.level(level + 1);
        let candidates = match range {
            Some(range) => upper.meeting(range),
            None => upper.slots(),
        };
        let mut best: Option<Candidate<'_>> = None;
        for slot in candidates.iter().filter(|slot| !self.is_reserved(slot)) {
            let below = lower.meeting(&slot.range);
            if below.iter().any(|slot| self.is_reserved(slot)) {
                continue;
            }
            let meta = slot.meta();
            let overlap = bytes_of(below);
            // A table full of tombstones gives back space below.
            let tombstones = (meta.tombstones + meta.range_tombstones) as f64;
            let worth = meta.bytes as f64 * (1.0 + 4.0 * tombstones / (meta.entries.max(1) as f64));
            let cost = overlap as f64 / worth.max(1.0);
            if best.as_ref().is_none_or(|best| cost < best.cost) {
                best = Some(Candidate { cost, slot, below });
            }
        }
        Some(one_level_down(level, best?))
    }

    /// All tables that can be removed without being read.
    fn removable_tables(&self) -> Option<Plan> {
        let hidden = &self.levels.deletions()?.hidden;
        let removable = hidden.iter().filter(|hidden| {
            hidden.whole && hidden.slot.meta().pointed_bytes == 0 && !self.is_reserved(&hidden.slot)
        });
        let inputs: Vec<Input> = removable
            .map(|hidden| Input {
                place: hidden.place,
                slots: vec![Arc::clone(&hidden.slot)],
            })
            .collect();
        (!inputs.is_empty()).then_some(Plan {
            inputs,
            output: BOTTOM,
            barriers: Vec::new(),
            priority: JobPriority::Gc,
            rewrite: true,
            removes: true,
        })
    }

    /// The table of which range tombstones hide most bytes, if a rewrite in its place pays. One
    /// that is hidden wholly is read because it points to values in the log. In level 0 there is no
    /// rewrite, so a table there must be hidden wholly.
    fn hidden_table(&self) -> Option<Plan> {
        let hidden = self.levels.deletions()?.hidden.iter().filter(|hidden| {
            let part = hidden.place.level > 0 && self.pays(hidden.bytes, hidden.slot.meta().bytes);
            (hidden.whole || part) && !self.is_reserved(&hidden.slot)
        });
        let most = hidden.max_by_key(|hidden| hidden.bytes)?;
        let plan = self.rewrite(most.place, &most.slot);
        Some(Plan {
            removes: most.whole,
            ..plan
        })
    }

    /// A merge that gives back the space of entries that tombstones delete, where that pays:
    /// of level 0, else of the table for which it pays best.
    fn for_deletions(&self) -> Option<Plan> {
        let deletions = self.levels.deletions()?;
        let gain = |slot: &Arc<Slot>| deletions.gain(slot, self.tombstone_floor);
        let in_level0 = |place: Place| place.level == 0;
        let hidden = deletions.hidden.iter().filter(|one| in_level0(one.place));
        let hidden: u64 = hidden.map(|hidden| hidden.bytes).sum();
        let slots = || self.runs().iter().flat_map(|run| run.tables.slots());
        let gain0 = slots().map(gain).sum::<u64>() + hidden;
        if gain0 > 0 && self.pays(gain0, self.level0_cost()) {
            let plan = self.level0(JobPriority::Background);
            if plan.is_some() {
                return plan;
            }
        }
        let mut best: Option<(u8, Candidate<'_>)> = None;
        for (level, tables) in self.levels.below0().filter(|(level, _)| *level < BOTTOM) {
            let lower = self.levels.level(level + 1);
            for slot in tables.slots() {
                let gain = gain(slot);
                if gain == 0 || self.is_reserved(slot) {
                    continue;
                }
                let below = lower.meeting(&slot.range);
                let bytes = slot.meta().bytes + bytes_of(below);
                let cost = bytes as f64 / gain as f64;
                if self.pays(gain, bytes)
                    && best.as_ref().is_none_or(|(_, best)| cost < best.cost)
                    && !below.iter().any(|slot| self.is_reserved(slot))
                {
                    best = Some((level, Candidate { cost, slot, below }));
                }
            }
        }
        let (level, candidate) = best?;
        Some(one_level_down(level, candidate))
    }

    /// Bytes that a merge of level 0 rewrites, about: its tables and those that they meet. Tables
    /// that meet none are moved.
    fn level0_cost(&self) -> u64 {
        let level = targets(self.levels, &self.shape).base;
        let base = self.levels.level(level);
        let (mut bytes, mut counted) = (0, HashSet::new());
        for slot in self.runs().iter().flat_map(|run| run.tables.slots()) {
            let met = base.meeting(&slot.range);
            if met.is_empty() && slot.meta().bytes >= self.movable_bytes(level) {
                continue;
            }
            let new = met.iter().filter(|met| counted.insert(met.number()));
            bytes += slot.meta().bytes + new.map(|met| met.meta().bytes).sum::<u64>();
        }
        bytes
    }

    /// Whether deletions free enough to pay for a compaction that reads and writes `cost` bytes.
    fn pays(&self, freed: u64, cost: u64) -> bool {
        let least = self.options.table_bytes_target / FREED_TABLE_PARTS;
        freed >= least && freed.saturating_mul(FREED_SHARE) >= cost
    }

    /// A table at the bottom that consists in good part of tombstones which nobody needs any more.
    fn dense_tombstones(&self) -> Option<Plan> {
        let slots = self.levels.level(BOTTOM).slots();
        let slot = slots.iter().find(|slot| {
            let meta = slot.meta();
            (meta.tombstones + meta.range_tombstones) * TOMBSTONES_DENSE > meta.entries
                && self.droppable(slot)
                && !self.is_reserved(slot)
        })?;
        Some(self.rewrite(Place::level(BOTTOM), slot))
    }

    /// A table rewritten in its place. One of level 0 must be hidden wholly, so that nothing is
    /// written.
    fn rewrite(&self, place: Place, slot: &Arc<Slot>) -> Plan {
        Plan {
            inputs: vec![Input {
                place,
                slots: vec![Arc::clone(slot)],
            }],
            output: place.level.max(1),
            barriers: Vec::new(),
            priority: JobPriority::Background,
            rewrite: true,
            removes: false,
        }
    }

    /// Whether rewriting a table at the bottom drops every tombstone in it.
    fn droppable(&self, slot: &Slot) -> bool {
        let meta = slot.meta();
        meta.tombstones + meta.range_tombstones > 0 && meta.seqno_max < self.tombstone_floor
    }

    /// Tables smaller than this are joined with others rather than moved.
    pub(crate) fn movable_bytes(&self, level: u8) -> u64 {
        table_bytes(self.levels, self.options, &self.shape, level) / 4
    }

    fn is_reserved(&self, slot: &Slot) -> bool {
        self.reserved.contains(&slot.number())
    }

    fn free_bytes(&self, slots: &[Arc<Slot>]) -> u64 {
        let free = slots.iter().filter(|slot| !self.is_reserved(slot));
        free.map(|slot| slot.meta().bytes).sum()
    }
}

/// Size at which tables of a level are cut. It is smaller at the base level, so that compactions
/// out of it, for which level 0 must wait, are short.
pub(crate) fn table_bytes(levels: &Levels, options: &LsmOptions, shape: &Shape, level: u8) -> u64 {
    let base = targets(levels, shape).base;
    if level > 0 && level <= base {
        (options.table_bytes_target / 4).max(4 << 10)
    } else {
        options.table_bytes_target
    }
}
