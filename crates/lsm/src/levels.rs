//! The tables of an index by level. An edit makes a new set that shares the tables with the old
//! one.
//!
//! Thread-safe: immutable, except that range tombstones are read at first use.
//!
//! Invariants:
//! 1. Runs of level 0 are in order, newest first.
//! 2. Sources (runs newest first, then levels from the top) are in order of age: for each key, an
//!    upper source has nothing older than a lower source has.
//! 3. So a range tombstone is never below an entry that it hides.

use crate::compaction::deletions::Deletions;
use crate::compaction::shape::BOTTOM;
use crate::edit::{Edit, EditOp, LEVELS, Place};
use glintdb_core::{Error, Result, planted};
use glintdb_runs::keys::TombstoneSet;
use glintdb_runs::table::TableEnv;
use glintdb_runs::{Run, Slot, Sorted, range_tombstones};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};

/// The tables of an index by level.
#[derive(Clone, Default)]
pub(crate) struct Levels {
    /// Level 0, newest first.
    pub(crate) runs: Vec<Run>,
    /// Levels 1 and on; `levels[0]` is level 1.
    levels: [Sorted; LEVELS - 1],
    tombstones: OnceLock<Arc<TombstoneSet>>,
    deletions: OnceLock<Arc<Deletions>>,
}

/// What [`Levels::edited`] makes.
pub(crate) struct Edited {
    pub(crate) levels: Levels,
    /// Tables that are at no place any more.
    pub(crate) gone: Vec<Arc<Slot>>,
}

impl Levels {
    /// These runs, newest first, above the tables of the bottom level.
    pub(crate) fn of_runs(runs: Vec<Sorted>, bottom: Sorted) -> Levels {
        let mut levels = Levels {
            runs: Run::numbered(runs),
            ..Levels::default()
        };
        levels.levels[usize::from(BOTTOM) - 1] = bottom;
        levels
    }

    /// The tables of a level from 1 on.
    pub(crate) fn level(&self, level: u8) -> &Sorted {
        &self.levels[usize::from(level) - 1]
    }

    /// Levels from 1 on with their tables.
    pub(crate) fn below0(&self) -> impl Iterator<Item = (u8, &Sorted)> {
        (1u8..).zip(self.levels.iter())
    }

    /// The levels below this one.
    pub(crate) fn beneath(&self, level: u8) -> impl Iterator<Item = &Sorted> {
        let beneath = self.below0().filter(move |(below, _)| *below > level);
        beneath.map(|(_, tables)| tables)
    }

    /// Every sorted sequence of tables with its place, newest data first.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (Place, &Sorted)> {
        let runs = self
            .runs
            .iter()
            .map(|run| (Place::run(run.id), &run.tables));
        let levels = self.below0().filter(|(_, tables)| !tables.is_empty());
        runs.chain(levels.map(|(level, tables)| (Place::level(level), tables)))
    }

    /// Every sorted sequence of tables, newest data first.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = &Sorted> {
        self.sources().map(|(_, tables)| tables)
    }

    /// Number of sorted sequences in which a lookup may have to read a block, because not all of
    /// their tables with entries are pinned.
    pub(crate) fn unpinned_sources(&self) -> usize {
        let reads = |slot: &Arc<Slot>| slot.meta().entries > 0 && !slot.table.is_pinned();
        let unpinned = |tables: &&Sorted| tables.slots().iter().any(reads);
        self.sorted().filter(unpinned).count()
    }

    /// Every table with its place.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (Place, &Arc<Slot>)> {
        self.sources()
            .flat_map(|(place, tables)| tables.slots().iter().map(move |slot| (place, slot)))
    }

    /// Reads the tails of these tables, which are new, so that no lookup has to wait for that. If
    /// one cannot be read, the next user of the table tries again.
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
            .find(|(_, tables)| !tables.is_empty())
            .map(|(level, _)| level)
    }

    /// All range tombstones, flat. Reads those that are not in memory.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn tombstones(&self) -> Result<&Arc<TombstoneSet>> {
        if let Some(set) = self.tombstones.get() {
            return Ok(set);
        }
        let all = range_tombstones(self.slots().map(|(_, slot)| slot))?;
        Ok(self.tombstones.get_or_init(|| Arc::new(all)))
    }

    /// What deletions would free. Reads tails of tables and a few blocks at the first call.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub(crate) fn find_deletions(&self) -> Result<&Arc<Deletions>> {
        if let Some(deletions) = self.deletions.get() {
            return Ok(deletions);
        }
        let found = Deletions::of(self)?;
        Ok(self.deletions.get_or_init(|| Arc::new(found)))
    }

    /// What deletions would free, if [`find_deletions`](Self::find_deletions) has found it.
    pub(crate) fn deletions(&self) -> Option<&Deletions> {
        self.deletions.get().map(|deletions| &**deletions)
    }

    /// The state after `edit`.
    ///
    /// # Errors
    /// `Corruption` if the edit removes a table that is not there, or adds a table that is there or
    /// overlaps another one.
    pub(crate) fn edited(&self, edit: &Edit, env: &Arc<TableEnv>) -> Result<Edited> {
        let mut levels = Levels {
            runs: self.runs.clone(),
            levels: self.levels.clone(),
            tombstones: self.tombstones.clone(),
            deletions: OnceLock::new(),
        };
        let gone = levels.replay(edit, env)?;
        Ok(Edited { levels, gone })
    }

    /// Changes this state. Returns the tables that are at no place any more. After an error the
    /// state is useless.
    ///
    /// # Errors
    /// As [`edited`](Self::edited).
    pub(crate) fn replay(&mut self, edit: &Edit, env: &Arc<TableEnv>) -> Result<Vec<Arc<Slot>>> {
        self.deletions = OnceLock::new();
        // Ordered, so that files are deleted in one order.
        let mut taken: BTreeMap<u64, Arc<Slot>> = BTreeMap::new();
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
                        None => Slot::open(env, meta.clone()),
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
        self.runs.retain(|run| !run.tables.is_empty());
        // Invariant 1.
        let newest_first = self.runs.is_sorted_by(|newer, older| newer.id > older.id);
        assert!(newest_first, "level 0 is out of order");
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
        let at = self.runs.partition_point(|run| {
            planted!(
                "lsm: level 0 is read oldest first",
                run.id > place.run,
                run.id < place.run
            )
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
