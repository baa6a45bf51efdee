//! Models of the commit pipeline under loom: the production type, with slots for four commits, so
//! that slots are reused.
//!
//! `explore` tries every execution within its bound. Each model was seen to fail with an ordering
//! removed (`docs/decisions/007-models.md`).

use super::*;
use crate::test_clock;
use glintdb_core::sync::{explore, thread};

fn pipeline(visible: u64) -> Arc<Pipeline> {
    Arc::new(Pipeline::new(
        SeqNum(visible),
        Arc::new(Waits::new(test_clock())),
    ))
}

/// A log: how far it is published, and how far it is durable.
struct Log {
    published: AtomicU64,
    durable: AtomicU64,
    /// The bytes of commits 1 to 3. The words of a ring are relaxed too.
    bytes: [AtomicU64; 3],
}

impl Log {
    fn new() -> Arc<Log> {
        Arc::new(Log {
            published: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            bytes: [0, 0, 0].map(AtomicU64::new),
        })
    }

    fn copy(&self, seqno: u64) {
        self.bytes[seqno as usize - 1].store(seqno, Ordering::Relaxed);
    }

    fn assert_whole_up_to(&self, seqno: u64) {
        for (byte, written) in self.bytes.iter().zip(1..=seqno) {
            assert_eq!(byte.load(Ordering::Relaxed), written, "up to {seqno}");
        }
    }

    fn publish(&self, end: u64) {
        self.published.fetch_max(end, Ordering::AcqRel);
    }

    fn reached(&self) -> Reached {
        Reached {
            written: self.published.load(Ordering::Acquire),
            durable: self.durable.load(Ordering::SeqCst),
        }
    }
}

fn commit(pipeline: &Pipeline, log: &Log, seqno: u64) {
    log.copy(seqno);
    pipeline.complete(SeqNum(seqno), seqno * 100, Durability::Os);
    pipeline.advance_completed(|end| log.publish(end));
    pipeline.advance_visible(|| log.reached());
    pipeline.wait_visible(SeqNum(seqno)).unwrap();
    log.assert_whole_up_to(seqno);
}

#[test]
fn a_commit_is_acknowledged_when_all_before_it_are_whole() {
    explore("pipeline: two commits", Some(3), || {
        let (pipeline, log) = (pipeline(0), Log::new());
        let first = {
            let (pipeline, log) = (Arc::clone(&pipeline), Arc::clone(&log));
            thread::spawn(move || commit(&pipeline, &log, 1))
        };
        commit(&pipeline, &log, 2);
        first.join().unwrap();
        assert_eq!(pipeline.visible(), SeqNum(2));
    });
}

/// The thread that fills a hole moves over several commits at once, and wakes the threads that wait
/// for each of them.
#[test]
fn three_commits_are_acknowledged_in_order() {
    explore("pipeline: three commits", Some(2), || {
        let (pipeline, log) = (pipeline(0), Log::new());
        let others = [1, 2].map(|seqno| {
            let (pipeline, log) = (Arc::clone(&pipeline), Arc::clone(&log));
            thread::spawn(move || commit(&pipeline, &log, seqno))
        });
        commit(&pipeline, &log, 3);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(pipeline.visible(), SeqNum(3));
        assert_eq!(log.published.load(Ordering::Acquire), 300);
    });
}

#[test]
fn visible_and_published_commits_are_whole() {
    explore("pipeline: a reader beside two commits", Some(2), || {
        let (pipeline, log) = (pipeline(0), Log::new());
        let writers = [1, 2].map(|seqno| {
            let (pipeline, log) = (Arc::clone(&pipeline), Arc::clone(&log));
            thread::spawn(move || {
                log.copy(seqno);
                pipeline.complete(SeqNum(seqno), seqno * 100, Durability::Os);
                pipeline.advance_completed(|end| log.publish(end));
                pipeline.advance_visible(|| log.reached());
            })
        });
        log.assert_whole_up_to(pipeline.visible().0);
        log.assert_whole_up_to(log.published.load(Ordering::Acquire) / 100);
        for writer in writers {
            writer.join().unwrap();
        }
        // No thread waited, so the last one must have moved it.
        assert_eq!(pipeline.visible(), SeqNum(2));
    });
}

/// A thread has looked at the slots and not published yet while others reuse all slots: commit 6
/// has the slot of commit 2, the last one that the thread saw, and 4 and 5 are still being copied.
/// The thread that completes 6 knows of 1 to 3 only through `visible`, as when the sequencer gives
/// out its number.
#[test]
fn a_slow_publisher_never_publishes_a_later_commit() {
    explore("pipeline: slots come round", Some(3), || {
        let (pipeline, log) = (pipeline(0), Log::new());
        pipeline.complete(SeqNum(1), 100, Durability::Buffered);
        pipeline.complete(SeqNum(2), 200, Durability::Buffered);
        let slow = {
            let (pipeline, log) = (Arc::clone(&pipeline), Arc::clone(&log));
            thread::spawn(move || pipeline.advance_completed(|end| log.publish(end)))
        };
        let later = {
            let pipeline = Arc::clone(&pipeline);
            thread::spawn(move || {
                if 6 - pipeline.visible().0 < SLOTS {
                    pipeline.complete(SeqNum(6), 600, Durability::Buffered);
                }
            })
        };
        pipeline.complete(SeqNum(3), 300, Durability::Buffered);
        pipeline.advance_completed(|end| log.publish(end));
        pipeline.advance_visible(|| log.reached());
        slow.join().unwrap();
        later.join().unwrap();
        let published = log.published.load(Ordering::Acquire);
        assert!(
            published <= 300,
            "{published} is published, 4 and 5 are not whole"
        );
    });
}

/// A commit is done while others reuse all slots. What its thread knows of `completed` and
/// `visible` must not be so old that it looks for the next commit in the slot of an old one, which
/// has commit 5 by now.
#[test]
fn a_commit_is_not_left_behind_while_slots_are_reused() {
    explore("pipeline: a commit left behind", Some(3), || {
        let (pipeline, log) = (pipeline(0), Log::new());
        pipeline.complete(SeqNum(1), 100, Durability::Os);
        pipeline.complete(SeqNum(2), 200, Durability::Os);
        let third = {
            let (pipeline, log) = (Arc::clone(&pipeline), Arc::clone(&log));
            thread::spawn(move || {
                pipeline.complete(SeqNum(3), 300, Durability::Os);
                pipeline.advance_completed(|end| log.publish(end));
                pipeline.advance_visible(|| log.reached());
            })
        };
        pipeline.advance_completed(|end| log.publish(end));
        pipeline.advance_visible(|| log.reached());
        if 5 - pipeline.visible().0 < SLOTS {
            pipeline.complete(SeqNum(5), 500, Durability::Os);
            pipeline.advance_completed(|end| log.publish(end));
            pipeline.advance_visible(|| log.reached());
        }
        third.join().unwrap();
        let completed = pipeline.completed.load(Ordering::SeqCst);
        assert_eq!((completed, pipeline.visible()), (3, SeqNum(3)));
    });
}

/// The wait queue alone. Elsewhere other code orders more than the queue may rely on.
#[test]
fn a_thread_that_sleeps_is_woken() {
    explore("pipeline: bed", None, || {
        let (queue, moved) = (
            Arc::new(WaitQueue::default()),
            Arc::new(AtomicBool::new(false)),
        );
        let sleeper = {
            let (queue, moved) = (Arc::clone(&queue), Arc::clone(&moved));
            thread::spawn(move || queue.sleep_until(|| moved.load(Ordering::SeqCst)))
        };
        moved.store(true, Ordering::SeqCst);
        queue.wake();
        sleeper.join().unwrap();
    });
}

#[test]
fn an_os_commit_behind_a_sync_one_is_woken() {
    explore("pipeline: commit order across levels", Some(3), || {
        let (pipeline, log) = (pipeline(0), Log::new());
        let sync = {
            let (pipeline, log) = (Arc::clone(&pipeline), Arc::clone(&log));
            thread::spawn(move || {
                pipeline.complete(SeqNum(1), 100, Durability::Sync);
                pipeline.advance_completed(|end| log.publish(end));
                log.durable.fetch_max(100, Ordering::SeqCst);
                pipeline.advance_visible(|| log.reached());
            })
        };
        pipeline.complete(SeqNum(2), 200, Durability::Os);
        pipeline.advance_completed(|end| log.publish(end));
        pipeline.advance_visible(|| log.reached());
        pipeline.wait_visible(SeqNum(2)).unwrap();
        assert!(log.durable.load(Ordering::SeqCst) >= 100);
        sync.join().unwrap();
    });
}

/// A sync waits for completion only. The thread that completes the earlier commit may make nothing
/// visible.
#[test]
fn completion_wakes_a_thread_that_waits_for_it() {
    explore("pipeline: completion", Some(3), || {
        let (pipeline, log) = (pipeline(0), Log::new());
        let earlier = {
            let (pipeline, log) = (Arc::clone(&pipeline), Arc::clone(&log));
            thread::spawn(move || {
                log.copy(1);
                pipeline.complete(SeqNum(1), 100, Durability::Sync);
                pipeline.advance_completed(|end| log.publish(end));
                pipeline.advance_visible(|| log.reached());
            })
        };
        log.copy(2);
        pipeline.complete(SeqNum(2), 200, Durability::Sync);
        pipeline.advance_completed(|end| log.publish(end));
        pipeline.wait_completed(SeqNum(2)).unwrap();
        assert!(log.published.load(Ordering::Acquire) >= 200);
        log.assert_whole_up_to(2);
        earlier.join().unwrap();
    });
}

#[test]
fn a_failure_reaches_a_waiting_thread() {
    explore("pipeline: failure", Some(3), || {
        let pipeline = pipeline(0);
        let failing = {
            let pipeline = Arc::clone(&pipeline);
            thread::spawn(move || drop(pipeline.begin(SeqNum(1))))
        };
        let waited = pipeline.wait_visible(SeqNum(1));
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Poisoned);
        failing.join().unwrap();
        assert!(pipeline.check().is_err());
    });
}
