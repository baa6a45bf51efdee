//! Frames that are too large for the ring. Each gets a segment of exactly the needed size, and the
//! thread that commits writes it there.
//!
//! Everything but the block with the frame header is written before the frame gets its place. So a
//! full disk harms nothing, and other threads commit meanwhile. Segment ids must grow along the
//! stream, so no other segment can be prepared until the frame has its place. Commits that fill the
//! active segment and the prepared one wait for that.
//!
//! Thread safety: one thread has a [`LargeFrame`]; it holds the lock of `PrepareState`.

use crate::format::frame::{FRAME_HEADER_BYTES, SEAL_FRAME_BYTES, TRAILER_BYTES};
use crate::format::segment::SegmentKind;
use crate::format::{BLOCK_BYTES, FIRST_FRAME_OFFSET, block_up};
use crate::log::Log;
use crate::segment::Segment;
use crate::write::append::{Reservation, Space, WaitReason, seal_frame};
use crate::write::builder::FrameBuilder;
use crate::write::prepare::PrepareState;
use glintdb_core::sync::MutexGuard;
use glintdb_core::{Error, Result, SeqNum};
use glintdb_flash::AlignedBuffer;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The most bytes of one write.
const CHUNK_BYTES: usize = 1 << 20;
/// Offset behind the block that has the frame header.
const HEADER_BLOCK_END: u64 = FIRST_FRAME_OFFSET as u64 + BLOCK_BYTES;

/// A large frame, all of which is written but its header. A drop before
/// [`Log::reserve_large`] gives its space and its stream positions back.
pub struct LargeFrame<'a> {
    log: &'a Log,
    prepare: MutexGuard<'a, PrepareState>,
    /// `prepare.base_next` before its two segments.
    base_before: u64,
    segment: Arc<Segment>,
    /// The segment of the stream that follows.
    next: Arc<Segment>,
    header_block: AlignedBuffer,
    /// Bytes of the frame.
    bytes: u32,
    /// Offset of the seal behind the frame.
    end: u32,
    /// Whether the frame has its place.
    placed: bool,
}

impl std::fmt::Debug for LargeFrame<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "LargeFrame({} bytes in segment {})",
            self.bytes, self.segment.id
        )
    }
}

impl Log {
    /// Writes all of the finished `frame` but its header to a segment of its own.
    ///
    /// The caller does not hold the sequencer lock. It then calls
    /// [`reserve_large`](Self::reserve_large) under that lock,
    /// [`copy_large`](Self::copy_large), and [`complete`](Self::complete) in order.
    ///
    /// # Errors
    /// `NoSpace`, `InvalidArgument` if the frame does not fit 4 GiB, I/O errors: nothing has
    /// happened then. `Poisoned`.
    pub fn prepare_large(&self, frame: &FrameBuilder, space: Space) -> Result<LargeFrame<'_>> {
        let end = u64::from(FIRST_FRAME_OFFSET) + frame.frame_bytes();
        let capacity = block_up(end + TRAILER_BYTES as u64);
        let (Ok(bytes), Ok(_)) = (u32::try_from(frame.frame_bytes()), u32::try_from(capacity))
        else {
            return Err(Error::invalid(format!(
                "a batch of {} bytes: the limit is 4 GiB - 12 KiB",
                frame.frame_bytes()
            )));
        };
        let header_block = AlignedBuffer::zeroed(BLOCK_BYTES as usize)?;
        let mut prepare = self.prepare.lock();
        self.check()?;
        let base_before = prepare.base_next;
        let segment = prepare.create_anyhow(&self.setup, SegmentKind::Large, capacity, space)?;
        // The next segment begins at the ring's front, which has space.
        prepare.base_next = prepare.base_next.next_multiple_of(self.ring_bytes);
        let next_capacity = self.segment_bytes();
        let next = prepare.create_next(&self.setup, next_capacity, space);
        let next = next.inspect_err(|_| {
            self.discard(&segment);
            prepare.base_next = base_before;
        })?;
        assert!(
            segment.id < next.id && base_before < next.stream().base,
            "segment ids and positions grow along the stream: {} at {base_before}, then {} at {}",
            segment.id,
            next.id,
            next.stream().base
        );
        let mut large = LargeFrame {
            log: self,
            prepare,
            base_before,
            segment: Arc::new(segment),
            next: Arc::new(next),
            header_block,
            bytes,
            end: FIRST_FRAME_OFFSET + bytes,
            placed: false,
        };
        // From here on, dropping gives the files back.
        large.write_body(frame)?;
        Ok(large)
    }

    /// Gives the frame its place. The caller holds the lock that orders commits. Does not block.
    ///
    /// # Errors
    /// [`WaitReason::Ring`] if there is no place now: [`wait`](Self::wait) waits for one.
    pub fn reserve_large(&self, large: &mut LargeFrame<'_>) -> Result<Reservation, WaitReason> {
        assert!(!large.placed, "a large frame is placed once");
        let mut sequencer = self.sequencer.lock();
        if self.poisoned() {
            return Err(WaitReason::Ring);
        }
        if sequencer.active.is_none() {
            // The last seal names the prepared segment: it must come next, empty.
            self.begin_prepared(&mut sequencer)?;
        }
        let seal = sequencer.seal_active(large.segment.id);
        let unused: Vec<_> = sequencer.prepared.drain(..).collect();
        self.change_table(|table| {
            let mut table = table.with(Arc::clone(&large.segment));
            for segment in &unused {
                table = table.without(segment.id);
            }
            table.with(Arc::clone(&large.next))
        });
        let stream = large.segment.stream();
        let begin = stream.first_position();
        assert!(
            sequencer.sealed_end < begin,
            "a segment begins behind the end of the one before: {begin}, {}",
            sequencer.sealed_end
        );
        let gap = begin - sequencer.sealed_end;
        self.skipped.fetch_add(gap, Ordering::Relaxed);
        let end = large.end + SEAL_FRAME_BYTES as u32;
        stream.seal(end);
        sequencer.sealed_end = block_up(stream.position(end));
        sequencer.begun.push_back(Arc::clone(&large.segment));
        sequencer.prepared.push_back(Arc::clone(&large.next));
        let batches_before = sequencer.appended_batches;
        sequencer.count_batch(u64::from(large.bytes));
        large.placed = true;
        self.forget_wanted_ring_space();
        drop(sequencer);
        // After the sequencer's lock: the lock of `doomed` is held while files are removed.
        if !unused.is_empty() {
            self.doomed.lock().waiting.extend(unused);
        }
        self.counters.large_frames.fetch_add(1, Ordering::Relaxed);
        Ok(Reservation {
            segment: large.segment.id,
            seed: stream.seed,
            offset: FIRST_FRAME_OFFSET,
            bytes: large.bytes,
            seal,
            end_position: stream.position(end),
            batches_before,
        })
    }

    /// Writes the block with the header, which makes the frame whole. `seqno` is as in
    /// [`copy`](Self::copy).
    ///
    /// # Errors
    /// I/O errors, which poison the log because the place is taken. The caller does not complete
    /// the reservation then.
    pub fn copy_large(
        &self,
        mut large: LargeFrame<'_>,
        reservation: &Reservation,
        frame: &mut FrameBuilder,
        seqno: SeqNum,
    ) -> Result<()> {
        assert!(large.placed, "reserve_large first");
        assert_eq!(
            frame.frame_bytes(),
            u64::from(reservation.bytes),
            "the frame that was prepared"
        );
        self.assert_next_seqno(reservation, seqno);
        let durable = self.durable.load(Ordering::Acquire);
        self.copy_control(reservation);
        frame.seal_header(reservation.seed, reservation.offset, seqno, durable);
        large.header_block.as_mut_slice()[..FRAME_HEADER_BYTES]
            .copy_from_slice(&frame.meta[..FRAME_HEADER_BYTES]);
        large
            .segment
            .written_file()
            .write_at(u64::from(reservation.offset), large.header_block.as_slice())
            .map_err(|error| self.poison(error.context("write the log")))?;
        Ok(())
    }

    /// Removes the file of a segment that no seal names.
    pub(crate) fn discard(&self, segment: &Segment) {
        // If this fails, recovery finds the file and removes it.
        drop(self.setup.volume.delete(segment.id.file()));
    }
}

impl LargeFrame<'_> {
    /// Writes the frame and its seal, but for the first block.
    fn write_body(&mut self, frame: &FrameBuilder) -> Result<()> {
        let durable = self.log.durable.load(Ordering::Acquire);
        let seal = seal_frame(self.segment.stream().seed, self.end, durable, self.next.id);
        let sections = [&frame.meta[..], &frame.values[..], &seal[..]];
        let mut source = sections.into_iter().flat_map(|s| s.chunks(CHUNK_BYTES));
        let mut rest: &[u8] = &[];
        let mut fill = |out: &mut [u8]| {
            let mut filled = 0;
            while filled < out.len() {
                if rest.is_empty() {
                    match source.next() {
                        Some(next) => rest = next,
                        None => break,
                    }
                }
                let n = rest.len().min(out.len() - filled);
                let (now, later) = rest.split_at(n);
                out[filled..filled + n].copy_from_slice(now);
                (rest, filled) = (later, filled + n);
            }
            out[filled..].fill(0);
            filled
        };
        fill(self.header_block.as_mut_slice());
        let file = self.segment.written_file();
        let mut chunk = AlignedBuffer::zeroed(CHUNK_BYTES)?;
        let mut offset = HEADER_BLOCK_END;
        loop {
            let filled = fill(chunk.as_mut_slice());
            if filled == 0 {
                let end = block_up(u64::from(self.end) + SEAL_FRAME_BYTES as u64);
                assert_eq!(
                    offset,
                    end.max(HEADER_BLOCK_END),
                    "a large frame is written up to its seal and no further"
                );
                return Ok(());
            }
            let whole = block_up(filled as u64);
            file.write_at(offset, &chunk.as_slice()[..whole as usize])?;
            self.log
                .counters
                .written_bytes
                .fetch_add(whole, Ordering::Relaxed);
            offset += whole;
        }
    }
}

impl Drop for LargeFrame<'_> {
    fn drop(&mut self) {
        if !self.placed {
            self.log.discard(&self.segment);
            self.log.discard(&self.next);
            // The next segment must begin where the active one ends. The ring passes a gap only
            // when it has run empty, and no thread empties it for a segment that is not sealed.
            self.prepare.base_next = self.base_before;
        }
        self.log.prepare_wanted.store(true, Ordering::Release);
    }
}
