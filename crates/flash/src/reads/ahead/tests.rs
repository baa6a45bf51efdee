//! The queue on a volume that answers when it is told to.

use super::scripted::{Handle, Scripted, contents, file};
use super::*;
use crate::SystemClock;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

const LENGTH: usize = 4096;

fn queue_with(batch_max: usize, pieces_max: usize) -> (Arc<Scripted>, Arc<ReadQueue>) {
    let volume = Arc::new(Scripted::default());
    let queue = ReadQueue::new(
        Arc::new(Handle(Arc::clone(&volume))),
        Arc::new(MemoryBudget::new(1 << 20)),
        Arc::new(SystemClock::new()),
        batch_max,
        pieces_max * LENGTH,
    );
    (volume, queue)
}

fn offer(queue: &Arc<ReadQueue>, count: u64) -> Vec<Piece> {
    let offset = |n| n * LENGTH as u64;
    (0..count)
        .map(|n| queue.offer(&file(), offset(n), LENGTH))
        .collect()
}

/// Nothing is left in the queue, and nothing charged.
fn assert_empty(queue: &ReadQueue) {
    let state = queue.state.lock();
    assert!(state.pieces.is_empty() && state.pending.is_empty() && state.batches.is_empty());
    assert_eq!(state.bytes, 0);
    assert_eq!(queue.memory.used_bytes(MemoryPart::Prefetch), 0);
}

#[test]
fn what_is_begun_ahead_is_not_read_again() {
    let (volume, queue) = queue_with(4, 100);
    let pieces = offer(&queue, 6);
    assert_eq!(queue.begin(Reader::Helper), 4 * LENGTH);
    for (n, piece) in (0..).zip(pieces) {
        assert_eq!(piece.take().unwrap(), contents(n * LENGTH as u64, LENGTH));
    }
    let stats = queue.stats();
    assert_eq!((stats.hits, stats.misses), (5, 1), "{stats:?}");
    assert_eq!(stats.helper_bytes, 4 * LENGTH as u64);
    assert_eq!(stats.owner_bytes, 2 * LENGTH as u64);
    assert!(volume.reads().values().all(|times| *times == 1));
    assert_empty(&queue);
}

#[test]
fn a_full_queue_begins_nothing_and_still_serves_who_needs_a_piece_now() {
    let (_volume, queue) = queue_with(2, 3);
    let mut pieces = offer(&queue, 6);
    assert_eq!(queue.begin(Reader::Owner), 2 * LENGTH);
    assert_eq!(
        queue.begin(Reader::Owner),
        LENGTH,
        "there is room for one more"
    );
    assert_eq!(queue.begin(Reader::Owner), 0);
    assert!(pieces.pop().unwrap().take().is_ok());
    assert_eq!(queue.memory.used_bytes(MemoryPart::Prefetch), 3 * LENGTH);
    assert!(pieces.remove(0).take().is_ok());
    assert_eq!(queue.begin(Reader::Owner), LENGTH);
    drop(pieces);
    assert_empty(&queue);
}

#[test]
fn an_error_goes_to_the_piece_that_asked() {
    let (volume, queue) = queue_with(8, 100);
    volume.fail_at(2 * LENGTH as u64);
    let pieces = offer(&queue, 4);
    assert!(queue.begin(Reader::Owner) > 0);
    for (n, piece) in pieces.into_iter().enumerate() {
        assert_eq!(piece.take().is_err(), n == 2);
    }
    assert_empty(&queue);
}

#[test]
fn a_compaction_that_ends_leaves_nothing_behind() {
    let (volume, queue) = queue_with(2, 100);
    let mut pieces = offer(&queue, 6);
    queue.begin(Reader::Helper);
    queue.begin(Reader::Helper);
    // One batch was waited for, one is on its way, two pieces were not begun.
    assert!(pieces.remove(0).take().is_ok());
    drop(pieces);
    assert_eq!(queue.stats().withdrawn_bytes, 3 * LENGTH as u64);
    assert_eq!(volume.reads().len(), 4);
    assert_empty(&queue);
}

/// The lock is not held while reads are on their way: offers, begins and withdrawals go on while a taker waits, and a helper never waits.
#[test]
fn nobody_waits_for_a_medium_that_is_slow_but_its_taker() {
    let (volume, queue) = queue_with(1, 100);
    let mut pieces = offer(&queue, 3).into_iter();
    volume.shut();
    assert!(queue.begin(Reader::Helper) > 0);
    let taken = AtomicBool::new(false);
    thread::scope(|scope| {
        let (first, taken) = (pieces.next().unwrap(), &taken);
        scope.spawn(move || {
            first.take().unwrap();
            taken.store(true, Ordering::SeqCst);
        });
        // Until it waits.
        while queue
            .state
            .lock()
            .batches
            .values()
            .any(|b| b.begun.is_some())
        {
            thread::yield_now();
        }
        assert!(queue.begin(Reader::Helper) > 0);
        drop(offer(&queue, 2));
        drop(pieces.nth(1));
        assert!(!taken.load(Ordering::SeqCst));
        volume.open();
    });
    assert!(taken.into_inner());
    drop(pieces);
    assert_empty(&queue);
}

#[test]
fn many_takers_and_helpers_read_each_piece_once() {
    const PIECES: u64 = 4000;
    let (volume, queue) = queue_with(5, 16);
    let pieces = glintdb_core::sync::Mutex::new(offer(&queue, PIECES));
    let (done, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if queue.begin(Reader::Helper) == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        let takers: Vec<_> = (0..6)
            .map(|taker| {
                let (pieces, taken) = (&pieces, &taken);
                scope.spawn(move || {
                    loop {
                        let (piece, left) = {
                            let mut pieces = pieces.lock();
                            (pieces.pop(), pieces.len() as u64)
                        };
                        let Some(piece) = piece else { return };
                        if left % 7 == taker {
                            continue;
                        }
                        assert_eq!(
                            piece.take().unwrap(),
                            contents(left * LENGTH as u64, LENGTH)
                        );
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for taker in takers {
            taker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let stats = queue.stats();
    assert_eq!(stats.hits + stats.misses, taken.into_inner());
    assert!(volume.reads().values().all(|times| *times == 1));
    assert_empty(&queue);
}
