//! Puts values in key order where scans pay for it: once scans of a keyspace have spent as many
//! reads on values that are far apart as it costs to put a piece of them in order, a job does that,
//! from the place of the scan that spent the last read.
//!
//! Reads are not counted by ranges. Keys that are scanned often spend reads often, so their values
//! are put in order first, and values that no scan reads stay where they were written
//! (`docs/decisions/027-order-for-scans.md`).
//!
//! Thread safety: any thread.
//!
//! Invariants:
//! 1. A database puts one piece in order at a time.
//! 2. No piece is begun if writers would be slowed for it (by garbage, level 0 or a full disk), or
//!    if snapshots would have to keep too much.

use super::ValueGc;
use super::ordering::{Piece, PieceLimits};
use crate::background::Background;
use crate::background::queue::{Job, Progress};
use crate::space::account::Account;
use crate::state::scattered::Misses;
use crate::state::version::KeyspaceState;
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::JobPriority;
use glintdb_core::sync::atomic::Ordering;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Writing this many bytes costs as much as one read.
const WRITTEN_A_READ: u64 = 4 << 10;
/// Discount of past reads of scans: a read counts as 1 / `READS_A_READ` of a read for them, because
/// scans may not return.
const READS_A_READ: u64 = 2;
/// A piece in which no value had to be moved costs this part of its largest cost.
const LOOK_PART: u64 = 8;
/// A piece makes at most this part of the allowed garbage: less than between the points where
/// rounds of value GC begin and where they become urgent.
const GARBAGE_PART: u64 = 16;
/// A piece ends after this time, even if it is not complete.
const STEP_TIME_MAX: Duration = Duration::from_secs(1);

/// Returns the cost of moving values, in reads of scans.
fn reads_for(records: u64, bytes: u64) -> u64 {
    (records + bytes / WRITTEN_A_READ) * READS_A_READ
}

impl ValueGc {
    /// Notes the values that a scan has read from the log, at `key` and behind it. Queues a job if
    /// scans have paid for a piece.
    pub(crate) fn note_scattered(
        self: &Arc<Self>,
        keyspace: &Arc<KeyspaceState>,
        misses: Misses,
        key: &[u8],
    ) {
        let scattered = &keyspace.scattered;
        let wanted = self.shared.options.experiments.order_for_scans
            && self.shared.options.experiments.value_gc;
        if misses.apart == 0 || !wanted || scattered.given_up.load(Ordering::Relaxed) {
            return;
        }
        let paid = scattered.reads.fetch_add(misses.apart, Ordering::Relaxed) + misses.apart;
        if self.space.gc.ordering.load(Ordering::Relaxed) {
            return;
        }
        let mean = misses.bytes / misses.count as u64 + 1;
        let most = self.piece_limits();
        let allowed = self.space.gc.known_account().allowed_bytes / GARBAGE_PART;
        let records = (most.bytes.min(allowed) / mean).clamp(1, most.records);
        let cost = reads_for(records, records * mean);
        if paid >= cost && !self.space.gc.ordering.swap(true, Ordering::AcqRel) {
            let job = OrderJob {
                gc: Arc::clone(self),
                keyspace: Arc::clone(keyspace),
                from: key.to_vec(),
                limits: PieceLimits {
                    records,
                    bytes: records * mean,
                },
                cost,
            };
            self.background.push(Box::new(job));
        }
    }

    /// Returns whether a piece of this many bytes may begin: no writer waits for it, and it fits
    /// the allowed garbage.
    fn may_order(&self, bytes: u64) -> bool {
        let account = self.space.gc.known_account();
        let fits = |free| free > 2 * bytes + self.space.flush_space_bytes();
        self.may_go_on_ordering()
            && !self.shared.reserve.is_lent()
            && self.shared.volume.free_bytes().is_none_or(fits)
            && account.has_room(self.space.fill_now(&account))
    }

    fn may_go_on_ordering(&self) -> bool {
        !self.shared.version.load().has_sealed()
            && !self.shared.some_index_owes()
            && !self.space.is_gc_urgent()
    }
}

impl Account {
    /// Returns whether more garbage is allowed before a round begins, counting the segments that
    /// snapshots keep.
    fn has_room(&self, fill: f64) -> bool {
        let kept = self.kept_bytes as f64 / self.allowed_bytes.max(1) as f64;
        !self.is_due_at(fill + kept)
    }
}

/// A job that puts a piece in order.
struct OrderJob {
    gc: Arc<ValueGc>,
    keyspace: Arc<KeyspaceState>,
    from: Vec<u8>,
    limits: PieceLimits,
    /// The cost of the piece, in reads of scans.
    cost: u64,
}

impl OrderJob {
    /// Subtracts the reads that the piece has cost, and allows the next piece.
    fn ended(&self, reads: u64) {
        // Only the one running job subtracts.
        let scattered = &self.keyspace.scattered;
        let paid = scattered.reads.load(Ordering::Relaxed);
        scattered
            .reads
            .fetch_sub(paid.min(reads), Ordering::Relaxed);
        self.gc.space.gc.ordering.store(false, Ordering::Release);
    }
}

impl Job<Background> for OrderJob {
    fn step(&mut self, _: &Background) -> Result<Progress> {
        let gc = &self.gc;
        let gone = self.keyspace.dropped.load(Ordering::Acquire);
        let mut piece = Piece::default();
        // Otherwise a later scan queues it again.
        if !gone && gc.may_order(self.limits.bytes) {
            let begun = gc.shared.clock.monotonic();
            let in_time = || gc.shared.clock.monotonic().saturating_sub(begun) < STEP_TIME_MAX;
            let goes_on = || gc.may_go_on_ordering() && in_time();
            let bounds = (Bound::Included(&*self.from), Bound::Unbounded);
            let order = || gc.order_piece(&self.keyspace, bounds, self.limits, Some(&goes_on));
            let ordered = gc.space.gc.while_held_off(order);
            // Removes segments that the view of the log has kept.
            gc.space.remove_doomed();
            piece = ordered?;
        }
        (gc.space.gc.counters.ordered_records).fetch_add(piece.records, Ordering::Relaxed);
        let spent = reads_for(piece.records, piece.bytes);
        self.ended(spent.max(self.cost / LOOK_PART));
        Ok(Progress::Done)
    }

    fn name(&self) -> String {
        format!("{}: values in key order for scans", self.keyspace.name)
    }

    fn priority(&self) -> JobPriority {
        JobPriority::Background
    }

    fn abandon(self: Box<Self>, _: &Background, error: Option<&Error>) {
        let gc = &self.gc;
        self.ended(self.cost);
        // After these, scans must pay again before the next try.
        let later = |error: &&Error| !error.kind().passes() && error.kind() != ErrorKind::Closed;
        if let Some(error) = error.filter(later) {
            // The manifest and the log keep track of edits in doubt by themselves.
            (self.keyspace.scattered.given_up).store(true, Ordering::Relaxed);
            let error = format!("{}: {error}", self.name());
            gc.space.gc.state.lock().error.get_or_insert(error);
        }
        if error.is_some() && !gc.shared.closing() {
            // Compactions may have waited for the place that was given up.
            gc.shared.schedule();
        }
    }
}
