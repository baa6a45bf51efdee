//! Priorities on a full disk: which operation may use the reserve, and which must leave space to
//! others.
//!
//! Thread safety: any thread. No lock is held across a wait, except `flush_lock` by a flush that
//! others give way to.
//!
//! Invariants:
//! 1. A commit with a put is numbered only while the reserve has space for a flush of everything in
//!    memory, that commit included ([`reserve`]).
//! 2. A flush has priority over compactions: none begins unless space for it is expected, none
//!    takes lent space that a flush needs, and all end when a flush starves.
//! 3. While an operation borrows the reserve, no thread refills it.

use crate::space::DiskSpace;
use crate::space::reserve;
use crate::{Error, ErrorKind, Result};
use glintdb_core::index::IndexJob;
use glintdb_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Most times that a flush without space waits for compactions to end. Each compaction ends with
/// its step.
const GIVE_WAY_WAITS_MAX: usize = 400;
/// Time of each of these waits.
const GIVE_WAY_WAIT: Duration = Duration::from_millis(5);

/// The place where a compaction runs.
#[derive(Clone, Copy)]
pub(crate) enum Begun {
    /// It runs as a job of the queue.
    Queued,
    /// It runs on the calling thread.
    Called,
}

/// Counts a compaction that may have new files, while it lives.
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

/// Marks that a flush waits for the space that compactions have, while it lives.
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
    /// Makes the reserve large enough for a commit with a put of `index_bytes`.
    ///
    /// # Errors
    /// - `NoSpace`: there is no space for it.
    /// - I/O errors.
    pub(crate) fn cover(&self, index_bytes: u64) -> Result<()> {
        let covered = self.sequencer.is_covered(index_bytes);
        if covered || self.refill_reserve(index_bytes)? {
            return Ok(());
        }
        Err(crate::space::reserve::refused())
    }

    /// Frees space in the log for deletions on a full disk: flushes everything, after which their
    /// frames are garbage, and removes segments that hold nothing else.
    pub(crate) fn free_log_space(&self) -> Result<()> {
        self.shared.flush_all()?;
        self.collect_garbage_if_waiting();
        Ok(())
    }

    /// Runs an operation that frees space. If it finds none, runs it again with the reserve's
    /// space.
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

    /// Makes the reserve as large as it must be once `more_bytes` are in memory. Returns false if
    /// there is no space for it now.
    pub(crate) fn refill_reserve(&self, more_bytes: u64) -> Result<bool> {
        let unflushed = self.sequencer.unflushed_bytes() + more_bytes;
        let indexes = self.shared.version.load_full().index_needs();
        self.shared
            .reserve
            .refill(&*self.shared.numbers, indexes, unflushed)
    }

    /// Counts a compaction as begun if there is space for it, or for a part of it, with the
    /// reserve's space if that is enough.
    ///
    /// # Errors
    /// `NoSpace`: the compaction must not begin. It would only fail, and take space that a flush
    /// waits for.
    pub(crate) fn begin_compaction(&self, job: &mut dyn IndexJob, by: Begun) -> Result<Running> {
        match self.begin_writing(job.name(), job.space_bytes(), by) {
            Err(error)
                if error.kind() == ErrorKind::NoSpace
                    && job.limit_space(self.job_space_bytes()) =>
            {
                self.begin_writing(job.name(), job.space_bytes(), by)
            }
            begun => begun,
        }
    }

    /// Returns the bytes that jobs may take: free ones and those of the reserve, without those for
    /// a flush.
    fn job_space_bytes(&self) -> u64 {
        let free = self.shared.volume.free_bytes().unwrap_or(u64::MAX);
        let all = free.saturating_add(self.shared.reserve.bytes());
        all.saturating_sub(self.flush_space_bytes())
    }

    /// Counts an operation that may need `wanted` bytes as begun, like
    /// [`begin_compaction`](Self::begin_compaction).
    ///
    /// # Errors
    /// The same as [`begin_compaction`](Self::begin_compaction).
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

    /// Returns the number of compactions in the job queue.
    pub(crate) fn queued_compactions(&self) -> usize {
        self.queued_compactions.load(Ordering::Acquire)
    }

    /// Checks, before every step of a compaction, that it may continue: it leaves the space that a
    /// flush of everything in memory needs, if the reserve is lent.
    ///
    /// # Errors
    /// `NoSpace`: the compaction gives way to a flush.
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

    /// Runs a flush again, which found no space although the reserve is lent, once all compactions
    /// have ended: one of them may have been in the middle of a step.
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
