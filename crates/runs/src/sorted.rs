//! Tables in order: a run, or a level.
//!
//! Thread-safe: immutable once built. A changed copy shares the tables with the original.
//!
//! Invariants:
//! 1. The tables of a [`Sorted`] ascend and do not overlap. Ranges of tables include their range
//!    tombstones.
//! 2. What lookups search (`prefix`, `end_heads`) agrees with the tables, except between a change
//!    and [`Sorted::index`], when the value is *stale* and must not be searched.

use crate::keys::range::{Bounds, KeyRange, before_end};
use crate::keys::tombstones::TombstoneSet;
use crate::read::deleting_part;
use crate::table::{Table, TableEnv, TableMeta};
use bytes::Bytes;
use glintdb_core::key::{key_head, shared_prefix};
use glintdb_core::{RangeTombstone, Result, planted, proportion};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A table and the range of keys that it may know something about.
pub struct Slot {
    /// The keys of the table's entries and range tombstones.
    pub range: KeyRange,
    /// The table.
    pub table: Arc<Table>,
    /// Entries below the start of the range are not part of the index any more.
    is_clipped: bool,
    /// The part of its tombstones that delete something beneath, once it was estimated.
    deleting: OnceLock<f64>,
}

impl Slot {
    /// The table that `meta` describes. Reads nothing yet.
    pub fn open(env: &Arc<TableEnv>, meta: TableMeta) -> Arc<Slot> {
        let (start, end) = meta.range.clone();
        Arc::new(Slot {
            range: KeyRange { start, end },
            table: Table::open(env, meta),
            is_clipped: false,
            deleting: OnceLock::new(),
        })
    }

    /// The same table without its keys below `start`, which is in its range.
    ///
    /// # Panics
    /// If `start` is behind the range.
    #[must_use]
    pub fn clipped(&self, start: &Bytes) -> Arc<Slot> {
        let end = self.range.end.clone();
        assert!(before_end(start, &end), "a table is clipped behind its end");
        let start = start.max(&self.range.start).clone();
        Arc::new(Slot {
            range: KeyRange { start, end },
            table: Arc::clone(&self.table),
            is_clipped: true,
            deleting: OnceLock::new(),
        })
    }

    /// Whether `key` is one of those that were [clipped](Self::clipped) off.
    #[inline]
    #[must_use]
    pub fn is_clipped_off(&self, key: &[u8]) -> bool {
        self.is_clipped && key < &*self.range.start
    }

    /// The parts of `bounds` in which the table has entries that count.
    pub(crate) fn bounds(&self, bounds: &Arc<Bounds>) -> Arc<Bounds> {
        match self.is_clipped {
            true => bounds.from(&self.range.start),
            false => Arc::clone(bounds),
        }
    }

    /// Estimates which part of the table's tombstones have keys that tables `beneath` hold, by the
    /// filters of these tables and a sample of the tombstones. The first estimate is kept.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub fn deleting_part<'a>(&self, beneath: impl Iterator<Item = &'a Sorted>) -> Result<f64> {
        if let Some(part) = self.deleting.get() {
            return Ok(*part);
        }
        let part = deleting_part(&self.table, &beneath.collect::<Vec<_>>())?;
        Ok(*self.deleting.get_or_init(|| part))
    }

    /// The table's properties.
    pub fn meta(&self) -> &TableMeta {
        self.table.meta()
    }

    /// Bytes of the table, with the values in the log that it points to.
    pub fn bytes_with_values(&self) -> u64 {
        self.meta().bytes.saturating_add(self.meta().pointed_bytes)
    }

    /// About the bytes of the table's entries in `range`, with their values in the log.
    ///
    /// # Errors
    /// I/O errors, `Corruption`.
    pub fn bytes_within(&self, range: &KeyRange) -> Result<u64> {
        let blocks = self.table.blocks_within(range)?;
        let all = self.meta().blocks.into();
        Ok(proportion(self.bytes_with_values(), blocks, all))
    }

    /// Number of the table's file.
    pub fn number(&self) -> u64 {
        self.meta().id.number
    }
}

/// The range tombstones of all these tables, flat. Reads those that are not in memory.
///
/// # Errors
/// I/O errors, `Corruption`.
pub fn range_tombstones<'a>(slots: impl Iterator<Item = &'a Arc<Slot>>) -> Result<TombstoneSet> {
    range_tombstones_kept(slots, Some)
}

/// Flattens the range tombstones of all these tables, and returns what `keep` returns of each
/// fragment. Reads those that are not in memory.
///
/// # Errors
/// I/O errors, `Corruption`.
pub(crate) fn range_tombstones_kept<'a>(
    slots: impl Iterator<Item = &'a Arc<Slot>>,
    keep: impl Fn(RangeTombstone) -> Option<RangeTombstone>,
) -> Result<TombstoneSet> {
    let slots = slots.filter(|slot| slot.meta().range_tombstones > 0);
    let sources: Vec<_> = slots
        .map(|slot| slot.table.range_tombstones())
        .collect::<Result<_>>()?;
    Ok(TombstoneSet::merged(sources, keep))
}

/// Tables that ascend and do not overlap.
///
/// Lookups search an array of 8-byte heads of the tables' ends, so that they touch one or two cache
/// lines. They compare the keys themselves only where heads are equal.
#[derive(Clone, Default)]
pub struct Sorted {
    /// Shared with cursors, and with earlier and later copies that have the same tables.
    slots: Arc<Vec<Arc<Slot>>>,
    /// Bytes that all ends share.
    prefix: Bytes,
    /// For each table the head of its end behind the prefix, or `u64::MAX` if it has no end.
    end_heads: Vec<u64>,
    /// The tables have changed since the last [`Sorted::index`].
    is_stale: bool,
}

impl Sorted {
    /// The tables, ascending.
    pub fn slots(&self) -> &[Arc<Slot>] {
        &self.slots
    }

    /// The tables, to be kept by a cursor.
    pub(crate) fn shared(&self) -> &Arc<Vec<Arc<Slot>>> {
        &self.slots
    }

    /// Whether there are no tables.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The only table that may hold `key`: the first one that ends behind it. Its range may also
    /// begin behind the key.
    #[inline]
    pub(crate) fn candidate(&self, key: &[u8]) -> Option<&Arc<Slot>> {
        self.slots.get(self.first_behind(key))
    }

    /// Index of the first table that ends behind `key`.
    #[inline]
    pub fn first_behind(&self, key: &[u8]) -> usize {
        debug_assert!(!self.is_stale, "searched before it was indexed");
        let behind = |slot: &Arc<Slot>| before_end(key, &slot.range.end);
        let prefix = self.prefix.len();
        match key.get(..prefix).unwrap_or(key).cmp(&self.prefix) {
            // The key is less than the prefix, or a part of it: every end is behind the key.
            Ordering::Less => 0,
            // Of all ends, only "no end" is behind the key.
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

    /// The tables that meet `range`.
    pub fn meeting(&self, range: &KeyRange) -> &[Arc<Slot>] {
        self.slots
            .get(self.places_meeting(range))
            .unwrap_or_default()
    }

    /// The indexes of the tables that meet `range`.
    pub(crate) fn places_meeting(&self, range: &KeyRange) -> Range<usize> {
        let from = self.first_behind(&range.start);
        let to = self
            .slots
            .partition_point(|slot| before_end(&slot.range.start, &range.end));
        let to = planted!(
            "lsm: of the tables that overlap a range the last is left out",
            to,
            if to > from + 1 { to - 1 } else { to }
        );
        from..to.max(from)
    }

    /// Bytes of the tables' files.
    pub fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.meta().bytes).sum()
    }

    /// Entries of the tables, range tombstones not counted.
    pub fn entries(&self) -> u64 {
        self.slots.iter().map(|slot| slot.meta().entries).sum()
    }

    /// Adds a table. [`index`](Self::index) must be called before the tables are searched again.
    ///
    /// # Errors
    /// The table itself, if it overlaps another one. Nothing has changed then.
    pub fn insert(&mut self, slot: Arc<Slot>) -> std::result::Result<(), Arc<Slot>> {
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
        self.is_stale = true;
        Ok(())
    }

    /// Takes out the table with this file number, if there is one. [`index`](Self::index) must be
    /// called before the tables are searched again.
    pub fn remove(&mut self, number: u64) -> Option<Arc<Slot>> {
        let at = self.slots.iter().position(|slot| slot.number() == number)?;
        self.is_stale = true;
        Some(Arc::make_mut(&mut self.slots).remove(at))
    }

    /// Computes what lookups search, if the tables have changed.
    ///
    /// # Panics
    /// If invariant 1 does not hold: [`insert`](Self::insert) has let in a table that overlaps.
    pub fn index(&mut self) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        for pair in self.slots.windows(2) {
            // Neighbours are disjoint and ascend.
            if let [a, b] = pair {
                let disjoint = !before_end(&b.range.start, &a.range.end);
                assert!(disjoint, "{} overlaps {}", b.meta().id, a.meta().id);
            }
        }
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
}

/// A run: the tables of one flush or relocation.
#[derive(Clone)]
pub struct Run {
    /// Its number. A greater number is a newer run.
    pub id: u64,
    /// Its tables.
    pub tables: Sorted,
}

impl Run {
    /// Numbers runs that an index takes over, newest first.
    #[must_use]
    pub fn numbered(runs: Vec<Sorted>) -> Vec<Run> {
        let numbers = (1..=runs.len() as u64).rev();
        let numbered = |runs: Vec<Sorted>| {
            let runs = numbers.zip(runs);
            runs.map(|(id, tables)| Run { id, tables }).collect()
        };
        planted!(
            "glintdb: a conversion puts older runs above newer ones",
            numbered(runs),
            numbered(runs.into_iter().rev().collect())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::meta::tests::meta;
    use crate::table::tests::{env, table_id};

    fn slot(env: &Arc<TableEnv>, number: u64, start: &[u8], end: Option<&[u8]>) -> Arc<Slot> {
        let mut meta = meta(start, end);
        meta.id = table_id(number);
        Slot::open(env, meta)
    }

    #[test]
    fn a_table_that_overlaps_another_is_refused() {
        let (_volume, env) = env();
        let mut tables = Sorted::default();
        tables.insert(slot(&env, 1, b"c", Some(b"f"))).ok().unwrap();
        tables.insert(slot(&env, 2, b"k", None)).ok().unwrap();
        for (start, end) in [
            (&b"a"[..], None),
            (b"d", Some(&b"e"[..])),
            (b"e", Some(b"g")),
        ] {
            assert!(tables.insert(slot(&env, 3, start, end)).is_err());
        }
        tables.insert(slot(&env, 3, b"f", Some(b"k"))).ok().unwrap();
        tables.index();
        let numbers: Vec<u64> = tables.slots().iter().map(|slot| slot.number()).collect();
        assert_eq!(numbers, [1, 3, 2]);
    }

    #[test]
    fn searches_follow_inserts_and_removals() {
        let (_volume, env) = env();
        let mut tables = Sorted::default();
        for (number, start, end) in [
            (1, "user1", Some("user3")),
            (2, "user3", Some("user4")),
            (3, "user6", None),
        ] {
            let end = end.map(str::as_bytes);
            tables
                .insert(slot(&env, number, start.as_bytes(), end))
                .ok()
                .unwrap();
        }
        tables.index();
        let found = |tables: &Sorted, key: &str| {
            let slot = tables.candidate(key.as_bytes());
            slot.map(|slot| slot.number())
        };
        let keys = ["a", "user", "user2", "user3", "user5", "user9", "zebra"];
        let all = keys.map(|key| found(&tables, key));
        assert_eq!(all, [1, 1, 1, 2, 3, 3, 3].map(Some));
        assert!(tables.remove(3).is_some() && tables.remove(3).is_none());
        tables.index();
        let two = keys.map(|key| found(&tables, key));
        assert_eq!(two, [Some(1), Some(1), Some(1), Some(2), None, None, None]);
    }
}
