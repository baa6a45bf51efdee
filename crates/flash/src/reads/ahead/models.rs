//! The queue under loom: two takers and a helper, and a piece that is withdrawn while others read. A taker that nobody wakes is a deadlock, which loom reports.

use super::scripted::{Handle, Scripted, contents, file};
use super::*;
use crate::ManualClock;
use glintdb_core::sync::{explore, thread};

const LENGTH: usize = 16;

fn queue() -> (Arc<Scripted>, Arc<ReadQueue>) {
    let volume = Arc::new(Scripted::default());
    let queue = ReadQueue::new(
        Arc::new(Handle(Arc::clone(&volume))),
        Arc::new(MemoryBudget::new(1 << 20)),
        Arc::new(ManualClock::default()),
        2,
        1 << 10,
    );
    (volume, queue)
}

#[test]
fn two_takers_and_a_helper_read_each_piece_once() {
    explore("prefetch: two takers and a helper", Some(3), || {
        let (volume, queue) = queue();
        let [first, second] = [0, 64].map(|offset| queue.offer(&file(), offset, LENGTH));
        let helper = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.begin(Reader::Helper))
        };
        let taker = thread::spawn(move || second.take().unwrap());
        assert_eq!(first.take().unwrap(), contents(0, LENGTH));
        assert_eq!(taker.join().unwrap(), contents(64, LENGTH));
        helper.join().unwrap();
        assert!(volume.reads().values().all(|times| *times == 1));
        assert_eq!(queue.memory.used_bytes(MemoryPart::Prefetch), 0);
    });
}

#[test]
fn what_is_withdrawn_while_it_is_read_leaves_nothing_behind() {
    explore("prefetch: withdrawn while it is read", Some(3), || {
        let (_volume, queue) = queue();
        let [first, second] = [0, 64].map(|offset| queue.offer(&file(), offset, LENGTH));
        let helper = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.begin(Reader::Helper))
        };
        let owner = thread::spawn(move || drop(second));
        assert_eq!(first.take().unwrap(), contents(0, LENGTH));
        owner.join().unwrap();
        helper.join().unwrap();
        let state = queue.state.lock();
        assert!(state.pieces.is_empty() && state.batches.is_empty() && state.bytes == 0);
    });
}
