//! Ends the log's active segment and waits until it is durable: for a checkpoint, which links whole
//! segments, and to give back what only a busy log needs.
//!
//! Thread safety: any thread that holds no lock. Other threads commit meanwhile, into the next
//! segment.

use crate::Result;
use crate::engine::Engine;
use crate::options::Durability;
use glintdb_core::SegmentId;
use glintdb_log::Space;

/// The end of a segment.
pub(crate) struct Sealed {
    /// The segment that was ended, `None` if nothing was written since the last one ended.
    pub(crate) segment: Option<SegmentId>,
    /// The segment that follows: small, and at the ring's front.
    pub(crate) next: SegmentId,
}

impl Engine {
    /// Ends the active segment. On return it and all segments before it are wholly in their files
    /// and synced, and all commits in them are visible.
    ///
    /// # Errors
    /// `NoSpace` for the next segment: nothing has happened then. `Closed`, `Poisoned`, I/O errors.
    pub(crate) fn seal_segment(&self, space: Space) -> Result<Sealed> {
        let mut fresh = self.log.prepare_fresh(space)?;
        let (sealed, newest, end) = {
            let sequencer = self.sequencer.lock();
            // As for commits: no seal behind the log's last frame.
            self.check_open()?;
            let newest = sequencer.newest();
            self.pipeline.wait_completed(newest)?;
            // Refused only where the log takes no more writes: the sync below reports that.
            let place = self.log.reserve_seal(&mut fresh).ok().flatten();
            if let Some(place) = &place {
                self.log.copy_control(place);
                // In order: every earlier commit is completed, and no other can be numbered.
                self.log.complete_to(place.end_position());
            }
            let sealed = Sealed {
                segment: place.map(|place| place.lsn().segment),
                next: self.log.next_lsn().segment,
            };
            (sealed, newest, self.log.completed_position())
        };
        drop(fresh);
        // Up to here and no further: other threads may write as fast as this one moves blocks.
        while self.log.spilled_position() < end
            && (self.log.spill_step()).inspect_err(|error| self.pipeline.fail(error))?
        {}
        self.flush_log(Durability::Sync)?;
        self.pipeline.wait_visible(newest)?;
        Ok(sealed)
    }
}
