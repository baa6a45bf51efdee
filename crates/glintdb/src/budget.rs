//! One budget of memory for everything an open database holds: what each part uses, and what is left for the cache.
//!
//! Thread safety: everything from any thread; no lock is held but for a look.

use crate::engine::Engine;
use glintdb_core::memory::MemoryPart;
use glintdb_core::sync::atomic::Ordering;
use glintdb_memtable::Arena;
use std::sync::{Arc, Weak};

/// The cache has at least this fraction of the budget.
const CACHE_SHARE_MIN: usize = 16;

/// What is set aside for memtables that hold `used` bytes now, of a budget of `total` in which `share` is theirs: what they do not use is lent to the cache. Twice what they hold, so
/// that the cache shrinks ahead of them and a little at a time (this is asked again after every piece of the log that leaves the ring); a sixteenth of the budget where they hold
/// nothing, which is more than the ring brings between two looks.
fn memtables_set_aside(total: usize, share: usize, used: usize) -> usize {
    (used * 2).clamp(total / 16, share)
}

impl Engine {
    /// Takes note of what memory is used for, and gives the cache what is left.
    pub(crate) fn update_memory(&self) {
        let version = self.version.load();
        let in_version: usize = version
            .generations()
            .map(|generation| generation.bytes())
            .sum();
        drop(version);
        let memtables = in_version + self.pinned_bytes() + self.chunks.pooled_bytes();
        self.memory.set(MemoryPart::Memtables, memtables);
        self.memory.set(MemoryPart::Cache, self.cache.used_bytes());
        let total = self.memory.total_bytes();
        let share = memtables_set_aside(total, self.options.memtable_share_bytes(), in_version)
            .max(memtables);
        let fixed = [
            MemoryPart::Fences,
            MemoryPart::Filters,
            MemoryPart::Buffers,
            MemoryPart::LogRing,
        ]
        .map(|part| self.memory.used_bytes(part));
        let rest = total.saturating_sub(share + fixed.iter().sum::<usize>());
        // A cache of nothing would make every lookup read; a sixteenth of the budget is kept for it whatever else there is.
        self.cache
            .set_capacity_bytes(rest.max(total / CACHE_SHARE_MIN));
    }

    /// Memory of memtables that were flushed and that somebody still keeps.
    fn kept_arenas(&self) -> Vec<Arc<Arena>> {
        let arenas = self.flushed_arenas.lock();
        arenas.iter().filter_map(Weak::upgrade).collect()
    }

    /// Memory of memtables that only snapshots, transactions and iterators keep, in bytes.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let arenas = self.kept_arenas();
        arenas.iter().map(|arena| arena.allocated_bytes()).sum()
    }

    /// Gives up the oldest snapshots while more is pinned than may be.
    pub(crate) fn enforce_pin_limit(&self) {
        let arenas = self.kept_arenas();
        let given_up = self
            .pins
            .give_up_beyond(self.options.snapshot_pin_bytes_max, &arenas);
        self.counters
            .snapshots_given_up
            .fetch_add(given_up, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_memtables_do_not_use_is_lent() {
        let (total, share) = (64 << 20, 16 << 20);
        let aside = |used| memtables_set_aside(total, share, used);
        assert_eq!((aside(0), aside(1 << 20)), (total / 16, total / 16));
        assert_eq!(aside(5 << 20), 10 << 20);
        // From the seal on, with one being flushed and one being filled, all of it.
        assert_eq!((aside(8 << 20), aside(40 << 20)), (share, share));
    }
}
