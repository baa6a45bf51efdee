//! One memory budget for everything, kept by part.
//!
//! Thread-safe: counters are relaxed atomics; they steer and report, they never decide what is correct.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What memory is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryPart {
    /// Arenas of memtables, sealed ones and those that snapshots pin included.
    Memtables,
    /// Fence keys, range tombstones and records of tables.
    Fences,
    /// Filters of tables.
    Filters,
    /// Cached key blocks and values.
    Cache,
    /// Buffers of running flushes and compactions.
    Buffers,
    /// Read buffers that are kept for the next reads.
    IdleBuffers,
    /// The log's ring.
    LogRing,
    /// Key blocks of pinned levels.
    Pinned,
    /// Input of compactions read ahead.
    Prefetch,
    /// Filters and fences of the runs above a reshaped B+tree: its table of original keys.
    Remap,
}

impl MemoryPart {
    /// Every part, in the order of reports.
    pub const ALL: [MemoryPart; 10] = [
        MemoryPart::Memtables,
        MemoryPart::Fences,
        MemoryPart::Filters,
        MemoryPart::Cache,
        MemoryPart::Buffers,
        MemoryPart::IdleBuffers,
        MemoryPart::LogRing,
        MemoryPart::Pinned,
        MemoryPart::Prefetch,
        MemoryPart::Remap,
    ];

    /// Name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MemoryPart::Memtables => "memtables",
            MemoryPart::Fences => "fences",
            MemoryPart::Filters => "filters",
            MemoryPart::Cache => "cache",
            MemoryPart::Buffers => "buffers",
            MemoryPart::IdleBuffers => "idle_buffers",
            MemoryPart::LogRing => "log_ring",
            MemoryPart::Pinned => "pinned",
            MemoryPart::Prefetch => "prefetch",
            MemoryPart::Remap => "remap",
        }
    }
}

/// The budget of one database, in bytes.
#[derive(Debug)]
pub struct MemoryBudget {
    total_bytes: usize,
    used: [AtomicUsize; MemoryPart::ALL.len()],
}

impl MemoryBudget {
    /// A budget of `total_bytes`.
    #[must_use]
    pub fn new(total_bytes: usize) -> Self {
        MemoryBudget {
            total_bytes,
            used: Default::default(),
        }
    }

    /// The whole budget.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// Changes what one owner has in `part` from `charged` to `bytes`. Writes to the counters that
    /// all threads share only if the two differ.
    pub fn recharge(&self, part: MemoryPart, charged: &mut usize, bytes: usize) {
        let before = std::mem::replace(charged, bytes);
        if bytes > before {
            self.add(part, bytes - before);
        } else if bytes < before {
            self.sub(part, before - bytes);
        }
    }

    /// Takes note of `bytes` more in `part`.
    pub fn add(&self, part: MemoryPart, bytes: usize) {
        self.slot(part).fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes note of `bytes` fewer in `part`.
    pub fn sub(&self, part: MemoryPart, bytes: usize) {
        self.slot(part).fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Sets `part`, for a part that counts itself.
    pub fn set(&self, part: MemoryPart, bytes: usize) {
        self.slot(part).store(bytes, Ordering::Relaxed);
    }

    /// Bytes in `part`.
    #[must_use]
    pub fn used_bytes(&self, part: MemoryPart) -> usize {
        self.slot(part).load(Ordering::Relaxed)
    }

    /// Bytes in all parts.
    #[must_use]
    pub fn used_bytes_total(&self) -> usize {
        self.used
            .iter()
            .map(|used| used.load(Ordering::Relaxed))
            .sum()
    }

    fn slot(&self, part: MemoryPart) -> &AtomicUsize {
        &self.used[part as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recharging_counts_each_owner_once() {
        let budget = MemoryBudget::new(100);
        let (mut one, mut other) = (0, 0);
        for (bytes, used) in [(10, 10), (30, 30), (30, 30), (5, 5), (7, 7)] {
            budget.recharge(MemoryPart::Buffers, &mut one, bytes);
            assert_eq!(budget.used_bytes(MemoryPart::Buffers), used);
        }
        budget.recharge(MemoryPart::Buffers, &mut other, 20);
        assert_eq!(budget.used_bytes_total(), 27);
        budget.recharge(MemoryPart::Buffers, &mut one, 0);
        assert_eq!((budget.used_bytes_total(), one, other), (20, 0, 20));
    }
}
