//! Closing a database.
//!
//! Thread safety: one thread closes, while others may be in any operation.

use crate::Result;
use crate::durable::Durable;
use crate::durable::manifest::Item;
use crate::options::Durability;
use crate::write::backpressure::waits::Wait;
use std::time::Duration;

/// Time between two looks of a closing thread at commits under way, each of which takes
/// microseconds.
const COMMITS_LOOK: Duration = Duration::from_micros(50);

impl Durable {
    /// Refuses new operations and jobs. Background threads end after their step, and waiting
    /// writers look again.
    pub(crate) fn begin_close(&self) {
        self.shared.set_closing();
        self.background.stop();
        self.shared.backpressure.compaction.wake();
    }

    /// Records in the manifest that the log was closed: up to where it is durable, so that the next
    /// open reports missing frames as damage and not as a torn tail, and that no commit is only in
    /// the ring.
    fn note_closed(&self) -> Result<()> {
        let log = &self.shared.log;
        assert!(
            log.durable_position() >= log.completed_position(),
            "no commit is only in the ring when the manifest says so: the log is durable to {}, \
             and commits end at {}",
            log.durable_position(),
            log.completed_position()
        );
        let items = [Item::LogDurable(log.durable()), Item::Ring(0)];
        let commit = || self.shared.manifest.lock().commit(&items);
        match self.shared.reserve.lending(commit) {
            // A close does not fail because there is no space: the next open then needs the ring,
            // which exists.
            Err(error) if error.kind().passes() => Ok(()),
            result => result,
        }
    }

    /// Ends a close, after background threads have ended: waits for writes of callers' threads,
    /// makes all commits durable, and says so in the log's last frame, so that the next open can
    /// tell damage from a torn tail. Afterwards no thread writes to the ring or trusts its
    /// contents, so the medium may be given to the next opener once the volume is closed.
    ///
    /// Writes to the ring are commits between their number and their end, seals of a checkpoint,
    /// and the last frame itself. Numbers are given out, and seals made, under the sequencer's lock
    /// by threads that find `closing` unset there. It was set before the lock is taken here, so the
    /// newest number is the last one and no seal follows. The commits up to that number end by
    /// themselves, because they wait for nothing but the medium, which is still open. Other work of
    /// callers' threads (a flush, a compaction, a round of value GC) is on files; the volume lets
    /// each write end and refuses the next one, which leaves the state of a crash at that moment.
    /// Steps of jobs and flushes that have begun are waited for all the same, so that their work is
    /// not lost.
    ///
    /// # Errors
    /// The error that prevented a commit from becoming durable, or the error of an earlier failure.
    pub(crate) fn finish_close(&self) -> Result<()> {
        {
            let _timed = self.shared.waits.start(Wait::Jobs);
            self.background.wait_stopped();
        }
        let _no_flush = self.background.no_flush();
        let newest = self.sequencer.newest();
        while !self.shared.pipeline.all_ended(newest) {
            self.background.wait_finished(COMMITS_LOOK);
        }
        let closed = self
            .writer
            .flush_log(Durability::Sync)
            .and_then(|()| self.shared.log.close())
            .and_then(|()| self.note_closed());
        if closed.is_ok() {
            // Everything is durable without the ring, so a failure costs only space.
            self.shared.log.release_ring().ok();
        }
        closed.inspect_err(|error| self.shared.note_background_error(error))
    }
}
