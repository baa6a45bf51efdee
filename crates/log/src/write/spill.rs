//! From the ring to the segments.
//!
//! Whole blocks go once, straight from the ring's memory. A block that is not full yet is only written when somebody needs it in the segment now (`sync`, a ring that does
//! not survive a kill), from a copy whose rest is zero, and again when it is full; what it held before is the same in both, so tearing the second write harms nothing. Where few whole blocks
//! stand before it they are copied too, and written with it: a sync waits for one write instead of two.

use crate::format::frame::FRAME_HEADER_BYTES;
use crate::format::segment::SegmentKind;
use crate::format::{block_down, block_up};
use crate::log::Log;
use crate::segment::{Segment, Stream};
use glintdb_core::{Result, SegmentId, planted};
use glintdb_flash::AlignedBuffer;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Most bytes of one step.
const STEP_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the ring that are ready to be written, ahead of commits.
const POPULATE_BYTES: u64 = 4 << 20;
/// A step is worthwhile from here on, or from a quarter of the ring.
const STEP_BYTES_MIN: u64 = 512 << 10;
/// Zeros written ahead of small syncs, so that the next ones overwrite written blocks: a sync that makes new blocks waits for the file system's journal as well
/// (`docs/decisions/001-log-write-path.md`).
const ZEROS_BYTES: u64 = 256 << 10;
/// A sync of more than this makes new blocks anyway.
const SMALL_SYNC_BYTES: u64 = 64 << 10;
/// What is copied to be written with a block that is not full, that block included.
const SCRATCH_BYTES: usize = 64 << 10;

/// Reserved space at the end of a sealed segment that is not worth giving back.
const UNUSED_BYTES_MAX: u64 = 32 << 10;

/// Guarded by its mutex, which is held while blocks are written.
pub(crate) struct SpillState {
    /// The segment being written; `None` before the next is begun.
    current: Option<Arc<Segment>>,
    /// Every whole block before it is written. Ring bytes from here on are still needed.
    position: u64,
    /// Every byte before it is written, the last block's included.
    written: u64,
    /// Segments from the one that holds `reclaim_position` to `current`.
    unreclaimed: VecDeque<Arc<Segment>>,
    reclaim_position: u64,
    /// Blocks of `current` before it are written, with data or with zeros.
    zeroed: u64,
    /// `written` at the last sync.
    synced: u64,
    /// Segments wholly written and not synced since.
    unsynced: Vec<Arc<Segment>>,
    scratch: AlignedBuffer,
}

impl SpillState {
    pub(crate) fn new(first: Arc<Segment>) -> Result<Self> {
        let start = first.stream().first_position();
        Ok(SpillState {
            position: start,
            written: start,
            reclaim_position: start,
            zeroed: start,
            synced: start,
            unreclaimed: VecDeque::from([Arc::clone(&first)]),
            current: Some(first),
            unsynced: Vec::new(),
            scratch: AlignedBuffer::zeroed(SCRATCH_BYTES)?,
        })
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Asserts the order of the spill's own positions.
    fn assert_in_order(&self) {
        assert!(
            self.reclaim_position <= self.position,
            "the ring gives up only what is in segments: up to {}, segments have all up to {}",
            self.reclaim_position,
            self.position
        );
        assert!(
            block_down(self.written) <= self.position && self.position <= block_up(self.written),
            "whole blocks are written up to {}, and bytes up to {} in the next block",
            self.position,
            self.written
        );
    }

    /// Bytes of the segments that are wholly written and not synced.
    fn full_unsynced_bytes(&self) -> u64 {
        let bytes = |segment: &Arc<Segment>| {
            let stream = segment.stream();
            stream.end_offset().map_or(0, u64::from)
        };
        self.unsynced.iter().map(bytes).sum()
    }

    /// Segments that are wholly written and not synced, and the position before which they and what is durable hold every byte.
    pub(crate) fn take_full_unsynced(&mut self) -> (u64, Vec<Arc<Segment>>) {
        let segments = std::mem::take(&mut self.unsynced);
        let ends = (segments.iter()).filter_map(|segment| segment.stream().end_position());
        let end = ends.max().unwrap_or(0);
        assert!(
            end <= self.written,
            "a full segment is wholly in its file before it is synced: its end {end}, written up to {}",
            self.written
        );
        let segments = planted!(
            "log: full segments are called durable without a sync",
            segments,
            Vec::new()
        );
        (end, segments)
    }

    /// What a sync must sync: segments written since the last one.
    pub(crate) fn take_unsynced(&mut self) -> Vec<Arc<Segment>> {
        let full = std::mem::take(&mut self.unsynced);
        let full = planted!(
            "log: a sync forgets segments that are full",
            full,
            Vec::new()
        );
        let is_small = |segment: &Arc<Segment>| segment.stream().kind != SegmentKind::Large;
        let mut segments = planted!(
            "log: a large frame is not synced",
            full,
            full.into_iter().filter(is_small).collect()
        );
        segments.extend(self.current.clone());
        segments
    }
}

impl Log {
    /// Forgets a segment that is being deleted: nobody needs it synced.
    pub(crate) fn forget_unsynced(&self, id: SegmentId) {
        let mut state = self.spill.lock();
        state.unsynced.retain(|segment| segment.id != id);
        self.publish_unsynced(&state);
    }

    /// What [`sync_full_due`](Self::sync_full_due) looks at.
    pub(crate) fn publish_unsynced(&self, state: &SpillState) {
        let bytes = state.full_unsynced_bytes();
        self.full_unsynced_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether [`spill_step`](Self::spill_step) is worthwhile: for the job queue, first of all jobs.
    #[must_use]
    pub fn spill_due(&self) -> bool {
        self.unspilled_bytes() >= STEP_BYTES_MIN.min(self.ring_bytes / 4) && !self.poisoned()
    }

    /// Whether commits will wait for room soon: half of the ring waits to be written.
    #[must_use]
    pub fn spill_urgent(&self) -> bool {
        self.unspilled_bytes() >= self.ring_bytes / 2 && !self.poisoned()
    }

    /// Makes the ring ready to be written a way ahead of commits, so that few of them wait for a page fault: the first write to each page is one, and the first after the system has written it back.
    pub fn populate_ahead(&self) {
        let ahead = POPULATE_BYTES.min(block_down(self.ring_bytes / 4));
        let completed = self.completed.load(Ordering::Acquire);
        let end = block_down(completed + ahead).min(self.ring_space_end(completed));
        let from = block_down(completed).max(self.populated.load(Ordering::Relaxed));
        if from + ahead / 4 > end {
            return;
        }
        let at = from % self.ring_bytes;
        let first = (end - from).min(self.ring_bytes - at);
        self.ring.populate(at as usize, first as usize);
        self.ring.populate(0, (end - from - first) as usize);
        self.populated.fetch_max(end, Ordering::Relaxed);
    }

    fn unspilled_bytes(&self) -> u64 {
        let completed = self.completed.load(Ordering::Acquire);
        completed.saturating_sub(self.spilled.load(Ordering::Acquire))
    }

    /// Moves up to 1 MiB of whole blocks from the ring to their segment, and gives back the ring space of frames that are wholly there. Answers whether it moved something.
    ///
    /// # Errors
    /// I/O errors, which poison the log; `Poisoned`.
    pub fn spill_step(&self) -> Result<bool> {
        let mut state = self.spill.lock();
        self.check()?;
        self.spill_some(&mut state, false)
    }

    /// For a ring that does not survive a kill: returns when every completed byte up to `reservation`'s end has reached the operating system. Elsewhere, at once.
    ///
    /// # Errors
    /// I/O errors, which poison the log; `Poisoned`.
    pub fn write_out(&self, reservation: &crate::Reservation) -> Result<()> {
        if self.survives_kill {
            return Ok(());
        }
        self.write_out_to(reservation.end_position)
    }

    pub(crate) fn write_out_to(&self, target: u64) -> Result<()> {
        let mut state = self.spill.lock();
        // Whoever had the lock before may have written this one's bytes too.
        while state.written < target {
            self.check()?;
            assert!(
                self.completed.load(Ordering::Acquire) >= target,
                "complete before write_out"
            );
            self.spill_some(&mut state, true)?;
        }
        // SeqCst, as `durable`.
        self.written.fetch_max(state.written, Ordering::SeqCst);
        Ok(())
    }

    /// Writes one piece: whole blocks, or with `partial`, where few are left, them and the block behind them that is not full.
    pub(crate) fn spill_some(&self, state: &mut SpillState, partial: bool) -> Result<bool> {
        let Some(segment) = self.current_segment(state) else {
            return Ok(false);
        };
        let stream = segment.stream();
        let completed = self.completed.load(Ordering::Acquire);
        let end = stream.end_position().filter(|&end| end <= completed);
        if stream.kind == SegmentKind::Large {
            return Ok(match end {
                Some(end) => {
                    self.finish_segment(state, &segment, end)?;
                    true
                }
                None => false,
            });
        }
        // Every byte before `exact` is whole and belongs to this segment; blocks before `whole` hold no other bytes.
        let exact = end.unwrap_or(completed);
        let whole = end.map_or(block_down(completed), block_up);
        let write_partial = partial
            && state.written < exact
            && whole < exact
            && block_up(exact) - state.position <= SCRATCH_BYTES as u64;
        let result = if write_partial {
            self.write_partial(state, &segment, exact)
        } else if state.position < whole {
            self.write_blocks(state, &segment, whole)
        } else {
            return Ok(false);
        };
        result.map_err(|error| self.poison(error.context("write the log")))?;
        state.written = state.written.max(state.position.min(exact));
        if let Some(end) = end
            && state.position == whole
        {
            self.finish_segment(state, &segment, end)?;
        } else {
            self.publish_spilled(state);
        }
        Ok(true)
    }

    /// Before a small sync that comes to blocks never written: writes zeros ahead, to be synced with it.
    pub(crate) fn zero_ahead(&self, state: &mut SpillState) -> Result<()> {
        let small = state.written - state.synced.min(state.written) <= SMALL_SYNC_BYTES;
        state.synced = state.written;
        let Some(segment) = state.current.clone() else {
            return Ok(());
        };
        let stream = segment.stream();
        let start = block_up(state.written);
        let end = (start + ZEROS_BYTES).min(stream.position(stream.capacity));
        let sealed = stream.end_offset().is_some();
        if !small || sealed || state.zeroed > start || start == end {
            return Ok(());
        }
        let file = segment.written_file();
        if let Ok(bytes) = file.len()
            && stream.base + bytes >= end
        {
            // Written again: its blocks are there.
            state.zeroed = stream.base + bytes;
            return Ok(());
        }
        let zeros = AlignedBuffer::zeroed((end - start) as usize)?;
        file.write_at(start - stream.base, zeros.as_slice())
            .map_err(|error| self.poison(error.context("write the log")))?;
        state.zeroed = end;
        self.counters
            .written_bytes
            .fetch_add(end - start, Ordering::Relaxed);
        Ok(())
    }

    /// Asserts, before the ring's bytes up to `end` are written to the file of `stream`, that the
    /// ring still has them and that they are that segment's.
    fn assert_movable(&self, state: &SpillState, stream: &Stream, end: u64) {
        let (start, reclaimable) = (state.position, self.reclaimable.load(Ordering::Acquire));
        assert!(
            reclaimable <= start && start < end && end <= reclaimable + self.ring_bytes,
            "the ring of {} bytes has what goes to a segment: {start} to {end}, given up before {reclaimable}",
            self.ring_bytes
        );
        let segment_end = stream.position(stream.capacity);
        assert!(
            stream.first_position() <= start && block_up(end) <= segment_end,
            "bytes of the stream go to their own segment: {start} to {end}, the segment ends at {segment_end}"
        );
        assert_eq!(start, block_down(start), "segments take whole blocks");
    }

    fn current_segment(&self, state: &mut SpillState) -> Option<Arc<Segment>> {
        if state.current.is_none() {
            let next = self.sequencer.lock().begun.pop_front()?;
            let start = next.stream().first_position();
            assert!(
                state.position < start,
                "segments follow each other along the stream: one from {start} on behind {}",
                state.position
            );
            state.position = start;
            state.written = start;
            state.zeroed = start;
            state.synced = start;
            state.unreclaimed.push_back(Arc::clone(&next));
            state.current = Some(next);
            // Over the gap between two segments, or `spill_due` would take it for bytes that wait.
            self.publish_spilled(state);
        }
        state.current.clone()
    }

    fn write_blocks(&self, state: &mut SpillState, segment: &Segment, whole: u64) -> Result<()> {
        let at = state.position % self.ring_bytes;
        let bytes = (whole - state.position)
            .min(STEP_BYTES_MAX)
            .min(self.ring_bytes - at);
        let offset = state.position - segment.stream().base;
        self.assert_movable(state, segment.stream(), state.position + bytes);
        let file = segment.written_file();
        self.ring
            .write_to(at as usize, bytes as usize, &**file, offset)?;
        state.position += bytes;
        self.counters
            .written_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Writes everything before `exact`: whole blocks, and the one behind them, which is not full.
    fn write_partial(&self, state: &mut SpillState, segment: &Segment, exact: u64) -> Result<()> {
        self.assert_movable(state, segment.stream(), exact);
        let filled = (exact - state.position) as usize;
        let bytes = block_up(filled as u64) as usize;
        let (front, rest) = state.scratch.as_mut_slice()[..bytes].split_at_mut(filled);
        self.ring_read(state.position, front);
        rest.fill(0);
        let offset = state.position - segment.stream().base;
        let bytes = planted!(
            "log: a sync leaves out the block that is not full",
            bytes,
            block_down(filled as u64) as usize
        );
        segment
            .written_file()
            .write_at(offset, &state.scratch.as_slice()[..bytes])?;
        (state.position, state.written) = (block_down(exact), exact);
        self.counters
            .written_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    fn finish_segment(
        &self,
        state: &mut SpillState,
        segment: &Arc<Segment>,
        end: u64,
    ) -> Result<()> {
        let stream = segment.stream();
        let used = block_up(end) - stream.base;
        assert!(
            used <= u64::from(stream.capacity),
            "a segment ends within its capacity: {used} of {} bytes",
            stream.capacity
        );
        if u64::from(stream.capacity) - used >= UNUSED_BYTES_MAX {
            segment
                .written_file()
                .set_len(used)
                .map_err(|error| self.poison(error.context("give back unused log space")))?;
        }
        state.position = block_up(end);
        state.written = end;
        state.unsynced.push(Arc::clone(segment));
        self.publish_unsynced(state);
        state.current = None;
        self.publish_spilled(state);
        Ok(())
    }

    fn publish_spilled(&self, state: &mut SpillState) {
        let before = self.spilled.fetch_max(state.position, Ordering::AcqRel);
        assert!(
            before <= state.position,
            "the spill goes forward only: from {before} to {}",
            state.position
        );
        self.walk_reclaimable(state);
        state.assert_in_order();
        let before = self
            .reclaimable
            .fetch_max(state.reclaim_position, Ordering::AcqRel);
        if before < state.reclaim_position {
            self.notify_progress();
        }
    }

    /// Moves `reclaim_position` over every frame that lies wholly in blocks that are written.
    fn walk_reclaimable(&self, state: &mut SpillState) {
        while let Some(segment) = state.unreclaimed.front() {
            let stream = segment.stream();
            state.reclaim_position = state.reclaim_position.max(stream.first_position());
            let finished = stream
                .end_position()
                .filter(|&end| block_up(end) <= state.position);
            if let Some(end) = finished {
                state.reclaim_position = block_up(end);
                state.unreclaimed.pop_front();
                continue;
            }
            while state.reclaim_position + FRAME_HEADER_BYTES as u64 <= state.position {
                let end = state.reclaim_position + self.frame_bytes_at(state.reclaim_position);
                let end = planted!(
                    "log: half a frame is given up in the ring",
                    end,
                    end.min(state.position)
                );
                if end > state.position {
                    return;
                }
                state.reclaim_position = end;
            }
            return;
        }
    }

    /// Length of the frame at `position`, which the ring holds and this process wrote.
    fn frame_bytes_at(&self, position: u64) -> u64 {
        let mut lengths = [0; 8];
        // Frames begin at multiples of 8, so these eight bytes are not split by the ring's end.
        let at = (position + 24) % self.ring_bytes;
        self.ring.read(at as usize, &mut lengths);
        let lengths = u64::from_le_bytes(lengths);
        let pad = |bytes: u64| bytes.div_ceil(8) * 8;
        FRAME_HEADER_BYTES as u64 + pad(lengths & 0xffff_ffff) + pad(lengths >> 32)
    }

    /// What [`wait_progress`](Self::wait_progress) waits to see changed.
    pub(crate) fn progress_seen(&self) -> (u64, u64) {
        (
            self.completed.load(Ordering::SeqCst),
            self.reclaimable.load(Ordering::SeqCst),
        )
    }

    /// Waits a moment for a commit to complete or ring space to come free.
    pub(crate) fn wait_progress(&self, seen: (u64, u64)) {
        self.progress_waiters.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.progress.lock();
        if self.progress_seen() == seen {
            // The bound covers the moment between a completion and its look at the waiters.
            self.progressed
                .wait_for(&mut guard, Duration::from_millis(1));
        }
        drop(guard);
        self.progress_waiters.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn notify_progress(&self) {
        let _guard = self.progress.lock();
        self.progressed.notify_all();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::POPULATE_BYTES;
    use crate::format::block_down;
    use crate::{Log, Space, WaitReason, testing};
    use glintdb_flash::ManualClock;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc;
    use std::time::Duration;

    fn small() -> Log {
        testing::small(Arc::new(ManualClock::default()))
    }

    /// The first store to a page of the ring is a fault of microseconds, with other threads behind it.
    #[test]
    fn the_ring_is_made_ready_a_way_ahead_of_commits_and_no_further() {
        let log = small();
        let populated = || log.populated.load(Ordering::Relaxed);
        let start = populated();
        log.populate_ahead();
        let ahead = (log.ring_bytes / 4).min(POPULATE_BYTES);
        assert_eq!(populated(), block_down(start + ahead));
        // As far as commits have come, round the end of the ring too, and not at each look.
        let mut before = populated();
        for step in 1..200 {
            let completed = start + step * 1000;
            log.completed.store(completed, Ordering::Release);
            log.populate_ahead();
            assert!(
                populated() <= completed + ahead
                    && populated() + ahead / 4 >= block_down(completed + ahead)
            );
            assert!(populated() == before || populated() >= before + ahead / 4);
            before = populated();
        }
    }

    /// A sync writes all that the ring holds under one lock. A commit that waited for room waited for that lock, 36 ms at 1 GB/s, although the first piece had made room.
    #[test]
    fn who_waits_for_room_in_the_ring_does_not_wait_for_who_writes_it() {
        let log = small();
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            let writes = log.spill.lock();
            scope.spawn(|| {
                log.wait(WaitReason::Ring, Space::Normal).unwrap();
                tell.send(()).unwrap();
            });
            let returned = told.recv_timeout(Duration::from_secs(10));
            drop(writes);
            assert!(returned.is_ok(), "it waited for the lock");
        });
    }
}
