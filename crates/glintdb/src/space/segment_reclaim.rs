//! Removal of dead segments of the log: those without live values, or retired, that are below the
//! flush point or no part of the stream.
//!
//! Thread safety: any thread. The manifest's lock is held while dead segments are chosen.

use crate::ErrorKind;
use crate::space::DiskSpace;
use glintdb_core::{SegmentId, planted};
use glintdb_log::format::segment::SegmentKind;

impl DiskSpace {
    /// Removes segments that are dead and that no version names any more.
    pub(crate) fn collect_garbage(&self) {
        let manifest = self.shared.manifest.lock();
        let state = manifest.state();
        let flush_segment = state.flush_point.lsn.segment;
        let dead: Vec<SegmentId> = self
            .shared
            .log
            .segment_ids()
            .into_iter()
            .filter(|&segment| !state.is_live(segment))
            .filter(|&segment| segment < flush_segment || self.holds_moved(segment))
            .collect();
        // Under the manifest's lock, so that the version that belongs to its state is installed.
        let mut free = self.shared.version.free(dead.iter().copied());
        assert!(
            !free.iter().any(|segment| state.is_live(*segment)),
            "a dead segment stays dead, so that its file may be removed"
        );
        planted!(
            "glintdb: a retired segment goes while a snapshot reads it",
            (),
            free.extend(dead.iter().filter(|dead| state.retired.contains(dead)))
        );
        drop(manifest);
        for segment in free {
            match self.shared.log.delete(segment) {
                Ok(()) => {}
                // Its last bytes are still in the ring. The next call tries again.
                Err(error) if error.kind() == ErrorKind::InvalidArgument => {
                    self.shared.version.keep_dead(segment);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => self.shared.note_background_error(&error),
            }
        }
        self.remove_doomed();
    }

    /// Removes segments that were deleted while a view of the log, such as that of a round of value
    /// GC, kept them.
    pub(crate) fn remove_doomed(&self) {
        if let Err(error) = self.shared.log.remove_doomed() {
            self.shared.note_background_error(&error);
        }
    }

    /// Returns whether a segment holds values that were moved. Such a segment is no part of the
    /// stream, so no replay needs it.
    pub(crate) fn holds_moved(&self, segment: SegmentId) -> bool {
        // A segment whose header cannot be read stays.
        matches!(
            self.shared.log.segment_kind(segment),
            Ok(SegmentKind::Values)
        )
    }

    /// Removes dead segments, like [`collect_garbage`](Self::collect_garbage), if one waits for its
    /// last reader.
    pub(crate) fn collect_garbage_if_waiting(&self) {
        if self.shared.version.some_wait() && !self.shared.closing() {
            self.collect_garbage();
        }
    }
}

#[cfg(test)]
mod relocation_tests;
#[cfg(test)]
mod tests;
