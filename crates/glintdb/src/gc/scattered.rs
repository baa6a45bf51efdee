//! Scans call for values in key order: where they have paid as many reads for values that lie apart as it takes to put a piece of them in order, that is done, from the place on where the scan is that paid the last.
//!
//! Nobody counts by ranges: who scans often where values lie apart pays often, so its keys are what is put in order first, and what nobody scans stays where it was written. Scans and what is done for them together
//! read no more than twice what scans alone would (`docs/decisions/027-order-for-scans.md`).
//!
//! Thread safety: any thread.

use super::ordering::{PIECE_RECORDS, Piece, places_more_than_needed};
use crate::engine::Engine;
use crate::jobs::{Job, Progress};
use crate::version::KeyspaceState;
use crate::{Error, ErrorKind, Result};
use glintdb_core::ValuePointer;
use glintdb_core::index::JobPriority;
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::ops::Bound;
use std::sync::Arc;

/// Bytes that are written as dear as another read.
const WRITTEN_A_READ: u64 = 4 << 10;
/// A read that scans did in vain counts this much less than one that is done for them: whether they come again is not known.
const READS_A_READ: u64 = 2;
/// A piece that was looked at has cost this part of what it may cost, if nothing in it had to be moved.
const LOOK_PART: u64 = 8;

/// Values that a scan has read from the medium.
#[derive(Clone, Copy, Default)]
pub(crate) struct Misses {
    pub(crate) count: usize,
    bytes: u64,
    /// Reads that it took because they lie apart.
    apart: u64,
}

impl Misses {
    /// These were read, in one order of keys or the other.
    pub(crate) fn of<'a>(
        pointers: impl ExactSizeIterator<Item = &'a ValuePointer> + Clone,
    ) -> Misses {
        Misses {
            count: pointers.len(),
            bytes: pointers.clone().map(|one| u64::from(one.length)).sum(),
            apart: places_more_than_needed(pointers),
        }
    }
}

/// What scans of a keyspace have paid so far, and got nothing for.
#[derive(Default)]
pub(crate) struct Scattered {
    reads: AtomicU64,
    queued: AtomicBool,
    /// Something is wrong with what would be moved: until the database is opened again.
    given_up: AtomicBool,
}

/// What it costs to move so many values, in reads of scans.
fn reads_for(records: u64, bytes: u64) -> u64 {
    (records + bytes / WRITTEN_A_READ) * READS_A_READ
}

impl Engine {
    /// A scan has read values, at `key` and behind it.
    pub(crate) fn note_scattered(&self, keyspace: &Arc<KeyspaceState>, misses: Misses, key: &[u8]) {
        let scattered = &keyspace.scattered;
        let wanted = self.options.order_for_scans && self.options.value_gc;
        if misses.apart == 0 || !wanted || scattered.given_up.load(Ordering::Relaxed) {
            return;
        }
        let mean = misses.bytes / misses.count as u64 + 1;
        let records = (self.piece_bytes_max() / mean).clamp(1, PIECE_RECORDS as u64);
        let cost = reads_for(records, records * mean);
        let paid = scattered.reads.fetch_add(misses.apart, Ordering::Relaxed) + misses.apart;
        if paid >= cost && !scattered.queued.swap(true, Ordering::AcqRel) {
            let job = OrderJob {
                keyspace: Arc::clone(keyspace),
                from: key.to_vec(),
                cost,
            };
            self.jobs.push(self, Box::new(job));
        }
    }
}

/// Puts a piece in order.
struct OrderJob {
    keyspace: Arc<KeyspaceState>,
    from: Vec<u8>,
    /// Of a whole piece.
    cost: u64,
}

impl OrderJob {
    /// What was paid is spent.
    fn ended(&self, reads: u64) {
        let scattered = &self.keyspace.scattered;
        let spend = |paid: u64| Some(paid.saturating_sub(reads));
        let _ = (scattered.reads).fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend);
        scattered.queued.store(false, Ordering::Release);
    }
}

impl Job for OrderJob {
    fn step(&mut self, engine: &Engine) -> Result<Progress> {
        let debt = self.keyspace.index.debt();
        let later = debt.level0_runs >= debt.level0_runs_slow
            || engine.is_gc_urgent()
            || engine.version.load().has_sealed()
            || engine.flush_lock.try_lock().is_none();
        if later || self.keyspace.dropped.load(Ordering::Acquire) {
            // Another scan will come by.
            self.ended(self.cost / LOOK_PART);
            return Ok(Progress::Done);
        }
        let from = Bound::Included(&*self.from);
        let goes_on = || !engine.version.load().has_sealed();
        let ordered = (engine.gc).while_held_off(|| {
            engine.order_piece(&self.keyspace, from, Bound::Unbounded, &goes_on)
        });
        // Segments that the view of the log has kept.
        engine.remove_doomed();
        let Piece { records, bytes, .. } = ordered?;
        (engine.gc.counters.ordered_records).fetch_add(records, Ordering::Relaxed);
        self.ended(reads_for(records, bytes).max(self.cost / LOOK_PART));
        Ok(Progress::Done)
    }

    fn name(&self) -> String {
        format!("{}: values in key order for scans", self.keyspace.name)
    }

    fn priority(&self) -> JobPriority {
        JobPriority::Background
    }

    fn abandon(self: Box<Self>, engine: &Engine, error: Option<&Error>) {
        self.ended(self.cost);
        match error {
            // For want of space, given way to a flush, or closing: when scans have paid again.
            None => {}
            Some(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Closed) => {}
            // Whoever reads the value meets it too.
            Some(error) if error.kind() == ErrorKind::Corruption => {
                (self.keyspace.scattered.given_up).store(true, Ordering::Relaxed);
            }
            Some(error) => engine.note_background_error(error),
        }
    }
}
