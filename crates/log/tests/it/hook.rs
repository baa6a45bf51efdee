//! Something is done in the middle of a read of the ring: what another thread might do at that very moment.

use crate::support::*;
use glintdb_flash::{HookedVolume, Hooks, MemVolume};
use glintdb_log::{Log, LogSetup};
use parking_lot::Mutex;
use std::sync::Arc;

#[derive(Default)]
struct Hook(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Hooks for Hook {
    fn before_ring_read(&self) {
        let hook = self.0.lock().take();
        if let Some(hook) = hook {
            hook();
        }
    }
}

#[test]
fn a_value_whose_ring_space_is_reused_while_it_is_copied_is_read_from_its_segment() {
    let (inner, numbers) = (MemVolume::new(), numbers());
    let hook = Arc::new(Hook::default());
    let volume = HookedVolume::new(inner.clone(), hook.clone());
    let log = Arc::new(
        Log::create(LogSetup {
            volume,
            ..setup(&inner, &numbers, small())
        })
        .unwrap(),
    );
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
