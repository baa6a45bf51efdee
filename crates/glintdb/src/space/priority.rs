//! Space on a full disk: who may use the reserve, who must leave what to whom.
//!
//! Thread safety: any thread; no lock is held across a wait, but `flush_lock` by a flush that others give way to.
//!
//! Invariants:
//! 1. A commit that puts something is numbered only while the reserve holds what a flush of everything in memory, that commit included, will write (`reserve`).
//! 2. A flush goes before a compaction: none is begun that is not expected to find space, none takes of lent space what a flush needs, and all end where one starves.
//! 3. Who borrows the reserve has its space: nobody makes it anew meanwhile.

use crate::space::DiskSpace;
use crate::space::reserve;
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::IndexJob;
use glintdb_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A flush that has no space waits so often, and so long, for compactions to end: each ends with the step it is in.
const GIVE_WAY_WAITS_MAX: usize = 400;
const GIVE_WAY_WAIT: Duration = Duration::from_millis(5);

/// Where a compaction runs.
#[derive(Clone, Copy)]
pub(crate) enum Begun {
    /// As a job of the queue.
    Queued,
    /// On the thread that calls for it.
    Called,
}

/// A compaction that may have new files; counted as long as it lives.
pub(crate) struct Running(Arc<AtomicUsize>);

impl Running {
    fn new(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::AcqRel);
        Running(Arc::clone(counter))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A flush waits for the space that compactions have, while it lives.
struct Starves<'a>(&'a AtomicBool);

impl<'a> Starves<'a> {
    fn new(starves: &'a AtomicBool) -> Self {
        starves.store(true, Ordering::Release);
        Starves(starves)
    }
}

impl Drop for Starves<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl DiskSpace {
    /// Makes the reserve as large as a commit that puts something needs it.
    pub(crate) fn cover(&self, index_bytes: u64) -> Result<()> {
        let covered = self.sequencer.is_covered(index_bytes);
        if covered || self.refill_reserve(index_bytes)? {
            return Ok(());
        }
        Err(crate::space::reserve::refused())
    }

    /// For deletions on a full disk: what they have written to the log is dead once it is flushed, and the segments that hold nothing else make room for more.
    pub(crate) fn free_log_space(&self) -> Result<()> {
        self.shared.flush_all()?;
        self.collect_garbage_if_waiting();
        Ok(())
    }

    /// Runs what frees space: where it finds none, once more with the reserve's.
    pub(crate) fn with_reserve<T>(&self, run: impl Fn() -> Result<T>) -> Result<T> {
        let lent_before = self.shared.reserve.is_lent();
        match run() {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                let lent_meanwhile = !lent_before && self.shared.reserve.is_lent();
                let borrowed = self.shared.reserve.borrow()?;
                match borrowed.anything || lent_meanwhile {
                    true => run(),
                    false => Err(error),
                }
            }
            result => result,
        }
    }

    /// Makes the reserve as large as it should be when `more_bytes` have come into memory; `Ok(false)`: there is no space for it now.
    pub(crate) fn refill_reserve(&self, more_bytes: u64) -> Result<bool> {
        let unflushed = self.sequencer.unflushed_bytes() + more_bytes;
        let tables = self.shared.version.load_full().index_live_bytes();
        self.shared
            .reserve
            .refill(&*self.shared.numbers, tables, unflushed)
    }

    /// Counts a compaction as begun where there is space for it, the reserve's included if that is enough.
    ///
    /// # Errors
    /// `NoSpace`: nothing is begun that would only fail, and take what a flush waits for meanwhile.
    pub(crate) fn begin_compaction(&self, job: &dyn IndexJob, by: Begun) -> Result<Running> {
        self.begin_writing(job.name(), job.space_bytes(), by)
    }

    /// [`begin_compaction`](Self::begin_compaction) of something that may need `wanted` bytes.
    pub(crate) fn begin_writing(
        &self,
        name: impl std::fmt::Display,
        wanted: u64,
        by: Begun,
    ) -> Result<Running> {
        if let Some(free) = self.shared.volume.free_bytes().filter(|_| wanted > 0) {
            let lent = self.shared.reserve.is_lent();
            let of_flush = self.flush_space_bytes();
            let fits = wanted.saturating_add(if lent { of_flush } else { 0 }) <= free;
            let fits_with_reserve =
                wanted.saturating_add(of_flush) <= free.saturating_add(self.shared.reserve.bytes());
            if !fits && (lent || !fits_with_reserve || !self.shared.reserve.lend()?) {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    format!("a {name} may need {wanted} bytes, and {free} are free"),
                ));
            }
        }
        Ok(Running::new(match by {
            Begun::Queued => &self.queued_compactions,
            Begun::Called => &self.called_compactions,
        }))
    }

    /// Number of compactions in the job queue.
    pub(crate) fn queued_compactions(&self) -> usize {
        self.queued_compactions.load(Ordering::Acquire)
    }

    /// Before every step of a compaction: of the space that the reserve has given up it leaves what a flush of everything in memory needs.
    pub(crate) fn may_compact(&self) -> Result<()> {
        let takes_from_flush = || {
            let free = self.shared.volume.free_bytes();
            self.shared.reserve.is_lent()
                && free.is_some_and(|free| free < self.flush_space_bytes())
        };
        if self.flush_starves.load(Ordering::Acquire) || takes_from_flush() {
            return Err(Error::new(
                ErrorKind::NoSpace,
                "a compaction gives way to a flush",
            ));
        }
        Ok(())
    }

    pub(crate) fn flush_space_bytes(&self) -> u64 {
        reserve::flush_bytes(self.sequencer.unflushed_bytes())
    }

    /// A flush that found no space although the reserve is lent, once more when all compactions have ended: one may have been in the middle of a step.
    pub(crate) fn give_way<T>(&self, error: Error, flush: impl Fn() -> Result<T>) -> Result<T> {
        let _starves = Starves::new(&self.flush_starves);
        let mut others = self.shared.give_up_below_flush() > 0;
        for _ in 0..GIVE_WAY_WAITS_MAX {
            let counters = [&self.queued_compactions, &self.called_compactions];
            if counters
                .iter()
                .all(|running| running.load(Ordering::Acquire) == 0)
            {
                break;
            }
            others = true;
            self.shared.wait_finished(GIVE_WAY_WAIT);
        }
        if others { flush() } else { Err(error) }
    }
}
