//! What a caller that keeps its own order of commits needs: positions to compare and publish. Thread-safe.

use crate::log::Log;
use crate::lsn::Lsn;
use crate::write::append::Reservation;
use glintdb_core::{Result, SegmentId};
use std::sync::atomic::Ordering;

impl Reservation {
    /// The stream position behind the frame: grows from reservation to reservation, for comparison with [`Log::written_position`] and [`Log::durable_position`].
    #[must_use]
    pub fn end_position(&self) -> u64 {
        self.end_position
    }
}

impl Log {
    /// Asserts the order of positions that the head of `log.rs` states. Under the sequencer's lock,
    /// while a segment is active whose next frame begins at `head`. Positions only grow, so of two
    /// the smaller one is read first.
    pub(crate) fn assert_positions_in_order(&self, head: u64) {
        let durable = self.durable.load(Ordering::Acquire);
        let completed = self.completed.load(Ordering::Acquire);
        assert!(
            durable <= completed && completed <= head,
            "durable, completed and reserved positions are in this order: {durable}, {completed}, {head}"
        );
        let reclaimed = self.reclaimed.load(Ordering::Acquire);
        let reclaimable = self.reclaimable.load(Ordering::Acquire);
        assert!(
            reclaimed <= reclaimable && reclaimable <= head,
            "reclaimed, reclaimable and reserved positions are in this order: {reclaimed}, {reclaimable}, {head}"
        );
        assert!(
            head <= reclaimed + self.ring_bytes,
            "the ring holds all from {reclaimed} to {head}: it has {} bytes",
            self.ring_bytes
        );
    }

    /// As [`complete`](Self::complete) of the reservation that ends at `position`: every frame before it is copied.
    pub fn complete_to(&self, position: u64) {
        self.completed.fetch_max(position, Ordering::AcqRel);
        if self.progress_waiters.load(Ordering::Relaxed) > 0 {
            self.notify_progress();
        }
    }

    /// Whether a copied frame survives `kill -9` at once; where not, [`write_out`](Self::write_out) makes it.
    #[must_use]
    pub fn survives_kill(&self) -> bool {
        self.survives_kill
    }

    /// Every frame that ends at or before this stream position survives `kill -9`.
    #[must_use]
    pub fn written_position(&self) -> u64 {
        if self.survives_kill {
            self.completed.load(Ordering::Acquire)
        } else {
            self.written.load(Ordering::SeqCst)
        }
    }

    /// [`completed_position`](Self::completed_position) without the gaps between segments: its
    /// growth is what was written. Up to a ring's length too small for a moment at a gap.
    #[must_use]
    pub fn completed_bytes(&self) -> u64 {
        self.without_gaps(self.completed_position())
    }

    /// [`spilled_position`](Self::spilled_position) without the gaps between segments, as
    /// [`completed_bytes`](Self::completed_bytes).
    #[must_use]
    pub fn spilled_bytes(&self) -> u64 {
        self.without_gaps(self.spilled_position())
    }

    /// A gap is counted before a commit passes it; `reclaimable` is behind the gap by then.
    fn without_gaps(&self, position: u64) -> u64 {
        let position = position.max(self.reclaimable.load(Ordering::Acquire));
        position.saturating_sub(self.skipped.load(Ordering::Relaxed))
    }

    /// Every frame that ends at or before this stream position is whole, in the ring or its segment.
    #[must_use]
    pub fn completed_position(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Everything of the stream before this position is in segments, if not durably.
    #[must_use]
    pub fn spilled_position(&self) -> u64 {
        self.spilled.load(Ordering::Acquire)
    }

    /// Every frame that ends at or before this stream position survives power loss.
    #[must_use]
    pub fn durable_position(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// [`write_out`](Self::write_out) of everything completed until now.
    ///
    /// # Errors
    /// As [`write_out`](Self::write_out).
    pub fn write_out_all(&self) -> Result<()> {
        if self.survives_kill {
            self.check()
        } else {
            self.write_out_to(self.completed.load(Ordering::Acquire))
        }
    }

    /// A place at or before which the next frame cannot begin, and behind which none reserved so far lies. Exact only under the lock that orders commits.
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        let sequencer = self.sequencer.lock();
        match (&sequencer.active, sequencer.prepared.front()) {
            (Some((segment, offset)), _) => Lsn::new(segment.id, *offset),
            (None, Some(next)) => Lsn::new(next.id, crate::format::FIRST_FRAME_OFFSET),
            // Between a seal and a segment yet to be prepared: behind everything there is.
            (None, None) => self.end(),
        }
    }

    /// Ids of all segments that commits can have gone to, in order; no I/O.
    #[must_use]
    pub fn segment_ids(&self) -> Vec<SegmentId> {
        let prepared: Vec<SegmentId> = self
            .sequencer
            .lock()
            .prepared
            .iter()
            .map(|segment| segment.id)
            .collect();
        self.table
            .load()
            .iter()
            .map(|segment| segment.id)
            .filter(|id| !prepared.contains(id))
            .collect()
    }
}
