//! Something is done in the middle of a read of the ring: what another thread might do at that very moment.

use crate::support::*;
use glintdb_log::{Log, LogSetup};
use glintdb_simdisk::{HookedVolume, Hooks, MemVolume};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is done at the next read of the ring, and the reads of files so far.
#[derive(Default)]
struct Hook(Mutex<Option<Box<dyn FnOnce() + Send>>>, AtomicU64);

impl Hooks for Hook {
    fn before_ring_read(&self) {
        let hook = self.0.lock().take();
        if let Some(hook) = hook {
            hook();
        }
    }

    fn before_read(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// A log over a volume that calls the hook.
fn hooked(hook: &Arc<Hook>) -> Arc<Log> {
    let (inner, numbers) = (MemVolume::new(), numbers());
    let volume = HookedVolume::new(inner.clone(), hook.clone());
    let setup = setup(&inner, &numbers, small());
    Arc::new(Log::create(LogSetup { volume, ..setup }).unwrap())
}

#[test]
fn a_value_that_is_in_its_segment_is_read_from_the_ring_until_its_place_is_taken() {
    let hook = Arc::new(Hook::default());
    let log = hooked(&hook);
    let reads = || hook.1.load(Ordering::Relaxed);
    let committed: Vec<_> = (1..=20)
        .map(|n| commit(&log, &Batch::separated(n, 1000)))
        .collect();
    // With what is behind it written, it is as good as given up.
    log.sync(committed[19].end).unwrap();
    let before = reads();
    let read = |n: usize| {
        let pointer = committed[n - 1].pointers[0];
        assert_eq!(log.read(&pointer).unwrap(), pattern(n as u64, 1000));
        assert_eq!(
            log.read_batch(&[pointer])[0].as_ref().unwrap(),
            &pattern(n as u64, 1000)
        );
    };
    (1..=20).for_each(read);
    assert_eq!(reads(), before, "the ring has all of them");
    // Not quite once round: the first ones are overwritten, the last ones are not.
    for n in 21..=65 {
        commit(&log, &Batch::separated(n, 1000));
    }
    let before = reads();
    read(20);
    assert_eq!(reads(), before);
    read(1);
    assert_eq!(reads(), before + 2);
    (1..=20).for_each(read);
}

#[test]
fn a_value_whose_ring_space_is_reused_while_it_is_copied_is_read_from_its_segment() {
    let hook = Arc::new(Hook::default());
    let log = hooked(&hook);
    let mut seqno = 0;
    for batched in [false, true] {
        seqno += 1;
        let pointer = commit(&log, &Batch::separated(seqno, 1000)).pointers[0];
        let (writer, first) = (Arc::clone(&log), seqno + 1);
        *hook.0.lock() = Some(Box::new(move || {
            for n in first..first + 100 {
                commit(&writer, &Batch::separated(n, 1000));
            }
        }));
        let value = if batched {
            log.read_batch(&[pointer]).remove(0)
        } else {
            log.read(&pointer)
        };
        assert!(hook.0.lock().is_none(), "the read went through the ring");
        assert_eq!(value.unwrap(), pattern(seqno, 1000));
        seqno += 100;
    }
}
