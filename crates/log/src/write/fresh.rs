//! Ends the active segment early and goes on small: in a new segment at the front of the ring, made
//! as if the log had just been opened.
//!
//! The new segment is made and durable before the seal names it. As segment ids must grow along the
//! stream, no other segment is prepared until then.

use crate::format::FIRST_FRAME_OFFSET;
use crate::format::frame::SEAL_FRAME_BYTES;
use crate::format::segment::SegmentKind;
use crate::log::Log;
use crate::segment::Segment;
use crate::write::append::{Reservation, Space, WaitReason};
use crate::write::prepare::PrepareState;
use glintdb_core::sync::MutexGuard;
use glintdb_core::sync::atomic::Ordering;
use glintdb_core::{Result, SegmentId};
use std::sync::Arc;

/// A segment that is ready for [`Log::reserve_seal`]. Dropping it gives its space back if it
/// was not used.
pub struct FreshSegment<'a> {
    log: &'a Log,
    prepare: MutexGuard<'a, PrepareState>,
    /// `prepare.base_next` before the segment.
    base_before: u64,
    segment: Arc<Segment>,
    placed: bool,
}

impl std::fmt::Debug for FreshSegment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FreshSegment({})", self.segment.id)
    }
}

impl Log {
    /// Makes a segment of the size that a log of the same data has after its opening. Outside the
    /// sequencer's lock; then [`reserve_seal`](Self::reserve_seal) under it.
    ///
    /// # Errors
    /// `NoSpace`, I/O errors: nothing has happened then. `Poisoned`.
    pub fn prepare_fresh(&self, space: Space) -> Result<FreshSegment<'_>> {
        let mut prepare = self.prepare.lock();
        self.check()?;
        let base_before = prepare.base_next;
        prepare.base_next = base_before.next_multiple_of(self.ring_bytes);
        let capacity = self.fresh_segment_bytes();
        let created = prepare.create_anyhow(&self.setup, SegmentKind::Stream, capacity, space);
        let segment = created.inspect_err(|_| prepare.base_next = base_before)?;
        Ok(FreshSegment {
            log: self,
            prepare,
            base_before,
            segment: Arc::new(segment),
            placed: false,
        })
    }

    /// Ends the active segment early, with `fresh` behind it, so that it can be linked or, later,
    /// deleted; `None`: it is empty. The caller copies the seal with
    /// [`copy_control`](Self::copy_control) and completes it like a commit. The next commit waits
    /// until the ring has run empty. Segments are small again from then on.
    ///
    /// # Errors
    /// [`WaitReason::Ring`] if the log is poisoned: it takes no more frames.
    pub fn reserve_seal(
        &self,
        fresh: &mut FreshSegment<'_>,
    ) -> Result<Option<Reservation>, WaitReason> {
        assert!(!fresh.placed, "a fresh segment is placed once");
        let mut sequencer = self.sequencer.lock();
        if self.poisoned() {
            return Err(WaitReason::Ring);
        }
        let nothing_to_end =
            (sequencer.active.as_ref()).is_none_or(|(_, offset)| *offset == FIRST_FRAME_OFFSET);
        if nothing_to_end {
            return Ok(None);
        }
        let Some(seal) = sequencer.seal_active(fresh.segment.id) else {
            return Ok(None);
        };
        let batches_before = sequencer.appended_batches;
        let unused: Vec<_> = sequencer.prepared.drain(..).collect();
        self.change_table(|table| {
            let mut table = table.with(Arc::clone(&fresh.segment));
            for segment in &unused {
                table = table.without(segment.id);
            }
            table
        });
        sequencer.prepared.push_back(Arc::clone(&fresh.segment));
        self.written_before
            .store(sequencer.appended_bytes, Ordering::Relaxed);
        fresh.placed = true;
        self.forget_wanted_ring_space();
        drop(sequencer);
        // The lock of these is held while files are removed.
        self.doomed.lock().waiting.extend(unused);
        Ok(Some(self.seal_reservation(seal, batches_before)))
    }

    pub(crate) fn seal_reservation(
        &self,
        (ended, offset, next): (Arc<Segment>, u32, SegmentId),
        batches_before: u64,
    ) -> Reservation {
        let stream = ended.stream();
        Reservation {
            segment: ended.id,
            seed: stream.seed,
            offset,
            bytes: SEAL_FRAME_BYTES as u32,
            end_position: stream.position(offset) + SEAL_FRAME_BYTES as u64,
            seal: Some((ended, offset, next)),
            batches_before,
        }
    }
}

impl Drop for FreshSegment<'_> {
    fn drop(&mut self) {
        if !self.placed {
            self.log.discard(&self.segment);
            self.prepare.base_next = self.base_before;
        }
        self.log.prepare_wanted.store(true, Ordering::Release);
    }
}
