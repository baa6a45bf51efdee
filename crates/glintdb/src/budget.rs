//! One budget of memory for everything an open database holds: what each part uses, and what is left for the cache.
//!
//! Thread safety: everything from any thread; no lock is held but for a look.

use crate::engine::Engine;
use glintdb_core::memory::MemoryPart;
use glintdb_core::sync::atomic::Ordering;
use glintdb_memtable::Arena;
use std::sync::{Arc, Weak};

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
        let share = self.options.memtable_share_bytes().max(memtables);
        let fixed = [
            MemoryPart::Fences,
            MemoryPart::Filters,
            MemoryPart::Buffers,
            MemoryPart::LogRing,
        ]
        .map(|part| self.memory.used_bytes(part));
        let rest = self
            .memory
            .total_bytes()
            .saturating_sub(share + fixed.iter().sum::<usize>());
        // A cache of nothing would make every lookup read; a sixteenth of the budget is kept for it whatever else there is.
        self.cache
            .set_capacity_bytes(rest.max(self.memory.total_bytes() / 16));
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
