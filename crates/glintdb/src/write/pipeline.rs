//! The commit pipeline's hand-over: commits are numbered in order, done in parallel, and become visible in order.
//!
//! Thread safety: everything here is called by many threads at once; no lock is taken but to sleep.
//!
//! Invariants:
//! 1. `visible <= completed`; both only grow.
//! 2. `completed` passes a commit only when its bytes are in the log's ring and its entries in the memtables, and so do all before it.
//! 3. `visible` passes a commit only when it, and so all before it, is complete at its own level: written for `Os`, synced for `Sync`.
//! 4. At most `SLOTS` commits lie between `visible` and the newest number given out; the sequencer waits before it gives out more (so a slot is never reused early).

use crate::options::Durability;
use crate::write::backpressure::waits::{Wait, Waits};
use crate::{Error, ErrorKind, Result};
use glintdb_core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use glintdb_core::sync::{Condvar, Mutex, hint};
use glintdb_core::{Padded, SeqNum, planted};
use std::sync::Arc;

/// Commits in flight at most; few in models, so that they come round.
pub(crate) const SLOTS: u64 = if cfg!(any(loom, shuttle)) { 4 } else { 4096 };
/// Turns of looking again before a thread sleeps: about 2 µs, the time another core takes to finish a commit.
const SPINS: usize = if cfg!(any(loom, shuttle)) { 0 } else { 60 };

/// In the place of a durability: the commit was given up half done.
const GIVEN_UP: u64 = 3;

#[derive(Default)]
struct Slot {
    /// `seqno * 4 + durability` once the commit is in ring and memtables, `seqno * 4 + GIVEN_UP`
    /// where it never will be.
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
    /// Written by every commit, so on lines of their own: apart from each other, and from what every commit only reads.
    completed: Padded<AtomicU64>,
    visible: Padded<AtomicU64>,
    slots: Box<[Slot]>,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    /// Who waits for `completed`, and who waits for `visible`: a commit of a group may be completed long before it can be visible.
    completed_bed: Bed,
    visible_bed: Bed,
    waits: Arc<Waits>,
}

/// Where threads sleep until something has moved.
#[derive(Default)]
struct Bed {
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    moved: Condvar,
}

impl Bed {
    /// Wakes sleepers, if there are any. What they wait for was stored `SeqCst` before.
    fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Taken and given back: a thread between its last look and its sleep holds it.
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
        // Relaxed: who sees it late wakes nobody.
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A commit between its number and its completion. Dropped before [`done`](Self::done) (its thread panicked), it fails the pipeline: nobody waits for ever.
pub(crate) struct InFlight<'a> {
    pipeline: &'a Pipeline,
    seqno: SeqNum,
}

impl InFlight<'_> {
    /// The commit, which ends at log position `end`, is in ring and memtables.
    pub(crate) fn done(self, end: u64, durability: Durability) {
        self.pipeline.complete(self.seqno, end, durability);
        std::mem::forget(self);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let what = format!("commit {} was given up half done", self.seqno);
        self.pipeline.fail(&Error::new(ErrorKind::Poisoned, what));
        let slot = self.pipeline.slot(self.seqno.0);
        slot.done
            .store(self.seqno.0 * 4 + GIVEN_UP, Ordering::Release);
    }
}

impl Pipeline {
    /// Commit `seqno` has its number and place; it must be `done`.
    pub(crate) fn begin(&self, seqno: SeqNum) -> InFlight<'_> {
        InFlight {
            pipeline: self,
            seqno,
        }
    }

    /// A pipeline in which everything up to `seqno` is visible.
    pub(crate) fn new(seqno: SeqNum, waits: Arc<Waits>) -> Self {
        Pipeline {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            completed: Padded(AtomicU64::new(seqno.0)),
            visible: Padded(AtomicU64::new(seqno.0)),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            completed_bed: Bed::default(),
            visible_bed: Bed::default(),
            waits,
        }
    }

    pub(crate) fn visible(&self) -> SeqNum {
        SeqNum(self.visible.load(Ordering::Acquire))
    }

    fn slot(&self, seqno: u64) -> &Slot {
        // Neighbours are five apart, so that commits of two cores do not meet on a cache line. SLOTS is a power of two far below usize: every slot has one remainder.
        let at = seqno.wrapping_mul(5) % SLOTS;
        &self.slots[usize::try_from(at).unwrap_or(0)]
    }

    /// Commit `seqno`, which ends at `end`, is in ring and memtables.
    fn complete(&self, seqno: SeqNum, end: u64, durability: Durability) {
        let slot = self.slot(seqno.0);
        // Release: who reads it in place of an earlier commit's knows that `completed` has passed that one.
        slot.end.store(end, Ordering::Release);
        // SeqCst with the loads in `advance_*`: of two threads that complete neighbours at once, one sees both.
        slot.done
            .store(seqno.0 * 4 + durability as u64, Ordering::SeqCst);
    }

    /// Moves `completed` over every commit that is done, and wakes who waits for that; `publish` is told the log position behind them before they count as completed.
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
            // Relaxed: a later commit's end, acquired, brings along that `completed` has passed the earlier one.
            if self.completed.load(Ordering::Relaxed) != completed {
                // Another thread was faster, and the slot may be a later commit's already: publishing that one's end would make a hole part of the log.
                continue;
            }
            publish(end);
            // Where another thread was faster, it has published the same or a part of it.
            moved |= self
                .completed
                .compare_exchange(completed, last, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok();
            // And again: who completed the next one meanwhile, and found slots used again on the way to it, relies on whoever has moved `completed`.
        }
        if moved {
            self.completed_bed.wake();
        }
    }

    fn is_done(&self, seqno: u64) -> bool {
        let done = self.slot(seqno).done.load(Ordering::SeqCst);
        done / 4 == seqno && done % 4 != GIVEN_UP
    }

    /// Whether no commit up to `newest`, the last one that was given a number, writes to ring or
    /// memtables any more: each is done, or was given up. To be asked while no number is given out.
    pub(crate) fn all_ended(&self, newest: SeqNum) -> bool {
        let completed = self.completed.load(Ordering::SeqCst);
        // Acquire: what they have written is written before the caller goes on.
        let ended = |seqno: u64| self.slot(seqno).done.load(Ordering::Acquire) / 4 == seqno;
        (completed + 1..=newest.0).all(ended)
    }

    /// Moves `visible` over every completed commit that is complete at its own level, and wakes who waits for that.
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
            // Where a slot was used again, `visible` has moved on and the exchange below fails.
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
                self.visible_bed.wake(),
                ()
            );
        }
    }

    /// Whether the completed commit `seqno` is complete at its own level. No where another has its slot.
    fn is_ready(&self, seqno: u64, reached: Reached) -> bool {
        let slot = self.slot(seqno);
        // Acquire: a later commit's brings along that `visible` has moved on.
        let done = slot.done.load(Ordering::Acquire);
        let end = slot.end.load(Ordering::Relaxed);
        done / 4 == seqno
            && match done % 4 {
                level if level == Durability::Os as u64 => reached.written >= end,
                level if level == Durability::Sync as u64 => reached.durable >= end,
                _ => true,
            }
    }

    /// Waits until `reached` says so, or the pipeline failed.
    fn wait(&self, why: Wait, bed: &Bed, reached: impl Fn() -> bool) -> Result<()> {
        for _ in 0..SPINS {
            if reached() {
                return Ok(());
            }
            hint::spin_loop();
        }
        let _timed = self.waits.start(why);
        bed.sleep_until(|| reached() || self.failed.load(Ordering::SeqCst));
        if reached() {
            Ok(())
        } else {
            Err(self.failure())
        }
    }

    /// Waits until `seqno` is visible.
    pub(crate) fn wait_visible(&self, seqno: SeqNum) -> Result<()> {
        self.wait(Wait::CommitOrder, &self.visible_bed, || {
            self.visible.load(Ordering::SeqCst) >= seqno.0
        })
    }

    /// Waits until `seqno` and all before it are in ring and memtables.
    pub(crate) fn wait_completed(&self, seqno: SeqNum) -> Result<()> {
        self.wait(Wait::CommitOrder, &self.completed_bed, || {
            self.completed.load(Ordering::SeqCst) >= seqno.0
        })
    }

    /// No commit that is not visible yet ever will be: every waiter gets the error, now and later.
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
        self.completed_bed.wake();
        self.visible_bed.wake();
    }

    /// The failure, for commits that come after it.
    pub(crate) fn check(&self) -> Result<()> {
        // Relaxed: the failure is behind a lock, which whoever set the flag has given back before.
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
        assert_eq!(*ends.borrow(), [200], "both at once");
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
    fn a_commit_given_up_half_done_fails_the_pipeline() {
        let pipeline = pipeline();
        pipeline.begin(SeqNum(11)).done(100, Durability::Os);
        assert!(pipeline.check().is_ok());
        drop(pipeline.begin(SeqNum(12)));
        assert_eq!(pipeline.check().unwrap_err().kind(), ErrorKind::Poisoned);
    }

    #[test]
    fn commits_end_by_being_done_or_given_up() {
        let pipeline = pipeline();
        assert!(pipeline.all_ended(SeqNum(10)));
        let [first, second] = [11, 12].map(|number| pipeline.begin(SeqNum(number)));
        drop(first);
        assert!(!pipeline.all_ended(SeqNum(12)));
        second.done(200, Durability::Os);
        assert!(pipeline.all_ended(SeqNum(12)));
        assert!(!pipeline.all_ended(SeqNum(13)));
        pipeline.advance_completed(|_| panic!("what was given up is never completed"));
    }

    /// `completed` moved and only who waits for `visible` was woken, when that moved: a transaction that waited for a commit to be completed, with the sequencer's lock held, slept
    /// until the next one became visible. Where that had to wait for the lock (a `Sync` group between two of its batches) they waited for each other for ever. Found by the histories of
    /// `cargo xtask histories`.
    #[test]
    fn who_waits_for_completion_is_woken_though_nothing_becomes_visible() {
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
        while pipeline.completed_bed.sleepers.load(Ordering::SeqCst) == 0 {
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
    fn a_failure_reaches_waiters_and_everyone_after() {
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
    fn eight_threads_hand_over_in_order() {
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
