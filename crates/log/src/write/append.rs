//! Gives a frame its place in the log, copies it there, and publishes it.
//!
//! The engine calls [`Log::reserve`] under its sequencer lock. The function takes one uncontended
//! mutex, allocates nothing and never blocks. Many threads call [`Log::copy`] at once, each for its
//! own bytes of the ring.

use crate::format::frame::{
    FrameHeader, FrameKind, MARK_FRAME_BYTES, SEAL_FRAME_BYTES, TRAILER_BYTES,
};
use crate::format::{ALIGN, FIRST_FRAME_OFFSET, block_up};
use crate::log::Log;
use crate::lsn::Lsn;
use crate::segment::{Segment, Stream};
use crate::write::builder::FrameBuilder;
use glintdb_core::checksum::{FileSeed, crc32c};
use glintdb_core::sync::atomic::{Ordering, fence};
use glintdb_core::{SegmentId, SeqNum, planted};
use std::collections::VecDeque;
use std::sync::Arc;

/// Why [`Log::reserve`] gave no place. Leave the sequencer lock, call [`Log::wait`], try again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitReason {
    /// The ring is full of bytes that are not in their segments yet, or it has no space on the
    /// medium yet where the frame belongs.
    Ring,
    /// The segment is full and the next is not ready, or only the reserve for a full disk is left.
    Segment,
    /// The segment is full and the next one is too small for the frame, which must go round the
    /// ring ([`Log::prepare_large`]).
    Large,
}

impl WaitReason {
    /// Name in stats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WaitReason::Ring => "log_ring_full",
            WaitReason::Segment => "log_segment_prepare",
            WaitReason::Large => "log_frame_large",
        }
    }
}

/// What a frame may use on a full disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// All space but the reserve.
    Normal,
    /// The reserve too. Recovery, deletes, flushes and value GC may use it.
    Reserve,
}

/// A place in the log. The log gives each place out once.
///
/// The caller fills the place with [`Log::copy`] and publishes it with [`Log::complete`], in the
/// order of reservations. The log cannot go on behind a hole: if a thread cannot fill its place,
/// only the next opening of the database helps.
#[derive(Clone)]
#[must_use]
pub struct Reservation {
    /// The id and not a handle: a handle's reference count would cost every commit two writes to a
    /// cache line that all commits share. The segment stays as long as a frame in it is not
    /// completed.
    pub(crate) segment: SegmentId,
    pub(crate) seed: FileSeed,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    /// The segment that ends before this one begins, the offset of its seal, and the segment that
    /// the seal names.
    pub(crate) seal: Option<(Arc<Segment>, u32, SegmentId)>,
    pub(crate) end_position: u64,
    /// Batches that got a place before this one, since the log was opened.
    pub(crate) batches_before: u64,
}

impl Reservation {
    /// The place where the frame begins.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        Lsn::new(self.segment, self.offset)
    }

    /// The stream position where the frame begins. The frame is in the ring.
    fn position(&self) -> u64 {
        self.end_position - u64::from(self.bytes)
    }

    /// The place where the frame ends: the argument for [`Log::sync`] that makes it durable, and
    /// the flush point behind it.
    #[must_use]
    pub fn end(&self) -> Lsn {
        match &self.seal {
            // A reservation of the seal itself: the next frame begins in the segment that it names.
            Some((segment, _, next)) if segment.id == self.segment => {
                Lsn::new(*next, FIRST_FRAME_OFFSET)
            }
            _ => Lsn::new(self.segment, self.offset + self.bytes),
        }
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reservation({}..{})", self.lsn(), self.end())
    }
}

/// What a frame needs of the log.
#[derive(Clone, Copy)]
struct Wanted {
    bytes: u32,
    /// Bytes behind the frame that stay free for the end of its segment.
    trailer: u32,
    space: Space,
    /// Bytes of the ring that stay free behind the frame.
    ring_bytes_left: u64,
}

/// The place where the log goes on. Its mutex guards it.
pub(crate) struct Sequencer {
    /// The active segment and the offset of the next frame. `None` between two segments, while the
    /// ring must run empty first.
    pub(crate) active: Option<(Arc<Segment>, u32)>,
    /// Position behind the last frame while there is no active segment, rounded up to a block.
    pub(crate) sealed_end: u64,
    pub(crate) prepared: VecDeque<Arc<Segment>>,
    /// Segments that have become active and that the spill does not know yet.
    pub(crate) begun: VecDeque<Arc<Segment>>,
    /// Bytes of the commit frames that got places.
    pub(crate) appended_bytes: u64,
    /// Number of the commit frames that got places.
    pub(crate) appended_batches: u64,
}

impl Sequencer {
    pub(crate) fn new(first: Arc<Segment>) -> Self {
        Sequencer {
            active: Some((first, FIRST_FRAME_OFFSET)),
            sealed_end: 0,
            prepared: VecDeque::new(),
            begun: VecDeque::new(),
            appended_bytes: 0,
            appended_batches: 0,
        }
    }

    /// Ends the active segment with a seal that names `next`.
    pub(crate) fn seal_active(
        &mut self,
        next: SegmentId,
    ) -> Option<(Arc<Segment>, u32, SegmentId)> {
        let (segment, offset) = self.active.take()?;
        assert!(
            next > segment.id,
            "segment ids grow along the stream: the seal of segment {} names {next}",
            segment.id
        );
        let end = offset + SEAL_FRAME_BYTES as u32;
        segment.stream().seal(end);
        self.sealed_end = block_up(segment.stream().position(end));
        Some((segment, offset, next))
    }

    /// Counts a commit frame that got a place.
    pub(crate) fn count_batch(&mut self, frame_bytes: u64) {
        self.appended_bytes += frame_bytes;
        self.appended_batches += 1;
    }
}

/// A commit that takes ring bytes takes this part of the ring at once, so that few commits write
/// the position that every reader loads.
const RECLAIM_PART: u64 = 32;

impl Log {
    /// Takes the next `frame_bytes` of the log. The caller holds the lock that orders commits.
    ///
    /// # Errors
    /// The reason why there is no place now. [`wait`](Self::wait) waits for one, and returns
    /// errors.
    pub fn reserve(&self, frame_bytes: u64, space: Space) -> Result<Reservation, WaitReason> {
        self.reserve_leaving(frame_bytes, space, 0)
    }

    /// [`reserve`](Self::reserve) of a place only if so many bytes of the ring are left for others.
    /// At most half of the ring, so that there is room for the frame when the ring is empty.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn reserve_leaving(
        &self,
        frame_bytes: u64,
        space: Space,
        ring_bytes_left: u64,
    ) -> Result<Reservation, WaitReason> {
        assert!(
            !self.is_large(frame_bytes),
            "a frame of {frame_bytes} bytes goes round the ring: prepare_large"
        );
        assert!(
            frame_bytes.is_multiple_of(ALIGN as u64),
            "a frame of {frame_bytes} bytes: frames begin at multiples of {ALIGN}"
        );
        let mut sequencer = self.sequencer.lock();
        if self.poisoned() {
            return Err(WaitReason::Ring);
        }
        // Commits seldom reach the part that is left, so it would hide the mistake.
        let ring_bytes_left = planted!(
            "log: half a frame is given up in the ring",
            ring_bytes_left,
            0
        );
        let wanted = Wanted {
            bytes: frame_bytes as u32,
            trailer: TRAILER_BYTES as u32,
            space,
            ring_bytes_left,
        };
        let reservation = self.reserve_in(&mut sequencer, wanted)?;
        sequencer.count_batch(frame_bytes);
        Ok(reservation)
    }

    fn reserve_in(
        &self,
        sequencer: &mut Sequencer,
        wanted: Wanted,
    ) -> Result<Reservation, WaitReason> {
        let Wanted { bytes, space, .. } = wanted;
        let limit = self.reclaimable.load(Ordering::Acquire) + self.ring_bytes;
        if let Some((segment, offset)) = &mut sequencer.active {
            let stream = segment.stream();
            if refused(stream, space) {
                return Err(WaitReason::Segment);
            }
            let trailer = planted!(
                "log: a segment keeps no room for its end",
                wanted.trailer,
                0
            );
            if u64::from(*offset) + u64::from(bytes) + u64::from(trailer)
                <= u64::from(stream.capacity)
            {
                let start = stream.position(*offset);
                let end_position = start + u64::from(bytes);
                // Including room for the block of a seal behind the frame, so that a seal never
                // waits.
                self.take_ring(start, end_position, limit - wanted.ring_bytes_left)?;
                let reservation = Reservation {
                    segment: segment.id,
                    seed: stream.seed,
                    offset: *offset,
                    bytes,
                    seal: None,
                    end_position,
                    batches_before: sequencer.appended_batches,
                };
                *offset += bytes;
                return Ok(reservation);
            }
        }
        self.reserve_in_next(sequencer, wanted, limit)
    }

    fn reserve_in_next(
        &self,
        sequencer: &mut Sequencer,
        wanted: Wanted,
        mut limit: u64,
    ) -> Result<Reservation, WaitReason> {
        let Wanted { bytes, space, .. } = wanted;
        let Some(next) = sequencer.prepared.front().map(Arc::clone) else {
            return Err(WaitReason::Segment);
        };
        let stream = next.stream();
        if refused(stream, space) {
            return Err(WaitReason::Segment);
        }
        let room = u64::from(stream.capacity) - u64::from(FIRST_FRAME_OFFSET);
        if u64::from(bytes) + TRAILER_BYTES as u64 > room {
            return Err(WaitReason::Large);
        }
        if sequencer.active.is_none() {
            self.skip_to(sequencer, &next)?;
            limit = limit.max(stream.first_position() + self.ring_bytes);
        }
        if let Some((segment, offset)) = &sequencer.active {
            let active = segment.stream();
            assert_eq!(
                stream.base,
                active.position(active.capacity),
                "a prepared segment follows the active one without a gap"
            );
            self.assert_positions_in_order(active.position(*offset));
        }
        let end_position = stream.first_position() + u64::from(bytes);
        limit -= wanted.ring_bytes_left;
        self.take_ring(stream.first_position(), end_position, limit)?;
        sequencer.prepared.pop_front();
        self.prepare_wanted.store(true, Ordering::Release);
        let seal = sequencer.seal_active(next.id);
        sequencer.active = Some((Arc::clone(&next), FIRST_FRAME_OFFSET + bytes));
        sequencer.begun.push_back(Arc::clone(&next));
        Ok(Reservation {
            segment: next.id,
            seed: stream.seed,
            offset: FIRST_FRAME_OFFSET,
            bytes,
            seal,
            end_position,
            batches_before: sequencer.appended_batches,
        })
    }

    /// Takes the ring from `start` to the end of a frame and of its segment's seal away from the
    /// frames that were there a ring's length before. The caller holds the sequencer's lock.
    fn take_ring(&self, start: u64, end_position: u64, limit: u64) -> Result<(), WaitReason> {
        let end = block_up(end_position + TRAILER_BYTES as u64);
        if end > limit {
            return Err(WaitReason::Ring);
        }
        self.check_ring_space(start, end)?;
        let taken = planted!(
            "log: readers are not told that the ring was taken",
            end.saturating_sub(self.ring_bytes),
            0
        );
        let mut reclaimed = self.reclaimed.load(Ordering::Relaxed);
        if reclaimed < taken {
            reclaimed = (taken + self.ring_bytes / RECLAIM_PART).min(limit - self.ring_bytes);
            self.reclaimed.fetch_max(reclaimed, Ordering::AcqRel);
        }
        assert!(
            end <= reclaimed.saturating_add(self.ring_bytes),
            "readers leave a part of the ring before it is given to a frame: a frame up to {end}, the ring is taken up to {reclaimed}"
        );
        Ok(())
    }

    /// Lets the ring go on at the beginning of `next`, between two segments. Everything before is
    /// in segments, so the ring is empty and may have a gap.
    fn skip_to(&self, sequencer: &Sequencer, next: &Segment) -> Result<(), WaitReason> {
        if self.reclaimable.load(Ordering::Acquire) < sequencer.sealed_end {
            return Err(WaitReason::Ring);
        }
        let begin = next.stream().first_position();
        assert!(
            sequencer.sealed_end < begin,
            "a segment begins behind the end of the one before: {begin}, {}",
            sequencer.sealed_end
        );
        if self.reclaimed.fetch_max(begin, Ordering::AcqRel) < begin {
            let gap = begin - sequencer.sealed_end;
            self.skipped.fetch_add(gap, Ordering::Relaxed);
        }
        self.reclaimable.fetch_max(begin, Ordering::AcqRel);
        Ok(())
    }

    /// Makes the prepared segment, which the last seal names, the active one, without a frame.
    pub(crate) fn begin_prepared(&self, sequencer: &mut Sequencer) -> Result<(), WaitReason> {
        let Some(next) = sequencer.prepared.front().map(Arc::clone) else {
            unreachable!("a seal names a segment that is prepared")
        };
        let start = next.stream().first_position();
        // The next frame may be a seal.
        self.check_ring_space(start, block_up(start + TRAILER_BYTES as u64))?;
        self.skip_to(sequencer, &next)?;
        sequencer.prepared.pop_front();
        self.prepare_wanted.store(true, Ordering::Release);
        sequencer.active = Some((Arc::clone(&next), FIRST_FRAME_OFFSET));
        sequencer.begun.push_back(next);
        Ok(())
    }

    /// Writes the frame into its place. If the ring survives a kill, the frame does so from then
    /// on; otherwise see [`write_out`](Self::write_out). Many threads may call this at once.
    ///
    /// `seqno` is one more than that of the batch whose place is before this one.
    pub fn copy(&self, reservation: &Reservation, frame: &mut FrameBuilder, seqno: SeqNum) {
        assert_eq!(
            frame.frame_bytes(),
            u64::from(reservation.bytes),
            "the frame that was reserved for"
        );
        let durable = planted!(
            "log: a frame claims more durability than there is",
            self.durable.load(Ordering::Acquire),
            self.completed.load(Ordering::Acquire)
        );
        self.copy_seal(reservation, durable);
        frame.seal_header(reservation.seed, reservation.offset, seqno, durable);
        let position = reservation.position();
        assert!(
            durable <= position,
            "no frame says that itself is durable: position {position}, durable up to {durable}"
        );
        self.assert_next_seqno(reservation, seqno);
        self.assert_taken(position, reservation.end_position);
        // Pairs with the fence in `read_ring`: a thread that reads one of these words also sees
        // that `reclaimed` has passed the bytes that were here before.
        fence(Ordering::Release);
        self.ring_write(position, &frame.meta);
        self.ring_write(position + frame.meta.len() as u64, &frame.values);
    }

    /// Writes the seal of a reservation without a batch, which
    /// [`reserve_seal`](Self::reserve_seal) returned.
    pub fn copy_control(&self, reservation: &Reservation) {
        self.copy_seal(reservation, self.durable.load(Ordering::Acquire));
    }

    /// Asserts that sequence numbers ascend by one from batch to batch, in the order of the stream.
    pub(crate) fn assert_next_seqno(&self, reservation: &Reservation, seqno: SeqNum) {
        // The number of the first batch, computed from this one.
        let first = seqno.0.wrapping_sub(reservation.batches_before);
        let expected = *self.first_seqno.get_or_init(|| first);
        assert_eq!(
            first,
            expected,
            "sequence numbers ascend by one along the log: batch {} at {} has {seqno}, and batch 0 has {expected}",
            reservation.batches_before,
            reservation.lsn(),
        );
    }

    /// Asserts that the ring's bytes from `start` to `end` may be written: no frame is there that
    /// only the ring has, the spill has not passed them, and they have space on the medium.
    fn assert_taken(&self, start: u64, end: u64) {
        let reclaimable = self.reclaimable.load(Ordering::Acquire);
        assert!(
            reclaimable <= start && end <= reclaimable + self.ring_bytes,
            "a frame from {start} to {end} overwrites bytes that only the ring of {} bytes has: segments have all up to {reclaimable}",
            self.ring_bytes
        );
        assert!(
            self.has_ring_space(start, end),
            "a place that was given out keeps its space in the ring: {start} to {end}"
        );
    }

    fn copy_seal(&self, reservation: &Reservation, durable: u64) {
        let Some((segment, offset, next)) = &reservation.seal else {
            return;
        };
        let stream = segment.stream();
        let position = stream.position(*offset);
        let mut bytes = seal_frame(stream.seed, *offset, durable, *next).to_vec();
        // Zeros to the end of the block: older bytes of the ring must not get into the segment.
        let end = block_up(position + SEAL_FRAME_BYTES as u64);
        bytes.resize((end - position) as usize, 0);
        self.assert_taken(position, end);
        fence(Ordering::Release);
        self.ring_write(position, &bytes);
    }

    /// Writes `bytes` at `position`. What does not fit before the ring's end goes to its front.
    pub(crate) fn ring_write(&self, position: u64, bytes: &[u8]) {
        let at = (position % self.ring_bytes) as usize;
        let (first, rest) = bytes.split_at(bytes.len().min(self.ring_bytes as usize - at));
        self.ring.write(at, first);
        let rest: &[u8] = planted!("log: what goes round the ring's end is lost", rest, &[]);
        if !rest.is_empty() {
            self.ring.write(0, rest);
        }
    }

    /// Publishes this frame: it and all before it are copied. The caller keeps the order of
    /// reservations.
    pub fn complete(&self, reservation: &Reservation) {
        let before = self
            .completed
            .fetch_max(reservation.end_position, Ordering::AcqRel);
        assert!(
            before <= reservation.position(),
            "frames are completed once, in the order of the stream: {reservation:?} behind position {before}"
        );
        if self.progress_waiters.load(Ordering::Relaxed) > 0 {
            self.notify_progress();
        }
    }

    /// Appends a mark, a frame that says how far the log is durable. No other thread may append
    /// meanwhile.
    pub(crate) fn append_mark(&self) -> Result<Reservation, WaitReason> {
        let bytes = MARK_FRAME_BYTES as u32;
        let reservation = {
            let mut sequencer = self.sequencer.lock();
            let wanted = Wanted {
                bytes,
                trailer: SEAL_FRAME_BYTES as u32,
                space: Space::Reserve,
                ring_bytes_left: 0,
            };
            self.reserve_in(&mut sequencer, wanted)?
        };
        let durable = self.durable.load(Ordering::Acquire);
        self.copy_seal(&reservation, durable);
        let mark = control_frame(FrameKind::Mark, durable, &[]);
        let mark = mark.encode(reservation.seed, reservation.offset);
        self.assert_taken(reservation.position(), reservation.end_position);
        fence(Ordering::Release);
        self.ring_write(reservation.position(), &mark);
        self.complete(&reservation);
        Ok(reservation)
    }
}

fn refused(stream: &Stream, space: Space) -> bool {
    space == Space::Normal && stream.from_reserve.load(Ordering::Acquire)
}

fn control_frame(kind: FrameKind, durable_position: u64, meta: &[u8]) -> FrameHeader {
    FrameHeader {
        kind,
        seqno: SeqNum::ZERO,
        durable_position,
        meta_bytes: meta.len() as u32,
        values_bytes: 0,
        entry_count: 0,
        meta_checksum: crc32c(meta),
    }
}

/// The frame that ends a segment.
pub(crate) fn seal_frame(
    seed: FileSeed,
    offset: u32,
    durable_position: u64,
    next: SegmentId,
) -> [u8; SEAL_FRAME_BYTES] {
    let mut out = [0; SEAL_FRAME_BYTES];
    let meta = next.0.to_le_bytes();
    let header = control_frame(FrameKind::Seal, durable_position, &meta);
    let (head, tail) = out.split_at_mut(SEAL_FRAME_BYTES - meta.len());
    head.copy_from_slice(&header.encode(seed, offset));
    tail.copy_from_slice(&meta);
    out
}
