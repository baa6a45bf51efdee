//! Counts what scans spend on merging the runs at the top of an index, and compares it with the
//! cost of a compaction of these runs (`docs/decisions/026-compaction-for-scans.md`).
//!
//! Thread-safe: relaxed counters. A race delays a compaction by one scan at most.

use crate::sorted::Run;
use std::sync::atomic::{AtomicU64, Ordering};

/// The fixed cost of a compaction (files, syncs, the manifest), in entries.
const COMPACTION_ENTRIES: u64 = 1 << 16;

/// What scans have spent since a run last left the top of the index.
#[derive(Default)]
pub struct Scans {
    /// Entries that scans have passed.
    entries: AtomicU64,
    /// The number of entries at which a compaction pays. 0: nothing can be gained.
    worth: AtomicU64,
}

impl Scans {
    /// Follows a change of the runs from `before` to `now`. `beneath_entries` is the number of
    /// entries that a compaction of the runs would merge them with.
    pub fn follow(&self, before: &[Run], now: &[Run], beneath_entries: u64) {
        let stays = |run: &Run| now.iter().any(|now| now.id == run.id);
        if !before.iter().all(stays) {
            self.entries.store(0, Ordering::Relaxed);
        }
        self.worth
            .store(worth(now, beneath_entries), Ordering::Relaxed);
    }

    /// Counts entries that scans have passed. `true` once, as soon as a compaction pays.
    pub fn note(&self, entries: u64) -> bool {
        let worth = self.worth.load(Ordering::Relaxed);
        if worth == 0 {
            return false;
        }
        let before = self.entries.fetch_add(entries, Ordering::Relaxed);
        before < worth && before.saturating_add(entries) >= worth
    }

    /// Whether scans have spent as much as a compaction costs.
    pub fn pay(&self) -> bool {
        let worth = self.worth.load(Ordering::Relaxed);
        worth > 0 && self.entries.load(Ordering::Relaxed) >= worth
    }
}

/// About the number of entries that a compaction of `runs` would write. 0: it would gain nothing.
fn worth(runs: &[Run], beneath_entries: u64) -> u64 {
    let entries: u64 = runs.iter().map(|run| run.tables.entries()).sum();
    if entries == 0 || (runs.len() < 2 && beneath_entries == 0) {
        return 0;
    }
    (entries + beneath_entries).max(COMPACTION_ENTRIES)
}
