//! Group sync: one thread leads, the others wait, and the next leader covers all that came meanwhile.
//!
//! Left to itself that makes two groups that alternate: while one is synced the other gathers, and its leader begins before those of the first, just woken, are back with their next commits. So
//! a leader waits for as many as the last sync kept waiting, a few microseconds beside the hundred of a sync (`docs/decisions/014-commit-contention.md`). One thread alone never waits.

use crate::log::Log;
use crate::lsn::Lsn;
use crate::segment::Segment;
use glintdb_core::sync::{Condvar, Mutex, thread};
use glintdb_core::{Error, ErrorKind, Result, planted};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Times a leader offers its core to others while company may come, and times in a row without anybody coming after which it begins. About half a microsecond each where nobody else wants
/// the core.
const COMPANY_TURNS_MAX: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 400 };
const COMPANY_STILL_TURNS_MAX: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 128 };
/// And no longer than this: where other threads want every core, a turn may take as long as they are given one.
const COMPANY_TIME_MAX: Duration = Duration::from_micros(200);

#[derive(Default)]
pub(crate) struct SyncState {
    lead: Mutex<Lead>,
    done: Condvar,
}

/// Arrivals are counted in `sync_waits`; they decide how long a leader waits, and nothing else.
#[derive(Default)]
struct Lead {
    leading: bool,
    /// Arrivals up to when the last sync began.
    covered: u64,
    /// Who had come to sync between the beginning of the sync before the last and the last one's end: all threads that sync all the time.
    company: u64,
}

/// How a sync ended.
enum Ended {
    /// It has not: it panicked.
    Never,
    /// It was for everybody who had arrived before it began, so many.
    Group { arrived: u64 },
    /// Nobody had asked for it.
    Unasked,
}

/// Who leads, until the sync is over. By a panic too: whoever waits is told.
struct Leading<'a> {
    log: &'a Log,
    ended: Ended,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let arrivals = self.log.arrivals();
        let mut lead = self.log.sync.lead.lock();
        match self.ended {
            Ended::Group { arrived } => {
                lead.company = arrivals.saturating_sub(lead.covered);
                lead.covered = arrived;
            }
            Ended::Unasked => {}
            Ended::Never => {
                let what = "the thread that synced the log panicked";
                self.log.poison(Error::new(ErrorKind::Poisoned, what));
            }
        }
        lead.leading = false;
        drop(lead);
        self.log.sync.done.notify_all();
    }
}

impl Log {
    /// Makes everything up to `up_to` (a [`Reservation::end`](crate::Reservation::end) or [`end`](Self::end)), as far as it is completed, durable against power loss, all earlier segments included.
    ///
    /// # Errors
    /// I/O errors, which poison the log: whether the commits that waited for this sync are durable is then unknown until the database is opened again. `Poisoned`.
    pub fn sync(&self, up_to: Lsn) -> Result<()> {
        let completed = self.completed.load(Ordering::Acquire);
        self.sync_position(self.position_of(up_to).min(completed), || false)
    }

    /// [`sync`](Self::sync) that does something else while another thread syncs for it, as long as `meanwhile` says that it did something.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn sync_while(&self, up_to: Lsn, meanwhile: impl Fn() -> bool) -> Result<()> {
        let completed = self.completed.load(Ordering::Acquire);
        self.sync_position(self.position_of(up_to).min(completed), meanwhile)
    }

    /// [`sync`](Self::sync) of everything completed until now.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn sync_all(&self) -> Result<()> {
        self.sync_position(self.completed.load(Ordering::Acquire), || false)
    }

    fn sync_position(&self, target: u64, meanwhile: impl Fn() -> bool) -> Result<()> {
        if self.durable.load(Ordering::Acquire) >= target {
            return Ok(());
        }
        self.counters.sync_waits.fetch_add(1, Ordering::Relaxed);
        let expected = {
            let mut lead = self.sync.lead.lock();
            let mut helps = true;
            loop {
                if self.durable.load(Ordering::Acquire) >= target {
                    return Ok(());
                }
                self.check()?;
                if !lead.leading {
                    break;
                }
                if helps {
                    drop(lead);
                    helps = meanwhile();
                    lead = self.sync.lead.lock();
                } else {
                    self.sync.done.wait(&mut lead);
                }
            }
            lead.leading = true;
            lead.covered + lead.company
        };
        let mut leading = Leading {
            log: self,
            ended: Ended::Never,
        };
        self.wait_for_company(expected);
        // Before the look at `completed`: whose arrival is counted has completed its commit.
        let arrived = self.arrivals();
        let result = self.sync_now();
        leading.ended = Ended::Group { arrived };
        result
    }

    /// Whether [`sync_full`](Self::sync_full) is worth while: what it would sync is as much as a segment. For the job queue.
    #[must_use]
    pub fn sync_full_due(&self) -> bool {
        self.full_unsynced_bytes.load(Ordering::Relaxed) >= self.setup.options.segment_bytes
            && !self.poisoned()
    }

    /// Makes the segments that are full durable, though nobody has asked for it: a power cut then takes less of what was promised nothing, and recovery has less to write again. Leaves it to
    /// whoever syncs already.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn sync_full(&self) -> Result<()> {
        {
            let mut lead = self.sync.lead.lock();
            self.check()?;
            if lead.leading {
                return Ok(());
            }
            lead.leading = true;
        }
        let mut leading = Leading {
            log: self,
            ended: Ended::Never,
        };
        let (target, segments) = {
            let mut state = self.spill.lock();
            let full = state.take_full_unsynced();
            self.publish_unsynced(&state);
            full
        };
        let result = self.sync_segments(target, &segments);
        leading.ended = Ended::Unasked;
        result
    }

    fn arrivals(&self) -> u64 {
        self.counters.sync_waits.load(Ordering::Relaxed)
    }

    /// Until as many have arrived as are expected, or nobody comes any more.
    fn wait_for_company(&self, expected: u64) {
        let (mut seen, mut still) = (self.arrivals(), 0);
        if seen >= expected {
            return;
        }
        let clock = &self.setup.clock;
        let end = clock.monotonic() + COMPANY_TIME_MAX;
        for _ in 0..COMPANY_TURNS_MAX {
            if seen >= expected || still == COMPANY_STILL_TURNS_MAX || clock.monotonic() > end {
                return;
            }
            thread::yield_now();
            let arrivals = self.arrivals();
            still = if arrivals == seen { still + 1 } else { 0 };
            seen = arrivals;
        }
    }

    fn sync_now(&self) -> Result<()> {
        self.counters.sync_groups.fetch_add(1, Ordering::Relaxed);
        let (target, segments) = {
            let mut state = self.spill.lock();
            self.check()?;
            let target = self.completed.load(Ordering::Acquire);
            while state.written() < target && self.spill_some(&mut state, true)? {}
            assert!(
                target <= state.written(),
                "a sync covers only what is in files: up to {target}, written up to {}",
                state.written()
            );
            self.zero_ahead(&mut state)?;
            let segments = state.take_unsynced();
            self.publish_unsynced(&state);
            (target, segments)
        };
        self.sync_segments(target, &segments)
    }

    /// Syncs what holds every byte before `target` that is not durable.
    fn sync_segments(&self, target: u64, segments: &[Arc<Segment>]) -> Result<()> {
        for segment in segments {
            self.counters.segment_syncs.fetch_add(1, Ordering::Relaxed);
            let sync = || segment.written_file().sync();
            let synced = planted!("log: the log is not synced", sync(), Ok(()));
            let synced = planted!(
                "log: a failed sync is tried again and believed",
                synced,
                synced.or_else(|_| sync())
            );
            synced.map_err(|error| self.poison(error.context("sync the log")))?;
        }
        let completed = self.completed.load(Ordering::Acquire);
        assert!(
            target <= completed,
            "only completed frames become durable: up to {target}, completed up to {completed}"
        );
        // SeqCst, as `durable_position`: who moves it and looks for commits to show, and who shows commits and looks at it, do not both miss each other.
        self.durable.fetch_max(target, Ordering::SeqCst);
        Ok(())
    }

    /// Clean close: makes everything durable and says so in a last frame, so that damage in what was written last is told from a torn tail. Only while nobody else
    /// writes; the log takes frames afterwards as before, until [`leave_ring`](Self::leave_ring).
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
                Err(reason) => match self.wait(reason, crate::Space::Reserve) {
                    Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(()),
                    waited => waited?,
                },
            }
        }
    }

    /// Leaves the ring to the next opener of the volume: from now on no value is read from it, and
    /// a reader that copies from it right now does not believe its copy. Only when nobody writes to
    /// the ring any more.
    pub fn leave_ring(&self) {
        // As if every byte were taken for others. Readers look at it again behind their copy, as
        // they do for bytes that this process takes (`Log::copy` has the fence that theirs pairs
        // with).
        self.reclaimed.store(u64::MAX, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::testing::small;
    use glintdb_core::clock::Clock;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// Each look at it takes a millisecond, as a turn does where other threads want every core.
    #[derive(Default)]
    struct Busy(AtomicU64);

    impl Clock for Busy {
        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
        }

        fn wall(&self) -> Duration {
            Duration::ZERO
        }

        fn sleep(&self, _time: Duration) {}
    }

    /// A leader offered its core 128 times to whoever had synced with it before, however long that took: with threads that compute on every core, half a second.
    #[test]
    fn a_leader_does_not_wait_long_for_company_that_has_gone() {
        let clock = Arc::new(Busy::default());
        let log = small(Arc::clone(&clock) as Arc<dyn Clock>);
        let expected = log.arrivals() + 3;
        log.wait_for_company(expected);
        assert_eq!(clock.0.load(Ordering::Relaxed), 2, "looks at the clock");
        log.wait_for_company(log.arrivals());
        assert_eq!(clock.0.load(Ordering::Relaxed), 2, "nobody is expected");
    }
}
