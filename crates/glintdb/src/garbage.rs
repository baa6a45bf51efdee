//! Segments of the log that nobody needs any more: below the flush point, and without live values or retired.
//!
//! Thread safety: everything from any thread; the manifest's lock is held while the dead are chosen.

use crate::ErrorKind;
use crate::engine::Engine;
use glintdb_core::SegmentId;

impl Engine {
    /// Removes segments that are dead and that no version names any more.
    pub(crate) fn collect_garbage(&self) {
        let manifest = self.manifest.lock();
        let state = manifest.state();
        let flush_segment = state.flush_point.lsn.segment;
        let dead: Vec<SegmentId> = self
            .log
            .segment_ids()
            .into_iter()
            .filter(|&segment| segment < flush_segment && !state.is_live(segment))
            .collect();
        // Under the manifest's lock: the version that goes with its state is installed.
        let free = self.version.free(dead);
        drop(manifest);
        for segment in free {
            match self.log.delete(segment) {
                Ok(()) => {}
                // Its last bytes are still in the ring: at the next occasion.
                Err(error) if error.kind() == ErrorKind::InvalidArgument => {
                    self.version.keep_dead(segment);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => self.note_background_error(&error),
            }
        }
    }

    /// [`collect_garbage`](Self::collect_garbage) where a dead segment waits for its last reader.
    pub(crate) fn collect_garbage_if_waiting(&self) {
        if self.version.some_wait() && !self.closing() {
            self.collect_garbage();
        }
    }
}

#[cfg(test)]
mod tests;
