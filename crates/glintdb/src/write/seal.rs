//! Ends the log's active segment and waits until it is durable: for a checkpoint, which links whole
//! segments, and to give back space that only a busy log needs.
//!
//! Thread safety: any thread that holds no lock. Other threads commit meanwhile, into the next
//! segment.

use crate::Result;
use crate::options::Durability;
use crate::write::Writer;
use glintdb_core::SegmentId;
use glintdb_log::Space;

/// The end of a segment.
pub(crate) struct Sealed {
    /// The segment that was ended. `None` if nothing was written since the last one ended.
    pub(crate) segment: Option<SegmentId>,
    /// The segment that follows. It is small, and the ring continues with it.
    pub(crate) next: SegmentId,
}

impl Writer {
    /// Ends the active segment. On return, all bytes of it and of all earlier segments are in their
    /// files and synced, and all commits in them are visible.
    ///
    /// # Errors
    /// - `NoSpace`: there is no space for the next segment. Nothing has changed.
    /// - `Closed`, `Poisoned` and I/O errors.
    pub(crate) fn seal_segment(&self, space: Space) -> Result<Sealed> {
        let log = &self.shared.log;
        let mut fresh = log.prepare_fresh(space)?;
        let (sealed, newest, end) = self.sequencer.while_newest(|newest| {
            // Checked under the lock, as for commits, so that no seal follows the log's last frame.
            self.shared.check_open()?;
            self.shared.pipeline.wait_completed(newest)?;
            // Refused only if the log takes no more writes. The sync below returns that error.
            let place = log.reserve_seal(&mut fresh).ok().flatten();
            if let Some(place) = &place {
                log.copy_control(place);
                // Every earlier commit is completed, and none can get a number meanwhile, so
                // positions are published in order.
                log.complete_to(place.end_position());
            }
            let sealed = Sealed {
                segment: place.map(|place| place.lsn().segment),
                next: log.next_lsn().segment,
            };
            Result::Ok((sealed, newest, log.completed_position()))
        })?;
        drop(fresh);
        // Spills up to `end` only: other threads may write as fast as this one spills.
        while log.spilled_position() < end
            && (log.spill_step()).inspect_err(|error| self.shared.pipeline.fail(error))?
        {}
        self.flush_log(Durability::Sync)?;
        self.shared.pipeline.wait_visible(newest)?;
        Ok(sealed)
    }
}
