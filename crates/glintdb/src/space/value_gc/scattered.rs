//! Scans call for values in key order: where they have paid as many reads for values that lie apart as it takes to put a piece of them in order, that is done, from the place on where the scan is that paid the last.
//!
//! Nobody counts by ranges: who scans often where values lie apart pays often, so its keys are what is put in order first, and what nobody scans stays where it was written (`docs/decisions/027-order-for-scans.md`).
//!
//! Thread safety: any thread. Invariants: 1. one piece of a database is put in order at a time; 2. none is begun that writers would be slowed for, by garbage, by level 0 or by a full disk, or that snapshots would have to be kept beside.

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

/// Bytes that are written as dear as another read.
const WRITTEN_A_READ: u64 = 4 << 10;
/// A read that scans did in vain counts this much less than one that is done for them: whether they come again is not known.
const READS_A_READ: u64 = 2;
/// A piece that was looked at has cost this part of what it may cost, if nothing in it had to be moved.
const LOOK_PART: u64 = 8;
/// Of the garbage that may be, a piece makes this part at most: between where rounds of value GC begin and where they get urgent.
const GARBAGE_PART: u64 = 16;
/// A piece ends after so long, wherever it is.
const STEP_TIME_MAX: Duration = Duration::from_secs(1);

/// What it costs to move so many values, in reads of scans.
fn reads_for(records: u64, bytes: u64) -> u64 {
    (records + bytes / WRITTEN_A_READ) * READS_A_READ
}

impl ValueGc {
    /// A scan has read values, at `key` and behind it.
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

    /// Whether nobody has to wait, or to be kept in more space, for a piece of so many bytes.
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
            && !self.shared.backpressure.compaction.engaged()
            && !self.space.is_gc_urgent()
    }
}

impl Account {
    /// Whether there may be more garbage before a round begins, where what snapshots keep counts too.
    fn has_room(&self, fill: f64) -> bool {
        let kept = self.kept_bytes as f64 / self.allowed_bytes.max(1) as f64;
        !self.is_due_at(fill + kept)
    }
}

/// Puts a piece in order.
struct OrderJob {
    gc: Arc<ValueGc>,
    keyspace: Arc<KeyspaceState>,
    from: Vec<u8>,
    limits: PieceLimits,
    /// In reads of scans.
    cost: u64,
}

impl OrderJob {
    /// What was paid is spent.
    fn ended(&self, reads: u64) {
        // Nobody else takes any.
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
        // Else another scan will come by.
        if !gone && gc.may_order(self.limits.bytes) {
            let begun = gc.shared.clock.monotonic();
            let in_time = || gc.shared.clock.monotonic().saturating_sub(begun) < STEP_TIME_MAX;
            let goes_on = || gc.may_go_on_ordering() && in_time();
            let bounds = (Bound::Included(&*self.from), Bound::Unbounded);
            let order = || gc.order_piece(&self.keyspace, bounds, self.limits, Some(&goes_on));
            let ordered = gc.space.gc.while_held_off(order);
            // Segments that the view of the log has kept.
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
        // For want of space, given way to a flush, or closing: when scans have paid again.
        let later =
            |error: &&Error| !matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Closed);
        if let Some(error) = error.filter(later) {
            // What is in doubt the manifest and the log know by themselves.
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
