//! One memory budget for everything that an open database holds: how much each part uses, and how
//! much is left for the cache.
//!
//! Thread safety: any thread. Locks are held only for moments.

use crate::index_kinds;
use crate::shared::Shared;
use glintdb_core::index::MemoryShare;
use glintdb_core::memory::MemoryPart;
use glintdb_core::proportion;
use glintdb_core::sync::atomic::Ordering;
use glintdb_memtable::Arena;
use std::sync::{Arc, Weak};

/// The cache gets at least this fraction of the budget.
const CACHE_SHARE_MIN: usize = 16;

/// Automatically pinned levels take at most this fraction of the memory that memtables, fences and
/// filters leave. More would be taken from hot values, which are as good as pins if reads are
/// skewed.
const PINS_AUTO_SHARE: u64 = 2;

/// Percent of the budget that the tables of original keys of all reshaped keyspaces may take.
const REMAP_PERCENT_MAX: u64 = 50;

/// Returns the bytes that are set aside for memtables that hold `used` bytes now, of a budget of
/// `total` in which `share` is theirs. The cache borrows the rest of the share.
///
/// That is twice `used`, so that the cache shrinks ahead of the memtables and a little at a time:
/// it is computed again whenever a part of the log leaves the ring. It is at least a sixteenth of
/// the budget, which is more than the ring brings between two computations.
fn memtables_set_aside(total: usize, share: usize, used: usize) -> usize {
    (used * 2).clamp(total / 16, share)
}

impl Shared {
    /// Updates how much memory each part uses, and gives the rest to the cache.
    pub(crate) fn update_memory(&self) {
        let version = self.version.load();
        let in_version: usize = version
            .generations()
            .map(|generation| generation.bytes())
            .sum();
        drop(version);
        let memtables = in_version + self.chunks.pooled_bytes() + self.pinned_bytes();
        self.memory.set(MemoryPart::Memtables, memtables);
        let tables = self.values.table_bytes();
        let volume = self.volume.stats();
        let [idle, idle_most] = [volume.idle_buffer_bytes, volume.idle_buffer_bytes_most]
            .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        self.memory.set(MemoryPart::IdleBuffers, idle);
        (self.memory).set(MemoryPart::Cache, self.cache.used_bytes() + tables);
        let total = self.memory.total_bytes();
        let share = memtables_set_aside(total, self.options.memtable_share_bytes(), in_version)
            .max(memtables);
        let fixed = [
            MemoryPart::Fences,
            MemoryPart::Filters,
            MemoryPart::Remap,
            MemoryPart::LogRing,
            MemoryPart::Prefetch,
        ]
        .map(|part| self.memory.used_bytes(part));
        // Counts the most idle buffers, not those that are idle now: buffers in use become idle
        // again, and the cache would shrink and grow with every round of value GC.
        let buffers = self.memory.used_bytes(MemoryPart::Buffers).max(idle_most);
        let fixed = fixed.iter().sum::<usize>() + tables + buffers;
        let rest = total.saturating_sub(share + fixed);
        let rest = rest.saturating_sub(self.share_pins(rest, total / CACHE_SHARE_MIN));
        // With an empty cache every lookup would read, so the cache keeps a sixteenth of the budget
        // in any case.
        self.cache
            .set_capacity_bytes(rest.max(total / CACHE_SHARE_MIN));
    }

    /// Divides memory for pinned levels among the indexes: the part of `rest` that the cache does
    /// not need. Returns what they take. The smallest index is asked first, and memory that it does
    /// not want is left to the others, so small indexes are pinned whole.
    fn share_pins(&self, rest: usize, cache_min: usize) -> usize {
        // If another thread is dividing, its result serves.
        let Some(mut taken_before) = self.pins_taken.try_lock() else {
            return self.memory.used_bytes(MemoryPart::Pinned);
        };
        let version = self.version.load_full();
        let mut indexes: Vec<_> = version
            .live_keyspaces()
            .map(|keyspace| {
                let percent = index_kinds::remap_percent(&keyspace.state.options.lock());
                (keyspace.view.bytes(), percent, keyspace.state.index())
            })
            .collect();
        indexes.sort_by_key(|(bytes, ..)| *bytes);
        // Reshaped keyspaces that ask for more than half of the budget together get less each.
        let percent_all: u64 = indexes.iter().map(|(_, percent, _)| percent).sum();
        let divisor = percent_all.max(REMAP_PERCENT_MAX);
        let remap_all = self.memory.total_bytes() as u64 / 100 * REMAP_PERCENT_MAX;
        let mut all = rest.saturating_sub(cache_min) as u64;
        let mut auto = rest as u64 / PINS_AUTO_SHARE;
        let mut taken = 0;
        let mut left = indexes.len() as u64;
        for (_, percent, index) in indexes {
            let takes = index.set_memory_share(MemoryShare {
                pins_auto_bytes: auto / left,
                pins_max_bytes: all / left,
                remap_max_bytes: proportion(remap_all, percent, divisor),
            });
            taken += takes;
            all = all.saturating_sub(takes);
            auto = auto.saturating_sub(takes);
            left -= 1;
        }
        let taken = usize::try_from(taken).unwrap_or(usize::MAX);
        let taken = taken.max(self.memory.used_bytes(MemoryPart::Pinned));
        *taken_before = taken;
        taken
    }

    /// Updates the division of memory between the steps of a compaction: tables that it writes for
    /// pinned levels are kept in memory beside the former ones, and the cache makes room for them.
    pub(crate) fn watch_pins(&self) {
        let pinned = self.memory.used_bytes(MemoryPart::Pinned);
        let grown = |taken: usize| pinned > taken + self.memory.total_bytes() / 64;
        let due = self
            .pins_taken
            .try_lock()
            .is_some_and(|taken| grown(*taken));
        if due {
            self.update_memory();
        }
    }

    /// Arenas of memtables that only snapshots, transactions and iterators keep.
    fn pinned_arenas(&self) -> Vec<Arc<Arena>> {
        let flushed = self.flushed_arenas.lock();
        flushed.iter().filter_map(Weak::upgrade).collect()
    }

    /// Memory of memtables that only snapshots, transactions and iterators keep, in bytes.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let arenas = self.pinned_arenas();
        arenas.iter().map(|arena| arena.allocated_bytes()).sum()
    }

    /// Gives up the oldest snapshots while snapshots pin more memory than allowed.
    pub(crate) fn enforce_pin_limit(&self) {
        let kept = self.pinned_arenas();
        let given_up = self
            .pins
            .give_up_beyond(self.options.snapshot_pin_bytes_max, &kept);
        self.counters
            .snapshots_given_up
            .fetch_add(given_up, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_borrows_memory_that_memtables_do_not_use() {
        let (total, share) = (64 << 20, 16 << 20);
        let aside = |used| memtables_set_aside(total, share, used);
        assert_eq!((aside(0), aside(1 << 20)), (total / 16, total / 16));
        assert_eq!(aside(5 << 20), 10 << 20);
        // From the seal on, with one generation being flushed and one being filled, all of the
        // share.
        assert_eq!((aside(8 << 20), aside(40 << 20)), (share, share));
    }
}
