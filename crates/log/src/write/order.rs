//! Positions of the stream, for a caller that keeps its own order of commits: to compare and to
//! publish. Thread safety: any thread.

use crate::log::Log;
use crate::lsn::Lsn;
use crate::write::append::Reservation;
use glintdb_core::{Result, SegmentId};
use std::sync::atomic::Ordering;

impl Reservation {
    /// The stream position behind the frame, to compare with [`Log::written_position`] and
    /// [`Log::durable_position`]. It grows from reservation to reservation.
    #[must_use]
    pub fn end_position(&self) -> u64 {
        self.end_position
    }
}

impl Log {
    /// Asserts the order of positions that the head of `log.rs` states. The caller holds the
    /// sequencer's lock, and the next frame of the active segment begins at `head`. Positions only
    /// grow, so of two the smaller one is read first.
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

    /// Publishes every frame before `position`, the end of some reservation: all of them are
    /// copied.
    pub fn complete_to(&self, position: u64) {
        self.completed.fetch_max(position, Ordering::AcqRel);
        if self.progress_waiters.load(Ordering::Relaxed) > 0 {
            self.notify_progress();
        }
    }

    /// Whether a frame survives `kill -9` as soon as it is copied. If not,
    /// [`write_out`](Self::write_out) makes it do so.
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

    /// [`completed_position`](Self::completed_position) without the gaps between segments, so that
    /// its growth is the bytes of frames. At a gap it is too small for a moment, by up to a ring's
    /// length.
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

    /// Every frame that ends at or before this stream position is whole, in the ring or in its
    /// segment.
    #[must_use]
    pub fn completed_position(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Everything of the stream before this position is in segments, not necessarily durably.
    #[must_use]
    pub fn spilled_position(&self) -> u64 {
        self.spilled.load(Ordering::Acquire)
    }

    /// Every frame that ends at or before this stream position survives power loss.
    #[must_use]
    pub fn durable_position(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// Does what [`write_out`](Self::write_out) does, for everything completed until now.
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

    /// A place behind which no reserved frame is, and at or behind which the next frame begins.
    /// Exact only under the lock that orders commits.
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        let sequencer = self.sequencer.lock();
        match (&sequencer.active, sequencer.prepared.front()) {
            (Some((segment, offset)), _) => Lsn::new(segment.id, *offset),
            (None, Some(next)) => Lsn::new(next.id, crate::format::FIRST_FRAME_OFFSET),
            // Between a seal and a segment that is not prepared yet: behind every frame.
            (None, None) => self.end(),
        }
    }

    /// Ids of all segments that commits may have gone to, in order. Does no I/O.
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
