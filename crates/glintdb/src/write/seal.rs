//! Ends the log's active segment and waits until it is durable: for a checkpoint, which links whole
//! segments, and to give back what only a busy log needs.
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
    /// The segment that was ended, `None` if nothing was written since the last one ended.
    pub(crate) segment: Option<SegmentId>,
    /// The segment that follows: small, and at the ring's front.
    pub(crate) next: SegmentId,
}

impl Writer {
    /// Ends the active segment. On return it and all segments before it are wholly in their files
    /// and synced, and all commits in them are visible.
    ///
    /// # Errors
    /// `NoSpace` for the next segment: nothing has happened then. `Closed`, `Poisoned`, I/O errors.
    pub(crate) fn seal_segment(&self, space: Space) -> Result<Sealed> {
        let log = &self.shared.log;
        let mut fresh = log.prepare_fresh(space)?;
        let (sealed, newest, end) = self.sequencer.while_newest(|newest| {
            // As for commits: no seal behind the log's last frame.
            self.shared.check_open()?;
            self.shared.pipeline.wait_completed(newest)?;
            // Refused only if the log takes no more writes, which the sync below reports.
            let place = log.reserve_seal(&mut fresh).ok().flatten();
            if let Some(place) = &place {
                log.copy_control(place);
                // In order: every earlier commit is completed, and no other can be numbered.
                log.complete_to(place.end_position());
            }
            let sealed = Sealed {
                segment: place.map(|place| place.lsn().segment),
                next: log.next_lsn().segment,
            };
            Result::Ok((sealed, newest, log.completed_position()))
        })?;
        drop(fresh);
        // Up to here and no further: other threads may write as fast as this one moves blocks.
        while log.spilled_position() < end
            && (log.spill_step()).inspect_err(|error| self.shared.pipeline.fail(error))?
        {}
        self.flush_log(Durability::Sync)?;
        self.shared.pipeline.wait_visible(newest)?;
        Ok(sealed)
    }
}
