//! Group sync: one thread leads, the others wait, and the next leader covers all that came meanwhile.

use crate::log::Log;
use crate::lsn::Lsn;
use glintdb_core::Result;
use glintdb_core::sync::{Condvar, Mutex};
use std::sync::atomic::Ordering;

#[derive(Default)]
pub(crate) struct SyncState {
    leading: Mutex<bool>,
    done: Condvar,
}

impl Log {
    /// Makes everything up to `up_to` (a [`Reservation::end`](crate::Reservation::end) or [`end`](Self::end)), as far as it is completed, durable against power loss, all earlier segments included.
    ///
    /// # Errors
    /// I/O errors, which poison the log: whether the commits that waited for this sync are durable is then unknown until the database is opened again. `Poisoned`.
    pub fn sync(&self, up_to: Lsn) -> Result<()> {
        let completed = self.completed.load(Ordering::Acquire);
        self.sync_position(self.position_of(up_to).min(completed))
    }

    /// [`sync`](Self::sync) of everything completed until now.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn sync_all(&self) -> Result<()> {
        self.sync_position(self.completed.load(Ordering::Acquire))
    }

    fn sync_position(&self, target: u64) -> Result<()> {
        if self.durable.load(Ordering::Acquire) >= target {
            return Ok(());
        }
        self.counters.sync_waits.fetch_add(1, Ordering::Relaxed);
        let mut leading = self.sync.leading.lock();
        loop {
            if self.durable.load(Ordering::Acquire) >= target {
                return Ok(());
            }
            self.check()?;
            if !*leading {
                break;
            }
            self.sync.done.wait(&mut leading);
        }
        *leading = true;
        drop(leading);
        let result = self.sync_now();
        *self.sync.leading.lock() = false;
        self.sync.done.notify_all();
        result
    }

    fn sync_now(&self) -> Result<()> {
        self.counters.sync_groups.fetch_add(1, Ordering::Relaxed);
        let (target, segments) = {
            let mut state = self.spill.lock();
            self.check()?;
            let target = self.completed.load(Ordering::Acquire);
            while state.written() < target && self.spill_some(&mut state, true)? {}
            self.zero_ahead(&mut state)?;
            (target, state.take_unsynced())
        };
        for segment in segments {
            self.counters.segment_syncs.fetch_add(1, Ordering::Relaxed);
            if glintdb_core::seeded::bug("log: the log is not synced") {
                continue;
            }
            let mut synced = segment.written_file().sync();
            if glintdb_core::seeded::bug("log: a failed sync is tried again and believed") {
                synced = synced.or_else(|_| segment.written_file().sync());
            }
            synced.map_err(|error| self.poison(error.context("sync the log")))?;
        }
        // SeqCst, as `durable_position`: who moves it and looks for commits to show, and who shows commits and looks at it, do not both miss each other.
        self.durable.fetch_max(target, Ordering::SeqCst);
        Ok(())
    }

    /// Clean close: makes everything durable and says so in a last frame, so that damage in what was written last is told from a torn tail. Only while nobody else
    /// writes; the log takes frames afterwards as before.
    ///
    /// # Errors
    /// As [`sync`](Self::sync). What was acknowledged is as safe as before also when this fails.
    pub fn close(&self) -> Result<()> {
        self.sync_all()?;
        loop {
            match self.append_mark() {
                Ok(_) => return self.sync_all(),
                // A close must not fail for want of a mark.
                Err(crate::WaitReason::Segment) => return Ok(()),
                Err(reason) => self.wait(reason, crate::Space::Reserve)?,
            }
        }
    }
}
