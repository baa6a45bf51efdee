//! An immutable picture of an index: levels, and how they are read.
//!
//! Thread-safe; reads take no lock and write no shared counter.

use crate::common::Common;
use crate::compaction::shape;
use crate::levels::Levels;
use crate::range::KeyRange;
use crate::table::{Purpose, key_hash};
use crate::walk::cursor::MergeCursor;
use crate::walk::lookup;
use crate::{sample, verify};
use bytes::Bytes;
use glintdb_core::index::{Cursor, IndexStats, IndexView, LevelStats};
use glintdb_core::{Direction, Entry, EntryValue, FileId, Result, SeqNum, ValuePointer};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module's page.
pub(crate) struct View {
    pub(crate) levels: Levels,
    pub(crate) common: Arc<Common>,
}

/// An entry as a reader must see it who knows that `deleted` is the newest range tombstone over its key.
#[inline]
pub(crate) fn resolve(entry: Option<Entry>, deleted: SeqNum) -> Option<Entry> {
    match entry {
        Some(entry)
            if entry.seqno > deleted
                || (entry.seqno == deleted
                    && !glintdb_core::seeded::bug(
                        "lsm: a range deletion hides what its own batch put after it",
                    )) =>
        {
            Some(entry)
        }
        _ if deleted > SeqNum::ZERO => Some(Entry {
            seqno: deleted,
            value: EntryValue::Tombstone,
        }),
        entry => entry,
    }
}

impl IndexView for View {
    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        let deleted = self.levels.tombstones()?.seqno_at(key);
        let hash = key_hash(key);
        let mut reads = 0;
        let lookups = &self.common.counters.lookups;
        for (_, tables) in self.levels.sources() {
            let Some(slot) = tables.candidate(key) else {
                continue;
            };
            // Nothing in the table is newer than the deletion: spare the read.
            if deleted > SeqNum::ZERO && slot.meta().seqno_max < deleted {
                continue;
            }
            if let Some(entry) = slot.table.get_counted(key, hash, &mut reads)? {
                lookups.count(reads);
                return Ok(resolve(Some(entry), deleted));
            }
        }
        lookups.count(reads);
        Ok(resolve(None, deleted))
    }

    fn get_batch(&self, keys: &[&[u8]]) -> Vec<Result<Option<Entry>>> {
        lookup::get_batch(self, keys)
    }

    fn cursor(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Box<dyn Cursor>> {
        let cursor = MergeCursor::new(&self.levels, lower, upper, direction, Purpose::Read)?;
        Ok(cursor.boxed())
    }

    fn range_tombstone_seqno(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Result<Option<SeqNum>> {
        let range = KeyRange::from_bounds(lower, upper);
        if range.is_empty() {
            return Ok(None);
        }
        Ok(self.levels.tombstones()?.newest_meeting(&range))
    }

    fn verify(
        &self,
        report: &mut dyn FnMut(glintdb_core::Error),
        held: &mut dyn FnMut(ValuePointer),
        live: &mut dyn FnMut(&[u8], ValuePointer),
        checked: &mut dyn FnMut(u64),
    ) {
        verify::verify(self, report, held, live, checked);
    }

    fn sample_keys(&self, every: u64) -> Result<Vec<Bytes>> {
        sample::sample_keys(self, every)
    }

    fn sample_end(&self, start: &[u8]) -> Result<Option<Bytes>> {
        sample::sample_end(self, start)
    }

    fn count_entries(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64> {
        sample::count_entries(self, lower, upper)
    }

    fn files(&self) -> Vec<FileId> {
        self.levels
            .slots()
            .map(|(_, slot)| slot.meta().id)
            .collect()
    }

    fn bytes(&self) -> u64 {
        self.levels
            .sources()
            .map(|(_, tables)| tables.bytes())
            .sum()
    }

    fn stats(&self) -> IndexStats {
        let options = self.common.options();
        let targets = shape::targets(&self.levels, &self.common.shape(&options));
        let counters = &self.common.counters;
        let mut stats = IndexStats {
            levels: vec![LevelStats::default(); crate::edit::LEVELS],
            lookup_reads_max: u32::try_from(self.levels.unpinned_sources()).unwrap_or(u32::MAX),
            lookups_by_reads: counters.lookups.sum(),
            pinned_levels: u32::try_from(self.common.pins.levels()).unwrap_or(u32::MAX),
            pinned_bytes: self.common.pins.memory().used_bytes() as u64,
            compactions: counters.compactions.load(Ordering::Relaxed),
            compaction_read_bytes: counters.read_bytes.load(Ordering::Relaxed),
            compaction_written_bytes: counters.written_bytes.load(Ordering::Relaxed),
            moved_bytes: counters.moved_bytes.load(Ordering::Relaxed),
            ..IndexStats::default()
        };
        for (level, target) in stats.levels.iter_mut().zip(targets.bytes) {
            level.target_bytes = target;
        }
        for (place, slot) in self.levels.slots() {
            let meta = slot.meta();
            let level = &mut stats.levels[usize::from(place.level)];
            level.tables += 1;
            level.bytes += meta.bytes;
            level.entries += meta.entries;
            stats.bytes += meta.bytes;
            stats.entries += meta.entries;
            stats.tombstones += meta.tombstones + meta.range_tombstones;
        }
        stats
    }
}
