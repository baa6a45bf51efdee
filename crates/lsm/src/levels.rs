//! The tables of an index by level: immutable; an edit makes a new set that shares the tables with the old one.
//!
//! Thread-safe: immutable, except that range tombstones are read at first use.
//!
//! Invariants:
//! 1. Runs of level 0 stand newest first. Tables of a run, and of each level below, ascend and do not overlap (ranges hold range tombstones too).
//! 2. Whatever an upper source (a newer run, a higher level) holds for a key is at least as new as what a lower source holds for it.
//! 3. So a range tombstone never stands below an entry that it hides.

use crate::edit::{Edit, EditOp, LEVELS, Place};
use crate::range::{KeyRange, before_end};
use crate::table::{Table, TableEnv, TableMeta};
use crate::tombstones::TombstoneSet;
use crate::walk::merge::{key_head, shared_prefix};
use bytes::Bytes;
use glintdb_core::{Error, Result};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A table and the keys it answers for.
pub(crate) struct Slot {
    pub(crate) range: KeyRange,
    pub(crate) table: Arc<Table>,
}

impl Slot {
    fn new(env: &Arc<TableEnv>, meta: TableMeta) -> Arc<Slot> {
        let (start, end) = meta.range.clone();
        Arc::new(Slot {
            range: KeyRange { start, end },
            table: Table::open(env, meta),
        })
    }

    /// The table's record in the manifest.
    pub(crate) fn meta(&self) -> &TableMeta {
        self.table.meta()
    }

    /// Number of the table's file.
    pub(crate) fn number(&self) -> u64 {
        self.meta().id.number
    }
}

/// Tables that ascend and do not overlap.
///
/// Lookups search an array of 8-byte heads of the tables' ends, so that they touch a cache line or two, and the keys themselves only where heads are equal.
#[derive(Clone, Default)]
pub(crate) struct Sorted {
    /// Shared with cursors, and with the states before and after that have the same ones.
    pub(crate) slots: Arc<Vec<Arc<Slot>>>,
    /// Bytes that all ends share.
    prefix: Bytes,
    /// For each table the head of its end behind the prefix; the greatest where it has no end.
    end_heads: Vec<u64>,
}

impl Sorted {
    /// The only table that may answer for `key`: the first one that ends behind it. It may also begin behind it.
    #[inline]
    pub(crate) fn candidate(&self, key: &[u8]) -> Option<&Arc<Slot>> {
        self.slots.get(self.first_behind(key))
    }

    /// Index of the first table that ends behind `key`.
    pub(crate) fn first_behind(&self, key: &[u8]) -> usize {
        let behind = |slot: &Arc<Slot>| before_end(key, &slot.range.end);
        let prefix = self.prefix.len();
        match key.get(..prefix).unwrap_or(key).cmp(&self.prefix) {
            // Shorter than the prefix, or less: every end is behind. Greater: only no end at all is.
            Ordering::Less => 0,
            Ordering::Greater => self.slots.partition_point(|slot| !behind(slot)),
            Ordering::Equal => {
                let head = key_head(key, prefix);
                let from = self.end_heads.partition_point(|&end| end < head);
                let same = self.end_heads.get(from..).unwrap_or_default();
                let to = from + same.iter().take_while(|&&end| end == head).count();
                let slots = self.slots.get(from..to).unwrap_or_default();
                from + slots.partition_point(|slot| !behind(slot))
            }
        }
    }

    /// Computes what lookups search; after every change of `slots`.
    fn index(&mut self) {
        let mut ends = self.slots.iter().filter_map(|slot| slot.range.end.as_ref());
        self.prefix = match (ends.next(), ends.next_back()) {
            (Some(first), Some(last)) => first.slice(..shared_prefix(first, last)),
            (Some(only), None) => only.clone(),
            _ => Bytes::new(),
        };
        let prefix = self.prefix.len();
        let head = |slot: &Arc<Slot>| match &slot.range.end {
            Some(end) => key_head(end, prefix),
            None => u64::MAX,
        };
        self.end_heads = self.slots.iter().map(head).collect();
    }

    /// The tables that meet `range`.
    pub(crate) fn meeting(&self, range: &KeyRange) -> &[Arc<Slot>] {
        self.slots
            .get(self.places_meeting(range))
            .unwrap_or_default()
    }

    /// Where in `slots` the tables stand that meet `range`.
    pub(crate) fn places_meeting(&self, range: &KeyRange) -> Range<usize> {
        let from = self.first_behind(&range.start);
        let to = self
            .slots
            .partition_point(|slot| before_end(&slot.range.start, &range.end));
        let mut to = to;
        if to > from + 1
            && glintdb_core::seeded::bug(
                "lsm: of the tables that overlap a range the last is left out",
            )
        {
            to -= 1;
        }
        from..to.max(from)
    }

    /// Bytes of the tables' files.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.meta().bytes).sum()
    }

    fn insert(&mut self, slot: Arc<Slot>) -> Result<(), Arc<Slot>> {
        let at = self
            .slots
            .partition_point(|other| other.range.start <= slot.range.start);
        let neighbours = [at.checked_sub(1), Some(at)];
        let mut neighbours = neighbours
            .into_iter()
            .flatten()
            .filter_map(|i| self.slots.get(i));
        if neighbours
            .any(|other| other.range.overlaps(&slot.range) || other.range.start == slot.range.start)
        {
            return Err(slot);
        }
        Arc::make_mut(&mut self.slots).insert(at, slot);
        Ok(())
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Slot>> {
        let at = self.slots.iter().position(|slot| slot.number() == number)?;
        Some(Arc::make_mut(&mut self.slots).remove(at))
    }
}

/// A run of level 0.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) id: u64,
    pub(crate) tables: Sorted,
}

/// See the module's page.
#[derive(Clone, Default)]
pub(crate) struct Levels {
    /// Level 0, newest first.
    pub(crate) runs: Vec<Run>,
    /// Levels 1 and on; `levels[0]` is level 1.
    levels: [Sorted; LEVELS - 1],
    tombstones: OnceLock<Arc<TombstoneSet>>,
}

/// What [`Levels::edited`] took away and put in.
pub(crate) struct Edited {
    pub(crate) levels: Levels,
    /// Tables that no longer stand anywhere.
    pub(crate) gone: Vec<Arc<Slot>>,
}

impl Levels {
    /// The tables of a level from 1 on.
    pub(crate) fn level(&self, level: u8) -> &Sorted {
        &self.levels[usize::from(level) - 1]
    }

    /// Levels from 1 on with their tables.
    pub(crate) fn below0(&self) -> impl Iterator<Item = (u8, &Sorted)> {
        (1u8..).zip(self.levels.iter())
    }

    /// Every sorted sequence of tables with its place, newest data first.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (Place, &Sorted)> {
        let runs = self
            .runs
            .iter()
            .map(|run| (Place::run(run.id), &run.tables));
        let levels = self.below0().filter(|(_, tables)| !tables.slots.is_empty());
        runs.chain(levels.map(|(level, tables)| (Place::level(level), tables)))
    }

    /// Sorted sequences in which a lookup may have to read a block: not all tables with entries are pinned.
    pub(crate) fn unpinned_sources(&self) -> usize {
        let reads = |slot: &Arc<Slot>| slot.meta().entries > 0 && !slot.table.is_pinned();
        self.sources()
            .filter(|(_, tables)| tables.slots.iter().any(reads))
            .count()
    }

    /// Every table with its place.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (Place, &Arc<Slot>)> {
        self.sources()
            .flat_map(|(place, tables)| tables.slots.iter().map(move |slot| (place, slot)))
    }

    /// Reads the tails of tables that are new, so that nobody who looks for a key waits for that. Where one cannot be read, whoever needs it tries again.
    pub(crate) fn load(&self, numbers: &HashSet<u64>) {
        for (_, slot) in self.slots() {
            if numbers.contains(&slot.number()) {
                let _tried_again = slot.table.load();
            }
        }
    }

    /// First level from 1 on that holds a table.
    pub(crate) fn first_level(&self) -> Option<u8> {
        self.below0()
            .find(|(_, tables)| !tables.slots.is_empty())
            .map(|(level, _)| level)
    }

    /// All range tombstones, flat; reads those not yet in memory.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn tombstones(&self) -> Result<&Arc<TombstoneSet>> {
        if let Some(set) = self.tombstones.get() {
            return Ok(set);
        }
        let mut all = Vec::new();
        for (_, slot) in self.slots() {
            if slot.meta().range_tombstones > 0 {
                all.extend_from_slice(slot.table.range_tombstones()?);
            }
        }
        Ok(self
            .tombstones
            .get_or_init(|| Arc::new(TombstoneSet::new(all))))
    }

    /// The state after `edit`.
    ///
    /// # Errors
    /// `Corruption` where the edit takes away what is not there, or adds what is there or overlaps.
    pub(crate) fn edited(&self, edit: &Edit, env: &Arc<TableEnv>) -> Result<Edited> {
        let mut levels = Levels {
            runs: self.runs.clone(),
            levels: self.levels.clone(),
            tombstones: self.tombstones.clone(),
        };
        let gone = levels.replay(edit, env)?;
        Ok(Edited { levels, gone })
    }

    /// Changes this state; the tables that no longer stand anywhere come back. After an error the state is useless.
    ///
    /// # Errors
    /// As [`edited`](Self::edited).
    pub(crate) fn replay(&mut self, edit: &Edit, env: &Arc<TableEnv>) -> Result<Vec<Arc<Slot>>> {
        let mut taken: HashMap<u64, Arc<Slot>> = HashMap::new();
        for op in &edit.ops {
            let range_tombstones = match op {
                EditOp::Remove(place, number) => {
                    let slot = self
                        .sorted_mut(*place, false)
                        .and_then(|tables| tables.remove(*number))
                        .ok_or_else(|| {
                            misfit(&format!(
                                "table {number:016x} to be removed from {place:?} is not there"
                            ))
                        })?;
                    let range_tombstones = slot.meta().range_tombstones;
                    taken.insert(*number, slot);
                    range_tombstones
                }
                EditOp::Add(place, meta) => {
                    let slot = match taken.remove(&meta.id.number) {
                        Some(slot) => slot,
                        None => Slot::new(env, meta.clone()),
                    };
                    let inserted = self
                        .sorted_mut(*place, true)
                        .is_some_and(|tables| tables.insert(slot).is_ok());
                    if !inserted {
                        return Err(misfit(&format!(
                            "{} to be added at {place:?} overlaps what is there",
                            meta.id
                        )));
                    }
                    meta.range_tombstones
                }
            };
            if range_tombstones > 0 {
                self.tombstones = OnceLock::new();
            }
        }
        self.runs.retain(|run| !run.tables.slots.is_empty());
        let tables = self.runs.iter_mut().map(|run| &mut run.tables);
        tables.chain(&mut self.levels).for_each(Sorted::index);
        Ok(taken.into_values().collect())
    }

    /// The whole state as one edit.
    pub(crate) fn as_edit(&self) -> Edit {
        Edit {
            ops: self
                .slots()
                .map(|(place, slot)| EditOp::Add(place, slot.meta().clone()))
                .collect(),
        }
    }

    fn sorted_mut(&mut self, place: Place, create: bool) -> Option<&mut Sorted> {
        if place.level > 0 {
            return self.levels.get_mut(usize::from(place.level) - 1);
        }
        let oldest_first = glintdb_core::seeded::bug("lsm: level 0 is read oldest first");
        let at = self.runs.partition_point(|run| match oldest_first {
            true => run.id < place.run,
            false => run.id > place.run,
        });
        if create && self.runs.get(at).is_none_or(|run| run.id != place.run) {
            let run = Run {
                id: place.run,
                tables: Sorted::default(),
            };
            self.runs.insert(at, run);
        }
        self.runs
            .get_mut(at)
            .filter(|run| run.id == place.run)
            .map(|run| &mut run.tables)
    }
}

fn misfit(message: &str) -> Error {
    Error::corruption(
        "manifest",
        0,
        format!("edit of an LSM index does not fit its state: {message}"),
    )
}
