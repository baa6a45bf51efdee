//! The running transactions, and the floor of tombstones.
//!
//! Thread safety: any thread.
//!
//! Invariant: while a transaction runs, compactions drop no tombstone that is newer than its
//! snapshot, so that the transaction's check finds every deletion.

use glintdb_core::sync::Mutex;
use glintdb_core::sync::atomic::{AtomicU64, Ordering};
use glintdb_core::{SeqNum, planted};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The snapshots of running transactions, and the floor below which tombstones may be dropped.
pub(crate) struct Transactions {
    running: Mutex<BTreeMap<SeqNum, usize>>,
    floor: Arc<AtomicU64>,
}

impl Transactions {
    pub(crate) fn new(floor: Arc<AtomicU64>) -> Self {
        Transactions {
            running: Mutex::new(BTreeMap::new()),
            floor,
        }
    }

    /// Registers the transaction whose snapshot `pin` takes. `at` returns the snapshot's commit.
    pub(crate) fn begin<P>(&self, pin: impl FnOnce() -> P, at: impl FnOnce(&P) -> SeqNum) -> P {
        // Under the lock: a floor computed before or after is at or below this snapshot.
        let mut running = self.running.lock();
        let pin = pin();
        *running.entry(at(&pin)).or_default() += 1;
        pin
    }

    /// Forgets a transaction that began at commit `at`.
    pub(crate) fn end(&self, at: SeqNum) {
        let mut running = self.running.lock();
        if let Some(count) = running.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                running.remove(&at);
            }
        }
    }

    /// Raises the floor to the commit behind the oldest running transaction's snapshot, or behind
    /// the newest visible one. Called before compactions are picked.
    pub(crate) fn raise_floor(&self, visible: impl FnOnce() -> SeqNum) {
        let running = self.running.lock();
        let oldest = planted!(
            "glintdb: the floor of tombstones passes a running transaction",
            running.keys().next().copied(),
            None
        );
        let floor = oldest.unwrap_or_else(visible).next();
        self.floor.fetch_max(floor.0, Ordering::AcqRel);
    }

    /// Returns the number of running transactions.
    pub(crate) fn count(&self) -> usize {
        self.running.lock().values().sum()
    }
}
