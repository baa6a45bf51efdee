//! The commit pipeline: commits get their numbers in order, are done in parallel, and become
//! visible in order.
//!
//! Thread safety: many threads call everything here at once. A lock is taken only to sleep.
//!
//! Invariants:
//! 1. `visible <= completed`, and both only grow.
//! 2. `completed` passes a commit only when its bytes are in the log's ring and its entries in the
//!    memtables, and so are those of all earlier commits.
//! 3. `visible` passes a commit only when it is complete at its own level, and so are all earlier
//!    commits: written for `Os`, synced for `Sync`.
//! 4. At most `SLOTS` commits are between `visible` and the newest number. The sequencer waits
//!    before it gives out more, so no slot is reused too early.

use crate::options::Durability;
use crate::write::backpressure::waits::{Wait, Waits};
use crate::{Error, ErrorKind, Result};
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use glintdb_core::sync::{Condvar, Mutex, hint};
use glintdb_core::{Padded, SeqNum, planted};
use std::sync::Arc;

/// Most commits in flight. Few in models, so that slots are reused.
pub(crate) const SLOTS: u64 = if cfg!(any(loom, shuttle)) { 4 } else { 4096 };
/// Number of times that a thread looks again before it sleeps: about 2 µs, in which another core
/// finishes a commit.
const SPINS: usize = if cfg!(any(loom, shuttle)) { 0 } else { 60 };

/// Replaces the durability in a slot: the commit was given up half done.
const GIVEN_UP: u64 = 3;

#[derive(Default)]
struct Slot {
    /// `seqno * 4 + durability` once the commit is in the ring and the memtables, `seqno * 4 +
    /// GIVEN_UP` if it never will be.
    done: AtomicU64,
    /// Log position behind the commit's frame.
    end: AtomicU64,
}

/// How far the log is written and synced, as log positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    pub(crate) written: u64,
    pub(crate) durable: u64,
}

pub(crate) struct Pipeline {
    /// Every commit writes `completed` and `visible`. Each has a cache line of its own, apart from
    /// what commits only read.
    completed: Padded<AtomicU64>,
    visible: Padded<AtomicU64>,
    slots: Box<[Slot]>,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    /// Threads that wait for `completed`, and threads that wait for `visible`: a commit of a group
    /// may be completed long before it can be visible.
    completed_queue: WaitQueue,
    visible_queue: WaitQueue,
    waits: Arc<Waits>,
}

/// Threads that sleep until a number has grown.
#[derive(Default)]
struct WaitQueue {
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    moved: Condvar,
}

impl WaitQueue {
    /// Wakes sleepers, if there are any. The change that they wait for was stored `SeqCst` before.
    fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // A thread between its last look and its sleep holds the lock.
            drop(self.lock.lock());
            self.moved.notify_all();
        }
    }

    fn sleep_until(&self, reached: impl Fn() -> bool) {
        let mut lock = self.lock.lock();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !reached() {
            self.moved.wait(&mut lock);
        }
        // Relaxed: a thread that reads the old count only wakes a sleeper that is awake.
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A commit between its number and its completion. A drop before [`done`](Self::done), when its
/// thread panics, fails the pipeline, so that no thread waits for it forever.
pub(crate) struct InFlight<'a> {
    pipeline: &'a Pipeline,
    seqno: SeqNum,
}

impl InFlight<'_> {
    /// Notes that the commit, which ends at log position `end`, is in the ring and the memtables.
    pub(crate) fn done(self, end: u64, durability: Durability) {
        self.pipeline.complete(self.seqno, end, durability);
        std::mem::forget(self);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let message = format!("commit {} was given up half done", self.seqno);
        (self.pipeline).fail(&Error::new(ErrorKind::Poisoned, message));
        let slot = self.pipeline.slot(self.seqno.0);
        slot.done
            .store(self.seqno.0 * 4 + GIVEN_UP, Ordering::Release);
    }
}

impl Pipeline {
    /// Begins commit `seqno`, which has its number and its place.
    pub(crate) fn begin(&self, seqno: SeqNum) -> InFlight<'_> {
        InFlight {
            pipeline: self,
            seqno,
        }
    }

    /// Creates a pipeline in which everything up to `seqno` is visible.
    pub(crate) fn new(seqno: SeqNum, waits: Arc<Waits>) -> Self {
        Pipeline {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            completed: Padded(AtomicU64::new(seqno.0)),
            visible: Padded(AtomicU64::new(seqno.0)),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            completed_queue: WaitQueue::default(),
            visible_queue: WaitQueue::default(),
            waits,
        }
    }

    pub(crate) fn visible(&self) -> SeqNum {
        SeqNum(self.visible.load(Ordering::Acquire))
    }

    fn slot(&self, seqno: u64) -> &Slot {
        // Neighbours are five slots apart, so that commits of two cores do not share a cache line.
        // SLOTS is a power of two, so each slot has one remainder, and it fits usize.
        let at = seqno.wrapping_mul(5) % SLOTS;
        &self.slots[usize::try_from(at).unwrap_or(0)]
    }

    /// Notes that commit `seqno`, which ends at `end`, is in the ring and the memtables.
    fn complete(&self, seqno: SeqNum, end: u64, durability: Durability) {
        let slot = self.slot(seqno.0);
        // Release: a thread that reads this end in place of an earlier commit's end also reads that
        // `completed` has passed the earlier commit.
        slot.end.store(end, Ordering::Release);
        // SeqCst with the loads in `advance_*`: of two threads that complete neighbours at once,
        // one sees both.
        slot.done
            .store(seqno.0 * 4 + durability as u64, Ordering::SeqCst);
    }

    /// Moves `completed` over every commit that is done, and wakes the threads that wait for it.
    /// `publish` is told the log position behind these commits before they count as completed.
    pub(crate) fn advance_completed(&self, publish: impl Fn(u64)) {
        let mut moved = false;
        loop {
            let completed = self.completed.load(Ordering::SeqCst);
            let mut last = completed;
            while self.is_done(last + 1) {
                last += 1;
            }
            if last == completed {
                break;
            }
            let end = self.slot(last).end.load(Ordering::Acquire);
            // Relaxed: the end of a later commit, acquired above, brings along that `completed` has
            // passed the earlier one.
            if self.completed.load(Ordering::Relaxed) != completed {
                // Another thread was faster, and the slot may hold a later commit already.
                // Publishing its end would make a hole part of the log.
                continue;
            }
            publish(end);
            // If another thread was faster, it has published the same end or an earlier one.
            moved |= self
                .completed
                .compare_exchange(completed, last, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok();
            // Look again: a thread that completed the next commit meanwhile may have found slots
            // that were reused, and relies on the thread that moves `completed`.
        }
        if moved {
            self.completed_queue.wake();
        }
    }

    fn is_done(&self, seqno: u64) -> bool {
        let done = self.slot(seqno).done.load(Ordering::SeqCst);
        done / 4 == seqno && done % 4 != GIVEN_UP
    }

    /// Returns whether every commit up to `newest`, the last number that was given out, is done or
    /// given up, so that none writes to the ring or to memtables any more. No number may be given
    /// out meanwhile.
    pub(crate) fn all_ended(&self, newest: SeqNum) -> bool {
        let completed = self.completed.load(Ordering::SeqCst);
        // Acquire: their writes happen before the caller goes on.
        let ended = |seqno: u64| self.slot(seqno).done.load(Ordering::Acquire) / 4 == seqno;
        (completed + 1..=newest.0).all(ended)
    }

    /// Moves `visible` over every completed commit that is complete at its own level, and wakes the
    /// threads that wait for it.
    pub(crate) fn advance_visible(&self, reached: impl Fn() -> Reached) {
        let mut moved = false;
        loop {
            let visible = self.visible.load(Ordering::SeqCst);
            let completed = self.completed.load(Ordering::SeqCst);
            if visible >= completed || self.failed.load(Ordering::Relaxed) {
                break;
            }
            let reached = reached();
            let mut last = visible;
            // If a slot was reused, `visible` has moved on and the exchange below fails.
            while last < completed && self.is_ready(last + 1, reached) {
                last += 1;
            }
            if last > visible {
                moved |= self
                    .visible
                    .compare_exchange(visible, last, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok();
            } else if self.visible.load(Ordering::SeqCst) == visible {
                break;
            }
        }
        if moved {
            planted!(
                "glintdb: nobody is woken when a commit becomes visible",
                self.visible_queue.wake(),
                ()
            );
        }
    }

    /// Returns whether the completed commit `seqno` is complete at its own level. False if another
    /// commit has its slot.
    fn is_ready(&self, seqno: u64, reached: Reached) -> bool {
        let slot = self.slot(seqno);
        // Acquire: a later commit in this slot brings along that `visible` has moved on.
        let done = slot.done.load(Ordering::Acquire);
        let end = slot.end.load(Ordering::Relaxed);
        done / 4 == seqno
            && match done % 4 {
                level if level == Durability::Os as u64 => reached.written >= end,
                level if level == Durability::Sync as u64 => reached.durable >= end,
                _ => true,
            }
    }

    /// Waits until `reached` returns true, or the pipeline fails.
    fn wait(&self, why: Wait, queue: &WaitQueue, reached: impl Fn() -> bool) -> Result<()> {
        for _ in 0..SPINS {
            if reached() {
                return Ok(());
            }
            hint::spin_loop();
        }
        let _timed = self.waits.start(why);
        queue.sleep_until(|| reached() || self.failed.load(Ordering::SeqCst));
        if reached() {
            Ok(())
        } else {
            Err(self.failure())
        }
    }

    /// Waits until `seqno` is visible.
    pub(crate) fn wait_visible(&self, seqno: SeqNum) -> Result<()> {
        self.wait(Wait::CommitOrder, &self.visible_queue, || {
            self.visible.load(Ordering::SeqCst) >= seqno.0
        })
    }

    /// Waits until `seqno` and all earlier commits are in the ring and the memtables.
    pub(crate) fn wait_completed(&self, seqno: SeqNum) -> Result<()> {
        self.wait(Wait::CommitOrder, &self.completed_queue, || {
            self.completed.load(Ordering::SeqCst) >= seqno.0
        })
    }

    /// Fails the pipeline: no commit that is not visible yet ever becomes visible, and every
    /// present and later waiter gets the error.
    pub(crate) fn fail(&self, error: &Error) {
        self.failure
            .lock()
            .get_or_insert_with(|| match error.kind() {
                ErrorKind::Closed => error.clone(),
                _ => Error::new(
                    ErrorKind::Poisoned,
                    format!("an earlier commit failed, open the database again: {error}"),
                ),
            });
        self.failed.store(true, Ordering::SeqCst);
        self.completed_queue.wake();
        self.visible_queue.wake();
    }

    /// Returns the failure to commits that come after it.
    pub(crate) fn check(&self) -> Result<()> {
        // Relaxed: the thread that set the flag had stored the failure, under a lock, before.
        if self.failed.load(Ordering::Relaxed) {
            Err(self.failure())
        } else {
            Ok(())
        }
    }

    fn failure(&self) -> Error {
        self.failure
            .lock()
            .clone()
            .unwrap_or_else(|| Error::new(ErrorKind::Poisoned, "an earlier commit failed"))
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_clock;

    fn pipeline() -> Pipeline {
        Pipeline::new(SeqNum(10), Arc::new(Waits::new(test_clock())))
    }

    #[test]
    fn a_commit_becomes_visible_only_after_all_before_it() {
        let pipeline = pipeline();
        let all = || Reached {
            written: 1000,
            durable: 0,
        };
        pipeline.complete(SeqNum(12), 200, Durability::Os);
        pipeline.advance_completed(|_| panic!("a hole is before it"));
        pipeline.advance_visible(all);
        assert_eq!(pipeline.visible(), SeqNum(10));
        pipeline.complete(SeqNum(11), 100, Durability::Os);
        let ends = std::cell::RefCell::new(Vec::new());
        pipeline.advance_completed(|end| ends.borrow_mut().push(end));
        assert_eq!(*ends.borrow(), [200], "both commits at once");
        pipeline.advance_visible(all);
        assert_eq!(pipeline.visible(), SeqNum(12));
    }

    #[test]
    fn an_os_commit_waits_for_the_sync_of_an_earlier_one() {
        let pipeline = pipeline();
        pipeline.complete(SeqNum(11), 100, Durability::Sync);
        pipeline.complete(SeqNum(12), 200, Durability::Os);
        pipeline.advance_completed(|_| {});
        pipeline.advance_visible(|| Reached {
            written: 200,
            durable: 99,
        });
        assert_eq!(pipeline.visible(), SeqNum(10));
        pipeline.advance_visible(|| Reached {
            written: 200,
            durable: 100,
        });
        assert_eq!(pipeline.visible(), SeqNum(12));
    }

    #[test]
    fn an_os_commit_waits_until_it_is_written() {
        let pipeline = pipeline();
        pipeline.complete(SeqNum(11), 100, Durability::Os);
        pipeline.advance_completed(|_| {});
        pipeline.advance_visible(|| Reached {
            written: 96,
            durable: 0,
        });
        assert_eq!(pipeline.visible(), SeqNum(10));
    }

    #[test]
    fn a_commit_that_is_given_up_half_done_fails_the_pipeline() {
        let pipeline = pipeline();
        pipeline.begin(SeqNum(11)).done(100, Durability::Os);
        assert!(pipeline.check().is_ok());
        drop(pipeline.begin(SeqNum(12)));
        assert_eq!(pipeline.check().unwrap_err().kind(), ErrorKind::Poisoned);
    }

    #[test]
    fn commits_end_when_they_are_done_or_given_up() {
        let pipeline = pipeline();
        assert!(pipeline.all_ended(SeqNum(10)));
        let [first, second] = [11, 12].map(|number| pipeline.begin(SeqNum(number)));
        drop(first);
        assert!(!pipeline.all_ended(SeqNum(12)));
        second.done(200, Durability::Os);
        assert!(pipeline.all_ended(SeqNum(12)));
        assert!(!pipeline.all_ended(SeqNum(13)));
        pipeline.advance_completed(|_| panic!("a commit that was given up is never completed"));
    }

    /// A commit that is completed and cannot be visible yet wakes the threads that wait for
    /// completion. A transaction waits so with the sequencer's lock held; if it slept until the
    /// next commit became visible, a `Sync` group that needs that lock between two of its batches
    /// would wait for it forever (found by `cargo xtask histories`).
    #[test]
    fn completion_wakes_its_waiters_before_the_commit_is_visible() {
        let pipeline = Arc::new(pipeline());
        let (woken, awake) = std::sync::mpsc::channel();
        let of_thread = Arc::clone(&pipeline);
        #[allow(
            clippy::disallowed_methods,
            reason = "a thread that may never end cannot be scoped"
        )]
        std::thread::spawn(move || {
            of_thread.wait_completed(SeqNum(11)).unwrap();
            woken.send(()).unwrap();
        });
        while pipeline.completed_queue.sleepers.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        pipeline.complete(SeqNum(11), 100, Durability::Sync);
        pipeline.advance_completed(|_| {});
        pipeline.advance_visible(|| Reached {
            written: 100,
            durable: 0,
        });
        assert_eq!(pipeline.visible(), SeqNum(10));
        assert_eq!(
            awake.recv_timeout(std::time::Duration::from_secs(20)),
            Ok(())
        );
    }

    #[test]
    fn a_failure_reaches_present_and_later_waiters() {
        let pipeline = Arc::new(pipeline());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pipeline.wait_visible(SeqNum(11)));
            pipeline.fail(&Error::invalid("torn"));
            assert_eq!(
                waiter.join().unwrap().unwrap_err().kind(),
                ErrorKind::Poisoned
            );
        });
        pipeline.complete(SeqNum(11), 8, Durability::Buffered);
        pipeline.advance_completed(|_| {});
        pipeline.advance_visible(|| Reached {
            written: 8,
            durable: 8,
        });
        assert_eq!(
            pipeline.visible(),
            SeqNum(10),
            "nothing becomes visible behind a failure"
        );
        assert!(pipeline.check().is_err());
    }

    #[test]
    fn commits_of_eight_threads_become_visible_in_order() {
        let pipeline = Arc::new(pipeline());
        let next = AtomicU64::new(11);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let seqno = SeqNum(next.fetch_add(1, Ordering::SeqCst));
                        pipeline.complete(seqno, 0, Durability::Os);
                        pipeline.advance_completed(|_| {});
                        pipeline.advance_visible(|| Reached {
                            written: 0,
                            durable: 0,
                        });
                        pipeline.wait_visible(seqno).unwrap();
                        assert!(pipeline.visible() >= seqno);
                    }
                });
            }
        });
        assert_eq!(pipeline.visible(), SeqNum(10 + 16_000));
    }
}
