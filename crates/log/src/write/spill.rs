//! The spill: moves frames from the ring to the segments.
//!
//! A whole block is written once, straight from the ring's memory. A block that is not full is
//! written only if its bytes must be in the segment now: for a sync, or if the ring does not
//! survive a kill. That write comes from a copy whose rest is zero, and the block is written again
//! when it is full. Both writes begin with the same bytes, so a torn second write harms nothing. If
//! there are only a few whole blocks before that block, they are copied too and written with it, so
//! a sync waits for one write instead of two.
//!
//! Thread safety: any thread. `SpillState` is locked while blocks are written.

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

/// The most bytes that one step writes.
const STEP_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the ring that [`Log::populate_ahead`] makes resident ahead of commits.
const POPULATE_BYTES: u64 = 4 << 20;
/// A step is due once this many bytes, or a quarter of the ring, wait for it.
const STEP_BYTES_MIN: u64 = 512 << 10;
/// Zeros that are written ahead of small syncs, so that later syncs overwrite blocks that the file
/// has: a sync of new blocks waits for the file system's journal as well
/// (`docs/decisions/001-log-write-path.md`).
const ZEROS_BYTES: u64 = 256 << 10;
/// A sync of more bytes than this makes new blocks anyway.
const SMALL_SYNC_BYTES: u64 = 64 << 10;
/// The most bytes that are copied to be written with a block that is not full, that block included.
const SCRATCH_BYTES: usize = 64 << 10;

/// Unused space at the end of a sealed segment is given back if it has at least this many bytes.
const UNUSED_BYTES_MAX: u64 = 32 << 10;

/// How far the spill is. Its mutex is held while blocks are written.
pub(crate) struct SpillState {
    /// The segment that is being written. `None` until the next one is begun.
    current: Option<Arc<Segment>>,
    /// Every whole block before this position is written.
    position: u64,
    /// Every byte before this position is written, those of the last block included.
    written: u64,
    /// Segments from the one that holds `reclaim_position` to `current`.
    unreclaimed: VecDeque<Arc<Segment>>,
    /// Every frame that begins before this position is wholly in written blocks.
    reclaim_position: u64,
    /// Blocks of `current` before this position are written, with data or with zeros.
    zeroed: u64,
    /// `written` at the last sync.
    synced: u64,
    /// Segments that are wholly written and were not synced since.
    unsynced: Vec<Arc<Segment>>,
    /// Memory for blocks that are copied before they are written.
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

    /// The position before which every byte is in its segment's file.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Asserts the order of these positions.
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

    /// Bytes of the segments that are wholly written and were not synced.
    fn full_unsynced_bytes(&self) -> u64 {
        let bytes = |segment: &Arc<Segment>| {
            let stream = segment.stream();
            stream.end_offset().map_or(0, u64::from)
        };
        self.unsynced.iter().map(bytes).sum()
    }

    /// Takes the segments that are wholly written and were not synced. Once they are synced, every
    /// byte before the returned position is durable.
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

    /// Takes the segments that were written since the last sync.
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
    /// Forgets a segment that is being deleted, which needs no sync any more.
    pub(crate) fn forget_unsynced(&self, id: SegmentId) {
        let mut state = self.spill.lock();
        state.unsynced.retain(|segment| segment.id != id);
        self.publish_unsynced(&state);
    }

    /// Publishes what [`sync_full_due`](Self::sync_full_due) reads.
    pub(crate) fn publish_unsynced(&self, state: &SpillState) {
        let bytes = state.full_unsynced_bytes();
        self.full_unsynced_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether [`spill_step`](Self::spill_step) is worthwhile. It comes before all other jobs.
    #[must_use]
    pub fn spill_due(&self) -> bool {
        self.unspilled_bytes() >= STEP_BYTES_MIN.min(self.ring_bytes / 4) && !self.poisoned()
    }

    /// Whether commits will wait for room in the ring soon: half of it waits for the spill.
    #[must_use]
    pub fn spill_urgent(&self) -> bool {
        self.unspilled_bytes() >= self.ring_bytes / 2 && !self.poisoned()
    }

    /// Makes pages of the ring resident ahead of commits, so that few commits wait for a page
    /// fault. The first write to a page is a fault, and so is the first one after the system has
    /// written the page back.
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

    /// Moves up to 1 MiB of whole blocks from the ring to their segment, and gives up the ring's
    /// bytes of frames that are wholly there. Returns whether it moved something.
    ///
    /// # Errors
    /// I/O errors, which poison the log; `Poisoned`.
    pub fn spill_step(&self) -> Result<bool> {
        let mut state = self.spill.lock();
        self.check()?;
        self.spill_some(&mut state, false)
    }

    /// Waits until the operating system has every byte up to the end of `reservation`, if the ring
    /// does not survive a kill. Otherwise returns at once.
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
        // The thread that had the lock before may have written these bytes too.
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

    /// Writes one piece: whole blocks, or with `partial`, if few are left, these and the block
    /// behind them that is not full. Returns whether it moved something.
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
        // Every byte before `exact` is copied and is this segment's. Blocks before `whole` have no
        // other bytes.
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

    /// Writes zeros ahead of a small sync that comes to blocks that the file does not have. The
    /// sync covers them.
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
            // A recycled file has its blocks.
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

    /// The segment to write next, which may be one that has just become active.
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
            // Over the gap between two segments, which `spill_due` would count as bytes that wait.
            self.publish_spilled(state);
        }
        state.current.clone()
    }

    /// Writes whole blocks before `whole`, as many as one step and the ring's end allow.
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

    /// Writes everything before `exact`: whole blocks, and the block behind them, which is not
    /// full.
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

    /// Notes that `segment`, which ends at `end`, is wholly written. Gives back its unused space.
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
        // Its sync needs no descriptor that the system could refuse. This fails only if the volume
        // is closed.
        segment.written_file().keep_open(false).ok();
        state.unsynced.push(Arc::clone(segment));
        self.publish_unsynced(state);
        state.current = None;
        self.publish_spilled(state);
        Ok(())
    }

    /// Publishes how far segments have everything, and which ring bytes may be taken.
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

    /// Moves `reclaim_position` over every frame that is wholly in written blocks.
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

    /// Length of the frame at `position`, which this process wrote and the ring has.
    fn frame_bytes_at(&self, position: u64) -> u64 {
        let mut lengths = [0; 8];
        // Frames begin at multiples of 8, so the ring's end does not split these eight bytes.
        let at = (position + 24) % self.ring_bytes;
        self.ring.read(at as usize, &mut lengths);
        let lengths = u64::from_le_bytes(lengths);
        let pad = |bytes: u64| bytes.div_ceil(8) * 8;
        FRAME_HEADER_BYTES as u64 + pad(lengths & 0xffff_ffff) + pad(lengths >> 32)
    }

    /// The positions whose change [`wait_progress`](Self::wait_progress) waits for.
    pub(crate) fn progress_seen(&self) -> (u64, u64) {
        (
            self.completed.load(Ordering::SeqCst),
            self.reclaimable.load(Ordering::SeqCst),
        )
    }

    /// Waits until a commit completes or ring space comes free, a millisecond at most.
    pub(crate) fn wait_progress(&self, seen: (u64, u64)) {
        self.progress_waiters.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.progress.lock();
        if self.progress_seen() == seen {
            // The limit covers the moment between a completion and its look at the waiters.
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

    /// The first store to a page of the ring is a fault of microseconds, which other threads wait
    /// for.
    #[test]
    fn populate_ahead_covers_its_window_ahead_of_commits_and_no_more() {
        let log = small();
        let populated = || log.populated.load(Ordering::Relaxed);
        let start = populated();
        log.populate_ahead();
        let ahead = (log.ring_bytes / 4).min(POPULATE_BYTES);
        assert_eq!(populated(), block_down(start + ahead));
        // It follows commits, round the end of the ring too, in steps.
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

    /// A sync writes the whole ring under one lock. A commit that waited for room waited for that
    /// lock too, 36 ms at 1 GB/s, although the first piece had made room.
    #[test]
    fn ring_space_wait_does_not_block_on_the_spiller() {
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
