//! Group sync: one thread leads, the others wait, and the next leader's sync covers all commits
//! that came meanwhile.
//!
//! Without more, threads fall into two groups that alternate: while one group is synced the other
//! gathers, and its leader begins before the threads of the first group, which have just been
//! woken, are back with their next commits. So a leader waits until as many threads have come as
//! waited for the last sync. That takes a few microseconds, and a sync takes a hundred
//! (`docs/decisions/014-commit-contention.md`). A thread that is alone never waits.
//!
//! Thread safety: any thread.

use crate::log::Log;
use crate::lsn::Lsn;
use crate::segment::Segment;
use glintdb_core::sync::{Condvar, Mutex, thread};
use glintdb_core::{Error, ErrorKind, Result, planted};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a leader yields its core while it waits for company. A turn takes about half a
/// microsecond if no other thread wants the core.
const COMPANY_TURNS_MAX: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 400 };
/// A leader begins after this many turns in a row in which no thread came.
const COMPANY_STILL_TURNS_MAX: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 128 };
/// A leader waits no longer than this: if other threads use every core, each turn takes as long as
/// the time slice that they get.
const COMPANY_TIME_MAX: Duration = Duration::from_micros(200);

/// Which thread leads, and where the others wait.
#[derive(Default)]
pub(crate) struct SyncState {
    lead: Mutex<Lead>,
    done: Condvar,
}

/// What a leader has to know. Arrivals are counted in `sync_waits`; they decide how long a leader
/// waits, and nothing else.
#[derive(Default)]
struct Lead {
    /// Whether a thread leads now.
    leading: bool,
    /// Arrivals before the last sync began.
    covered: u64,
    /// Arrivals between the beginning of the sync before the last one and the end of the last one:
    /// the number of threads that sync all the time.
    company: u64,
}

/// How a sync ended.
enum Ended {
    /// It has not ended: the leader panicked.
    Never,
    /// It was for all threads that had arrived before it began. This is the count of all arrivals
    /// until then.
    Group { arrived: u64 },
    /// No thread had asked for it.
    Unasked,
}

/// The lead, until the sync is over. Its drop wakes the threads that wait, after a panic too.
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
    /// Makes all completed frames before `up_to` survive power loss, those of earlier segments
    /// included. `up_to` is a [`Reservation::end`](crate::Reservation::end) or an
    /// [`end`](Self::end).
    ///
    /// # Errors
    /// I/O errors, which poison the log: until the database is opened again, nothing tells whether
    /// the commits that waited for this sync are durable. `Poisoned`.
    pub fn sync(&self, up_to: Lsn) -> Result<()> {
        let completed = self.completed.load(Ordering::Acquire);
        self.sync_position(self.position_of(up_to).min(completed), || false)
    }

    /// [`sync`](Self::sync) that calls `meanwhile` while another thread syncs for it, until
    /// `meanwhile` returns `false`: it had nothing to do.
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
        // Read before `completed`: every thread whose arrival is counted has completed its commit.
        let arrived = self.arrivals();
        let result = self.sync_now();
        leading.ended = Ended::Group { arrived };
        result
    }

    /// Whether [`sync_full`](Self::sync_full) is worthwhile: it would sync as many bytes as a
    /// segment has.
    #[must_use]
    pub fn sync_full_due(&self) -> bool {
        self.full_unsynced_bytes.load(Ordering::Relaxed) >= self.setup.options.segment_bytes
            && !self.poisoned()
    }

    /// Makes full segments durable, though no commit has asked for it: a power cut then loses fewer
    /// commits that have no promise against it, and recovery writes less again. Does nothing while
    /// another thread syncs.
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

    /// How many threads have come to sync so far.
    fn arrivals(&self) -> u64 {
        self.counters.sync_waits.load(Ordering::Relaxed)
    }

    /// Waits until `expected` threads have arrived, or no more come.
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

    /// Moves everything completed to segments, and syncs these.
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

    /// Syncs `segments`, which have every byte before `target` that is not durable.
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
        // SeqCst, as in `durable_position`: of a thread that moves it and then looks for commits to
        // make visible, and a thread that completes a commit and then reads it, one sees the other.
        self.durable.fetch_max(target, Ordering::SeqCst);
        Ok(())
    }

    /// Closes the log cleanly: makes everything durable and says so in a last frame, so that the
    /// next opening can tell damage of the last frames from a torn tail. No other thread may write
    /// meanwhile. Afterwards the log takes frames as before, until
    /// [`leave_ring`](Self::leave_ring).
    ///
    /// # Errors
    /// As [`sync`](Self::sync). If this fails, acknowledged commits are as safe as before.
    pub fn close(&self) -> Result<()> {
        self.sync_all()?;
        loop {
            match self.append_mark() {
                Ok(_) => return self.sync_all(),
                // A close does not fail for want of a mark.
                Err(crate::WaitReason::Segment) => return Ok(()),
                Err(reason) => match self.wait(reason, crate::Space::Reserve) {
                    Err(error) if error.kind().passes() => return Ok(()),
                    waited => waited?,
                },
            }
        }
    }

    /// Leaves the ring to the next opener of the volume: from now on no value is read from it, and
    /// a reader that copies from it right now throws its copy away. No thread may write to the ring
    /// any more.
    pub fn leave_ring(&self) {
        // As if every byte were taken for other frames. Readers look at this position again after
        // their copy, as they do for bytes that this process takes (`Log::copy` has the fence that
        // theirs pairs with).
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

    /// A clock of a machine on which other threads use every core: a millisecond passes with every
    /// look at it.
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

    /// A leader yielded its core 128 times to the threads that had synced with it before, however
    /// long that took: half a second, with threads that compute on every core.
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
