//! An immutable picture of an index: its levels as an [`IndexView`].
//!
//! Thread-safe. Reads take no lock and write no counter that threads share.

use crate::common::Common;
use crate::compaction::shape;
use crate::levels::Levels;
use bytes::Bytes;
use glintdb_core::index::{Cursor, IndexStats, IndexView, LevelStats};
use glintdb_core::{Direction, Entry, FileId, Result, SeqNum, ValuePointer};
use glintdb_runs::keys::KeyRange;
use glintdb_runs::read::{MergeCursor, live_pointers, verify_tables};
use glintdb_runs::table::Purpose;
use glintdb_runs::{Sorted, read};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An immutable picture of an index.
pub(crate) struct View {
    pub(crate) levels: Levels,
    pub(crate) common: Arc<Common>,
}

impl IndexView for View {
    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        read::get(
            &self.common.env,
            self.levels.sorted(),
            self.levels.tombstones()?,
            key,
        )
    }

    fn get_batch(&self, keys: &[&[u8]]) -> Vec<Result<Option<Entry>>> {
        let tombstones = match self.levels.tombstones() {
            Ok(tombstones) => tombstones,
            Err(error) => return keys.iter().map(|_| Err(error.clone())).collect(),
        };
        let sources: Vec<&Sorted> = self.levels.sorted().collect();
        read::get_batch(&self.common.env, &sources, tombstones, keys)
    }

    fn cursor(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Box<dyn Cursor>> {
        let (sources, tombstones) = (self.levels.sorted(), self.levels.tombstones()?);
        let bounds = (lower, upper);
        let cursor = MergeCursor::new(sources, tombstones, bounds, direction, Purpose::Read);
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
        let mut sound = true;
        for (place, tables) in self.levels.sources() {
            sound &= verify_tables(place, tables, report, held, checked);
        }
        let tombstones = self.levels.tombstones();
        let walked = tombstones.and_then(|set| live_pointers(self.levels.sorted(), set, live));
        if let Err(error) = walked
            && sound
        {
            // Otherwise the error comes from a table whose damage was reported above.
            report(error);
        }
    }

    fn sample_keys(&self, every: u64) -> Result<Vec<Bytes>> {
        read::sample_keys(self.levels.sorted(), every)
    }

    fn sample_end(&self, start: &[u8]) -> Result<Option<Bytes>> {
        read::sample_end(self.levels.sorted(), start)
    }

    fn bytes_within(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64> {
        let range = KeyRange::from_bounds(lower, upper);
        if range.is_empty() {
            return Ok(0);
        }
        let mut bytes = 0;
        for slot in self
            .levels
            .sorted()
            .flat_map(|tables| tables.meeting(&range))
        {
            bytes += slot.bytes_within(&range)?;
        }
        Ok(bytes)
    }

    fn count_entries(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64> {
        read::count_entries(self.levels.sorted(), lower, upper)
    }

    fn files(&self) -> Vec<FileId> {
        self.levels
            .slots()
            .map(|(_, slot)| slot.meta().id)
            .collect()
    }

    fn bytes(&self) -> u64 {
        self.levels.sorted().map(Sorted::bytes).sum()
    }

    fn stats(&self) -> IndexStats {
        let options = self.common.options();
        let targets = shape::targets(&self.levels, &self.common.shape(&options));
        let counters = &self.common.counters;
        let mut stats = IndexStats {
            levels: vec![LevelStats::default(); crate::edit::LEVELS],
            lookup_reads_max: u32::try_from(self.levels.unpinned_sources()).unwrap_or(u32::MAX),
            lookups_by_reads: self.common.env.lookups_by_reads(),
            pinned_levels: u32::try_from(self.common.pins.levels()).unwrap_or(u32::MAX),
            pinned_bytes: self.common.env.pin_memory().used_bytes() as u64,
            compactions: counters.compactions.load(Ordering::Relaxed),
            compaction_read_bytes: counters.read_bytes.load(Ordering::Relaxed),
            compaction_written_bytes: counters.written_bytes.load(Ordering::Relaxed),
            moved_bytes: counters.moved_bytes.load(Ordering::Relaxed),
            kind: "lsm",
            ..IndexStats::default()
        };
        for (level, target) in stats.levels.iter_mut().zip(targets.bytes) {
            level.target_bytes = target;
        }
        for (place, slot) in self.levels.slots() {
            let meta = slot.meta();
            let level = &mut stats.levels[usize::from(place.level)];
            level.parts += 1;
            level.bytes += meta.bytes;
            level.entries += meta.entries;
            stats.files += 1;
            stats.bytes += meta.bytes;
            stats.pointed_bytes += meta.pointed_bytes;
            stats.entries += meta.entries;
            stats.tombstones += meta.tombstones + meta.range_tombstones;
        }
        // A table is live as a whole until a compaction replaces it.
        stats.live_bytes = stats.bytes;
        stats
    }
}
